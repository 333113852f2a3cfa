"""Appends over several logs: split by slot, kept in order while slots move, bounded together."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.scripted import QUICK, Scripted

from boki_common.engine.engine_protocol import Verdict
from boki_common.errors import Overloaded
from boki_common.ids import slot_of, term_of
from boki_logbook.core import EngineCore
from boki_logbook.engine_status import faults_of
from boki_logbook.testing.cluster import (
    RecordingSource,
    RunSpec,
    append,
    batches,
    make_batch,
    plain_records,
    same_state,
)

WRITER = bytes(15) + b"w"
BOOKS = (1, 2, 3, 4, 5, 6)


class World(Scripted):
    """Engines over several logs, and one pipelined writer per book."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.source = RecordingSource()
        self.sent: dict[int, int] = {}

    async def engine(self, *, live: bool = True) -> EngineCore:
        """It follows all logs, and has the shards that it can have, if it is `live`."""
        core = self.core()
        await self.logs.join(core, live=live)
        await self.until(lambda: not live or all(log.appender.shard for log in core.logs.values() if log.link))
        return core

    def send(self, core: EngineCore, *books: int) -> None:
        """One batch with the next number of each of these books."""
        runs = []
        for book in books:
            self.sent[book] = self.sent.get(book, 0) + 1
            runs.append(RunSpec(book, WRITER, self.sent[book], plain_records(f"{book}.{self.sent[book]}")))
        append(core, self.source, *runs)

    async def until(self, holds: Callable[[], object]) -> None:
        """As ever, and no engine ends meanwhile."""
        await super().until(lambda: holds() or any(core.failed.done() for core in self.cores))
        for core in self.cores:
            assert not core.failed.done(), core.failed.exception()

    def answered(self) -> int:
        return sum(row.count for row in self.source.rows if row.verdict == Verdict.COMMITTED)

    def check(self) -> None:
        """Every number of every book is committed once, in order, and is in the index in that order."""
        assert not [row for row in self.source.rows if row.verdict != Verdict.COMMITTED]
        assert not any(core.state.foreign for core in self.cores), "no engine sends what the term does not order"
        index = self.cores[0].state.index.streams()
        for book, sent in self.sent.items():
            rows = sorted(
                (row.first + at, row.first_seqnum + at)
                for row in self.source.rows
                if row.book == book
                for at in range(row.count)
            )
            assert [number for number, _ in rows] == list(range(1, sent + 1))
            assert index[book, 0] == [seqnum for _, seqnum in rows] == sorted(seqnum for _, seqnum in rows)
            holders = self.cores[0].state.places.terms
            assert all(self.logs[holders[term_of(seqnum)].log] for _, seqnum in rows)


@pytest.fixture
async def world() -> Any:
    made = World(2)
    await made.logs.begin()
    yield made
    await made.close()


@pytest.fixture
async def core(world: World) -> EngineCore:
    return await world.engine()


async def test_a_batch_is_split_by_the_slots_of_its_books(world: World, core: EngineCore) -> None:
    world.send(core, *BOOKS)
    await world.until(lambda: world.answered() == len(BOOKS))
    world.check()
    for number, log in core.logs.items():
        assert log.appender.shard is not None
        books = [
            run.book for batch in batches(world.ledgers, log.appender.shard.writer.ledger_id) for run in batch.runs
        ]
        assert books == [book for book in BOOKS if world.logs.slots[slot_of(book)] == number]
    assert {tuple(token) for token in world.source.tokens} == {(0,), (1,)}, "an answer has its own log's position"
    assert core.appender.queued_bytes == 0


async def test_a_batch_of_one_logs_books_is_not_copied(world: World, core: EngineCore) -> None:
    batch = make_batch(RunSpec(1, WRITER, 1, plain_records("x")))
    core.appender.append(batch, world.source, 0)
    shards = [log.appender.shard for log in core.logs.values()]
    assert [own.batch for shard in shards if shard for own in shard._entries] == [batch]


async def test_all_or_nothing_of_a_batch_is_taken(world: World, core: EngineCore) -> None:
    core.appender._settings = dataclasses.replace(QUICK, append_queue_bytes=8_000)
    world.send(core, 1, 2)
    with pytest.raises(Overloaded):
        world.send(core, *BOOKS, *(1,) * 200)
    assert core.appender.queued <= 2
    world.sent = dict.fromkeys((1, 2), 1)
    await world.until(lambda: world.answered() == 2)
    world.check()
    assert core.appender.queued_bytes == 0


async def test_appends_before_any_log_is_known_wait(world: World) -> None:
    core = world.core()
    world.send(core, *BOOKS)
    await world.settle()
    assert core.appender.queued == 1
    await world.logs.join(core)
    await world.until(lambda: world.answered() == len(BOOKS))
    world.check()


async def test_what_the_old_log_did_not_cut_goes_the_new_way_first(world: World, core: EngineCore) -> None:
    book = next(book for book in BOOKS if world.logs.slots[slot_of(book)] == 0)
    world.send(core, book)
    await world.until(lambda: world.answered() == 1)
    world.logs[0].cut_by_itself = False
    world.ledgers.hold_acks = True
    for _ in range(8):
        world.send(core, book)
        await world.settle()
    world.ledgers.hold_acks = False
    world.logs.holding = [0]
    await world.logs.move([slot_of(book)], to=1)
    for _ in range(3):
        world.send(core, book)
        await world.settle()
    assert world.answered() == 1, "the old log's end is not known here yet"
    await world.logs.release(0)
    await world.until(lambda: world.answered() == 12)
    world.check()
    terms = [term_of(row.first_seqnum) for row in world.source.rows]
    assert terms[0] == 1 and set(terms[1:]) == {world.logs[1].term}


async def test_appends_wait_for_the_new_log(world: World, core: EngineCore) -> None:
    book = next(book for book in BOOKS if world.logs.slots[slot_of(book)] == 0)
    other = next(book for book in BOOKS if world.logs.slots[slot_of(book)] == 0 and slot_of(book) != slot_of(1))
    world.logs.holding = [1]
    await world.logs.move([slot_of(book)], to=1)
    world.send(core, book)
    if slot_of(other) != slot_of(book):
        world.send(core, other)
    await world.settle()
    assert core.appender._waiting.pieces
    await world.logs.release(1)
    await world.until(lambda: world.answered() == sum(world.sent.values()))
    world.check()


async def test_a_book_of_another_log_never_enters_a_shard(world: World, core: EngineCore) -> None:
    book = next(book for book in BOOKS if world.logs.slots[slot_of(book)] == 0)
    core.appender._routes.started(1, 999, world.logs.slots_of(0))
    core.appender._routes.ended(world.logs[0].term)  # a fault: the routes send it to log 1
    with pytest.raises(AssertionError, match="a book of another log"):
        world.send(core, book)


async def test_what_somebody_puts_into_another_log_joins_nothing_on_any_engine(world: World) -> None:
    """Its checksums are right, and logs know no order between each other: it is no part of its book."""
    cores = [await world.engine() for _ in range(2)]
    book = next(book for book in BOOKS if world.logs.slots[slot_of(book)] == 1)
    world.send(cores[0], book)
    log, ledger = world.logs[0], await world.ledgers.create()
    link = log.link(cores[0])
    shard = await link.open_shard("ee" * 16, ledger.ledger_id)
    hostile = make_batch(RunSpec(book, WRITER, 2, plain_records("2 of somebody else")))
    ledger.submit(*hostile.at(link.term, shard, 0))
    link.report(shard, 1, 1)
    log.cut()
    await world.until(lambda: all(core.state.foreign and not core.pending for core in cores))
    world.send(cores[1], book)
    await world.until(lambda: world.answered() == 2)
    late = await world.engine()
    await world.until(lambda: same_state(cores[0], late) and same_state(*cores))
    assert len(late.state.index.streams()[book, 0]) == 2 == late.state.verdicts.last(book, WRITER)
    (reported,) = late.logs[0].status()["foreign"]
    assert f"book {book} of slot {slot_of(book)}: they joined nothing" in reported
    assert not late.logs[1].status()["foreign"] and not faults_of(late)


async def test_a_log_that_is_added_takes_over_slots(world: World) -> None:
    alone = World(1)
    await alone.logs.begin()
    core = await alone.engine()
    assert core.appender._only is core.logs[0].appender
    alone.logs[0].cut_by_itself = False
    alone.send(core, *BOOKS)
    await alone.settle()
    alone.logs.add(7)
    assert core.appender._only is core.logs[0].appender, "it has all slots still"
    await alone.logs.move([slot_of(book) for book in BOOKS[:3]], to=7)
    alone.logs[0].cut_by_itself = True
    alone.send(core, *BOOKS)
    await alone.until(lambda: alone.answered() == 2 * len(BOOKS))
    alone.check()
    assert core.logs[7].appender.shard is not None
    await alone.logs.move(range(1024), to=7)
    alone.send(core, *BOOKS)
    await alone.until(lambda: alone.answered() == 3 * len(BOOKS))
    alone.check()
    assert core.appender._only is core.logs[7].appender
    await alone.close()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.lists(st.sampled_from(BOOKS), min_size=1, max_size=4, unique=True)),
        st.tuples(st.just("send"), st.lists(st.sampled_from(BOOKS), min_size=1, max_size=4, unique=True)),
        st.tuples(st.sampled_from(["turn", "ack", "cut 0", "cut 1", "cut 2", "close", "fail"]), st.none()),
        st.tuples(st.just("move"), st.tuples(st.sampled_from(BOOKS), st.integers(0, 2))),
        st.tuples(st.sampled_from(["hold", "release", "term"]), st.integers(0, 2)),
    ),
    min_size=5,
    max_size=50,
)


@settings(max_examples=120, deadline=None)
@given(STEPS)
async def test_moves_under_pipelined_appends_are_exactly_once_and_in_order(steps: list[tuple[str, Any]]) -> None:
    """Whatever moves, ends, fails or is held back: all numbers are committed once, in order; all engines agree."""
    world = World(3)
    await world.logs.begin()
    try:
        core, other = world.core(), world.core()
        for one in (core, other):  # whether there are shards by then or not
            await world.logs.join(one)
        world.ledgers.hold_acks = True
        for log in world.logs.logs.values():
            log.cut_by_itself = False
        for step, what in steps:
            await _disturb(world, core, step, what)
        for number in list(world.logs.holding):
            await world.logs.release(number)
        world.ledgers.hold_acks = False
        for ledger in world.ledgers.ledgers.values():
            ledger.ack()
        for log in world.logs.logs.values():
            log.cut_by_itself = True
            log.cut_soon()
        await world.until(lambda: world.answered() == sum(world.sent.values()))
        world.check()
        assert core.appender.queued_bytes == 0
        rebuilt = await world.engine(live=False)
        await world.until(lambda: not (core.pending or other.pending or rebuilt.pending))
        assert same_state(core, other) and same_state(core, rebuilt)
    finally:
        await world.close()


async def _disturb(world: World, core: EngineCore, step: str, what: Any) -> None:
    shards = [log.appender.shard for log in core.logs.values() if log.appender.shard is not None]
    if step == "send":
        world.send(core, *what)
    elif step == "turn":
        for _ in range(6):
            await asyncio.sleep(0)
    elif step == "ack":
        for shard in shards:
            shard.writer.ack(min(shard.acked_entries + 1, shard.submitted_entries))  # type: ignore[attr-defined]
    elif step.startswith("cut"):
        world.logs[int(step[-1])].cut()
    elif step == "move":
        await world.logs.move([slot_of(what[0])], to=what[1])
    elif step == "hold" and what not in world.logs.holding:
        world.logs.holding.append(what)
    elif step == "release" and what in world.logs.holding:
        await world.logs.release(what)
    elif step == "term":
        world.logs[what].seal()
        await world.logs.install([what])
    elif step == "fail" and shards:
        shards[0].writer.fail()  # type: ignore[attr-defined]
    elif step == "close" and shards:
        for log in world.logs.logs.values():
            if log.term == shards[-1].term and not log.sealed:
                log.builder.close(shards[-1].number)
                log.cut()
