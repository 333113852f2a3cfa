"""Entries that engines have carried by the metalog, at one term on loopback: what is ordered of them, and when not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from boki_common import errors, limits
from boki_common.errors import BokiError, LedgerFenced, TermOver
from boki_common.ids import Position
from boki_common.records.record_batch import RecordBatch
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.metalog_entry import Carried, Close, MetalogEntry, ShardEnd, Trim, decode
from boki_metalog.errors import ImpossibleReport, ShardNotOpen, TermFull, UnfitCarry
from boki_metalog.sequencer.carried_check import check_carried
from boki_metalog.sequencer.sequencer import Sequencer

BodyOf = Callable[..., bytes]

A, B = "aa" * 16, "bb" * 16


async def cut_once(cluster: Any, *incarnations: str, **settings: float) -> tuple[Sequencer, Any]:
    """A sequencer with shards whose first entry, of 3 records, is cut, and their engine, which is subscribed."""
    sequencer, engine = await cluster.served(**settings)
    for number, incarnation in enumerate(incarnations):
        assert await engine.open(1, incarnation, 50 + number) == number
    engine.report(1, **{f"s{number}": (3, 1) for number in range(len(incarnations))})
    await engine.round_trip()
    await engine.subscribe(1, cluster.server_of(sequencer).recent.end)
    return sequencer, engine


async def ordered(engine: Any) -> MetalogEntry:
    """The next entry that is pushed."""
    (payload,) = (await engine.entries()).payloads
    return decode(payload)


async def refusal(engine: Any) -> BokiError:
    return errors.from_wire(await engine.pushed(protocol.OP_REFUSED))


async def test_what_is_carried_is_pushed_once_its_entry_is_acknowledged(cluster: Any, body_of: BodyOf) -> None:
    sequencer, engine = await cut_once(cluster, A)
    cluster.ledgers.hold_acks = True
    engine.carry(1, 0, 5, 2, body_of(1, 0, 3, 2, b"two records"))
    await engine.round_trip()
    ledger = cluster.metalog(sequencer)
    assert decode(ledger.entries[-1]).carried == (Carried(0, body_of(1, 0, 3, 2, b"two records")),), "submitted at once"
    assert engine.received == []
    ledger.ack()
    entry = await ordered(engine)
    assert (entry.shards, entry.carried) == ((ShardEnd(0, 5, 2),), (Carried(0, body_of(1, 0, 3, 2, b"two records")),))
    assert cluster.server_of(sequencer).vector.shards == {0: ShardEnd(0, 5, 2)}


async def test_those_that_come_while_an_entry_is_in_flight_share_the_next(cluster: Any, body_of: BodyOf) -> None:
    sequencer, engine = await cut_once(cluster, A, B)
    cluster.ledgers.hold_acks = True
    engine.report(1, s0=(4, 2))
    engine.carry(1, 1, 5, 2, body_of(1, 1, 3, 2, b"of 1"))
    engine.carry(1, 0, 6, 3, body_of(1, 0, 4, 2, b"of 0"))
    engine.carry(1, 0, 6, 3, body_of(1, 0, 4, 2, b"of 0 again"))
    await engine.round_trip()
    ledger = cluster.metalog(sequencer)
    ledger.ack()
    assert (await ordered(engine)).carried == ()
    ledger.ack()
    assert (await ordered(engine)).carried == (
        Carried(0, body_of(1, 0, 4, 2, b"of 0")),
        Carried(1, body_of(1, 1, 3, 2, b"of 1")),
    )
    assert len(ledger.entries) == cluster.server_of(sequencer).recent.end, "the repeated one makes none"


async def test_what_cannot_be_carried_is_refused_by_name(cluster: Any, body_of: BodyOf) -> None:
    sequencer, engine = await cut_once(cluster, A, B)
    engine.carry(1, 0, 9, 4, b"x")
    assert isinstance(await refusal(engine), ImpossibleReport)
    engine.carry(1, 0, 3, 2, b"without a record")
    assert isinstance(await refusal(engine), ImpossibleReport)
    engine.carry(1, 7, 9, 2, b"x")
    assert isinstance(await refusal(engine), ShardNotOpen)
    await engine.close_shard(1, 0)
    engine.carry(1, 0, 5, 2, body_of(1, 0, 3, 2, b"too late"))
    assert isinstance(await refusal(engine), ShardNotOpen)
    assert (await ordered(engine)).commands == (Close(0),)
    assert sequencer.status()["term"]["end_pos"] == 6 and engine.received == []


async def test_of_an_entry_with_a_changed_header_nothing_unusable_is_carried(cluster: Any, body_of: BodyOf) -> None:
    """Each byte of it: it is refused by name, or it is a record batch that fits, of other tags or data."""
    sequencer, engine = await cut_once(cluster, A)
    body, carried = body_of(1, 0, 3, 2, b"x"), 0
    (peer,) = cluster.server_of(sequencer)._peers
    for at in range(len(body)):
        changed = bytes(byte ^ (at == place) for place, byte in enumerate(body))
        try:
            check_carried(protocol.Carry(1, 0, 5, 2, changed), ShardEnd(0, 3, 1))
        except UnfitCarry:
            cluster.server_of(sequencer).carry(peer, protocol.Carry(1, 0, 5, 2, changed))
            assert isinstance(await refusal(engine), UnfitCarry)
        else:
            batch = RecordBatch.parse(memoryview(changed))
            assert (batch.term, batch.shard, batch.first_local_id, batch.record_count) == (1, 0, 3, 2)
            carried += 1
    assert 0 < carried < len(body) // 2
    assert cluster.server_of(sequencer).vector.end_pos == 3, "nothing of what was refused is ordered"
    engine.carry(1, 0, 5, 2, body)
    assert (await ordered(engine)).carried == (Carried(0, body),)


async def test_what_is_carried_is_known_by_its_term(cluster: Any) -> None:
    sequencer, engine = await cut_once(cluster, A)
    engine.carry(9, 0, 5, 2, b"x")
    assert protocol.decode_term(await engine.pushed(protocol.OP_TERM_OVER)) == 9
    server = cluster.server_of(sequencer)
    (peer,) = server._peers
    server.end(TermOver("by hand", term=1))
    server.carry(peer, protocol.Carry(1, 0, 5, 2, b"x"))
    for _ in range(2):
        assert protocol.decode_term(await engine.pushed(protocol.OP_TERM_OVER)) == 1
    assert len(cluster.ledgers.ledgers[0].entries) == 2


@pytest.mark.parametrize("size", [0, limits.CARRIED_ENTRY_BYTES + 1])
async def test_a_length_that_cannot_be_ends_the_connection(cluster: Any, size: int) -> None:
    sequencer, engine = await cut_once(cluster, A)
    engine.carry(1, 0, 5, 2, bytes(size))
    await engine.lost.wait()
    assert cluster.server_of(sequencer).vector.end_pos == 3


async def test_hello_comes_before_what_is_carried(cluster: Any) -> None:
    sequencer, _ = await cut_once(cluster, A)
    stranger = await cluster.stranger(sequencer.address)
    stranger.carry(1, 0, 5, 2, b"x")
    await stranger.lost.wait()
    assert cluster.server_of(sequencer).vector.end_pos == 3


async def test_a_standby_carries_nothing_and_goes_on(cluster: Any) -> None:
    await cut_once(cluster, A)
    standby = await cluster.sequencer()
    engine = await cluster.participant(standby.address)
    engine.carry(1, 0, 5, 2, b"x")
    await engine.round_trip()
    assert standby.term_server is None


async def test_a_lost_engine_is_closed_behind_what_was_carried(cluster: Any, body_of: BodyOf) -> None:
    sequencer, engine = await cut_once(cluster, A, engine_grace_s=0.0)
    other = await cluster.participant(sequencer.address)
    await other.subscribe(1, cluster.server_of(sequencer).recent.end)
    cluster.ledgers.hold_acks = True
    engine.report(1, s0=(4, 2))
    engine.carry(1, 0, 6, 3, body_of(1, 0, 4, 2, b"its last words"))
    await engine.round_trip()
    engine.peer.close()
    cluster.ledgers.hold_acks = False
    cluster.metalog(sequencer).ack()
    assert (await ordered(other)).shards == (ShardEnd(0, 4, 2),)
    assert (await ordered(other)).carried == (Carried(0, body_of(1, 0, 4, 2, b"its last words")),)
    closed = await ordered(other)
    assert (closed.shards, closed.carried, closed.commands) == ((ShardEnd(0, 6, 3),), (), (Close(0),))


async def test_a_term_that_yields_orders_what_is_in_flight_and_no_more(cluster: Any, body_of: BodyOf) -> None:
    sequencer, engine = await cut_once(cluster, A, B)
    server, cluster.ledgers.hold_acks = cluster.server_of(sequencer), True
    engine.carry(1, 0, 5, 2, body_of(1, 0, 3, 2, b"in flight"))
    await engine.round_trip()
    yielding = asyncio.ensure_future(engine.peer.call(protocol.OP_YIELD, protocol.encode_term(1)))
    engine.carry(1, 1, 5, 2, body_of(1, 1, 3, 2, b"behind it"))
    await engine.round_trip()
    cluster.ledgers.hold_acks = False
    cluster.ledgers.ack(0)
    await yielding
    assert (await ordered(engine)).carried == (Carried(0, body_of(1, 0, 3, 2, b"in flight")),)
    await engine.pushed(protocol.OP_TERM_OVER)
    ledger = cluster.ledgers.ledgers[0]
    assert ledger.closed and decode(ledger.entries[-1]).shards == (ShardEnd(0, 5, 2), ShardEnd(1, 3, 1))
    assert server.vector.end_pos == 8


async def test_what_does_not_fit_into_the_term_ends_it(
    cluster: Any, body_of: BodyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequencer, engine = await cut_once(cluster, A)
    server = cluster.server_of(sequencer)
    monkeypatch.setattr(limits, "POSITION_MAX", 4)
    engine.carry(1, 0, 5, 2, body_of(1, 0, 3, 2, b"x"))
    assert protocol.decode_term(await engine.pushed(protocol.OP_TERM_OVER)) == 1
    assert isinstance(server.over, TermFull) and server.vector.end_pos == 3
    assert engine.received == []


async def test_a_fenced_sequencer_carries_for_nobody(cluster: Any, body_of: BodyOf) -> None:
    """What it takes is in no metalog: its engine appends it again in the next term."""
    sequencer, engine = await cut_once(cluster, A)
    server = cluster.server_of(sequencer)
    await cluster.ledgers.open(0, recover=True)
    engine.carry(1, 0, 5, 2, body_of(1, 0, 3, 2, b"x"))
    await engine.pushed(protocol.OP_TERM_OVER)
    assert isinstance(server.over, LedgerFenced) and server.vector.end_pos == 3
    assert engine.received == []


async def test_a_barrier_is_answered_behind_what_was_carried_before_it(cluster: Any, body_of: BodyOf) -> None:
    sequencer, engine = await cut_once(cluster, A)
    before = cluster.server_of(sequencer).recent.end
    cluster.ledgers.hold_acks = True
    engine.carry(1, 0, 5, 2, body_of(1, 0, 3, 2, b"x"))
    asking = asyncio.ensure_future(engine.barrier())
    await engine.round_trip()
    cluster.ledgers.ack(0)
    cluster.ledgers.ack(0)
    assert await asking == Position(1, before + 2)


async def test_nothing_is_carried_into_the_reserves_of_full_disks(cluster: Any, body_of: BodyOf) -> None:
    """It is ordered once its data ledger has it, as its engine reports."""
    sequencer, engine = await cut_once(cluster, A)
    cluster.ledgers.full = True
    ordered_before = cluster.server_of(sequencer).recent.end
    engine.carry(1, 0, 5, 2, body_of(1, 0, 3, 2, b"user data"))
    await engine.round_trip()
    assert cluster.server_of(sequencer).recent.end == ordered_before
    cluster.ledgers.full = False
    engine.report(1, s0=(5, 2))
    entry = await ordered(engine)
    assert (entry.shards, entry.carried) == ((ShardEnd(0, 5, 2),), ())
    engine.carry(1, 0, 6, 3, body_of(1, 0, 5, 1, b"carried again"))
    assert (await ordered(engine)).carried == (Carried(0, body_of(1, 0, 5, 1, b"carried again")),)


async def test_a_term_that_was_trimmed_before_the_disks_were_full_ends_too(cluster: Any) -> None:
    sequencer, engine = await cut_once(cluster, A)
    assert (await engine.order(1, Trim(1, ((0, 99),), False))).term == 1
    cluster.ledgers.full = True
    await engine.close_shard(1, 0)
    assert isinstance(cluster.server_of(sequencer).over, TermFull)


async def test_a_trim_on_full_disks_ends_a_term_with_records_once(cluster: Any) -> None:
    sequencer, engine = await cut_once(cluster, A)
    assert (await engine.order(1, Trim(1, ((0, 99),), False))).term == 1
    assert cluster.server_of(sequencer).over is None, "disks have room"
    cluster.ledgers.full = True
    assert (await engine.order(1, Trim(1, ((0, 99),), False))).term == 1
    over = cluster.server_of(sequencer).over
    assert isinstance(over, TermFull) and "the disks of bookies are full" in str(over)
    await cluster.until(lambda: sequencer.term == 2)
    assert (await engine.order(2, Trim(1, ((0, 99),), False))).term == 2
    assert sequencer.term == 2, "it ordered no records"
