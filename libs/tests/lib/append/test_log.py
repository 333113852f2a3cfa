"""Appends with known and unknown outcomes, decoded records, tokens of workers, and the log's clock."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import VirtualTimeLoop, let_pass
from bokilib.append.log import Incarnations, Log
from bokilib.errors import (
    AppendUnknown,
    AtomicTooLarge,
    ForeignRecord,
    NoPayloadHook,
    PayloadHookFailed,
    PayloadHookUnavailable,
)
from bokilib.records import events
from bokilib.records.contribution import BookIdentity, Contribution
from bokilib.records.events import Event, Picker
from bokilib.testing import Fault, FaultyBook


class Did(Event, tag="mine.did", frozen=True):
    id: str


MINE = Picker[Did]("mine", (Did,))


def did(*ids: str, expect: dict[str, int | None] | None = None) -> Contribution:
    return Contribution(("t",), expect or {}, tuple(Did(id) for id in ids))


async def ids_of(book: boki.Book, log: Log) -> list[str]:
    found = []
    async for read in log.between("t", 1, await book.now(consistency="linearizable")):
        found += [event.id for event in MINE.of(read.record.seqnum, read.envelope)]
    return found


async def test_what_is_appended_is_read_with_its_writer_and_what_it_had_seen(book: boki.Book) -> None:
    log = Log(book)
    seqnum = await log.append(did("x", "y"), seen=7)
    (read,) = [read async for read in log.between("t", 1, seqnum)]
    assert (read.record.seqnum, read.envelope.by, read.envelope.seen) == (seqnum, log.by, 7)
    assert MINE.of(seqnum, read.envelope) == [Did("x"), Did("y")]
    assert log.by != Log(book).by, "an incarnation is of one start"


async def test_an_unknown_outcome_is_raised_and_can_be_asked(book: boki.Book) -> None:
    log = Log(FaultyBook(book, Fault(0, "lost")))
    with pytest.raises(AppendUnknown) as lost:
        await log.append(did("x"))
    assert not lost.value.definite
    assert isinstance(await lost.value.outcome(), boki.Committed)
    assert await ids_of(book, log) == ["x"]


async def test_what_never_arrived_is_asked_and_is_final(book: boki.Book) -> None:
    log = Log(FaultyBook(book, Fault(0, "never")))
    with pytest.raises(AppendUnknown) as lost:
        await log.append(did("x"))
    assert await lost.value.outcome(settle=True) == boki.Never()
    assert await ids_of(book, Log(book)) == []


@pytest.mark.parametrize("kind", ["lost", "never"])
async def test_who_waits_for_the_outcome_appends_once(book: boki.Book, kind: str) -> None:
    log = Log(FaultyBook(book, Fault(0, kind)))  # type: ignore[arg-type]
    seqnum = await log.append(did("x"), settle=True)
    assert await ids_of(book, log) == ["x"]
    record = await book.read_prev("t")
    assert record is not None and record.seqnum == seqnum


async def test_a_conflict_of_which_the_answer_was_lost_is_a_conflict(book: boki.Book) -> None:
    first = await Log(book).append(did("x"))
    expect: dict[str, int | None] = {"t": first - 1}
    with pytest.raises(boki.Conflict):
        await Log(FaultyBook(book, Fault(0, "lost"))).append(did("y", expect=expect), settle=True)
    log = Log(FaultyBook(book, Fault(0, "lost")))
    with pytest.raises(AppendUnknown) as lost:
        await log.append(did("y", expect=expect))
    assert isinstance(await lost.value.outcome(), boki.Conflict)


async def test_after_a_conflict_there_is_something_to_read_up_to_its_position(book: boki.Book) -> None:
    log = Log(book)
    before = await book.now()
    second = await log.append(did("x"))
    await book.append(b"other", tags=["u"])
    expect: dict[str, int | None] = {"t": before, "u": await book.now(), "v": None}
    with pytest.raises(boki.Conflict) as conflict:
        await log.append(did("y", expect=expect))
    moved = log.moved(expect, conflict.value)
    assert [*moved] == ["t"] and moved["t"].newest == second
    read = [one.record.seqnum async for one in log.between("t", moved["t"].start, conflict.value.position)]
    assert read == [second]


async def test_a_full_window_is_waited_for(book: boki.Book) -> None:
    tickets = [book.submit(b"%d" % number) for number in range(1_024)]
    seqnum = await Log(book).append(did("x"))
    assert all([await ticket < seqnum for ticket in tickets])
    assert (await book.read_at(seqnum)) is not None


async def test_what_is_too_large_is_refused_before_it_is_sent(book: boki.Book) -> None:
    log = Log(book)
    with pytest.raises(AtomicTooLarge, match="bytes"):
        await log.append(did("x" * 600_000))
    assert log.appends == 0
    assert book.position is None


async def test_a_fold_over_what_was_trimmed_raises(book: boki.Book) -> None:
    log = Log(book)
    await log.append(did("x"))
    second = await log.append(did("y"))
    await book.trim(tag="t", before=second)
    with pytest.raises(boki.Trimmed):
        await ids_of(book, log)
    assert [read.record.seqnum async for read in log.between("t", second, second)] == [second]
    assert [read async for read in log.between("t", second + 1, second)] == []


async def test_a_record_that_no_library_wrote_stops_the_reader(book: boki.Book) -> None:
    await book.append(b"hello", tags=["t"])
    with pytest.raises(ForeignRecord):
        await ids_of(book, Log(book))


class Zipped:
    """A payload hook."""

    name = "zip"

    async def seal(self, events: bytes) -> bytes:
        return zlib.compress(events)

    async def open(self, sealed: bytes) -> bytes:
        return zlib.decompress(sealed)


class Elsewhere:
    """A payload hook that stores large payloads elsewhere."""

    name = "elsewhere"

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}

    async def seal(self, events: bytes) -> bytes:
        key = b"%d" % len(self.kept)
        self.kept[key] = events
        return key

    async def open(self, sealed: bytes) -> bytes:
        return self.kept[sealed]


async def test_a_hook_may_compress(book: boki.Book) -> None:
    log = Log(book, hook=Zipped())
    seqnum = await log.append(did("x" * 600_000))
    record = await book.read_at(seqnum)
    assert record is not None and len(record.data) < 10_000
    assert await ids_of(book, log) == ["x" * 600_000]
    assert events.open_record(seqnum, record.data).by == log.by, "who wrote it is open to all"


async def test_a_hook_may_keep_what_is_large_elsewhere(book: boki.Book) -> None:
    log = Log(book, hook=Elsewhere())
    await log.append(did("x" * 3_000_000))
    assert await ids_of(book, log) == ["x" * 3_000_000]


async def test_records_from_before_the_hook_are_read_and_a_missing_hook_is_named(book: boki.Book) -> None:
    await Log(book).append(did("plain"))
    await Log(book, hook=Zipped()).append(did("zipped"))
    assert await ids_of(book, Log(book, hook=Zipped())) == ["plain", "zipped"]
    for hook in (None, Elsewhere()):
        with pytest.raises(NoPayloadHook, match="'zip'"):
            await ids_of(book, Log(book, hook=hook))


async def test_a_hook_that_fails_sends_nothing(book: boki.Book) -> None:
    class Broken(Zipped):
        async def seal(self, events: bytes) -> bytes:
            raise OSError("no key")

    log = Log(book, hook=Broken())
    with pytest.raises(PayloadHookUnavailable, match="to seal a record and raised OSError: no key") as raised:
        await log.append(did("x"))
    assert log.appends == 0 and isinstance(raised.value.__cause__, OSError) and raised.value.hook == "zip"


@pytest.mark.parametrize("error", [KeyError("no key"), SystemExit(3), GeneratorExit(), asyncio.CancelledError()])
async def test_whatever_a_hook_raises_at_a_record_is_an_error_of_that_record(
    book: boki.Book, error: BaseException
) -> None:
    class Broken(Zipped):
        async def open(self, sealed: bytes) -> bytes:
            raise error

    seqnum = await Log(book, hook=Zipped()).append(did("x"))
    with pytest.raises(PayloadHookFailed, match=f"to open record {seqnum}") as raised:
        await ids_of(book, Log(book, hook=Broken()))
    assert raised.value.__cause__ is error and raised.value.seqnum == seqnum


@pytest.mark.parametrize("made", [None, "text", 5, [b"a"]])
async def test_a_hook_that_returns_no_bytes_is_an_error(book: boki.Book, made: Any) -> None:
    """Of a branch without `return`, for one: nobody could read the record ever again."""

    class SealsNothing(Zipped):
        async def seal(self, events: bytes) -> bytes:
            return made  # type: ignore[no-any-return]

    class OpensNothing(Zipped):
        async def open(self, sealed: bytes) -> bytes:
            return made  # type: ignore[no-any-return]

    log, found = Log(book, hook=SealsNothing()), type(made).__name__
    with pytest.raises(PayloadHookFailed, match=f"to seal a record: expected bytes, found {found}"):
        await log.append(did("x"))
    assert log.appends == 0
    seqnum = await Log(book, hook=Zipped()).append(did("x"))
    with pytest.raises(PayloadHookFailed, match=f"to open record {seqnum}: expected bytes, found {found}") as raised:
        await ids_of(book, Log(book, hook=OpensNothing()))
    assert raised.value.seqnum == seqnum


async def test_a_cancelled_call_of_a_hook_is_cancelled(book: boki.Book) -> None:
    class Hangs(Zipped):
        async def seal(self, events: bytes) -> bytes:
            await asyncio.Event().wait()
            return events

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await Log(book, hook=Hangs()).append(did("x"))


async def test_incarnations_come_from_the_port_where_one_is_given(cluster: MemoryCluster) -> None:
    class Fixed:
        def token(self, size: int) -> bytes:
            return b"\x01" * size

    assert Log((await cluster.connect()).book("b"), random=Fixed()).by == "01" * 12


class StandsStill:
    """A clock of a sequencer."""

    ms = 5_000

    def now_ms(self) -> int:
        return self.ms


def test_the_time_is_that_of_the_newest_record_and_what_passed_since() -> None:
    """The clock runs ahead until the time of a sent record shows that the log's time stood still."""

    async def run() -> None:
        clock = StandsStill()
        async with MemoryCluster(clock=clock) as cluster:
            log = Log((await cluster.connect()).book("b"))
            assert (log.now_ms(), await log.newest_ms()) == (0, 0), "nothing was read, and nothing is there"
            await log.append(did("x"))
            assert log.now_ms() == 0 and await log.newest_ms() == log.now_ms() == 5_000
            await let_pass(30)
            assert log.now_ms() == 35_000
            sent_s = asyncio.get_running_loop().time()
            await log.append(did("y"))
            log.clock_at_most(await log.newest_ms(), sent_s)
            assert log.now_ms() == 5_000
            clock.ms = 90_000
            seqnum = await log.append(did("z"))
            assert [one.record.time_ms async for one in log.between("t", seqnum, seqnum)] == [log.now_ms()] == [90_000]

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())


# -- workers under one Log


def test_each_has_a_token_of_its_own_and_who_ended_is_known() -> None:
    those = Incarnations("0a")
    first, second = those.new_token(), those.new_token()
    assert first == "0a" != second
    those.start(first)
    those.start(second)
    assert those.runs(first) and not those.stopped(first) and not those.stopped(second)
    those.stop(first)
    assert those.stopped(first) and not those.runs(first) and not those.stopped(second)
    assert those.new_token() not in (first, second)


def test_of_tokens_of_others_nothing_is_known() -> None:
    those = Incarnations("0a")
    assert not any(those.stopped(token) or those.runs(token) for token in ("", "0", "0b", "0a1", "0b-2"))


async def test_a_book_is_the_same_through_all_clients_and_wrappers(cluster: MemoryCluster) -> None:
    client = await cluster.connect()
    book = client.book("b")
    log = Log(book)
    assert log.identity == BookIdentity(book.id, client.cluster, "b")
    for other in ((await cluster.connect()).book("b"), client.session().book("b"), FaultyBook(book)):
        assert Log(other).identity == log.identity and log.over(other).identity == log.identity
    assert Log(FaultyBook(client.book("c"))).identity != log.identity


async def test_a_book_that_does_not_tell_which_it_is_takes_all_parts(book: boki.Book) -> None:
    class Nameless(FaultyBook):
        @property
        def id(self) -> None:
            return None

    log = Log(Nameless(book))
    assert log.identity is None
    part = Contribution(("a",), {}, (Did("x"),), Log(book).origin("queue 'emails'"))
    assert await log.append(part)
    assert await Log(book).append(Contribution(("a",), {}, (Did("x"),), log.origin("queue 'emails'")))
