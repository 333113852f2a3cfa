"""Figures 6 and 7 of the paper: golden logs; locks against the oracle on random ones; and what counts in the log of a workflow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App
from bokiflow.locks import lock_room
from bokiflow.locks.lock_room import LockRoom, Ready
from bokiflow.model import flow_events
from bokiflow.model.lock_rules import Released
from bokiflow.runtime.commands import TakeLock
from bokiflow.testing import survives
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from libs.tests.conftest import unexpected
from libs.tests.flow.figure_6 import (
    EMPTY,
    LockRow,
    StepRow,
    chain,
    counting,
    database,
    holders,
    parse_lock,
    parse_steps,
)


def golden(figure: int) -> list[tuple[str, str]]:
    lines = (Path(__file__).parent / "golden" / f"figure_{figure}.txt").read_text().splitlines()
    parts = [line.partition(" => ") for line in lines if not line.startswith("#")]
    return [(log, expected) for log, _, expected in parts]


async def by_the_library(log: Sequence[LockRow]) -> list[str]:
    """The same history with locks of the library, each of whom in a process of his own: who got it, in order."""
    got: list[str] = []
    asked: dict[int, Ready] = {}
    async with MemoryCluster() as cluster:

        async def process() -> Log:
            return Log((await cluster.connect()).book("b"))

        logs = {row.holder: await process() for row in log}

        async def looks(after: int) -> None:
            """Whoever appends later what names this record as the newest looks now."""
            for at, row in enumerate(log):
                if row.prev == after and row.holder != EMPTY:
                    found = await LockRoom(logs[row.holder], unexpected).look(
                        TakeLock(f"{at}", "x", False, True, True), row.holder, 1
                    )
                    assert isinstance(found, Ready), "it is free"
                    asked[at] = found

        for at, row in enumerate(log):
            if at in asked:
                if await lock_room.append(logs[row.holder], asked[at], Contribution(), 0):
                    got.append(row.holder)
            elif row.prev >= 0:
                release = Released("x", log[row.prev].holder, f"{row.prev}")
                await logs[EMPTY].append(Contribution((tags.lock("x"),), {}, (release,)))
            await looks(at)
    return got


@pytest.mark.parametrize(("text", "expected"), golden(7))
async def test_golden_logs_of_a_lock(text: str, expected: str) -> None:
    log = parse_lock(text)
    assert holders(log) == expected.split()
    assert await by_the_library(log) == holders(log)


def test_the_chain_of_figure_7_is_that_of_the_paper() -> None:
    assert chain(parse_lock(golden(7)[0][0])) == [0, 1, 3, 5, 7, 8, 10]


def random_log(rng: random.Random) -> list[LockRow]:
    """Clients who look at random while it is free, append later, and release."""
    log = [LockRow(EMPTY, -1)]
    idle, looked = list("abcdefgh"), list[tuple[str, int]]()
    while idle or looked or log[chain(log)[-1]].holder != EMPTY:
        end = chain(log)[-1]
        what = rng.random()
        if log[end].holder != EMPTY and what < 0.3:
            log.append(LockRow(EMPTY, end))
        elif idle and log[end].holder == EMPTY and what < 0.7:
            looked.append((idle.pop(0), end))
        elif looked:
            log.append(LockRow(*looked.pop(rng.randrange(len(looked)))))
    return log


@pytest.mark.parametrize("seed", range(40))
async def test_a_lock_is_given_to_those_to_whom_the_paper_gives_it(seed: int) -> None:
    log = random_log(random.Random(seed))
    assert await by_the_library(log) == holders(log)


@pytest.mark.parametrize(("text", "expected"), golden(6))
def test_golden_logs_of_a_workflow(text: str, expected: str) -> None:
    assert [f"{tag}:{data}" for tag, data in counting(parse_steps(text)).items()] == expected.split()


@pytest.mark.parametrize("runs", ["w.0 v.0", "v.0 w.0", "w.0 v.0 w.0", "w.0 w.0 v.0 w.0 v.0"])
def test_a_write_that_is_repeated_late_changes_nothing(runs: str) -> None:
    log = parse_steps(golden(6)[-1][0])
    assert database(log, runs.split()) == {"x": "2"}


def app_of_figure_6() -> App:
    app = App("paper")

    @app.step
    async def write(key: str, value: int) -> str:
        return f"{key}={value}"

    @app.workflow
    async def callee(value: int) -> int:
        return value + 4

    @app.workflow
    async def workflow() -> int:
        await write("x", 1)
        returned = await callee(1)
        await write("x", returned)
        return returned

    return app


async def rows_of(book: boki.Book) -> list[StepRow]:
    """What the log of workflows has, as the paper would have it."""
    log, rows = Log(book), list[StepRow]()
    async for item in book.read():
        assert not isinstance(item, boki.Gap)
        for event in flow_events.PICKER.of(item.seqnum, await log.open(item)):
            if isinstance(event, flow_events.Stepped):
                rows.append(StepRow(f"{event.id}.{event.key}", str(event.outcome.value)))
            elif isinstance(event, flow_events.Invoked):
                rows.append(StepRow(f"{event.id}.{event.key}.pre", event.child))
            elif isinstance(event, flow_events.ChildEnded):
                rows.append(StepRow(f"{event.id}.{event.key}.post", str(event.outcome.value)))
    return rows


async def test_in_the_log_of_a_workflow_all_counts_whoever_dies_and_whoever_is_late() -> None:
    app = app_of_figure_6()

    async def check(book: boki.Book) -> None:
        rows = await rows_of(book)
        assert len(rows) == len(counting(rows)), "who is late appends nothing that others see"
        assert counting(rows) == {
            "tested.0:1": "x=1",
            "tested.0:2.pre": "tested/0:2",
            "tested.0:2.post": "5",
            "tested.0:3": "x=5",
        }
        steps = [row.tag for row in rows if "=" in row.data]
        assert database(rows, [*steps, *steps[:1]]) == {"x": "5"}

    call: bokiflow.Call[int] = app.find("workflow").call()
    assert (await survives(app, call, expected=5, check=check)).runs > 20
