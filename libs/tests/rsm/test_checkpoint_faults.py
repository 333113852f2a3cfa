"""Faults at every operation of hosts that make a checkpoint after each second record, and trim: each machine does the same as without.

States are cut into parts of a few bytes in some runs, so that heads refer to parts of older snapshots. In others hosts drop each machine
from memory that is in a snapshot, so that nearly every event has its machine read from the log, and keep no more where an event waits.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import boki
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.follow.members import Members
from bokilib.ports import BookPort
from bokilib.retention.carrier import Carrier
from bokilib.testing import UNANSWERED, UNKNOWNS, crash_everywhere, start_anywhere
from bokirsm import Host, carried
from bokirsm.lane import carrying, lane
from bokirsm.lane.residents import Residents
from bokirsm.model import parts
from libs.tests.rsm.test_faults import another, check, check_links, links, program, without_lease
from libs.tests.rsm.traces import ARCHIVE, archive_trims

pytestmark = pytest.mark.timeout(600)  # hundreds of runs each


@pytest.fixture(autouse=True, params=["whole, one by one", "parts, many at a time", "none in memory"])
def often(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have checkpoints made after each second record, of whole states or of states in parts."""
    monkeypatch.setattr(lane, "RECORDS_BETWEEN", 2)
    monkeypatch.setattr(carrying, "REPLIES", "none")  # answers that are a day old, and not those that are awaited
    monkeypatch.setattr(lane, "SLICE", 1)
    if request.param.startswith("parts"):
        monkeypatch.setattr(lane, "SLICE", 256)
        monkeypatch.setattr(parts, "PART_BYTES", 24)
        monkeypatch.setattr(parts, "LEAST_BYTES", 1)
    if request.param.startswith("none"):
        defaults = Host.__init__.__kwdefaults__
        assert defaults is not None
        monkeypatch.setitem(defaults, "memory_bytes", 0)
        monkeypatch.setitem(defaults, "inbox_bytes", 1)
    dropped: list[str] = []
    pop = Residents.pop

    def popped(self: Residents) -> str | None:
        if (text := pop(self)) is not None:
            dropped.append(text)
        return text

    monkeypatch.setattr(Residents, "pop", popped)
    trimmed = archive_trims(monkeypatch)
    yield
    assert len(dropped) > 50 if request.param.startswith("none") else not dropped, "clean machines are dropped"
    assert sum(trimmed) > 50, "hosts trim what their checkpoints cover"
    ARCHIVE.clear()


async def emptied(book: boki.Book) -> None:
    ARCHIVE.clear()


@in_virtual_time
async def test_crashes_at_every_operation_change_no_trace() -> None:
    explored = await crash_everywhere(program, program, check, clock=LoopClock(), before=emptied)
    assert explored.operations > 20 and explored.runs > 40


@in_virtual_time
async def test_crashes_between_creations_timers_and_halts_change_no_trace() -> None:
    await crash_everywhere(links, links, check_links, clock=LoopClock(), before=emptied)


@in_virtual_time
async def test_lost_answers_change_no_trace() -> None:
    await crash_everywhere(program, program, check, kinds=UNKNOWNS, clock=LoopClock(), before=emptied)


@in_virtual_time
async def test_late_appends_of_a_dead_host_change_no_trace() -> None:
    await crash_everywhere(program, another, check, kinds=UNANSWERED, later=(2,), clock=LoopClock(), before=emptied)


@in_virtual_time
async def test_a_second_host_at_any_operation_changes_no_trace() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Members, "_heartbeat", without_lease)
        await start_anywhere(program, another, check, clock=LoopClock(), before=emptied)


async def rewrite(book: BookPort) -> None:
    """Rewrite all machines, as if they were old."""
    log = Log(book)
    await Carrier(log, [carried(log)], who="carrier", carry_ms=0).round()


@in_virtual_time
async def test_rewriting_at_any_operation_changes_no_trace() -> None:
    explored = await start_anywhere(program, rewrite, check, clock=LoopClock(), before=emptied)
    assert explored.runs > 20


@in_virtual_time
async def test_crashes_of_a_carrier_change_no_trace() -> None:
    async def again(book: BookPort) -> None:
        await rewrite(book)
        await program(book)

    await crash_everywhere(rewrite, again, check, clock=LoopClock(), before=prepared)


async def prepared(book: boki.Book) -> None:
    ARCHIVE.clear()
    await program(book)


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@in_virtual_time
async def test_pairs_of_crashes_change_no_trace() -> None:
    await crash_everywhere(program, program, check, pairs=True, clock=LoopClock(), before=emptied)
