"""One term on loopback, with acknowledgements given by hand where it matters."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from boki_common import limits
from boki_common.errors import BokiError, InvalidArgument, NotEnoughBookies, Overloaded, SlotNotInTerm, TermOver
from boki_common.ids import Position, slot_of
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.metalog_entry import Close, Expire, Lost, Open, ShardEnd, Trim, decode
from boki_metalog.errors import ShardNotOpen, TermFull
from boki_metalog.terms.view import SlotRange

A, B = "aa" * 16, "bb" * 16
TRIM = Trim(1, ((0, 99),), False)


def asking(*calls: Coroutine[Any, Any, Position]) -> list[asyncio.Task[Position]]:
    return [asyncio.get_running_loop().create_task(call) for call in calls]


async def test_no_entry_waits_for_the_end_of_a_turn(cluster: Any, sequencer: Any, engine: Any) -> None:
    """One is in flight at a time, so nothing could join it."""
    await engine.open(1, A, 50)
    await engine.order(1, TRIM)
    ledger = cluster.metalog(sequencer)
    assert len(ledger.entries) == 2 and ledger.waited == []


async def test_what_is_not_acknowledged_is_never_pushed(cluster: Any, sequencer: Any, engine: Any) -> None:
    assert await engine.subscribe(1) == (0, 0)
    assert await engine.open(1, A, 50) == 0
    first = await engine.entries()
    assert (first.term, first.first) == (1, 0)
    assert decode(first.payloads[0]).commands == (Open(0, A, 50),)
    ledger = cluster.hold(sequencer)
    cluster.clock.ms = 5_000
    assert sequencer.status()["term"]["now_ms"] == 5_000, "for engines that compare clocks"
    engine.report(1, s0=(3, 1))
    await engine.round_trip()
    assert len(ledger.entries) == 2, "submitted at once"
    engine.report(1, s0=(4, 2))
    engine.report(1, s0=(9, 3))
    await engine.round_trip()
    assert len(ledger.entries) == 2, "one in flight"
    assert engine.received == []
    ledger.ack()
    assert len(ledger.entries) == 3, "the acknowledgement submits the next one at once"
    second = decode((await engine.entries()).payloads[0])
    assert (second.end_pos, second.time_ms, second.shards) == (3, 5_000, (ShardEnd(0, 3, 1),))
    assert engine.received == []
    ledger.ack()
    third = await engine.entries()
    assert third.first == 2 and decode(third.payloads[0]).shards == (ShardEnd(0, 9, 3),)


async def test_open_and_close_are_answered_when_acknowledged_and_may_be_repeated(cluster: Any, sequencer: Any) -> None:
    cluster.ledgers.hold_acks = True
    engine = await cluster.participant(sequencer.address)
    ledger = cluster.metalog(sequencer)
    opening = asyncio.ensure_future(engine.open(1, A, 50))
    again = asyncio.ensure_future(engine.open(1, A, 50))
    await engine.round_trip()
    assert not opening.done() and not again.done()
    ledger.ack()
    assert (await opening, await again, await engine.open(1, A, 50)) == (0, 0, 0)
    engine.report(1, s0=(2, 1))
    closing = asyncio.ensure_future(engine.close_shard(1, 0))
    await engine.round_trip()
    ledger.ack()
    await engine.round_trip()
    assert not closing.done()
    ledger.ack()
    await closing
    await engine.close_shard(1, 0)
    for refused in (engine.open(1, A, 50), engine.close_shard(1, 8)):
        with pytest.raises(ShardNotOpen):
            await refused


async def test_a_late_report_is_refused_for_shards_that_ended_and_counts_for_others(cluster: Any) -> None:
    sequencer, engine = await cluster.served()
    await engine.open(1, A, 50)
    await engine.open(1, B, 51)
    await engine.close_shard(1, 0)
    await engine.subscribe(1, 3)
    engine.report(1, s0=(5, 1), s1=(2, 1))
    assert decode((await engine.entries()).payloads[0]).shards == (ShardEnd(1, 2, 1),)
    await engine.pushed(protocol.OP_REFUSED)
    engine.report(1, s1=(7, 1))
    await engine.pushed(protocol.OP_REFUSED)
    assert sequencer.status()["term"]["end_pos"] == 2


async def test_a_report_of_another_term_is_answered_that_it_is_over(engine: Any) -> None:
    engine.report(9, s0=(5, 1))
    assert protocol.decode_term(await engine.pushed(protocol.OP_TERM_OVER)) == 9
    for asked in (engine.open(9, A, 1), engine.close_shard(9, 0), engine.subscribe(9)):
        with pytest.raises(TermOver):
            await asked


async def test_old_entries_are_to_be_read_from_the_ledger(cluster: Any) -> None:
    _, engine = await cluster.served(recent_entries=2)
    for ledger in range(5):
        await engine.open(1, A, ledger)
    assert await engine.subscribe(1, 1) == (3, 5)
    await engine.round_trip()
    assert engine.received == []
    assert await engine.subscribe(1, 3) == (3, 5)
    entries = await engine.entries()
    assert (entries.first, len(entries.payloads)) == (3, 2)
    with pytest.raises(BokiError, match="acknowledged"):
        await engine.subscribe(1, 6)


async def test_a_lost_engine_is_closed_at_what_was_cut_after_the_grace(cluster: Any) -> None:
    sequencer = await cluster.serving(engine_grace_s=0.0)
    engine, other = await cluster.participant(sequencer.address), await cluster.participant(sequencer.address)
    await other.subscribe(1)
    await engine.open(1, A, 50)
    await other.open(1, B, 51)
    engine.report(1, s0=(6, 2))
    await engine.round_trip()
    engine.peer.close()
    found: list[Any] = []
    while not found or not found[-1].commands or not isinstance(found[-1].commands[0], Close):
        found += [decode(payload) for payload in (await other.entries()).payloads]
    assert found[-1].shards[0] == ShardEnd(0, 6, 2) and found[-1].commands == (Close(0),)


async def test_an_engine_that_comes_back_keeps_its_shards(cluster: Any) -> None:
    sequencer, engine = await cluster.served()
    await engine.open(1, A, 50)
    again = await cluster.participant(sequencer.address, A)
    engine.peer.close()
    await engine.lost.wait()
    await again.round_trip()
    server = cluster.server_of(sequencer)
    assert server._owners.graces == {} and server.status()["engines"] == [A]
    again.peer.close()
    await again.lost.wait()
    third = await cluster.participant(sequencer.address)
    while not server._owners.graces:
        await third.round_trip()
    fourth = await cluster.participant(sequencer.address, A, B)
    assert server._owners.graces == {}
    await fourth.subscribe(1, 1)
    fourth.report(1, s0=(1, 1))
    assert decode((await fourth.entries()).payloads[0]).shards == (ShardEnd(0, 1, 1),)


async def test_a_subscriber_that_takes_nothing_is_dropped_with_a_reason(cluster: Any) -> None:
    sequencer, engine = await cluster.served(subscriber_unsent_bytes=1)
    await engine.subscribe(1)
    server = cluster.server_of(sequencer)
    cluster.ledgers.hold_acks = True
    opening = asyncio.ensure_future(engine.open(1, A, 50))
    await engine.round_trip()
    peer = next(iter(server._subscribers.peers))
    while peer.unsent_bytes <= 1:  # whatever room the system's buffers have: nobody reads while we push
        peer.push(protocol.OP_REFUSED, bytes(2**20))
    cluster.metalog(sequencer).ack()
    assert server._subscribers.peers == {}
    assert await opening == 0
    await engine.pushed(protocol.OP_LAGGED)
    assert await engine.subscribe(1) == (0, 1)
    assert (await engine.entries()).first == 0


async def test_entries_in_flight_at_the_end_of_a_term(cluster: Any) -> None:
    cluster.ledgers.hold_acks = True
    _, engine = await cluster.served()
    await engine.subscribe(1)
    opening = asyncio.ensure_future(engine.open(1, A, 50))
    await engine.round_trip()
    await cluster.sequencer(take_over=True)
    with pytest.raises(TermOver):
        await opening
    cluster.ledgers.ack(0)
    await engine.pushed(protocol.OP_TERM_OVER)
    assert engine.received == []


async def test_an_unknown_message(engine: Any) -> None:
    with pytest.raises(BokiError, match="knows no opcode 77"):
        await engine.peer.call(77)


async def test_a_command_is_answered_with_the_position_after_its_acknowledged_entry(cluster: Any) -> None:
    sequencer, engine = await cluster.served()
    await engine.subscribe(1)
    await engine.open(1, A, 50)
    await engine.entries()
    ledger = cluster.hold(sequencer)
    engine.report(1, s0=(3, 1))
    (trimming, expiring) = asking(engine.order(1, TRIM), engine.order(1, Expire(1, bytes(16), 4)))
    await engine.round_trip()
    assert sequencer.status()["term"]["orders_waiting"] == 2
    ledger.ack()
    await engine.round_trip()
    assert not trimming.done() and not expiring.done(), "their entry is in flight"
    ledger.ack()
    assert await trimming == await expiring == Position(1, 3)
    assert (await engine.entries()).first == 1
    assert decode((await engine.entries()).payloads[0]).commands == (TRIM, Expire(1, bytes(16), 4))


async def test_an_idle_sequencer_makes_one_empty_entry_for_all_barriers_that_wait(cluster: Any) -> None:
    sequencer, engine = await cluster.served()
    await engine.subscribe(1)
    assert await engine.barrier() == Position(1, 1)
    assert decode((await engine.entries()).payloads[0]).commands == ()
    ledger = cluster.hold(sequencer)
    waiting = asking(*(engine.barrier() for _ in range(5)))
    await engine.round_trip()
    assert len(ledger.entries) == 2
    ledger.ack()
    assert await waiting[0] == Position(1, 2), "who found nothing in flight began the entry"
    assert len(ledger.entries) == 3
    ledger.ack()
    assert {await one for one in waiting[1:]} == {Position(1, 3)}, "all others share the next"
    assert len(ledger.entries) == 3


async def test_a_barrier_is_not_answered_by_an_entry_that_began_before_it(cluster: Any) -> None:
    sequencer, engine = await cluster.served()
    await engine.open(1, A, 50)
    ledger = cluster.hold(sequencer)
    engine.report(1, s0=(3, 1))
    await engine.round_trip()
    (waiting,) = asking(engine.barrier())
    engine.report(1, s0=(5, 2))
    await engine.round_trip()
    ledger.ack()
    await engine.round_trip()
    assert not waiting.done()
    ledger.ack()
    assert await waiting == Position(1, 3), "the next entry, which cuts something, serves"
    await engine.round_trip()
    assert len(ledger.entries) == 3, "none was made for the barrier alone"


@pytest.mark.parametrize("in_flight", [False, True], ids=["idle", "an entry in flight"])
async def test_a_fenced_sequencer_answers_no_order_and_no_barrier(cluster: Any, in_flight: bool) -> None:
    """Its last cut may be stale while the next term acknowledges (and it does not know): only an entry could tell."""
    sequencer, engine = await cluster.served()
    await engine.open(1, A, 50)
    ledger = cluster.metalog(sequencer)
    if in_flight:
        cluster.ledgers.hold_acks = True
        cluster.ledgers.keep_unacked = 1
        engine.report(1, s0=(3, 1))
        await engine.round_trip()
    await cluster.ledgers.open(ledger.ledger_id, recover=True)
    assert cluster.server_of(sequencer).over is None, "it does not know"
    waiting = asking(engine.barrier(), engine.order(1, TRIM), engine.barrier())
    await engine.round_trip()
    if in_flight:
        cluster.server_of(sequencer)._acked(1)  # the quorum had the entry before the fence, and says so only now
    for one in waiting:
        with pytest.raises(TermOver):
            await one
    assert len(ledger.entries) == 1 + in_flight
    with pytest.raises(TermOver):
        await engine.barrier()


async def test_all_who_wait_are_notified_of_the_end_of_the_term(cluster: Any) -> None:
    cluster.ledgers.hold_acks = True
    _, engine = await cluster.served()
    waiting = asking(engine.order(1, TRIM), engine.barrier(), engine.order(1, TRIM))
    await engine.round_trip()
    cluster.ledgers.hold_acks = False
    await cluster.sequencer(take_over=True)
    definite = []
    for one in waiting:
        with pytest.raises(TermOver) as caught:
            await one
        definite.append(caught.value.definite)
    assert definite == [False, True, True], "the first is in an entry that recovery may keep, the others are in none"
    for late in (engine.order(1, TRIM), engine.barrier()):
        with pytest.raises(TermOver) as caught:
            await late
        assert caught.value.definite


async def test_messages_of_another_term_are_refused(sequencer: Any, engine: Any) -> None:
    for asked in (engine.order(2, TRIM), engine.barrier(2)):
        with pytest.raises(TermOver):
            await asked
    assert sequencer.status()["term"]["entries"] == 0


async def test_books_of_slots_that_the_term_does_not_order_are_refused(cluster: Any) -> None:
    sequencer, engine = await cluster.served()
    server = cluster.server_of(sequencer)
    assert server.slots == (SlotRange(0, limits.SLOTS - 1),)
    server.slots = (SlotRange(0, 9), SlotRange(500, 511))
    inside = next(book for book in range(10_000) if slot_of(book) == 511)
    outside = next(book for book in range(10_000) if slot_of(book) == 512)
    assert (await engine.order(1, Trim(inside, ((0, 9),), False))).term == 1
    for command in (Trim(outside, ((0, 9),), False), Expire(outside, bytes(16), 3)):
        with pytest.raises(SlotNotInTerm, match="read /boki/view") as caught:
            await engine.order(1, command)
        assert caught.value.definite and caught.value.retryable and caught.value.slot == 512
    assert server.recent.end == 1


async def test_what_was_not_ordered_cannot_be_lost(engine: Any) -> None:
    await engine.open(1, A, 50)
    engine.report(1, s0=(9, 3))
    for term, shard, stop in ((1, 0, 4), (1, 1, 1), (2, 0, 1)):
        with pytest.raises(InvalidArgument, match="ordered"):
            await engine.order(1, Lost(term, shard, 0, stop, b"{}"))
    assert await engine.order(1, Lost(1, 0, 1, 3, b"{}")) == Position(1, 3)


async def test_those_who_wait_are_bounded(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BARRIERS_WAITING", 2)
    monkeypatch.setattr(limits, "ORDERS_WAITING", 2)
    sequencer = await cluster.serving()
    cluster.ledgers.hold_acks = True
    engine = await cluster.participant(sequencer.address)
    ledger = cluster.metalog(sequencer)
    opening = [asyncio.ensure_future(engine.open(1, A, 50)) for _ in range(2)]
    waiting = asking(*(engine.barrier() for _ in range(2)), *(engine.order(1, TRIM) for _ in range(2)))
    await engine.round_trip()
    for refused in (engine.barrier(), engine.order(1, TRIM), engine.open(1, A, 50), engine.close_shard(1, 0)):
        with pytest.raises(Overloaded):
            await refused
    ledger.ack()
    ledger.ack()
    assert {await one for one in waiting} == {Position(1, 2)} and [await one for one in opening] == [0, 0]


async def test_a_command_of_a_lost_connection_is_ordered_and_its_barriers_are_forgotten(cluster: Any) -> None:
    sequencer = await cluster.serving()
    ledger = cluster.hold(sequencer)
    engine, other = await cluster.participant(sequencer.address), await cluster.participant(sequencer.address)
    (first,) = asking(other.barrier())
    await other.round_trip()
    gone = asking(engine.order(1, TRIM), engine.barrier())
    await engine.round_trip()
    (second,) = asking(other.order(1, Trim(2, ((0, 1),), False)))
    await other.round_trip()
    engine.peer.close()
    await asyncio.gather(*gone, return_exceptions=True)
    await cluster.until(lambda: not cluster.server_of(sequencer)._waiters.barriers)
    ledger.ack()
    ledger.ack()
    assert (await first, await second) == (Position(1, 1), Position(1, 2))


async def test_a_term_with_its_share_of_shards_ends_and_the_same_sequencer_goes_on(cluster: Any) -> None:
    sequencer = await cluster.serving(term_shards=2)
    first = cluster.server_of(sequencer)
    written = cluster.metalog(sequencer)
    engine, link = await cluster.linked(1)
    await link.open_shard(A, 50)
    await link.open_shard(B, 51)
    link.report(0, 5, 1)
    await engine.seen.until(lambda: engine.seen.vector.end_pos == 5)
    assert first.over is None, "each of two engines has its first shard"
    cluster.ledgers.hold_acks = True
    closing = asyncio.ensure_future(link.close_shard(0))
    await cluster.until(lambda: len(written.entries) == 4)
    (waiting,) = asking(link.barrier())
    link.report(1, 3, 1)
    await cluster.until(lambda: len(first._waiters.barriers) == 1)
    cluster.ledgers.hold_acks = False
    written.ack()
    assert isinstance(first.over, TermFull) and "2 shards" in str(first.over)
    await closing
    with pytest.raises(TermOver):
        await waiting
    await engine.seen.linked(2)
    assert sequencer.term == 2
    assert len(written.entries) == engine.seen.count(1) == 4, "it ended between two entries"


async def test_an_old_term_ends_without_traffic_but_not_an_empty_one(cluster: Any) -> None:
    sequencer = await cluster.serving(term_age_s=0.1)
    engine, link = await cluster.linked(1)
    await link.open_shard(A, 50)
    assert cluster.server_of(sequencer)._rolling._timer is None, "nothing was ordered"
    link.report(0, 5, 1)
    async with asyncio.timeout(10):
        await engine.seen.linked(2)
    assert cluster.server_of(sequencer).term == 2 and cluster.server_of(sequencer)._rolling._timer is None


async def test_an_old_term_with_an_entry_in_flight_ends_after_it(cluster: Any) -> None:
    sequencer = await cluster.serving(term_age_s=0.1)
    engine, link = await cluster.linked(1)
    await link.open_shard(A, 50)
    link.report(0, 5, 1)
    await engine.seen.until(lambda: engine.seen.count(1) == 2)
    first, cluster.ledgers.hold_acks = cluster.server_of(sequencer), True
    link.report(0, 6, 2)
    await cluster.until(lambda: first._in_flight is not None)
    await cluster.until(lambda: first._rolling._perhaps)
    cluster.ledgers.hold_acks = False
    cluster.metalog(sequencer).ack()
    assert isinstance(first.over, TermFull) and first.vector.end_pos == 6
    await engine.seen.linked(2)


async def test_a_long_metalog_ends_its_term(cluster: Any) -> None:
    sequencer = await cluster.serving(term_entries=100)
    engine, link = await cluster.linked(1)
    for _ in range(99):
        await link.barrier()
    assert sequencer.term == 1
    assert await link.barrier() == Position(1, 100)
    await engine.seen.linked(2)
    assert engine.seen.count(1) == 100


async def test_a_term_lasts_until_the_next_one_can_begin(cluster: Any) -> None:
    """A roll is a convenience: without bookies for another metalog the term goes on."""
    first = await cluster.serving()
    second = await cluster.sequencer(term_entries=100)
    await cluster.until(lambda: second.status()["spare_ledger"] is not None)
    cluster.ledgers.faults += [("create", NotEnoughBookies("one is down")) for _ in range(10_000)]
    await first.close()
    await second.serving()
    engine, link = await cluster.linked(2)
    for _ in range(110):
        await link.barrier()
    assert second.term == 2
    cluster.ledgers.faults.clear()
    async with asyncio.timeout(10):
        while second.term == 2:
            await asyncio.gather(link.barrier(), return_exceptions=True)
    await engine.seen.linked(3)
