"""Named writers when things fail between them and the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import pytest

import boki
from boki._arguments import writer_id
from boki.testing import MemoryCluster
from boki_common import limits
from boki_common.records.record_batch import RUN_NAMED
from boki_common.testing.virtual_time import VirtualTimeLoop

if TYPE_CHECKING:
    from tests.sdk.conftest import FaultyEngine, Serve


class SlowBook:
    """A book whose answers about writers come when a test lets them."""

    name = "b"

    def __init__(self, book: boki.Book) -> None:
        self.answered, self.come = asyncio.Event(), asyncio.Event()
        self.refresh_view = book.refresh_view
        self._book = book

    async def writer_last(self, writer: bytes, timeout: float | None) -> int:
        last = await self._book.writer_last(writer, timeout)
        self.answered.set()
        await self.come.wait()
        return last


async def test_every_run_says_that_its_writer_is_named(client: boki.Client, engine: FaultyEngine) -> None:
    writer = await client.book("b").writer("w")
    await writer.append(b"1")
    await writer.append_many([(b"2", []), (b"3", ["t"])])
    assert [(run.writer, run.first, run.flags & RUN_NAMED) for run in engine.runs] == [
        (writer_id("w"), 1, RUN_NAMED),
        (writer_id("w"), 2, RUN_NAMED),
    ]


async def test_after_giving_up_the_log_says_where_to_go_on(client: boki.Client, engine: FaultyEngine) -> None:
    writer = await client.book("b").writer("w")
    await writer.append(b"1")
    engine.lost_frames = 1
    ticket = writer.submit(b"lost")
    await asyncio.sleep(0)
    writer._appends.give_up(writer._numbers, "given up")
    with pytest.raises(boki.OutcomeUnknown):
        await ticket
    assert writer.last == 1
    await writer.append(b"2")
    assert writer.last == 2
    assert engine.ordered(client.book("b").id) == [b"1", b"2"]
    with pytest.raises(boki.NumberReused):
        await ticket.outcome()
    with pytest.raises(boki.NumberReused):
        await ticket.outcome(settle=True)


async def test_settling_a_named_record_tells_what_became_of_it_and_of_no_other(
    client: boki.Client, engine: FaultyEngine
) -> None:
    writer = await client.book("b").writer("w")
    for data in (b"", b"x"):
        engine.mute = True
        ticket = writer.submit(data)
        await asyncio.sleep(0)
        while not (found := engine.ordered(client.book("b").id)) or found[-1] != data:
            await asyncio.sleep(0)
        writer._appends.give_up(writer._numbers, "given up")
        engine.mute = False
        assert isinstance(await ticket.outcome(settle=True), boki.Committed)
        await writer.refresh()
    engine.lost_frames = 1
    empty = writer.submit(b"")
    await asyncio.sleep(0)
    writer._appends.give_up(writer._numbers, "given up")
    await writer.append(b"y")
    with pytest.raises(boki.NumberReused):
        await empty.outcome(settle=True)


async def test_one_client_uses_a_name_once_at_a_time(client: boki.Client, engine: FaultyEngine) -> None:
    one = await client.book("b").writer("w")
    other = await client.session().book("b").writer("w")
    engine.mute = True
    ticket = one.submit(b"1")
    with pytest.raises(boki.InvalidArgument, match="one user at a time"):
        _ = other.submit(b"2")
    engine.mute = False
    await asyncio.sleep(0)
    for peer in engine.peers:
        peer.close()
    await ticket
    await other.refresh()
    await other.append(b"2")
    assert engine.ordered(client.book("b").id) == [b"1", b"2"], "what was refused had no number"


async def test_a_repeat_of_a_number_that_is_under_way_waits_for_it_in_any_session(memory: MemoryCluster) -> None:
    client = await memory.connect()
    first, again, others = (client.session().book("b") for _ in range(3))
    with memory.losing_answers():
        pending = asyncio.ensure_future(first.append(b"pay", writer=("w", 1)))
        await asyncio.sleep(0)
        repeats = [asyncio.ensure_future(again.append(b"pay", writer=("w", 1))) for _ in range(2)]
        await asyncio.sleep(0)
    seqnum = await pending
    assert [await one for one in repeats] == [seqnum] * 2
    assert again.position is not None and again.position >= seqnum, "it sees what it appended"
    assert await others.append(b"pay", writer=("w", 1)) == seqnum
    assert [record.data async for record in others.read()] == [b"pay"]


async def test_other_numbers_of_a_writer_that_another_session_uses_are_refused_for_now(
    client: boki.Client, engine: FaultyEngine
) -> None:
    one, other = await client.book("b").writer("w"), await client.session().book("b").writer("w")
    await one.append(b"1")
    await other.refresh()
    engine.mute = True
    ticket = one.submit(b"2")
    with pytest.raises(boki.NumberReused, match="under way for another record"):
        await other.append_at(2, b"x")
    with pytest.raises(boki.WindowFull, match="cannot be taken yet"):
        await other.append_at(3, b"3")
    with pytest.raises(boki.InvalidArgument, match="no holes"):
        await other.append_at(4, b"4")
    engine.mute = False
    for peer in engine.peers:
        peer.close()
    await ticket
    assert await other.append_at(3, b"3") > await other.append_at(1, b"1")
    assert engine.ordered(client.book("b").id) == [b"1", b"2", b"3"]


def test_a_timeout_is_kept_by_all_that_a_call_waits_for() -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        async with MemoryCluster() as cluster:
            client = await cluster.connect()
            book, other = client.book("b"), client.session().book("b")
            seqnum = await (await cluster.connect()).book("b").append(b"seen by nobody here", tags=["a"])
            await book.writer("w")
            stale = await book.writer("stale")
            calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
                lambda: book.append(b"x", writer=("w", 1), timeout=0.5),
                lambda: book.append(b"x", writer=("w", 1), timeout=0.5),  # waits for the first
                lambda: other.append(b"x", writer=("w", 1), timeout=0.5),  # so does another session
                lambda: book.append(b"x", writer=("new", 1), timeout=0.5),
                lambda: stale.append(b"x", timeout=0.5),
                lambda: stale.append_many([(b"x", ())], timeout=0.5),
                lambda: stale.append_at(1, b"x", timeout=0.5),
                lambda: book.append(b"x", expect={"a": seqnum}, timeout=0.5),
                lambda: book.append(b"x", timeout=0.5),
            ]
            with cluster.losing_answers():
                _ = stale.submit(b"lost")
                await asyncio.sleep(0)
                stale._appends.give_up(stale._numbers, "given up")
                for at, call in enumerate(calls):
                    began = loop.time()
                    with pytest.raises((boki.OutcomeUnknown, boki.Unreachable, boki.CallTimeout)) as caught:
                        await call()
                    assert loop.time() - began == pytest.approx(0.5), at
                    assert caught.value.definite == (at in (4, 5, 7)), at
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(play())


async def test_who_waits_for_a_place_of_a_writer_that_is_given_up_gets_no_number(
    client: boki.Client, engine: FaultyEngine
) -> None:
    writer = await client.book("b").writer("w")
    engine.lost_frames = 1
    tickets = [writer.submit(b"x") for _ in range(limits.WINDOW_RECORDS)]
    waiting = [asyncio.ensure_future(writer.append(b"later")) for _ in range(limits.WINDOW_RECORDS + 1)]
    many = asyncio.ensure_future(writer.append_many([(b"many", ())]))
    while engine.lost_frames:
        await asyncio.sleep(0)
    client.book("b")._appends.give_up(writer._numbers, "given up")
    for call in (*waiting, many):
        with pytest.raises(boki.WindowFull, match="asks the log for its last number"):
            await call
    assert await tickets[-1].outcome(settle=True) == boki.Never()
    assert engine.ordered(client.book("b").id) == []


async def test_what_was_sent_of_many_is_unknown_when_their_writer_is_given_up(
    client: boki.Client, engine: FaultyEngine
) -> None:
    engine.mute = True
    writer = await client.book("b").writer("w")
    calls = asyncio.ensure_future(writer.append_many([(b"x", ())] * (limits.WINDOW_RECORDS + 1)))
    while not engine.runs:
        await asyncio.sleep(0)
    client.book("b")._appends.give_up(writer._numbers, "given up")
    with pytest.raises(boki.OutcomeUnknown, match="0 of 1025 records certainly are in the log"):
        await calls


async def test_an_append_gives_up_waiting_for_a_place_of_its_writer(client: boki.Client, engine: FaultyEngine) -> None:
    writer = await client.book("b").writer("w")
    engine.mute = True
    tickets = [writer.submit(b"x") for _ in range(limits.WINDOW_RECORDS)]
    for call in (writer.append(b"y", timeout=0), writer.append_many([(b"y", ())], timeout=0)):
        with pytest.raises(boki.WindowFull, match="nothing was sent"):
            await call
    engine.mute = False
    engine.peers[0].close()
    assert await tickets[-1] > 0


async def test_one_number_is_given_once_though_its_calls_look_at_the_book_first(serve: Serve) -> None:
    engine, url, _ = await serve()
    async with boki.connect(url) as one, boki.connect(url) as other:
        seen = await one.book("b").append(b"1", tags=["a"])
        book = other.book("b")
        calls = [book.append(b"pay", expect={"a": seen}, writer=("w", 1)) for _ in range(2)]
        assert len(set(await asyncio.gather(*calls))) == 1
        assert engine.ordered(book.id)[1:] == [b"pay"]


async def test_an_old_answer_about_a_writer_has_no_number_given_twice(
    client: boki.Client, engine: FaultyEngine
) -> None:
    book = client.book("b")
    writer, slow = await book.writer("w"), SlowBook(book)
    refreshing = asyncio.ensure_future(boki.Writer(slow, book._appends, writer._numbers, "w").refresh())
    await slow.answered.wait()
    await writer.append(b"x")
    slow.come.set()
    await refreshing
    await writer.append(b"x")
    assert engine.ordered(book.id) == [b"x", b"x"]


async def test_many_begin_at_their_number_or_not_at_all_whoever_waits_before_them(
    client: boki.Client, engine: FaultyEngine
) -> None:
    engine.mute = True
    writer = await client.book("b").writer("w")
    tickets = [writer.submit(b"x") for _ in range(limits.WINDOW_RECORDS)]
    waiting = [asyncio.ensure_future(writer.append(b"y"))]
    await asyncio.sleep(0)
    many = writer.append_many([(b"z", ())], first=limits.WINDOW_RECORDS + 1)
    behind = asyncio.ensure_future(many)
    await asyncio.sleep(0)
    waiting.append(asyncio.ensure_future(writer.append(b"y")))
    engine.mute = False
    engine.peers[0].close()
    with pytest.raises(boki.InvalidArgument, match="expected 1025 as the next number of writer 'w', found 1026"):
        await behind
    assert all([await ticket for ticket in tickets])
    assert await waiting[0] < await waiting[1]
    assert engine.ordered(client.book("b").id)[-3:] == [b"x", b"y", b"y"]


async def test_no_record_gets_the_number_of_one_before_it_that_was_not_in_time(memory: MemoryCluster) -> None:
    client = await memory.connect(timeout=20)
    book = client.book("b")
    await book.append(b"one", writer=("w", 1))
    memory.disconnect()  # whoever appends now is numbered before there is a connection again
    two = asyncio.create_task(book.append(b"two", writer=("w", 2), timeout=0))
    three = asyncio.create_task(book.append(b"three", writer=("w", 3)))
    with pytest.raises(boki.OutcomeUnknown):
        await two
    last = await three
    assert await book.append(b"three", writer=("w", 3)) == last
    assert await book.append(b"two", writer=("w", 2)) == last - 1
    assert [record.data async for record in book.read() if isinstance(record, boki.Record)] == [
        b"one",
        b"two",
        b"three",
    ]


async def test_a_number_under_way_is_awaited_not_sent_again(client: boki.Client, engine: FaultyEngine) -> None:
    book = client.book("b")
    writer = await book.writer("w")
    ticket = writer.submit(b"1", tags=["t"])
    assert await book.append(b"1", tags=["t"], writer=("w", 1)) == await ticket
    ticket = writer.submit(b"2")
    with pytest.raises(boki.NumberReused):
        await book.append(b"another", writer=("w", 2))
    await ticket
    assert [run.first for run in engine.runs] == [1, 2]


@pytest.mark.parametrize("name", ["", "x" * 256, 7, "\ud800"])
def test_what_is_no_name_of_a_writer(name: object) -> None:
    with pytest.raises(boki.InvalidArgument, match="writer"):
        writer_id(name)  # type: ignore[arg-type]
