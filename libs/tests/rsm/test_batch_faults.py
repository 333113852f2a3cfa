"""Faults at every operation of a host whose records have one commit each, or all that it was sent at once: each machine does the same.

Hosts make a checkpoint after each second record, and trim. Machines are in two partitions, so that records of one commit have one claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import boki
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.follow.members import Members
from bokilib.ports import BookPort
from bokilib.testing import UNANSWERED, UNKNOWNS, crash_everywhere, start_anywhere, while_alive
from bokirsm import App, Host, Ref, Rsm
from bokirsm.lane import carrying, lane
from bokirsm.model.lane_record import LaneRecord
from libs.tests.rsm.test_checkpoint_faults import rewrite
from libs.tests.rsm.test_faults import surely, without_lease
from libs.tests.rsm.traces import ARCHIVE, archive_trims, traces_of
from libs.tests.rsm.words import Best, Counter, Init, Max, Word

pytestmark = pytest.mark.timeout(300)  # seconds of a machine of its own, and longer on a busy one

APP = App("words", [Counter, Max])
FIRST, SECOND = Ref[Any]("words", 1, "near"), Ref[Any]("words", 2, "near")


class Batch(NamedTuple):
    """The words of a run, sent by records of so many, and the events that a record of the host may have handled."""

    words: str
    size: int

    @property
    def best(self) -> str:
        """The answer once all words are counted."""
        most = max(self.words, key=self.words.count)
        return f"{most} {self.words.count(most)}"

    @property
    def rises(self) -> int:
        """How many words are counted more often than any before."""
        counts = [self.words[: at + 1].count(text) for at, text in enumerate(self.words)]
        return len(set(counts))


SMALL, LARGE = Batch("aba", 1), Batch("a" * 128 + "b" * 128, 256)


@pytest.fixture(params=[SMALL, LARGE], ids=["1", "256"])
def batch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Batch]:
    """A batch; hosts handle so many events before they append a record."""
    found: Batch = request.param
    monkeypatch.setattr(lane, "SLICE", found.size)
    monkeypatch.setattr(lane, "RECORDS_BETWEEN", 2)
    monkeypatch.setattr(carrying, "REPLIES", "none")  # answers that are a day old, and not those that are awaited
    fits = LaneRecord.fits
    monkeypatch.setattr(LaneRecord, "fits", lambda record, *event: len(record) < found.size and fits(record, *event))
    trimmed = archive_trims(monkeypatch)
    yield found
    assert sum(trimmed) > 20, "hosts trim what their checkpoints cover"
    ARCHIVE.clear()


class Run:
    """The processes of a batch."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    async def prepare(self, book: boki.Book) -> None:
        """Send all words before a host runs."""
        ARCHIVE.clear()
        async with Rsm(APP, book) as rsm:
            top = await rsm.create(Max, key="max", near=SECOND)
            counter = await rsm.create(Counter, Init(top), key="c", near=FIRST)
            words, size = self.batch
            for at in range(0, len(words), size):
                await rsm.send_many([(counter, Word(text)) for text in words[at : at + size]])

    async def count(self, book: BookPort, name: str, lease_s: float) -> None:
        """Run a host until the maximum is known."""
        top = Ref[Best]("words", SECOND.partition, "max")
        async with Host(APP, book, name=name, lease_s=lease_s, stuck_after_s=None) as host:
            while await surely(lambda: host.ask(Best().to(top), timeout_s=3_600)) != self.batch.best:
                await let_pass(0.02)

    async def program(self, book: BookPort) -> None:
        await while_alive(book, self.count(book, "host", 1.0))

    async def another(self, book: BookPort) -> None:
        """Take the other host for dead soon, though it only waits."""
        await while_alive(book, self.count(book, "other", 0.05))

    async def check(self, book: boki.Book) -> None:
        traces = await traces_of(book)
        counter, top = sorted(traces, key=lambda one: "max" in one)
        assert traces[counter] == ["Init"] + ["Word"] * len(self.batch.words)
        assert [event for event in traces[top] if event != "Best"] == [""] + ["Freq"] * self.batch.rises


@in_virtual_time
async def test_crashes_at_every_operation_change_no_trace(batch: Batch) -> None:
    run = Run(batch)
    explored = await crash_everywhere(run.program, run.program, run.check, clock=LoopClock(), before=run.prepare)
    assert explored.runs > 20


@in_virtual_time
async def test_lost_answers_change_no_trace(batch: Batch) -> None:
    run = Run(batch)
    await crash_everywhere(run.program, run.program, run.check, kinds=UNKNOWNS, clock=LoopClock(), before=run.prepare)


@in_virtual_time
async def test_late_appends_of_a_dead_host_change_no_trace(batch: Batch) -> None:
    run = Run(batch)
    await crash_everywhere(
        run.program, run.another, run.check, kinds=UNANSWERED, later=(2,), clock=LoopClock(), before=run.prepare
    )


@pytest.mark.parametrize("second", ["another host", "a carrier"])
@in_virtual_time
async def test_a_second_process_at_any_operation_changes_no_trace(batch: Batch, second: str) -> None:
    run = Run(batch)
    other: Callable[[BookPort], Any] = run.another if second == "another host" else rewrite
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Members, "_heartbeat", without_lease)
        explored = await start_anywhere(run.program, other, run.check, clock=LoopClock(), before=run.prepare)
    assert explored.runs > 10


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@in_virtual_time
async def test_pairs_of_crashes_change_no_trace(batch: Batch) -> None:
    run = Run(batch)
    await crash_everywhere(run.program, run.program, run.check, pairs=True, clock=LoopClock(), before=run.prepare)
