"""Term changes: each step interrupted, repeated by another driver; two drivers at once; writes that land late."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from boki_common.errors import RecoveryFailed
from boki_common.metadata.memory import Fault, MemoryStore, MemoryTree
from boki_metalog.entries.metalog_entry import Close, MetalogEntry, Open, ShardEnd, encode
from boki_metalog.errors import TermRecordConflict
from boki_metalog.terms import term_change
from boki_metalog.terms.metadata_tree import create_record, ensure_view, read_record, read_view
from boki_metalog.terms.term_change import change_term
from boki_metalog.terms.term_plan import Candidate
from boki_metalog.terms.term_record import TERMS_PATH, TermRecord
from boki_metalog.terms.view import VIEW_PATH

ENGINE = "ee" * 16
FIRST = MetalogEntry(0, 0, 700, (ShardEnd(0, 0, 0),), (Open(0, ENGINE, 90),))
SECOND = MetalogEntry(0, 5, 800, (ShardEnd(0, 5, 2),))
LOST = MetalogEntry(5, 9, 900, (ShardEnd(0, 9, 3),), (Close(0),))


class Log:
    """A log whose term 1 has two acknowledged entries and one that no quorum has; drivers come on top."""

    def __init__(self, ledgers: Any, rng: Any) -> None:
        self.tree = MemoryTree()
        self.ledgers = ledgers
        self.rng = rng
        self.drivers = 0

    async def store(self) -> MemoryStore:
        store = MemoryStore(self.tree)
        await store.start()
        return store

    async def candidate(self) -> Candidate:
        self.drivers += 1
        return Candidate(f"{self.drivers:032x}", (await self.ledgers.create()).ledger_id)

    async def change(self, suspect: int, store: MemoryStore | None = None, candidate: Candidate | None = None) -> Any:
        return await change_term(
            metadata=store or await self.store(),
            ledgers=self.ledgers,
            rng=self.rng,
            log=0,
            suspect=suspect,
            candidate=candidate or await self.candidate(),
        )

    async def begin(self) -> None:
        candidate = await self.candidate()
        view, _ = await self.change(0, candidate=candidate)
        assert view.term_of(0) == 1 and candidate.is_installed(view, 0)
        self.ledgers.hold_acks = True
        writer = self.ledgers.ledgers[candidate.ledger_id]
        writer.submit(encode(FIRST))
        writer.submit(encode(SECOND))
        self.ledgers.ack(candidate.ledger_id)
        writer.submit(encode(LOST))

    async def check_sealed(self) -> None:
        """Term 1 has one record for ever, and the view names exactly one successor, on an empty ledger."""
        store = await self.store()
        record = await read_record(store, 1)
        assert (record.last_entry, record.end_pos, record.last_time_ms) == (1, 5, 800)
        view, _ = await read_view(store)
        installed = view.installed(0)
        assert installed is not None and installed.term == 2 and view.next_term == 3
        assert installed.start_time_ms == 800
        metalog = self.ledgers.ledgers[installed.metalog_ledger]
        assert not metalog.closed and not metalog.entries
        assert record.log == 0 and sorted(await store.children(TERMS_PATH)) == ["1"], "no other term is sealed"


@pytest.fixture
async def log(model_ledgers: Any, rng: Any) -> Log:
    log = Log(model_ledgers, rng)
    await log.begin()
    return log


async def test_a_term_is_sealed_and_replaced(log: Log) -> None:
    candidate = await log.candidate()
    view, version = await log.change(1, candidate=candidate)
    assert candidate.is_installed(view, 0) and version == 2
    await log.check_sealed()


async def test_a_suspicion_does_not_carry_over_to_a_newer_term(log: Log) -> None:
    await log.change(1)
    late = await log.candidate()
    view, _ = await log.change(1, candidate=late)
    assert not late.is_installed(view, 0)
    await log.check_sealed()


class Stopped(BaseException):
    """The driver's process is gone."""


def stop_at(store: MemoryStore, call: int) -> list[tuple[str, str]]:
    """Has the driver die when it is about to use the store for the `call`-th time, counted from 0: all before is applied."""
    calls: list[tuple[str, str]] = []

    def plan(operation: str, path: str) -> Fault:
        calls.append((operation, path))
        if len(calls) == call + 1:
            raise Stopped
        return Fault.NONE

    store.faults = plan
    return calls


@pytest.mark.parametrize("call", range(3))
@pytest.mark.parametrize("other", [False, True], ids=["repeated by itself", "repeated by another"])
async def test_a_driver_that_stops_at_any_metadata_call(log: Log, call: int, other: bool) -> None:
    store, candidate = await log.store(), await log.candidate()
    calls = stop_at(store, call)
    try:
        await log.change(1, store, candidate)
    except Stopped:
        pass
    else:
        assert len(calls) <= call
    repeater = await log.candidate() if other else candidate
    view, _ = await log.change(1, candidate=repeater)
    assert repeater.is_installed(view, 0) or candidate.is_installed(view, 0)
    await log.check_sealed()


async def test_the_metadata_calls_of_a_change_are_few(log: Log) -> None:
    store = await log.store()
    calls = stop_at(store, 100)
    await log.change(1, store)
    assert calls == [("get", VIEW_PATH), ("set", VIEW_PATH)], (
        "the record is made by the swap, and nothing is read twice"
    )
    assert (await read_record(store, 1)).end_pos == 5


@pytest.mark.parametrize("step", ["recover", "recovery fenced", "recovery closed", "open", "create"])
async def test_a_driver_that_fails_around_the_recovery(log: Log, step: str) -> None:
    log.ledgers.faults.append((step, RecoveryFailed("two of three bookies are down")))
    with suppress(RecoveryFailed):
        await log.change(1)
    log.ledgers.faults.clear()
    await log.change(1)
    await log.check_sealed()


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
async def test_a_view_whose_answer_is_lost(log: Log, fault: Fault) -> None:
    store, candidate = await log.store(), await log.candidate()
    store.faults = faults_of(("set", fault))
    view, _ = await log.change(1, store, candidate)
    assert candidate.is_installed(view, 0)
    await log.check_sealed()


async def sealed(log: Log) -> TermRecord:
    """What a driver that makes records one by one would make of term 1; the metalog is closed."""
    return await term_change._seal(log.ledgers, (await read_view(await log.store())).view, 0)


async def test_a_record_that_is_there_already_is_taken_as_it_is(log: Log) -> None:
    store, candidate = await log.store(), await log.candidate()
    await create_record(store, await sealed(log))
    calls = stop_at(store, 100)
    view, _ = await log.change(1, store, candidate)
    assert candidate.is_installed(view, 0)
    assert calls.count(("set", VIEW_PATH)) == 2, "the swap that would have made it was refused as a whole"
    await log.check_sealed()


async def test_a_record_that_says_something_else_lets_no_term_begin(log: Log) -> None:
    store, candidate = await log.store(), await log.candidate()
    await create_record(store, another_end(await sealed(log)))
    before = await read_view(store)
    with pytest.raises(TermRecordConflict, match="do not go on"):
        await log.change(1, store, candidate)
    assert await read_view(store) == before


async def test_a_view_that_lands_late_does_not_win_twice(log: Log) -> None:
    """The first driver's swap is still under way when another one installs its term."""
    store, first, second = await log.store(), await log.candidate(), await log.candidate()
    store.faults = faults_of(("set", Fault.DELAYED), ("get", Fault.NONE))
    slow = await delayed(log, store, first)
    view, _ = await log.change(1, candidate=second)
    winner = second.is_installed(view, 0)
    log.tree.deliver_delayed()
    late, _ = await slow
    assert late == view and winner != first.is_installed(late, 0)
    await log.check_sealed()


async def test_a_late_view_may_win_before_the_repetition(log: Log) -> None:
    store, first, second = await log.store(), await log.candidate(), await log.candidate()
    store.faults = faults_of(("set", Fault.DELAYED))
    slow = await delayed(log, store, first)
    log.tree.deliver_delayed()
    view, _ = await log.change(1, candidate=second)
    assert first.is_installed(view, 0)
    assert (await slow)[0] == view
    await log.check_sealed()


async def test_drivers_that_race(log: Log) -> None:
    candidates = [await log.candidate() for _ in range(4)]
    outcomes = await asyncio.gather(*(log.change(1, candidate=one) for one in candidates))
    views = [view for view, _ in outcomes]
    assert all(view == views[0] for view in views)
    assert sum(one.is_installed(views[0], 0) for one in candidates) == 1
    await log.check_sealed()


async def test_drivers_that_race_for_the_first_view(model_ledgers: Any, rng: Any) -> None:
    log = Log(model_ledgers, rng)
    candidates = [await log.candidate() for _ in range(4)]
    outcomes = await asyncio.gather(*(log.change(0, candidate=one) for one in candidates))
    assert {view.term_of(0) for view, _ in outcomes} == {1}
    assert sum(one.is_installed(outcomes[0][0], 0) for one in candidates) == 1


async def test_a_change_of_another_log_is_met_and_passed(log: Log) -> None:
    """A swap that loses to a write of another log's driver goes on from the new version."""
    store, candidate = await log.store(), await log.candidate()
    other = await log.store()
    view, version = await ensure_view(other)

    def plan(operation: str, path: str) -> Fault:
        if operation == "set" and log.tree.get(VIEW_PATH).version == version:
            log.tree.set(VIEW_PATH, log.tree.get(VIEW_PATH).value, version)
        return Fault.NONE

    store.faults = plan
    view, now = await log.change(1, store, candidate)
    assert candidate.is_installed(view, 0) and now == version + 2
    await log.check_sealed()


async def test_a_term_without_entries(log: Log) -> None:
    await log.change(1)
    await log.change(2)
    store = await log.store()
    record = await read_record(store, 2)
    assert (record.last_entry, record.end_pos, record.last_time_ms) == (-1, 0, 800)
    installed = (await read_view(store)).view.installed(0)
    assert installed is not None and installed.start_time_ms == 800


async def test_an_entry_that_recovery_keeps_is_part_of_the_term(log: Log) -> None:
    log.ledgers.keep_unacked = 1
    await log.change(1)
    record = await read_record(await log.store(), 1)
    assert (record.last_entry, record.end_pos, record.last_time_ms) == (2, 9, 900)


async def test_two_ends_of_one_term_stop_everything(log: Log) -> None:
    await log.change(1)
    store = await log.store()
    record = await read_record(store, 1)
    await create_record(store, record)
    with pytest.raises(TermRecordConflict, match="do not go on"):
        await create_record(store, another_end(record))


def another_end(record: TermRecord) -> TermRecord:
    return TermRecord(1, 1, 0, record.slots, record.metalog_ledger, 0, 3, 700, record.location)


def faults_of(*once: tuple[str, Fault]) -> Any:
    """The first call of each operation named meets its fault."""
    left = dict(once)

    def plan(operation: str, _path: str) -> Fault:
        return left.pop(operation, Fault.NONE)

    return plan


async def delayed(log: Log, store: MemoryStore, candidate: Candidate) -> asyncio.Task[Any]:
    """A driver one of whose writes is under way."""
    slow = asyncio.get_running_loop().create_task(log.change(1, store, candidate))
    while not log.tree._delayed:
        await asyncio.sleep(0)
    return slow
