"""`submit`, the window, and `append_many`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import boki
from boki_common import limits
from itests.support.sdk_client import collect, present

if TYPE_CHECKING:
    from itests.sdk.conftest import Cluster


async def test_tickets_give_the_seqnums_in_order(book: boki.Book) -> None:
    tickets = [book.submit(str(number).encode(), tags=["t"]) for number in range(100)]
    assert not any(ticket.done() for ticket in tickets)
    seqnums = [await ticket for ticket in tickets]
    assert seqnums == sorted(set(seqnums))
    assert all(ticket.done() for ticket in tickets)
    assert present(await book.read_prev("t")).data == b"99"


async def test_a_ticket_may_be_awaited_late_often_and_by_many(book: boki.Book) -> None:
    ticket = book.submit(b"x")
    seqnums = set(await asyncio.gather(*(_await(ticket) for _ in range(5))))
    assert seqnums == {await ticket}
    failing = book.submit(b"y", expect={0: None})
    for _ in range(2):
        with pytest.raises(boki.Conflict):
            await failing


async def _await(ticket: boki.Ticket) -> int:
    return await ticket


async def test_a_full_window_refuses_and_becomes_ready(book: boki.Book) -> None:
    tickets = [book.submit(b"x") for _ in range(limits.WINDOW_RECORDS)]
    with pytest.raises(boki.WindowFull, match=r"book\.ready"):
        _ = book.submit(b"one more")
    await book.ready()
    tickets.append(book.submit(b"one more"))
    await asyncio.gather(*(_await(ticket) for ticket in tickets))
    assert len(await collect(book.read())) == limits.WINDOW_RECORDS + 1


async def test_appends_wait_for_a_place_in_the_order_of_the_calls(book: boki.Book) -> None:
    datas = [str(number).encode() for number in range(3 * limits.WINDOW_RECORDS)]
    seqnums = await asyncio.gather(*(book.append(data) for data in datas))
    assert seqnums == sorted(seqnums)
    assert [record.data for record in await collect(book.read())] == datas


async def test_a_cancelled_append_withdraws_nothing(book: boki.Book) -> None:
    task = asyncio.create_task(book.append(b"cancelled"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    last = await book.append(b"last")
    assert present(await book.read_prev(at_most=last - 1)).data == b"cancelled"


async def test_a_cancelled_wait_for_a_place_gives_it_to_the_next(book: boki.Book) -> None:
    tickets = [book.submit(b"x") for _ in range(limits.WINDOW_RECORDS)]
    tasks = [asyncio.create_task(book.append(str(number).encode())) for number in range(4)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[2].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError, int, asyncio.CancelledError, int]
    assert all(ticket.done() for ticket in tickets)


async def test_closing_waits_for_what_was_submitted(cluster: Cluster, client: boki.Client, name: str) -> None:
    async with await cluster.connect() as other:
        tickets = [other.book(name).submit(b"x") for _ in range(10)]
    assert all(ticket.done() for ticket in tickets)
    assert present(await client.book(name).check_tail()).seqnum == await tickets[-1]


async def test_append_many(book: boki.Book) -> None:
    records = [(str(number).encode(), ["all", f"mod {number % 3}"]) for number in range(2_500)]
    seqnums = await book.append_many(records)
    assert seqnums == sorted(set(seqnums))
    found = await collect(book.read("all"))
    assert [(record.seqnum, record.data, list(record.tags)) for record in found] == [
        (seqnum, data, tags) for seqnum, (data, tags) in zip(seqnums, records, strict=True)
    ]
    assert [record.seqnum for record in await collect(book.read("mod 1"))] == seqnums[1::3]


async def test_append_many_of_nothing(book: boki.Book) -> None:
    assert await book.append_many([]) == []


async def test_append_many_takes_any_iterable(book: boki.Book) -> None:
    assert len(await book.append_many((bytes([number]), ()) for number in range(10))) == 10


async def test_append_many_beside_others_keeps_each_order(book: boki.Book) -> None:
    async def many(name: str) -> list[int]:
        return await book.append_many([(f"{name} {number}".encode(), [name]) for number in range(700)])

    async def single(name: str) -> list[int]:
        return [await book.append(f"{name} {number}".encode(), tags=[name]) for number in range(50)]

    results = await asyncio.gather(many("a"), many("b"), single("c"))
    for name, seqnums in zip("abc", results, strict=True):
        found = await collect(book.read(name))
        assert [record.seqnum for record in found] == seqnums
        assert [record.data for record in found] == [f"{name} {number}".encode() for number in range(len(seqnums))]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ((b"x", "tags"), "list or tuple"),
        ((b"x", [0]), "from 1"),
        (("x", []), "as bytes"),
        ((b"x",), "pair"),
        (b"x", "pair"),
        ((bytes(limits.RECORD_BYTES + 1), []), "at most"),
    ],
)
async def test_append_many_checks_all_before_it_sends_any(book: boki.Book, record: object, message: str) -> None:
    with pytest.raises(boki.InvalidArgument, match=message) as caught:
        await book.append_many([(b"fine", []), (b"fine", ["a"]), record, (b"fine", [])])  # type: ignore[list-item]
    assert caught.value.index == 2
    assert await book.check_tail() is None


async def test_the_session_sees_what_it_appended(client: boki.Client, name: str) -> None:
    book = client.book(name)
    for number in range(50):
        seqnum = await book.append(str(number).encode(), tags=["t"])
        assert present(await book.check_tail("t")).seqnum == seqnum
        assert book.position is not None
        assert book.position >= seqnum
