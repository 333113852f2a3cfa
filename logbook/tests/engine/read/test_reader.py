"""Reads: waiting for records and positions, bounds, cached or not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_common.engine.engine_protocol import Consistency, Direction, GapKind, GapRow, decode_position
from boki_common.engine.read_reply import POINT_TAGS, ReadReply, decode_read_reply
from boki_common.engine.tag_reads import FROM_BEGINNING, TagRow
from boki_common.errors import EntryUnknown, InvalidArgument, NoSequencer, Overloaded, TooManyWriters, Trimmed
from boki_common.errors import Lost as LostError
from boki_common.ids import Position
from boki_common.records.record_batch import RUN_NAMED
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.cluster import (
    RecordingSource,
    RecordSpec,
    RunSpec,
    append,
    committed,
    data_of,
    make_batch,
    plain_records,
    query,
    read,
)
from boki_logbook.writers import verdict
from boki_metalog.entries.loss_evidence import LossEvidence, encode_evidence
from boki_metalog.entries.metalog_entry import Lost, Trim

in_virtual_time = pytest.mark.usefixtures("virtual_time")

ALICE = bytes(15) + b"a"
BOB = bytes(15) + b"b"


async def test_a_blocked_read_wakes_at_the_cut(cluster: Any, core: Any) -> None:
    waiting = asyncio.ensure_future(read(core, query(5, wait_ms=5_000)))
    await cluster.settle()
    await committed(core, RunSpec(1, ALICE, 1, plain_records("other tag", tags=(6,))))
    assert not waiting.done()
    assert core.reader.parked == 1
    (seqnum,) = await committed(core, RunSpec(1, ALICE, 2, plain_records("x", tags=(5,))))
    reply = await waiting
    assert reply.records.seqnums.tolist() == [seqnum]
    assert core.reader.parked == 0


async def test_a_read_of_one_record_says_what_a_read_of_two_says_of_the_first(core: Any) -> None:
    """The short way and the long one: every bound of every stream, both directions, before and after a trim."""
    many = [RecordSpec((5, 6)[: at % 3], b"x%d" % at) for at in range(6)]
    many.append(RecordSpec(tuple(range(20, 21 + POINT_TAGS)), b"many tags"))
    seqnums = await committed(core, RunSpec(1, ALICE, 1, tuple(many)))
    seqnums += await committed(core, RunSpec(1, ALICE, len(many) + 1, (RecordSpec((5,), b"alone"),)))
    for trim in (None, Trim(1, ((5, seqnums[2]),), False), Trim(1, ((0, seqnums[1]),), False)):
        if trim is not None:
            await core.reader.trim(1, trim.pairs, forget=False)
        for tag in (0, 5, 6, 20, 99):
            for bound in (0, *(one + at for one in seqnums for at in (-1, 0, 1)), 2**63 - 1):
                for direction, end in ((Direction.NEXT, 2**63 - 1), (Direction.NEXT, seqnums[4]), (Direction.PREV, 0)):
                    asked = query(tag, start=bound, stop=end, direction=direction)
                    short = core.reader.answer_now({}, asked._replace(max_records=1))
                    long = core.reader.answer_now({}, asked._replace(max_records=2))
                    assert short is not None and long is not None
                    one, two = (decode_read_reply(memoryview(b"".join(reply))) for reply in (short, long))
                    assert data_of(one) == data_of(two)[:1]
                    assert one.records.seqnums.tolist() == two.records.seqnums.tolist()[:1]
                    first = one.records.tag_counts.tolist()[0] if data_of(one) else 0
                    assert one.records.tags.tolist() == two.records.tags.tolist()[:first]
                    assert (one.token, one.position, one.gaps) == (two.token, two.position, two.gaps)


async def test_a_read_of_one_record_whose_batch_is_not_cached_waits_for_it(cluster: Any) -> None:
    core = await cluster.engine(settings=EngineSettings(cache_bytes=1, replicas=1, acks=1))
    await committed(core, RunSpec(1, ALICE, 1, plain_records("x")))
    misses = core.cache.misses
    assert core.reader.answer_now({}, query(max_records=1)) is None
    assert core.cache.misses == misses + 1
    assert data_of(await read(core, query(max_records=1))) == [b"x"]


async def test_a_blocked_read_crosses_terms(cluster: Any, core: Any) -> None:
    (seqnum,) = await committed(core, RunSpec(1, ALICE, 1, plain_records("x")))
    waiting = asyncio.ensure_future(read(core, query(start=seqnum + 1, wait_ms=5_000)))
    await cluster.log.next_term()
    await cluster.until(lambda: core.logs[0].appender.shard is not None)
    await committed(core, RunSpec(1, ALICE, 2, plain_records("y")))
    assert data_of(await waiting) == [b"y"]


async def test_a_blocked_read_ends_with_nothing(core: Any) -> None:
    reply = await read(core, query(5, wait_ms=2))
    assert len(reply.records.seqnums) == 0
    assert not reply.more


@in_virtual_time
async def test_records_beyond_the_stop_do_not_wake_a_read_for_good(cluster: Any, core: Any) -> None:
    waiting = asyncio.ensure_future(read(core, query(start=5, stop=6, wait_ms=20)))
    await cluster.settle()
    await committed(core, RunSpec(1, ALICE, 1, plain_records("x")))
    assert data_of(await waiting) == []


async def test_a_session_waits_for_its_position(cluster: Any, core: Any) -> None:
    term, entry = core.frontier.positions[0]
    token = {0: Position(term, entry + 1)}
    waiting = asyncio.ensure_future(read(core, query(), token))
    await cluster.settle()
    assert not waiting.done()
    assert len((await read(core, query(consistency=Consistency.ANY), token)).records.seqnums) == 0
    await committed(core, RunSpec(1, ALICE, 1, plain_records("x")))
    assert data_of(await waiting) == [b"x"]


async def test_a_position_that_never_comes_is_overloaded(cluster: Any) -> None:
    core = await cluster.engine(settings=EngineSettings(position_wait_s=0.01, replicas=1, acks=1))
    with pytest.raises(Overloaded, match="did not reach"):
        await read(core, query(), {0: Position(99, 0)})
    with pytest.raises(Overloaded):
        await read(core, query(), {7: Position(1, 0)})


async def test_a_fresh_engine_shows_nothing_before_it_has_caught_up(cluster: Any, core: Any) -> None:
    await committed(core, RunSpec(1, ALICE, 1, plain_records("x")))
    ledger_id = core.logs[0].appender.shard.writer.ledger_id
    cluster.ledgers.missing[ledger_id, 0] = None
    fresh = await cluster.engine()
    waiting = asyncio.ensure_future(read(fresh, query()))
    await cluster.until(lambda: len(cluster.ledgers.reads) > 2)
    assert not fresh.logs[0].indexer.ready
    assert not waiting.done()
    del cluster.ledgers.missing[ledger_id, 0]
    assert data_of(await waiting) == [b"x"]


@in_virtual_time
async def test_a_cut_is_shown_whole_or_not_at_all(cluster: Any) -> None:
    """Half of a cut is applied and the rest is not here yet: a reply does not claim it, so another engine need not have it."""
    one, two = await cluster.engine(), await cluster.engine()
    (before,) = await committed(one, RunSpec(1, ALICE, 1, plain_records("before", tags=(5,))))
    await cluster.settle()
    gate = cluster.ledgers.gates[two.logs[0].appender.shard.writer.ledger_id, 0] = asyncio.Event()
    cluster.log.cut_by_itself = False
    append(one, RecordingSource(), RunSpec(1, ALICE, 2, plain_records("mine", tags=(5,))))
    append(two, RecordingSource(), RunSpec(1, BOB, 1, plain_records("theirs", tags=(5,))))
    await cluster.settle()
    waiting = asyncio.ensure_future(read(one, query(5, start=before + 1, wait_ms=5_000)))
    await cluster.settle()
    cluster.log.cut()
    await cluster.settle()
    assert len(one.state.index) > 2, "rows of half the cut are there"
    backwards = query(start=2**63 - 1, stop=0, direction=Direction.PREV)
    many = await one.reader.prev_many({}, 1, [(5, 2**63 - 1)], Consistency.SESSION)
    for reply in (await read(one, query()), await read(one, backwards), decode_read_reply(memoryview(b"".join(many)))):
        assert data_of(reply) == [b"before"]
        assert reply.position == before
    assert not waiting.done()
    gate.set()
    assert data_of(await waiting) == [b"mine", b"theirs"]
    assert data_of(await read(one, query())) == [b"before", b"mine", b"theirs"]


@in_virtual_time
async def test_a_read_that_waits_is_answered_with_half_a_cut_when_it_is_whole(cluster: Any) -> None:
    one, two = await cluster.engine(), await cluster.engine()
    ledger_id = two.logs[0].appender.shard.writer.ledger_id
    gates = [cluster.ledgers.gates.setdefault((ledger_id, entry), asyncio.Event()) for entry in range(2)]
    cluster.log.cut_by_itself = False
    waiting = asyncio.ensure_future(read(one, query(5, wait_ms=5_000)))
    append(two, RecordingSource(), RunSpec(2, BOB, 1, plain_records("elsewhere")))
    await cluster.settle()
    cluster.log.cut()
    append(one, RecordingSource(), RunSpec(1, ALICE, 1, plain_records("mine", tags=(5,))))
    await cluster.settle()
    append(two, RecordingSource(), RunSpec(2, BOB, 2, plain_records("elsewhere too")))
    await cluster.settle()
    cluster.log.cut()
    gates[0].set()  # in one turn the first cut is passed and half of the second applied
    await cluster.until(lambda: one.frontier.covered.get(0))
    await cluster.settle()
    assert not waiting.done()
    gates[1].set()
    await cluster.settle()
    assert waiting.done(), "woken, and not by its time-out"
    assert data_of(await waiting) == [b"mine"]


async def test_too_many_waiting_reads_are_refused(cluster: Any) -> None:
    core = await cluster.engine(settings=EngineSettings(parked_reads=1, replicas=1, acks=1))
    waiting = asyncio.ensure_future(read(core, query(wait_ms=5_000)))
    await cluster.settle()
    with pytest.raises(Overloaded, match="wait in this engine"):
        await read(core, query(wait_ms=5_000))
    waiting.cancel()
    await asyncio.wait([waiting])
    assert core.reader.parked == 0


async def test_reads_are_bounded_and_say_that_more_follows(core: Any) -> None:
    seqnums = await committed(core, RunSpec(1, ALICE, 1, plain_records(*"abcdefgh")))
    reply = await read(core, query(max_records=3))
    assert data_of(reply) == [b"a", b"b", b"c"]
    assert reply.more
    reply = await read(core, query(start=seqnums[3], max_bytes=7))
    assert data_of(reply) == [b"d", b"e"]
    assert reply.more
    reply = await read(core, query(start=seqnums[5], stop=seqnums[7]))
    assert data_of(reply) == [b"f", b"g"]


async def test_reading_backwards(core: Any) -> None:
    seqnums = []
    for at in range(4):
        seqnums += await committed(core, RunSpec(1, ALICE, 1 + 2 * at, plain_records(f"{at}a", f"{at}b")))
    reply = await read(core, query(start=seqnums[6], stop=seqnums[1], direction=Direction.PREV))
    assert data_of(reply) == [b"3a", b"2b", b"2a", b"1b", b"1a", b"0b"]
    reply = await read(core, query(start=2**63 - 1, stop=0, direction=Direction.PREV, max_records=1))
    assert data_of(reply) == [b"3b"]


async def test_what_is_not_cached_comes_from_the_ledgers(cluster: Any) -> None:
    core = await cluster.engine(settings=EngineSettings(cache_bytes=0, replicas=1, acks=1))
    for at in range(30):
        await committed(core, RunSpec(1, ALICE, 1 + at, plain_records(str(at), tags=(1 + at % 2,))))
    cluster.ledgers.reads.clear()
    assert core.reader.answer_now({}, query(1)) is None
    assert data_of(await read(core, query(1))) == [str(at).encode() for at in range(0, 30, 2)]
    assert len(cluster.ledgers.reads) == 15


async def test_one_call_reads_a_bounded_number_of_entries(cluster: Any) -> None:
    core = await cluster.engine(settings=EngineSettings(cache_bytes=0, replicas=1, acks=1))
    for at in range(70):
        await committed(core, RunSpec(1, ALICE, 1 + at, plain_records(str(at))))
    first = await read(core, query())
    assert first.more
    assert len(first.records.seqnums) == 64
    rest = await read(core, query(start=int(first.records.seqnums[-1]) + 1))
    assert data_of(first) + data_of(rest) == [str(at).encode() for at in range(70)]


async def test_an_entry_that_cannot_be_read_now_is_named(cluster: Any) -> None:
    core = await cluster.engine(settings=EngineSettings(cache_bytes=0, replicas=1, acks=1, retry_first_s=0.001))
    await committed(core, RunSpec(1, ALICE, 1, plain_records("x")))
    ledger_id = core.logs[0].appender.shard.writer.ledger_id
    cluster.ledgers.unknown[ledger_id, 0] = None
    with pytest.raises(EntryUnknown, match="cannot be read now"):
        await read(core, query())
    cluster.ledgers.unknown.clear()
    assert data_of(await read(core, query())) == [b"x"]


async def test_prev_many_has_one_row_per_query(core: Any) -> None:
    a, b = await committed(core, RunSpec(1, ALICE, 1, (RecordSpec((5,), b"a"), RecordSpec((6,), b"b"))))
    queries = [(5, 2**63 - 1), (7, 2**63 - 1), (6, a), (0, b), (5, a)]
    buffers = await core.reader.prev_many({}, 1, queries, Consistency.SESSION)
    reply = decode_read_reply(memoryview(b"".join(buffers)))
    assert reply.records.seqnums.tolist() == [a, 0, 0, b, a]
    assert data_of(reply) == [b"a", b"", b"", b"b", b"a"]


async def test_prev_many_of_too_many_bytes_is_refused(core: Any) -> None:
    await committed(core, RunSpec(1, ALICE, 1, (RecordSpec((5,), bytes(1_000_000)),)))
    with pytest.raises(InvalidArgument, match="ask for fewer"):
        await core.reader.prev_many({}, 1, [(5, 2**63 - 1)] * 5, Consistency.SESSION)


async def test_position_covers_what_is_indexed(core: Any) -> None:
    (seqnum,) = await committed(core, RunSpec(1, ALICE, 1, plain_records("x")))
    token, position = decode_position(memoryview(b"".join(await core.reader.position({}, 1))))
    assert (token, position) == (core.frontier.positions, seqnum)


async def test_a_reply_claims_only_what_was_looked_at(cluster: Any) -> None:
    """Else a record that came while entries were loaded would be taken for seen, and an expectation would hold wrongly."""
    core = await cluster.engine(settings=EngineSettings(cache_bytes=0, replicas=1, acks=1))
    (first,) = await committed(core, RunSpec(1, ALICE, 1, plain_records("x")))
    seen = dict(core.frontier.positions)
    gate = cluster.ledgers.gates[core.logs[0].appender.shard.writer.ledger_id, 0] = asyncio.Event()
    reading = asyncio.ensure_future(read(core, query()))
    many = asyncio.ensure_future(core.reader.prev_many({}, 1, [(0, 2**63 - 1)], Consistency.SESSION))
    await cluster.until(lambda: cluster.ledgers.reads)
    await committed(core, RunSpec(1, ALICE, 2, plain_records("y")))
    gate.set()
    for reply in (await reading, decode_read_reply(memoryview(b"".join(await many)))):
        assert (reply.position, reply.token) == (first, seen)


FIRE = encode_evidence(LossEvidence(reason="a fire", by="ops"))


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (FIRE, "(given up by ops: a fire)"),
        (FIRE[:-9], "can read it"),
        (b"{}", "can read it"),
        (b"\xff[", "can read it"),
    ],
)
async def test_lost_entries_are_gaps_and_what_is_behind_them_is_read(cluster: Any, evidence: bytes, words: str) -> None:
    """Whatever their evidence says: what cannot be read of it is left out."""
    core = await cluster.engine(settings=EngineSettings(cache_bytes=0, retry_first_s=0.001, replicas=1, acks=1))
    seqnums = []
    for number in range(1, 5):
        seqnums += await committed(core, RunSpec(1, ALICE, number, plain_records("x", tags=(5,))))
    shard = core.logs[0].appender.shard
    cluster.log.builder.order(Lost(1, shard.number, 1, 3, evidence, True))
    cluster.log.cut()
    await cluster.settle()
    reply = await read(core, query(5))
    assert reply.records.seqnums.tolist() == [seqnums[0], seqnums[3]]
    assert list(reply.gaps) == [
        GapRow(seqnums[1], seqnums[1], GapKind.LOST),
        GapRow(seqnums[2], seqnums[2], GapKind.LOST),
    ]
    point = await read(core, query(5, start=seqnums[1], stop=seqnums[1] + 1))
    assert list(point.gaps) == [GapRow(seqnums[1], seqnums[1], GapKind.LOST)]
    with pytest.raises(LostError, match=f"record {seqnums[2]}") as lost:
        await core.reader.prev_many({}, 1, [(5, seqnums[2])], Consistency.SESSION)
    assert str(lost.value).endswith(words)


@in_virtual_time
async def test_a_waiting_read_gets_a_gap_of_what_was_trimmed_before_it_could_look(cluster: Any, core: Any) -> None:
    (first,) = await committed(core, RunSpec(1, ALICE, 1, plain_records("x", tags=(5,))))
    following = asyncio.ensure_future(read(core, query(5, start=first, wait_ms=5_000)))
    assert data_of(await following) == [b"x"]
    position = core.view_of(1)[1]
    following = asyncio.ensure_future(read(core, query(5, start=first + 1, wait_ms=5_000)))
    await cluster.settle()
    await core.reader.trim(1, [(0, first + 1)], forget=False)
    await cluster.settle()
    assert not following.done(), "it had looked there: nothing is missing"
    cluster.log.cut_by_itself = False
    core.appender.append(make_batch(RunSpec(1, ALICE, 2, plain_records("y", tags=(5,)))), RecordingSource(), 1)
    await cluster.settle()
    second = first + 1
    cluster.log.builder.order(Trim(1, ((5, second + 1),), False))
    cluster.log.cut()
    reply = await following
    assert data_of(reply) == []
    assert list(reply.gaps) == [GapRow(position + 1, second, GapKind.TRIMMED)]


@in_virtual_time
async def test_a_waiting_read_gets_no_gap_of_trims_where_it_had_looked(cluster: Any, core: Any) -> None:
    (first,) = await committed(core, RunSpec(1, ALICE, 1, plain_records("x", tags=(6,))))
    waiting = asyncio.ensure_future(read(core, query(5, start=first, wait_ms=5_000)))
    await cluster.settle()
    await core.reader.trim(1, [(0, first + 1)], forget=False)
    assert core.state.index.mark(1, 5) == first + 1 > first
    await committed(core, RunSpec(1, ALICE, 2, plain_records("y", tags=(5,))))
    reply = await waiting
    assert (data_of(reply), list(reply.gaps)) == ([b"y"], [])


async def tagged(core: Any, *rows: TagRow, **how: Any) -> ReadReply:
    """The answer to a read of several tags of book 1."""
    asked = query(max_records=how.pop("max_records", 10), **how)
    parts = await core.reader.answer({}, asked, rows)
    return decode_read_reply(memoryview(b"".join(parts)))


@in_virtual_time
async def test_a_waiting_read_of_tags_gets_its_own_and_no_gap_of_what_it_looked_at(cluster: Any, core: Any) -> None:
    (first,) = await committed(core, RunSpec(1, ALICE, 1, plain_records("x", tags=(6,))))
    rows = TagRow(5, first), TagRow(7, first)
    waiting = asyncio.ensure_future(tagged(core, *rows, start=first, wait_ms=5_000))
    await cluster.settle()
    for number in (2, 3):
        (last,) = await committed(core, RunSpec(1, ALICE, number, plain_records("other", tags=(6,))))
    await core.reader.trim(1, [(0, last)], forget=False)
    await cluster.settle()
    assert not waiting.done() and core.reader.parked == 1
    await committed(core, RunSpec(1, ALICE, 4, plain_records("y", tags=(7, 5))))
    reply = await waiting
    assert (data_of(reply), list(reply.gaps), core.reader.parked) == ([b"y"], [], 0)
    late = await tagged(core, *rows, start=first)
    assert list(late.gaps) == [GapRow(first, last - 1, GapKind.TRIMMED, place) for place in (1, 2)]


@in_virtual_time
async def test_a_read_of_tags_that_waits_in_vain_returns_how_far_it_looked(cluster: Any, core: Any) -> None:
    (first,) = await committed(core, RunSpec(1, ALICE, 1, plain_records("x", tags=(6,))))
    waiting = asyncio.ensure_future(tagged(core, TagRow(5, first), start=first, wait_ms=50))
    await cluster.settle()
    (last,) = await committed(core, RunSpec(1, ALICE, 2, plain_records("y", tags=(6,))))
    await core.reader.trim(1, [(0, last)], forget=False)
    reply = await waiting
    assert (data_of(reply), list(reply.gaps), reply.more, reply.takes_tags) == ([], [], False, True)
    assert reply.position == last


async def test_a_read_of_tags_below_what_the_book_has_forgotten(core: Any) -> None:
    first, second = await committed(core, RunSpec(1, ALICE, 1, plain_records("x", "y", tags=(5,))))
    await core.reader.trim(1, [(9, 1)], forget=False)
    core.state.index.book_marks[1] = 0
    core.state.verdicts.raise_floor(1, second)
    reply = await tagged(core, TagRow(5, first + 1), TagRow(6, first), TagRow(7, first, FROM_BEGINNING), start=first)
    assert list(reply.gaps) == [GapRow(first, second, GapKind.TRIMMED, 2)]
    one = await read(core, query(6, start=first))
    assert list(one.gaps) == [GapRow(first, second, GapKind.TRIMMED)]


async def test_a_linearizable_read_is_not_answered_without_a_barrier(core: Any) -> None:
    await committed(core, RunSpec(1, ALICE, 1, plain_records("x")))
    asked = query(consistency=Consistency.LINEARIZABLE)
    assert core.reader.answer_now({}, asked) is None
    assert core.reader.answer_here(asked, *core.reader.view_of(1)) is not None


async def test_a_linearizable_read_waits_for_what_its_barrier_covers(core: Any) -> None:
    await committed(core, RunSpec(1, ALICE, 1, plain_records("x")))
    barriers: list[int] = []
    barrier = core.barrier

    async def counted(book: int) -> Any:
        barriers.append(book)
        if len(barriers) == 1:
            raise NoSequencer("the term is over")
        return await barrier(book)

    core.barrier = counted
    assert data_of(await read(core, query(consistency=Consistency.LINEARIZABLE))) == [b"x"]
    assert barriers == [1, 1]


async def test_a_book_full_of_named_writers_takes_no_new_one(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said when the writer's last number is asked for: before anything is numbered."""
    monkeypatch.setattr(verdict, "BOOK_NAMED_WRITERS", 1)
    core = await cluster.engine()
    await committed(core, RunSpec(1, ALICE, 1, plain_records("x"), 1, RUN_NAMED))
    await core.reader.writer_last({}, 1, ALICE)
    await core.reader.writer_last({}, 2, bytes(15) + b"b")
    with pytest.raises(TooManyWriters) as caught:
        await core.reader.writer_last({}, 1, bytes(15) + b"b")
    assert caught.value.definite and not caught.value.retryable


async def test_nothing_found_below_what_the_book_has_forgotten_is_trimmed_and_not_empty(core: Any) -> None:
    """Marks go with the streams they are of: an answer that there was nothing would be a lie."""
    first, second = await committed(core, RunSpec(1, ALICE, 1, plain_records("x", "y", tags=(5,))))
    core.state.verdicts.raise_floor(1, second)
    for tag, start, gaps in (
        (6, first, [GapRow(0, second - 1, GapKind.TRIMMED)]),
        (6, second, []),
        (5, first, []),
        (5, first - 1, [GapRow(0, second - 1, GapKind.TRIMMED)]),
    ):
        reply = await read(core, query(tag, start=start, stop=0, direction=Direction.PREV))
        now = core.reader.answer_now({}, query(tag, start=start, stop=0, direction=Direction.PREV))
        assert now is not None and list(decode_read_reply(memoryview(b"".join(now))).gaps) == gaps
        assert list(reply.gaps) == gaps
    with pytest.raises(Trimmed) as raised:
        await core.reader.prev_many({}, 1, [(5, first), (6, first)], Consistency.SESSION)
    assert (raised.value.mark, raised.value.index) == (second, 1)
