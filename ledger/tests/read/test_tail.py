"""Following a ledger by long polls: every entry once, in order, as soon as it is certain, whatever happens to bookies."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from boki_common.bookkeeper.status import V2Status
from boki_common.errors import ClosedError, InvalidArgument, NoSuchEntry, NoSuchLedger
from boki_ledger.read.reader import LedgerReader
from boki_ledger.testing.ledgers import QUICK, Ledgers, submit, turns, until
from boki_ledger.transport import PollAnswer
from boki_ledger.write.writer import LedgerWriter

SOON = replace(QUICK, explicit_lac_ms=1.0)


class Follower:
    """A task that follows, and what it got."""

    def __init__(self, reader: LedgerReader, start: int = 0) -> None:
        self.got: list[tuple[int, bytes]] = []
        self.reader = reader
        self.task = asyncio.ensure_future(self._run(start))

    async def _run(self, start: int) -> None:
        async for entry_id, payload in self.reader.follow(start, wait_s=30.0):
            self.got.append((entry_id, bytes(payload)))

    async def receives(self, writer: LedgerWriter, first: int, count: int) -> None:
        """What the writer appends."""
        await append(writer, first, count)
        await self.reaches(first + count)

    async def ends(self, writer: LedgerWriter) -> None:
        """With the close."""
        await writer.close()
        await self.task

    async def reaches(self, count: int) -> None:
        await until(lambda: len(self.got) >= count or self.task.done())
        assert self.got == [(number, b"%d" % number) for number in range(count)]


async def followed(ledgers: Ledgers, count: int = 0) -> tuple[LedgerWriter, Follower]:
    """Its writer has appended so many entries, and they came."""
    writer = await (await ledgers.other_client(SOON)).create()
    follower = Follower(await ledgers.client.open(writer.ledger_id, recover=False))
    await follower.receives(writer, 0, count)
    return writer, follower


async def append(writer: LedgerWriter, first: int, count: int) -> None:
    for number in range(first, first + count):
        await writer.append(b"%d" % number)


def asked(ledgers: Ledgers, kind: str) -> int:
    return sum(message.kind == kind and not message.answer for message in ledgers.bookies.seen)


async def test_entries_arrive_as_they_are_acknowledged_and_the_end_with_the_close(ledgers: Ledgers) -> None:
    writer, follower = await followed(ledgers)
    for number in range(5):
        await follower.receives(writer, number, 1)
    await append(writer, 5, 200)
    await follower.ends(writer)
    await follower.reaches(205)


async def test_the_entry_that_a_long_poll_brings_is_not_read_again(ledgers: Ledgers) -> None:
    writer, follower = await followed(ledgers, 1)
    reads = asked(ledgers, "read")
    for number in range(1, 6):
        await follower.receives(writer, number, 1)
    assert asked(ledgers, "read") == reads
    await follower.ends(writer)


async def test_one_poll_waits_at_each_bookie_and_nothing_else_happens_meanwhile(ledgers: Ledgers) -> None:
    writer, follower = await followed(ledgers, 1)
    await until(lambda: all(ledgers.bookies[one].lacs.waiting == 1 for one in ("b1", "b2", "b3")))
    seen = len(ledgers.bookies.seen)
    await turns(300)
    assert len(ledgers.bookies.seen) == seen
    await follower.ends(writer)
    await turns()


async def test_a_fenced_ledger_is_followed_to_where_recovery_closes_it(ledgers: Ledgers) -> None:
    writer, follower = await followed(ledgers, 3)
    held = ledgers.bookies.hold(kind="add", recovery=False, bookie="b1")
    writer.submit(b"3")
    writer.submit(b"4")
    other = await ledgers.other_client()
    reader = await other.open(writer.ledger_id, recover=True)
    assert reader.last_entry == 4
    await follower.task
    await follower.reaches(5)
    held.discard()


async def test_a_fence_that_nobody_finishes_costs_no_busy_loop_and_ends_with_the_recovery(ledgers: Ledgers) -> None:
    writer, follower = await followed(ledgers, 2)
    for bookie in ("b1", "b2", "b3"):
        ledgers.bookies[bookie].read(writer.ledger_id, -1, writer._key)
    await turns(400)
    polls = asked(ledgers, "poll")
    await turns(400)
    assert asked(ledgers, "poll") - polls < 100, "bookies that answer at once without news rest"
    await ledgers.client.open(writer.ledger_id, recover=True)
    await follower.task
    await follower.reaches(2)


async def test_the_loss_of_a_bookie_and_a_change_of_the_ensemble_are_survived(ledgers: Ledgers) -> None:
    writer, follower = await followed(ledgers, 2)
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    ledgers.bookies.crash("b2")
    await follower.receives(writer, 2, 3)
    await until(lambda: "b4" in follower.reader.metadata.ensembles[-1][1])
    ledgers.bookies.crash("b1")
    await follower.receives(writer, 5, 2)
    ledgers.bookies.restart("b1")
    await follower.ends(writer)


@pytest.mark.parametrize("refusing", [("b1",), ("b1", "b2", "b3")])
async def test_where_long_polls_are_refused_the_lac_is_polled(ledgers: Ledgers, refusing: tuple[str, ...]) -> None:
    for bookie in refusing:
        ledgers.bookies[bookie].serves_polls = False
    writer, follower = await followed(ledgers)
    for number in range(3):
        await follower.receives(writer, number, 1)
    await follower.ends(writer)


async def test_polls_whose_time_is_over_are_asked_again(ledgers: Ledgers) -> None:
    writer, follower = await followed(ledgers, 1)
    for bookie in ("b1", "b2", "b3"):
        ledgers.bookies.end_polls(bookie)
    await until(lambda: all(ledgers.bookies[one].lacs.waiting == 1 for one in ("b1", "b2", "b3")))
    await follower.receives(writer, 1, 1)
    await follower.ends(writer)


async def test_a_bookie_that_lags_and_forgets_polls_as_apaches_do_is_followed(ledgers: Ledgers) -> None:
    writer, follower = await followed(ledgers, 1)
    late = ledgers.bookies["b3"]
    late.lacs.forgetful = True
    held = [ledgers.bookies.hold(kind=kind, bookie="b3") for kind in ("add", "write_lac")]
    await follower.receives(writer, 1, 2)
    polls = asked(ledgers, "poll")
    ledgers.bookies.end_polls("b3")  # it is asked again, and still knows nothing of entries 1 and 2
    await until(lambda: asked(ledgers, "poll") > polls and late.lacs.waiting == 1)
    for bookie in ("b1", "b2"):
        ledgers.bookies.hold(kind="poll", answer=True, bookie=bookie)
    for one in held:
        one.release()
    await until(lambda: late.lac(writer.ledger_id) == 2)
    await follower.receives(writer, 3, 1)
    await follower.ends(writer)


async def test_the_word_of_one_bookie_about_the_lac_confirms_nothing(ledgers: Ledgers, writer: LedgerWriter) -> None:
    """A damaged answer must not make an entry that recovery may drop look certain."""
    await append(writer, 0, 2)
    liar = ledgers.bookies["b1"]
    honest = liar.poll

    def poll(ledger_id: int, previous_lac: int, reply: object) -> None:
        honest(ledger_id, previous_lac, lambda answer: reply(PollAnswer(answer.status, 99, answer.body)))  # type: ignore[operator]

    liar.poll = poll  # type: ignore[method-assign]
    follower = Follower(await ledgers.client.open(writer.ledger_id, recover=False))
    await follower.reaches(1)
    ledgers.bookies.end_polls("b1")
    await turns(200)
    assert follower.got == [(0, b"0")] and follower.reader.last_entry == 0
    await follower.ends(writer)
    await follower.reaches(2)


async def test_following_starts_anywhere_and_ends_at_once_behind_a_closed_end(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    await append(writer, 0, 3)
    await writer.close()
    reader = await ledgers.client.open(writer.ledger_id, recover=False)
    assert [entry_id async for entry_id, _ in reader.follow(1, wait_s=1.0)] == [1, 2]
    assert [entry_id async for entry_id, _ in reader.follow(3, wait_s=1.0)] == []
    for start, wait_s in ((-1, 1.0), (0, 0.0)):
        with pytest.raises(InvalidArgument):
            reader.follow(start, wait_s=wait_s)


async def test_a_reader_that_is_closed_or_a_ledger_that_is_deleted_ends_it(ledgers: Ledgers) -> None:
    writer, follower = await followed(ledgers, 1)
    await follower.reader.close()
    with pytest.raises(ClosedError):
        await follower.task
    other = Follower(await ledgers.client.open(writer.ledger_id, recover=False))
    await other.reaches(1)
    await ledgers.client.delete(writer.ledger_id)
    with pytest.raises(NoSuchLedger):
        await other.task


async def test_a_follower_that_stops_leaves_nothing_behind(ledgers: Ledgers, writer: LedgerWriter) -> None:
    reader = await ledgers.client.open(writer.ledger_id, recover=False)
    entries = reader.follow(0, wait_s=30.0)
    waiting = asyncio.ensure_future(anext(entries))
    await turns()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert all(future.done() for future in ledgers.bookies._asked)


async def test_what_is_not_confirmed_is_read_only_when_asked_so(ledgers: Ledgers, writer: LedgerWriter) -> None:
    await append(writer, 0, 1)
    held = ledgers.bookies.hold(kind="add", bookie="b2")
    also = ledgers.bookies.hold(kind="add", bookie="b3")
    await submit(writer, b"1")
    reader = await ledgers.client.open(writer.ledger_id, recover=False)
    assert [bytes(one) for one in await reader.read_unconfirmed(0, 1)] == [b"0", b"1"]
    assert reader.last_entry < 1
    with pytest.raises(NoSuchEntry):
        await reader.read_unconfirmed(0, 2)
    with pytest.raises(InvalidArgument):
        await reader.read_unconfirmed(1, 0)
    ledgers.bookies.answer(V2Status.IO_ERROR, kind="read", fence=False)
    held.discard()
    also.discard()
    await writer.close()
    await until(lambda: reader.closed)
    with pytest.raises(NoSuchEntry, match="ends at entry 0"):
        await reader.read_unconfirmed(0, 1)
