"""`boki log lost` on real processes: only what nobody has is declared lost, and readers get a gap."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import boki
from boki_cli.demo.local_cluster import LocalCluster
from boki_cli.logs.log_lost import Refused, _not_copied
from boki_cli.testing.logs import ONE_COPY, closed_data_ledger, snapshot_reaching
from boki_common.metadata.memory import MemoryStore
from boki_common.metadata.store import ensure_path
from boki_logbook.scan.metalogs import Term
from boki_metalog.terms.term_record import COPIED, TERMS_PATH, Location, TermRecord, encode_record, term_path
from boki_metalog.terms.view import SlotRange
from itests.support.processes import throughout

if TYPE_CHECKING:
    from boki_cli.testing.commands import RunCommandLine

SETTINGS = ONE_COPY | {"BOKI_ENGINE_CACHE_BYTES": "0", "BOKI_ENGINE_CARRIED_ENTRY_BYTES": "0"}


async def data_ledger(uri: str) -> int:
    """The first ledger of records, once it is closed and the snapshot has its term."""
    await snapshot_reaching(uri, 1)
    return await closed_data_ledger(uri)


async def append(url: str) -> list[int]:
    async with boki.connect(url) as client:
        return [await client.book("orders").append(b"x", tags=["a"]) for _ in range(3)]


async def seen(url: str, seqnums: list[int]) -> list[object]:
    """What a range reader gets; point reads of lost records raise."""
    async with boki.connect(url) as client:
        book = client.book("orders")
        with pytest.raises(boki.Lost):
            await book.read_at(seqnums[1])
        return [
            item.kind if isinstance(item, boki.Gap) else item.seqnum async for item in book.read("a", start=seqnums[0])
        ]


def losses(run_boki: RunCommandLine, where: tuple[str, str], printed: dict[str, object]) -> bool:
    """Whether `log show` tells what was given up, to people and programs."""
    (shown,) = json.loads(run_boki("log", "show", "0", "--lost", "--json", *where).out)["lost"]
    text = run_boki("log", "show", "0", "--lost", *where).out
    assert "entries 0 to 2 of shard 0 of term 1 are lost" in text and "by ops: a fire" in text
    assert "entry 2 of ledger" in text and "NoSuchLedger" in text
    assert "lost" not in json.loads(run_boki("log", "show", "0", "--json", *where).out)
    return bool(shown["evidence"] == {name: printed[name] for name in shown["evidence"]}) and shown["shard"] == 0


async def test_a_sealed_term_is_touched_and_a_copied_one_is_refused() -> None:
    """Who was about to name files read the record before, and names nothing then."""
    store = MemoryStore()
    await store.start()
    await ensure_path(store, TERMS_PATH)
    record = TermRecord(1, 1, 0, (SlotRange(0, 1023),), 9, 2, 3, 5, Location())
    await store.create(term_path(1), encode_record(record))
    term = Term(0, 1, 9, 3, 3, False, record.slots, 2)
    await _not_copied(store, term)
    value, version = await store.get(term_path(1))
    assert (value, version) == (encode_record(record), 1)
    await _not_copied(store, term._replace(end=None))
    assert (await store.get(term_path(1))).version == 1, "a term that goes on has no record"
    await store.set(term_path(1), encode_record(record.at(COPIED, "s3://cold/manifest-1.json")), version=1)
    with pytest.raises(Refused, match=r"copied into files.*s3://cold/manifest-1\.json"):
        await _not_copied(store, term)


@pytest.mark.processes
@pytest.mark.timeout(90)
def test_what_nobody_has_is_declared_lost_and_readers_get_a_gap(tmp_path: Path, run_boki: RunCommandLine) -> None:
    with (
        throughout(LocalCluster(tmp_path, bookies=1, sequencers=1, engines=1, settings=SETTINGS)) as processes,
        asyncio.Runner() as runner,
    ):
        where = ("--metadata", processes.metadata_uri)
        lost = ("log", "lost", "1", "0", "0", "3", "--reason", "a fire", *where)
        first = runner.run(append(processes.url))
        done = run_boki("log", "lost", "1", "0", "0", "1", "--reason", "a fire", *where)
        assert (done.code, "can be read" in done.err) == (4, True), done.err
        run_boki("log", "roll", "0", *where)
        data = runner.run(data_ledger(processes.metadata_uri))
        second = runner.run(append(processes.url))
        assert run_boki("ledger", "delete", str(data), "--yes", "--force", *where).code == 0
        done = run_boki(*lost, "--by", "ops", "--json")
        assert done.code == 0, done.err
        printed = json.loads(done.out)
        assert (printed["indexed"], printed["ledger"], sorted(printed["answers"])) == (True, data, ["0", "1", "2"])
        assert "NoSuchLedger" in printed["answers"]["0"]
        assert (printed["version"], printed["reason"], printed["by"]) == (2, "a fire", "ops") and printed["time_ms"]
        assert runner.run(seen(processes.url, first)) == [boki.GapKind.LOST] * 3 + second
        # The command is in the newest entry of a metalog that is being written: outside, it is known a moment later.
        tries = (run_boki("log", "verify", *where) for _ in range(60))
        assert any(done.code == 0 for done in tries)
        assert losses(run_boki, where, printed), "it is shown with its evidence"
        assert run_boki("log", "lost", "1", "7", "0", "1", "--reason", "x", *where).code == 4, "no such shard"
