"""One term on loopback, with acknowledgements given by hand where it matters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_common.errors import BokiError, TermOver
from boki_metalog import sequencer_protocol as protocol
from boki_metalog.errors import ShardNotOpen
from boki_metalog.metalog_entry import Close, Open, ShardEnd, decode

A, B = "aa" * 16, "bb" * 16


async def test_what_is_not_acknowledged_is_never_pushed(cluster: Any) -> None:
    sequencer = await cluster.sequencer()
    await sequencer.serving()
    engine = await cluster.participant(sequencer.address)
    assert await engine.subscribe(1) == (0, 0)
    assert await engine.open(1, A, 50) == 0
    first = await engine.entries()
    assert (first.term, first.first) == (1, 0)
    assert decode(first.payloads[0]).commands == (Open(0, A, 50),)
    cluster.ledgers.hold_acks = True
    ledger = sequencer.status()["term"]["metalog_ledger"]
    cluster.clock.ms = 5_000
    engine.report(1, s0=(3, 1))
    await engine.round_trip()
    assert len(cluster.ledgers.ledgers[ledger].entries) == 2, "submitted at once"
    engine.report(1, s0=(4, 2))
    engine.report(1, s0=(9, 3))
    await engine.round_trip()
    assert len(cluster.ledgers.ledgers[ledger].entries) == 2, "one in flight"
    assert engine.received == []
    cluster.ledgers.ack(ledger)
    assert len(cluster.ledgers.ledgers[ledger].entries) == 3, "the acknowledgement submits the next one at once"
    second = decode((await engine.entries()).payloads[0])
    assert (second.end_pos, second.time_ms, second.shards) == (3, 5_000, (ShardEnd(0, 3, 1),))
    assert engine.received == []
    cluster.ledgers.ack(ledger)
    third = await engine.entries()
    assert third.first == 2 and decode(third.payloads[0]).shards == (ShardEnd(0, 9, 3),)


async def test_open_and_close_are_answered_when_acknowledged_and_may_be_repeated(cluster: Any) -> None:
    sequencer = await cluster.sequencer()
    await sequencer.serving()
    cluster.ledgers.hold_acks = True
    engine = await cluster.participant(sequencer.address)
    ledger = sequencer.status()["term"]["metalog_ledger"]
    opening = asyncio.ensure_future(engine.open(1, A, 50))
    again = asyncio.ensure_future(engine.open(1, A, 50))
    await engine.round_trip()
    assert not opening.done() and not again.done()
    cluster.ledgers.ack(ledger)
    assert (await opening, await again, await engine.open(1, A, 50)) == (0, 0, 0)
    engine.report(1, s0=(2, 1))
    closing = asyncio.ensure_future(engine.close_shard(1, 0))
    await engine.round_trip()
    cluster.ledgers.ack(ledger)
    await engine.round_trip()
    assert not closing.done()
    cluster.ledgers.ack(ledger)
    await closing
    await engine.close_shard(1, 0)
    with pytest.raises(ShardNotOpen):
        await engine.open(1, A, 50)
    with pytest.raises(ShardNotOpen):
        await engine.close_shard(1, 8)


async def test_a_late_report_is_refused_and_the_rest_of_it_counts(cluster: Any) -> None:
    sequencer = await cluster.sequencer()
    await sequencer.serving()
    engine = await cluster.participant(sequencer.address)
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


async def test_a_report_of_another_term_is_told_that_it_is_over(cluster: Any) -> None:
    sequencer = await cluster.sequencer()
    await sequencer.serving()
    engine = await cluster.participant(sequencer.address)
    engine.report(9, s0=(5, 1))
    assert protocol.decode_term(await engine.pushed(protocol.OP_TERM_OVER)) == 9
    for asked in (engine.open(9, A, 1), engine.close_shard(9, 0), engine.subscribe(9)):
        with pytest.raises(TermOver):
            await asked


async def test_old_entries_are_to_be_read_from_the_ledger(cluster: Any) -> None:
    sequencer = await cluster.sequencer(recent_entries=2)
    await sequencer.serving()
    engine = await cluster.participant(sequencer.address)
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
    sequencer = await cluster.sequencer()
    await sequencer.serving()
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
    sequencer = await cluster.sequencer(engine_grace_s=60.0)
    await sequencer.serving()
    engine = await cluster.participant(sequencer.address)
    await engine.open(1, A, 50)
    again = await cluster.participant(sequencer.address, A)
    engine.peer.close()
    await engine.lost.wait()
    await again.round_trip()
    server = sequencer.term_server
    assert server is not None and server._graces == {} and server.status()["engines"] == [A]
    again.peer.close()
    await again.lost.wait()
    third = await cluster.participant(sequencer.address)
    while not server._graces:
        await third.round_trip()
    fourth = await cluster.participant(sequencer.address, A, B)
    assert server._graces == {}
    await fourth.subscribe(1, 1)
    fourth.report(1, s0=(1, 1))
    assert decode((await fourth.entries()).payloads[0]).shards == (ShardEnd(0, 1, 1),)


async def test_a_subscriber_that_takes_nothing_is_dropped_and_told(cluster: Any) -> None:
    sequencer = await cluster.sequencer(subscriber_unsent_bytes=1)
    await sequencer.serving()
    engine = await cluster.participant(sequencer.address)
    await engine.subscribe(1)
    server = sequencer.term_server
    assert server is not None
    cluster.ledgers.hold_acks = True
    opening = asyncio.ensure_future(engine.open(1, A, 50))
    await engine.round_trip()
    peer = next(iter(server._subscribers))
    while peer.unsent_bytes <= 1:  # whatever room the system's buffers have: nobody reads while we push
        peer.push(protocol.OP_REFUSED, bytes(2**20))
    cluster.ledgers.ack(sequencer.status()["term"]["metalog_ledger"])
    assert server._subscribers == {}
    assert await opening == 0
    await engine.pushed(protocol.OP_LAGGED)
    assert await engine.subscribe(1) == (0, 1)
    assert (await engine.entries()).first == 0


async def test_entries_in_flight_at_the_end_of_a_term(cluster: Any) -> None:
    cluster.ledgers.hold_acks = True
    first = await cluster.sequencer()
    await first.serving()
    engine = await cluster.participant(first.address)
    await engine.subscribe(1)
    opening = asyncio.ensure_future(engine.open(1, A, 50))
    await engine.round_trip()
    await cluster.sequencer(take_over=True)
    with pytest.raises(TermOver):
        await opening
    cluster.ledgers.ack(0)
    await engine.pushed(protocol.OP_TERM_OVER)
    assert engine.received == []


async def test_an_unknown_message(cluster: Any) -> None:
    sequencer = await cluster.sequencer()
    await sequencer.serving()
    engine = await cluster.participant(sequencer.address)
    with pytest.raises(BokiError, match="knows no opcode 77"):
        await engine.peer.call(77)
