"""`boki log give-up`: nothing is given up that an engine may have answered for; on real processes the log goes on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boki
from boki_cli.demo.local_cluster import LocalCluster
from boki_cli.facts.cluster_facts import Part
from boki_cli.logs.log_give_up import snapshot_is_behind, why_not
from boki_cli.testing.logs import ONE_COPY, ledgers_of
from boki_common.runtime.process import SystemRandom
from boki_logbook.state.snapshot_rules import NO_SNAPSHOT, SnapshotPoint
from boki_metalog.terms.term_change import change_term
from boki_metalog.terms.term_plan import Candidate
from itests.support.processes import throughout

if TYPE_CHECKING:
    from boki_cli.testing.commands import RunCommandLine

AT = (4, 7)
"""Term and entry."""


def engine(term: int, received: int, indexed_term: int, indexed: int, *, up: bool = True, log: int = 1) -> Part:
    position = {"received_entry": received, "indexed_term": indexed_term, "indexed_entry": indexed}
    return Part("engine", "h:1", up, "e", "no answer", {"logs": [{"log": log, "term": term, "position": position}]})


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (engine(4, 7, 4, 7), None),
        (engine(4, 7, 4, 2), None),
        (engine(3, 900, 3, 900), None),
        (engine(4, 8, 4, 8), "may have answered"),
        (engine(4, 8, 4, 7), "may have answered"),
        (engine(5, 0, 4, 8), "may have answered"),
        (engine(9, 9, 9, 9, log=0), None),
        (engine(4, 7, 4, 7, up=False), "--engines-are-gone"),
        (Part("engine", "h:1", True, "e", "", {"term": 4, "position": {"received_entry": 7}}), None),
    ],
)
def test_what_an_engine_has_is_not_given_up(one: Part, word: str | None) -> None:
    others = [engine(4, 7, 4, 7), one]
    log = 0 if "logs" not in one.status else 1
    found = why_not(others, log, AT, gone=False)
    assert (found is None) if word is None else (word in (found or ""))
    assert one.up or why_not(others, log, AT, gone=True) is None


@pytest.mark.parametrize(
    ("point", "behind"),
    [
        (SnapshotPoint(1, 4, 7, False), False),
        (SnapshotPoint(1, 4, 8, False), True),
        (SnapshotPoint(1, 4, 0, True), True),
        (SnapshotPoint(1, 3, 90, True), False),
        (SnapshotPoint(1, 5, 0, False), True),
        (SnapshotPoint(0, 9, 9, False), False),
    ],
)
def test_what_the_snapshot_has_is_not_given_up(point: SnapshotPoint, behind: bool) -> None:
    node = type(NO_SNAPSHOT)(1, (5,), (point,), 0, 0, 0, 0, 0, "", "")
    assert snapshot_is_behind(node, 1, AT) is behind
    assert not snapshot_is_behind(NO_SNAPSHOT, 1, AT)


async def append(url: str) -> int:
    async with boki.connect(url) as client:
        return await client.book("orders").append(b"x", tags=["a"])


async def read(url: str) -> list[object]:
    async with boki.connect(url) as client:
        return [one async for one in client.book("orders").read("a")]


async def spoil(uri: str) -> None:
    """The next term of log 0 has a metalog of one entry, which nobody can read, and no sequencer that lives."""
    async with ledgers_of(uri) as (store, ledgers):
        metalog = await ledgers.create(replicas=1, acks=1, custom={"boki.role": b"metalog"})
        await metalog.append(b"what no program makes anything of, though it is long enough to have a head")
        candidate = Candidate("ab" * 16, metalog.ledger_id)
        await change_term(metadata=store, ledgers=ledgers, rng=SystemRandom(), log=0, suspect=1, candidate=candidate)


@pytest.mark.processes
@pytest.mark.timeout(90)
def test_a_log_whose_last_metalog_entry_nobody_can_read_goes_on(tmp_path: Path, run_boki: RunCommandLine) -> None:
    with (
        throughout(LocalCluster(tmp_path, bookies=1, sequencers=1, engines=1, settings=ONE_COPY)) as processes,
        asyncio.Runner() as runner,
    ):
        where = ("--metadata", processes.metadata_uri)

        def command(*arguments: str, code: int = 0) -> Any:
            done = run_boki("log", *arguments, *where)
            assert done.code == code, (arguments, done.out, done.err)
            return done

        before = runner.run(append(processes.url))
        runner.run(spoil(processes.metadata_uri))
        printed = command("roll", "0", code=4).err
        assert "entry 0, cannot be read" in printed and "boki log give-up 2 0" in printed
        assert (
            "snapshot" in (printed := command("give-up", "1", "0", "--reason", "x", code=4).err)
            or "answered" in printed
        )
        assert "--later-version" in command("give-up", "2", "0", "--reason", "ticket 17", code=2).err
        given = ("give-up", "2", "0", "--reason", "ticket 17", "--later-version", "--json")
        printed = json.loads(command(*given).out)
        assert (printed["term"], printed["last_entry"], printed["next_term"]) == (2, -1, 3)
        assert printed["given_up"]["reason"] == "ticket 17" and "VersionMismatch" in printed["given_up"]["fault"]
        after = runner.run(append(processes.url))
        assert [one.seqnum for one in runner.run(read(processes.url))] == [before, after]  # type: ignore[attr-defined]
        assert json.loads(command(*given).out)["given_up"] == printed["given_up"], "it may be repeated"
        (_, second) = json.loads(command("show", "0", "--json").out)["terms"][::-1]
        assert second["given_up"] == printed["given_up"]
        shown = command("show", "0").out
        assert "term 2 was ended before entry 0 of its metalog" in shown and "ticket 17" in shown
        assert command("verify").code == 0
