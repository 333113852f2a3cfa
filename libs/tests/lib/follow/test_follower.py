"""Many streams over few cursors, on a cluster in memory whose connections break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import BokiError, ClosedError, InvalidArgument
from bokilib import Contribution, Event, Follower, Log
from bokilib.append.log import Read
from bokilib.errors import ForeignRecord, PayloadHookFailed, UnknownEvent
from bokilib.follow.follower import CURSOR_TAGS, Deliver, Subscriptions
from bokilib.records.events import Picker
from libs.tests.conftest import unexpected
from libs.tests.deaf_book import REASONS, DeafBook, deaf_port


class Note(Event, tag="toy.note", frozen=True):
    id: str


Item = Read | boki.Gap | BokiError


@pytest.fixture
async def log(book: boki.Book) -> Log:
    return Log(book)


@pytest.fixture
async def follower(log: Log) -> AsyncIterator[Follower]:
    async with Follower(log, unexpected) as opened:
        yield opened


async def append(log: Log, *tags: str) -> int:
    return await log.append(Contribution(tags, {}, (Note(tags[0]),)))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


def into(items: list[Item]) -> Deliver:
    return items.append


def seqnums(items: list[Item]) -> list[int]:
    return [item.record.seqnum for item in items if isinstance(item, Read)]


async def test_each_is_given_its_own_and_a_shared_record_each_once(log: Log, follower: Follower) -> None:
    a: list[Item] = []
    b: list[Item] = []
    before = await append(log, "a", "b")
    follower.add("a", 1, into(a))
    follower.add("b", before + 1, into(b))
    placed = [await append(log, *tags) for tags in (("a",), ("a", "b"), ("b",), ("other",), ("b", "a"))]
    await until(lambda: len(a) == 4 and len(b) == 3)
    assert seqnums(a) == [before, placed[0], placed[1], placed[4]]
    assert seqnums(b) == [placed[1], placed[2], placed[4]]
    await until(lambda: follower.position >= placed[4])
    assert follower.cursors == 1


async def test_who_comes_later_gets_the_backlog_and_who_went_nothing(log: Log, follower: Follower) -> None:
    a: list[Item] = []
    b: list[Item] = []
    follower.add("a", 1, into(a))
    first = await append(log, "a", "b")
    await until(lambda: len(a) == 1)
    follower.add("b", 1, into(b))
    follower.discard("a")
    second = await append(log, "a", "b")
    await until(lambda: len(b) == 2)
    assert (seqnums(a), seqnums(b)) == ([first], [first, second])
    with pytest.raises(InvalidArgument, match="already"):
        follower.add("b", 1, into(b))


async def test_what_is_trimmed_is_a_gap_of_its_stream(log: Log, follower: Follower) -> None:
    a: list[Item] = []
    b: list[Item] = []
    first = await append(log, "a", "b")
    second = await append(log, "a", "b")
    await log.book.trim([("a", second)])
    follower.add("a", 1, into(a))
    follower.add("b", 1, into(b))
    await until(lambda: len(a) == 2 and len(b) == 2)
    gap = a[0]
    assert isinstance(gap, boki.Gap) and gap.last == second - 1
    assert (seqnums(a), seqnums(b)) == ([second], [first, second])


async def test_what_no_library_wrote_is_reported_and_following_goes_on(
    log: Log, book: boki.Book, follower: Follower
) -> None:
    a: list[Item] = []
    follower.add("a", 1, into(a))
    await book.append(b"hello", tags=["a"])
    last = await append(log, "a")
    await until(lambda: len(a) == 2)
    assert isinstance(a[0], ForeignRecord) and seqnums(a) == [last]


class Later(Event, tag="toy.later", frozen=True):
    """An event of a later version, which `NOTES` does not know."""

    id: str


NOTES: Picker[Note] = Picker("toy", (Note,))


async def test_an_event_that_a_subscriber_does_not_know_ends_no_stream(log: Log, follower: Follower) -> None:
    a: list[Item] = []
    b: list[Item] = []

    def decode(item: Item) -> None:
        if isinstance(item, Read):
            NOTES.of(item.record.seqnum, item.envelope)
        a.append(item)

    follower.add("a", 1, decode)
    follower.add("b", 1, into(b))
    unknown = await log.append(Contribution(("a", "b"), {}, (Later("a"),)))
    known = await append(log, "a", "b")
    await until(lambda: len(a) == len(b) == 2)
    assert isinstance(a[0], UnknownEvent) and a[0].facts["seqnum"] == unknown
    assert (seqnums(a), seqnums(b)) == ([known], [unknown, known])


class Fails:
    """A payload hook whose calls to open a record raise the next of some errors."""

    name = "fails"

    def __init__(self, *errors: Exception | None) -> None:
        self._errors = list(errors)

    async def seal(self, events: bytes) -> bytes:
        return events

    async def open(self, sealed: bytes) -> bytes:
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error
        return sealed


async def test_a_hook_that_fails_at_one_record_ends_no_stream(book: boki.Book) -> None:
    log = Log(book, hook=Fails(None, KeyError("no key")))
    a: list[Item] = []
    async with Follower(log, unexpected) as follower:
        follower.add("a", 1, into(a))
        first, broken, last = [await append(log, "a") for _ in range(3)]
        await until(lambda: len(a) == 3)
    assert isinstance(a[1], PayloadHookFailed) and a[1].seqnum == broken and seqnums(a) == [first, last]


async def test_a_hook_that_is_unavailable_is_called_again(book: boki.Book) -> None:
    log = Log(book, hook=Fails(ConnectionError("no service"), None))
    a: list[Item] = []
    async with Follower(log, unexpected) as follower:
        follower.add("a", 1, into(a))
        both = [await append(log, "a"), await append(log, "b")]
        await until(lambda: len(a) == 1)
    assert seqnums(a) == both[:1]


async def test_more_streams_than_a_cursor_takes_are_read_by_more_cursors(log: Log, follower: Follower) -> None:
    received: dict[str, list[Item]] = {f"t{number}": [] for number in range(CURSOR_TAGS + 5)}
    for tag, items in received.items():
        follower.add(tag, 1, into(items))
    assert follower.cursors == 2
    for tag in received:
        await append(log, tag)
    await until(lambda: all(len(items) == 1 for items in received.values()))
    for tag in list(received)[:CURSOR_TAGS]:
        follower.discard(tag)
    assert follower.cursors == 1


async def test_broken_connections_leave_nothing_out_and_give_nothing_twice(cluster: MemoryCluster, log: Log) -> None:
    other = Log((await cluster.connect()).book("b"))
    a: list[Item] = []
    placed = []
    async with Follower(log, unexpected) as follower:
        follower.add("a", 1, into(a))
        for number in range(40):
            placed.append(await append(other, "a", "b"))
            if number % 10 == 5:
                cluster.disconnect()
        await until(lambda: len(a) >= len(placed))
        assert seqnums(a) == placed


@pytest.mark.parametrize("reason", REASONS, ids=["of the log", "of a subscriber"])
async def test_a_cursor_that_fails_for_good_is_reported_and_its_streams_can_be_added(
    book: boki.Book, reason: Exception
) -> None:
    deaf = DeafBook(book, reason)
    log, failed = Log(deaf_port(deaf)), list[Exception]()
    a: list[Item] = []
    async with Follower(log, failed.append) as follower:
        follower.add("a", 1, into(a))
        first = await append(log, "a")
        await until(lambda: len(a) == 1)
        deaf.deaf.set()
        await until(lambda: bool(failed))
        assert failed == [reason] and "a" not in follower and not follower.cursors
        deaf.deaf.clear()
        second = await append(log, "a")
        follower.add("a", first + 1, into(a))
        await until(lambda: len(a) == 2)
    assert seqnums(a) == [first, second] and failed == [reason]


async def test_a_subscriber_that_raises_is_reported_with_its_stack(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = list[Exception]()

    def mistaken(_: Item) -> None:
        raise KeyError("a mistake")

    async with Follower(log, failed.append) as follower:
        follower.add("a", 1, mistaken)
        await append(log, "a")
        await until(lambda: bool(failed))
    assert repr(failed) == "[KeyError('a mistake')]"
    said = capsys.readouterr().err
    assert "follower ended" in said and "in mistaken" in said


async def test_who_follows_is_told_that_the_client_is_closed(cluster: MemoryCluster) -> None:
    client = await cluster.connect()
    log, failed = Log(client.book("b")), list[Exception]()
    async with Follower(log, failed.append) as follower:
        follower.add("a", 1, into([]))
        await append(log, "a")
        await client.close()
        await until(lambda: bool(failed))
    assert [type(one) for one in failed] == [ClosedError]


# -- subscriptions of one cursor


@pytest.fixture
def some() -> Subscriptions[str]:
    found: Subscriptions[str] = Subscriptions()
    found.add("a", 1, "A")
    found.add("b", 5, "B")
    return found


def test_a_record_is_given_to_each_of_its_tags_from_where_they_begin_and_once(some: Subscriptions[str]) -> None:
    assert some.of_record(("a", "b", "other", 7), 4) == ["A"]
    assert some.of_record(("a", "b"), 5) == ["A", "B"]
    assert some.of_record(("a", "b"), 5) == []
    assert some.starts() == [("a", 6), ("b", 6)]


def test_who_comes_later_is_given_what_others_were_given_before(some: Subscriptions[str]) -> None:
    some.of_record(("a", "c"), 4)
    some.add("c", 1, "C")
    assert some.of_record(("a", "c"), 4) == ["C"]


def test_a_gap_is_its_tags_and_once_and_what_was_lost_is_everybodys(some: Subscriptions[str]) -> None:
    assert some.of_gap("b", 1, 9) == ["B"]
    assert some.of_gap("b", 1, 9) == [] and some.of_record(("b",), 9) == []
    assert some.of_record(("b",), 10) == ["B"]
    assert some.of_gap(None, 12, 12) == ["A", "B"]


def test_who_is_gone_is_given_nothing(some: Subscriptions[str]) -> None:
    some.discard("a")
    some.discard("never")
    assert some.of_record(("a",), 9) == [] and some.of_gap(None, 1, 20) == ["B"]
    assert "a" not in some and len(some) == 1


def test_bounds(some: Subscriptions[str]) -> None:
    with pytest.raises(InvalidArgument, match="already"):
        some.add("a", 1, "again")
    with pytest.raises(InvalidArgument, match="at least 1"):
        some.add("c", 0, "C")
    for number in range(CURSOR_TAGS - 2):
        assert not some.full
        some.add(str(number), 1, "")
    assert some.full


async def test_a_stream_that_begins_again_misses_nothing_that_it_shares_with_another(
    log: Log, follower: Follower
) -> None:
    """The cursor has read a shared record when the other stream begins, and has not delivered it."""
    b: list[Item] = []
    placed = [await append(log, *tags) for tags in (("a",), ("b",), ("b",), ("a", "b"))]

    def begin(item: Item) -> None:
        if isinstance(item, Read) and item.record.seqnum == placed[0]:
            follower.add("b", 1, into(b))

    follower.add("a", 1, begin)
    await until(lambda: len(b) == 3)
    assert seqnums(b) == placed[1:]


class SlowHook:
    """A hook that waits while it opens, as one that fetches keys does.

    Attributes:
        opening: set while a record is opened.
        go: lets it be opened.
    """

    name = "slow"

    def __init__(self) -> None:
        self.opening = asyncio.Event()
        self.go = asyncio.Event()

    async def seal(self, events: bytes) -> bytes:
        return events

    async def open(self, sealed: bytes) -> bytes:
        self.opening.set()
        await self.go.wait()
        return sealed


async def test_a_stream_that_begins_while_a_shared_record_is_opened_misses_nothing(book: boki.Book) -> None:
    hook = SlowHook()
    log = Log(book, hook=hook)
    b: list[Item] = []
    placed = [await append(log, *tags) for tags in (("b",), ("b",), ("a", "b"))]
    async with Follower(log, unexpected) as follower:
        follower.add("a", placed[2], into([]))
        await hook.opening.wait()
        follower.add("b", 1, into(b))
        hook.go.set()
        await until(lambda: len(b) == 3)
    assert seqnums(b) == placed
