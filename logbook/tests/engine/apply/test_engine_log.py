"""Several logs in one engine: what one delays, the order across terms, being ready, commands, and lost entries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.engine.scripted import Scripted

from boki_common.engine.engine_protocol import GapKind, GapRow
from boki_common.errors import NoSequencer, TermEndedMeanwhile, TermOver
from boki_common.ids import slot_of
from boki_logbook import sequencer_calls
from boki_logbook.apply.lost_entries import LostEntries
from boki_logbook.core import EngineCore
from boki_logbook.engine_status import status_of
from boki_logbook.state.state import StateDisagrees
from boki_logbook.testing.cluster import (
    RecordingSource,
    RunSpec,
    append,
    committed,
    data_of,
    plain_records,
    query,
    read,
    same_state,
)
from boki_logbook.testing.logs import ScriptedLink
from boki_metalog.entries.metalog_entry import Lost, Trim

WRITER = bytes(15) + b"w"
LOW = next(book for book in range(1, 1_000) if slot_of(book) < 512)
"""A book of log 0."""
HIGH = next(book for book in range(1, 1_000) if slot_of(book) >= 512)
"""A book of log 1."""


class World(Scripted):
    """Two logs with half of the slots each, and engines on both."""

    def __init__(self) -> None:
        super().__init__(2)
        self.numbers: dict[int, int] = {}

    async def engine(self, given_up: LostEntries | None = None) -> EngineCore:
        core = self.core(given_up=given_up)
        await self.logs.join(core)
        await self.until(lambda: all(log.appender.shard for log in core.logs.values() if log.link))
        return core

    async def append(self, core: EngineCore, book: int) -> int:
        number = self.numbers[book] = self.numbers.get(book, 0) + 1
        (seqnum,) = await committed(core, RunSpec(book, WRITER, number, plain_records(str(number), tags=(5,))))
        return seqnum

    def hold_entries_of(self, core: EngineCore, log: int) -> asyncio.Event:
        """Nobody else can read the entries of that engine's shard, from the next on."""
        shard = core.logs[log].appender.shard
        assert shard is not None
        gate = self.ledgers.gates[shard.writer.ledger_id, shard.submitted_entries] = asyncio.Event()
        return gate


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.logs.begin()
    yield made
    await made.close()


@pytest.fixture
async def core(world: World) -> EngineCore:
    return await world.engine()


async def test_a_log_that_stands_still_delays_only_its_own_books(world: World) -> None:
    writer, other = await world.engine(), await world.engine()
    gate = world.hold_entries_of(writer, 0)
    await world.append(writer, LOW)
    await world.append(writer, HIGH)
    await world.until(lambda: other.logs[1].indexer.pending == 0)
    assert data_of(await read(other, query(5, book=HIGH), writer.view_of(HIGH)[0])) == [b"1"]
    assert other.logs[0].indexer.pending == 1
    assert other.view_after(writer.view_of(LOW)[0], LOW) is None
    (mine,) = await committed(other, RunSpec(HIGH, bytes(15) + b"o", 1, plain_records("mine")))
    assert other.view_of(HIGH)[1] >= mine, "it is written and answered there as ever"
    reading = asyncio.ensure_future(read(other, query(5, book=LOW), writer.view_of(LOW)[0]))
    await world.settle()
    assert not reading.done()
    gate.set()
    assert data_of(await reading) == [b"1"]


async def test_an_engine_that_starts_on_full_disks_is_ready_without_a_shard(world: World) -> None:
    writer = await world.engine()
    await world.append(writer, LOW)
    world.ledgers.full = True
    late = world.core()
    await world.logs.join(late)
    await late.reader.caught_up()
    assert late.logs[0].appender.shard is None
    assert data_of(await read(late, query(5, book=LOW))) == [b"1"]
    world.ledgers.full = False
    await world.until(lambda: all(log.appender.shard for log in late.logs.values()))


async def test_an_engine_that_starts_serves_the_books_of_logs_that_have_caught_up(world: World) -> None:
    writer = await world.engine()
    gate = world.hold_entries_of(writer, 0)
    await world.append(writer, LOW)
    await world.append(writer, HIGH)
    late = await world.engine()
    await world.until(lambda: late.logs[1].indexer.ready)
    assert not late.ready
    assert late.view_after({}, HIGH) is not None and late.view_after({}, LOW) is None
    assert data_of(await read(late, query(5, book=HIGH))) == [b"1"]
    gate.set()
    await late.reader.caught_up()
    assert late.ready and late.view_after({}, LOW) is not None


async def test_a_term_is_applied_only_after_the_terms_it_comes_after(world: World) -> None:
    writer, other = await world.engine(), await world.engine()
    gate = world.hold_entries_of(writer, 0)
    first = await world.append(writer, LOW)
    token = writer.view_of(LOW)[0]
    await world.logs.move([slot_of(LOW)], to=1)
    second = await world.append(writer, LOW)
    assert writer.log_of(LOW) == 1 and writer.view_of(LOW)[0][1].term == world.logs[1].term
    await world.settle()
    assert other.positions[1].term == 2, "the new term of the target waits"
    assert other.state.index.newest(LOW, 0) == 0
    assert other.view_of(LOW)[0] == {0: other.positions[0]} and not other.frontier.reached(token)
    assert [log["waits_for_terms"] for log in status_of(other)["logs"]] == [[], [1]]
    gate.set()
    await world.until(lambda: not other.pending)
    assert other.state.index.streams()[LOW, 0] == [first, second]
    assert same_state(writer, other)


async def test_what_is_covered_never_goes_back_when_a_book_moves(world: World, core: EngineCore) -> None:
    newest = 0
    for to in (1, 0, 1):
        newest = await world.append(core, LOW)
        await world.logs.move([slot_of(LOW)], to=to)
        await world.until(lambda: not core.pending)
        assert core.view_of(LOW)[1] >= newest
    token = core.view_of(LOW)[0]
    assert core.frontier.reached(token) and list(token) == [1]


async def test_twenty_terms_with_slots_moved_and_everything_restarted(world: World, core: EngineCore) -> None:
    seqnums: dict[int, list[int]] = {LOW: [], HIGH: []}
    for turn in range(20):
        for book, found in seqnums.items():
            found.append(await world.append(core, book))
        await world.logs.move([slot_of((LOW, HIGH)[turn % 2])], to=turn // 2 % 2)
    assert world.logs.next_term > 20
    fresh = await world.engine()
    await fresh.reader.caught_up()
    await world.until(lambda: not (core.pending or fresh.pending))
    for book, found in seqnums.items():
        reply = await read(fresh, query(5, book=book))
        assert reply.records.seqnums.tolist() == found == sorted(found)
        assert data_of(reply) == [str(number).encode() for number in range(1, 21)]
    assert same_state(core, fresh)


@pytest.mark.parametrize("complete", [False, True], ids=["without slots", "complete and served by nobody"])
async def test_a_log_where_nothing_comes_does_not_keep_an_engine_from_being_ready(
    world: World, core: EngineCore, complete: bool
) -> None:
    await world.append(core, HIGH)
    await world.logs.move(range(512, 1_024), to=0)
    world.logs[1].seal()
    late = world.core()
    await world.logs.join(late)
    await world.until(lambda: late.logs[0].indexer.ready)
    assert not late.ready
    if not complete:
        late.logs[1].idle()
        assert late.ready
        return
    for _ in range(2):
        late.logs[1].complete()
        assert late.ready
    assert not late.logs[1].status()["idle"], "it has a term"


async def test_barriers_and_commands_go_to_the_log_of_the_book(world: World, core: EngineCore) -> None:
    for book, log in ((LOW, 0), (HIGH, 1)):
        found, position = await core.barrier(book)
        assert found == log
        await world.until(lambda: core.frontier.reached({log: position}))  # noqa: B023 - awaited at once
    await world.logs.move([slot_of(LOW)], to=1)
    found, position = await core.barrier(LOW)
    assert (found, position.term) == (1, world.logs[1].term)


async def test_a_trim_takes_its_place_in_the_order_of_its_log(world: World) -> None:
    core, other = await world.engine(), await world.engine()
    first, second = await world.append(core, LOW), await world.append(core, LOW)
    gate = world.hold_entries_of(core, 0)
    third = await world.append(core, LOW)
    log, position = await core.order(LOW, Trim(LOW, ((5, third + 1),), False))
    await world.until(lambda: core.frontier.reached({log: position}))
    assert core.state.index.streams().get((LOW, 5)) in (None, [])
    await world.settle()
    assert other.state.index.ascending(LOW, 5, 0, 2**63, 9) == [first, second], "it acts behind the third record"
    gate.set()
    await world.until(lambda: other.frontier.reached({log: position}))
    assert same_state(core, other) and other.state.index.mark(LOW, 5) == third + 1
    (fourth,) = await committed(core, RunSpec(LOW, bytes(15) + b"t", 1, plain_records("x", tags=(5,))))
    assert data_of(await read(core, query(5, book=LOW, start=fourth))) == [b"x"]


async def test_a_barrier_waits_for_the_next_term(world: World, core: EngineCore) -> None:
    world.logs[0].seal()
    waiting = asyncio.ensure_future(core.barrier(LOW))
    await world.settle()
    assert not waiting.done()
    await world.logs.install([0])
    log, position = await waiting
    assert (log, position.term) == (0, world.logs[0].term)


async def test_a_barrier_that_a_dead_term_refused_is_asked_of_the_next(world: World, core: EngineCore) -> None:
    world.logs[0].sealed = True  # the sequencer knows, the engine was not told
    waiting = asyncio.ensure_future(core.barrier(LOW))
    await world.settle()
    assert not waiting.done()
    world.logs[0].sealed = False
    world.logs[0].seal()
    await world.logs.install([0])
    assert (await waiting)[1].term == world.logs[0].term


async def test_nobody_to_ask(world: World, core: EngineCore, monkeypatch: pytest.MonkeyPatch) -> None:
    world.logs[0].seal()
    monkeypatch.setattr(sequencer_calls, "ORDER_WAIT_S", 0.01)
    with pytest.raises(NoSequencer, match="log 0"):
        await core.barrier(LOW)


@pytest.mark.parametrize("fault", [TermOver("over"), TermEndedMeanwhile("in flight")], ids=["refused", "in flight"])
async def test_a_command_that_may_have_been_ordered_has_an_unknown_outcome(
    world: World, core: EngineCore, monkeypatch: pytest.MonkeyPatch, fault: TermOver
) -> None:
    before = await world.append(core, LOW)
    link = core.logs[0].link
    assert isinstance(link, ScriptedLink)
    link.order_faults.append(fault)
    monkeypatch.setattr(sequencer_calls, "ORDER_WAIT_S", 0.01)
    with pytest.raises(NoSequencer) as caught:
        await core.order(LOW, Trim(LOW, ((0, before + 1),), False))
    assert caught.value.definite == fault.definite
    await world.settle()
    assert (core.state.index.mark(LOW, 0) == before + 1) is not fault.definite, "what was told is what became of it"


async def test_the_loss_of_another_engine_holds_nobody_up(world: World) -> None:
    """What it reported is read from its ledger; what it did not report is nobody's business."""
    core, lost = await world.engine(), await world.engine()
    await world.append(lost, LOW)
    world.ledgers.hold_acks = True
    shard = lost.logs[0].appender.shard
    assert shard is not None
    append(lost, RecordingSource(), RunSpec(LOW, bytes(15) + b"o", 1, plain_records("never reported")))
    await world.settle()
    world.logs.leave(lost)
    assert shard.submitted_entries > shard.acked_entries
    world.ledgers.hold_acks = False
    terms = world.logs.next_term
    assert await world.append(core, HIGH) and await world.append(core, LOW)
    world.logs[0].builder.close_all_of(lost.incarnation)
    world.logs[0].cut()
    assert await world.append(core, LOW)
    assert world.logs.next_term == terms, "no term was needed"
    world.logs[0].builder.open(core.incarnation, 10_000)  # shards come and go within the term
    world.logs[0].cut()
    assert await world.append(core, LOW)


async def write_with_lost_entries(world: World, writer: EngineCore) -> tuple[int, list[int]]:
    """Five entries, of which nobody else can read the second and the third: shard number and seqnums."""
    shard = writer.logs[0].appender.shard
    assert shard is not None
    for entry in (1, 2):
        world.ledgers.missing[shard.writer.ledger_id, entry] = None
    seqnums = []
    for number in range(5):  # each of another writer: after a lost number, the next of its writer is a gap
        seqnums += await committed(writer, RunSpec(LOW, bytes(15) + bytes([number]), 1, plain_records("x", tags=(5,))))
    await world.settle()
    return shard.number, seqnums


async def test_lost_entries_that_no_snapshot_has_join_nothing_on_any_engine(world: World) -> None:
    other, writer = await world.engine(), await world.engine()
    shard, seqnums = await write_with_lost_entries(world, writer)
    assert other.state.index.newest(LOW, 5) < seqnums[1], "nobody passes over them unasked"
    world.logs[0].builder.order(Lost(1, shard, 1, 3, b"{}"))
    with pytest.raises(StateDisagrees, match="entries 1 to below 3"):
        world.logs[0].cut()
    await world.until(lambda: not other.pending)
    assert other.view_of(LOW)[1] == seqnums[-1]
    assert other.state.places.terms[1].losers() == [(1, 3)]
    assert other.state.index.streams()[LOW, 5] == [seqnums[0], *seqnums[3:]]
    world.ledgers.missing.clear()
    anew = await world.engine(given_up=writer.parts.given_up)
    await world.until(lambda: same_state(anew, other))
    assert anew.state.index.streams()[LOW, 5] == [seqnums[0], *seqnums[3:]], "also though they can be read again"


async def test_what_nobody_indexed_is_a_gap_of_every_stream(world: World) -> None:
    other, writer = await world.engine(), await world.engine()
    shard, seqnums = await write_with_lost_entries(world, writer)
    world.logs[0].builder.order(Lost(1, shard, 1, 3, b"{}"))
    with pytest.raises(StateDisagrees):
        world.logs[0].cut()
    await world.until(lambda: not other.pending)
    gap = GapRow(seqnums[1], seqnums[2], GapKind.LOST)
    for tag in (0, 5):
        reply = await read(other, query(tag, book=LOW))
        assert (reply.records.seqnums.tolist(), list(reply.gaps)) == ([seqnums[0], *seqnums[3:]], [gap])
    first = await read(other, query(5, book=LOW)._replace(max_records=1))
    assert (first.more, list(first.gaps)) == (True, []), "a page tells of no gap behind its last record"
    assert list((await read(other, query(7, book=LOW))).gaps) == [gap], "it may have had records with the tag"
    point = await read(other, query(0, book=LOW, start=seqnums[1], stop=seqnums[1] + 1))
    assert list(point.gaps) == [GapRow(seqnums[1], seqnums[1], GapKind.LOST)]
    assert list((await read(other, query(0, book=HIGH))).gaps) == [], "the term had none of its books"


async def test_lost_entries_that_a_snapshot_has_keep_their_rows_on_every_engine(world: World) -> None:
    other, writer = await world.engine(), await world.engine()
    shard, seqnums = await write_with_lost_entries(world, writer)
    world.logs[0].builder.order(Lost(1, shard, 1, 3, b"{}", True))
    world.logs[0].cut()
    await world.settle()
    assert writer.state.index.streams()[LOW, 5] == seqnums
    assert other.needing_snapshot() == {0: other.positions[0]}, "who has not indexed them never passes over them"
    assert writer.needing_snapshot() == {}
    world.ledgers.missing.clear()
    await world.until(lambda: same_state(writer, other))


async def test_a_loss_is_known_for_shards_that_are_opened_later(world: World) -> None:
    """The command may be in another log, which is ahead; and an engine that begins anew knows of it beforehand."""
    writer = await world.engine()
    shard, _ = await write_with_lost_entries(world, writer)
    given_up = LostEntries()
    given_up.add(Lost(1, shard, 1, 3, b"{}"))
    late = await world.engine(given_up=given_up)
    await world.until(lambda: not late.pending)
    assert late.state.places.terms[1].losers() == [(1, 3)]
