"""A sequencer on loopback, with ledgers whose acknowledgements are given by hand where it matters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_common import limits
from boki_common.errors import BokiError, NotEnoughBookies, ProtocolError, TermOver
from boki_common.metadata.membership import members
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer, connect_messages
from boki_metalog import sequencer_protocol as protocol
from boki_metalog.errors import ShardNotOpen
from boki_metalog.metadata_tree import read_record, read_view
from boki_metalog.metalog_entry import Close, Open, ShardEnd, decode

A, B = "aa" * 16, "bb" * 16


class Participant:
    """A bare connection: what comes is kept."""

    def __init__(self) -> None:
        self.peer: MessagePeer
        self.received: list[tuple[int, memoryview]] = []
        self.lost = asyncio.Event()
        self.got = asyncio.Event()

    @classmethod
    async def connect(cls, address: Address, *incarnations: str) -> Participant:
        self = cls()
        self.peer = await connect_messages(address, self)
        await self.peer.call(protocol.OP_HELLO, protocol.encode_hello(incarnations))
        return self

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        self.received.append((opcode, body))
        self.got.set()

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        self.lost.set()

    async def pushed(self, opcode: int) -> memoryview:
        """The next push of that kind."""
        while True:
            for position, (found, body) in enumerate(self.received):
                if found == opcode:
                    del self.received[position]
                    return body
            self.got.clear()
            await self.got.wait()

    async def open(self, term: int, incarnation: str, ledger_id: int) -> int:
        return protocol.decode_shard(
            await self.peer.call(protocol.OP_OPEN, protocol.encode_open(term, incarnation, ledger_id))
        )

    async def close_shard(self, term: int, shard: int) -> None:
        await self.peer.call(protocol.OP_CLOSE, protocol.encode_close(term, shard))

    async def subscribe(self, term: int, next_entry: int = 0) -> protocol.Subscribed:
        return protocol.decode_subscribed(
            await self.peer.call(protocol.OP_SUBSCRIBE, protocol.encode_subscribe(term, next_entry))
        )

    def report(self, term: int, **ends: tuple[int, int]) -> None:
        rows = {int(name.removeprefix("s")): end for name, end in ends.items()}
        self.peer.push(protocol.OP_REPORT, protocol.encode_report(term, rows))

    async def entries(self) -> protocol.Entries:
        return protocol.decode_entries(await self.pushed(protocol.OP_ENTRIES))

    async def round_trip(self) -> None:
        """Everything sent before has been handled at the other end."""
        await self.peer.call(protocol.OP_STATUS)


async def test_first_start_creates_view_and_term(cluster: Any) -> None:
    sequencer = await cluster.sequencer()
    assert await sequencer.serving() == 1 and sequencer.term == 1
    store = await cluster.store()
    installed = (await read_view(store)).view.installed(0)
    assert installed is not None and installed.sequencer == sequencer.incarnation
    found: dict[str, Any] = {}
    while not found.get(sequencer.incarnation, {}).get("spares"):
        found = await members(store, "sequencer")
    assert found[sequencer.incarnation]["address"] == str(sequencer.address)
    assert installed.metalog_ledger not in found[sequencer.incarnation]["spares"]
    assert sequencer.status()["term"]["metalog_ledger"] == installed.metalog_ledger


async def test_what_is_not_acknowledged_is_never_pushed(cluster: Any) -> None:
    sequencer = await cluster.sequencer()
    await sequencer.serving()
    engine = await Participant.connect(sequencer.address)
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
    engine = await Participant.connect(sequencer.address)
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
    engine = await Participant.connect(sequencer.address)
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
    engine = await Participant.connect(sequencer.address)
    engine.report(9, s0=(5, 1))
    assert protocol.decode_term(await engine.pushed(protocol.OP_TERM_OVER)) == 9
    for asked in (engine.open(9, A, 1), engine.close_shard(9, 0), engine.subscribe(9)):
        with pytest.raises(TermOver):
            await asked


async def test_old_entries_are_to_be_read_from_the_ledger(cluster: Any) -> None:
    sequencer = await cluster.sequencer(recent_entries=2)
    await sequencer.serving()
    engine = await Participant.connect(sequencer.address)
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
    engine, other = await Participant.connect(sequencer.address), await Participant.connect(sequencer.address)
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
    engine = await Participant.connect(sequencer.address)
    await engine.open(1, A, 50)
    again = await Participant.connect(sequencer.address, A)
    engine.peer.close()
    await engine.lost.wait()
    await again.round_trip()
    server = sequencer.term_server
    assert server is not None and server._graces == {} and server.status()["engines"] == [A]
    again.peer.close()
    await again.lost.wait()
    third = await Participant.connect(sequencer.address)
    while not server._graces:
        await third.round_trip()
    fourth = await Participant.connect(sequencer.address, A, B)
    assert server._graces == {}
    await fourth.subscribe(1, 1)
    fourth.report(1, s0=(1, 1))
    assert decode((await fourth.entries()).payloads[0]).shards == (ShardEnd(0, 1, 1),)


async def test_a_subscriber_that_takes_nothing_is_dropped_and_told(cluster: Any) -> None:
    sequencer = await cluster.sequencer(subscriber_unsent_bytes=1)
    await sequencer.serving()
    engine = await Participant.connect(sequencer.address)
    await engine.subscribe(1)
    server = sequencer.term_server
    assert server is not None
    cluster.ledgers.hold_acks = True
    opening = asyncio.ensure_future(engine.open(1, A, 50))
    await engine.round_trip()
    peer = next(iter(server._subscribers))
    peer.push(protocol.OP_REFUSED, bytes(8 * 2**20 // 2))
    cluster.ledgers.ack(sequencer.status()["term"]["metalog_ledger"])
    if peer.unsent_bytes == 0:
        pytest.skip("this loop's transport took 4 MiB at once")
    assert server._subscribers == {}
    assert await opening == 0
    await engine.pushed(protocol.OP_LAGGED)
    assert await engine.subscribe(1) == (0, 1)
    assert (await engine.entries()).first == 0


async def test_a_restarted_sequencer_replaces_the_term_of_its_dead_predecessor(cluster: Any) -> None:
    store = await cluster.store()
    first = await cluster.sequencer(store=store)
    await first.serving()
    engine = await Participant.connect(first.address)
    cluster.clock.ms = 9_000
    await engine.open(1, A, 50)
    address = str(first.address)
    await first.close()
    cluster.clock.ms = 10
    second = await cluster.sequencer(address=address)
    assert await second.serving() == 2
    record = await read_record(store, 1)
    assert (record.last_entry, record.last_time_ms, record.end_pos) == (0, 9_000, 0)
    engine = await Participant.connect(second.address)
    await engine.subscribe(2)
    await engine.open(2, A, 60)
    assert decode((await engine.entries()).payloads[0]).time_ms == 9_000, "time never runs back, over terms"


async def test_a_predecessor_that_is_still_listed_but_gone(cluster: Any) -> None:
    """Killed, not closed: its ephemeral node lingers, its port answers for the new process."""
    store = await cluster.store()
    first = await cluster.sequencer(store=store)
    await first.serving()
    await first._server.close()
    second = await cluster.sequencer(address=str(first.address))
    assert await second.serving() == 2
    assert first.incarnation in await members(store, "sequencer")


async def test_a_standby_waits_for_a_sequencer_that_answers(cluster: Any) -> None:
    first = await cluster.sequencer()
    await first.serving()
    second = await cluster.sequencer()
    waiting = asyncio.ensure_future(second.serving())
    participant = await Participant.connect(second.address)
    welcome = protocol.decode_welcome(await participant.peer.call(protocol.OP_HELLO, protocol.encode_hello(())))
    assert (welcome.term, welcome.serving) == (0, False)
    with pytest.raises(TermOver, match="stands by"):
        await participant.subscribe(1)
    async with asyncio.timeout(1):
        assert not waiting.done() and first.term == 1
        await first.close()
        assert await waiting == 2


async def test_taking_over_ends_a_living_sequencer(cluster: Any) -> None:
    first = await cluster.sequencer()
    await first.serving()
    engine = await Participant.connect(first.address)
    await engine.open(1, A, 50)
    second = await cluster.sequencer(take_over=True)
    assert await second.serving() == 2
    with pytest.raises(TermOver):
        await first.failed
    assert first.term == 0
    assert protocol.decode_term(await engine.pushed(protocol.OP_TERM_OVER)) == 1
    with pytest.raises(TermOver):
        await engine.open(1, A, 51)
    with pytest.raises(TermOver):
        await first.serving()


async def test_a_fenced_sequencer_acknowledges_nothing(cluster: Any) -> None:
    """It cannot see the view, only its ledger; the entry that it submits after the fence is pushed to nobody."""
    store = await cluster.store()
    first = await cluster.sequencer(store=store)
    await first.serving()
    engine = await Participant.connect(first.address)
    await engine.open(1, A, 50)
    await engine.subscribe(1, 1)
    store.disconnect()
    second = await cluster.sequencer(take_over=True)
    await second.serving()
    assert first.term == 1, "it does not know"
    engine.report(1, s0=(5, 1))
    await engine.pushed(protocol.OP_TERM_OVER)
    assert engine.received == []
    with pytest.raises(BokiError):
        await first.failed
    store.reconnect()


async def test_entries_in_flight_at_the_end_of_a_term(cluster: Any) -> None:
    cluster.ledgers.hold_acks = True
    first = await cluster.sequencer()
    await first.serving()
    engine = await Participant.connect(first.address)
    await engine.subscribe(1)
    opening = asyncio.ensure_future(engine.open(1, A, 50))
    await engine.round_trip()
    await cluster.sequencer(take_over=True)
    with pytest.raises(TermOver):
        await opening
    cluster.ledgers.ack(0)
    await engine.pushed(protocol.OP_TERM_OVER)
    assert engine.received == []


async def test_a_full_term_is_replaced_by_its_own_sequencer(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "POSITION_MAX", 10)
    sequencer = await cluster.sequencer()
    await sequencer.serving()
    engine = await Participant.connect(sequencer.address)
    await engine.open(1, A, 50)
    engine.report(1, s0=(8, 1))
    engine.report(1, s0=(16, 2))
    await engine.pushed(protocol.OP_TERM_OVER)
    while sequencer.term != 2:
        await engine.round_trip()
    record = await read_record(await cluster.store(), 1)
    assert record.end_pos == 8
    assert await engine.open(2, A, 51) == 0
    assert not sequencer.failed.done()


async def test_bookies_that_come_later(cluster: Any) -> None:
    cluster.ledgers.faults += [("create", NotEnoughBookies("1 of 2 bookies are up"))] * 3
    sequencer = await cluster.sequencer()
    assert await sequencer.serving() == 1


async def test_a_metadata_store_that_is_away_for_a_while(cluster: Any) -> None:
    store = await cluster.store()
    sequencer = await cluster.sequencer(store=store)
    await sequencer.serving()
    engine = await Participant.connect(sequencer.address)
    await engine.open(1, A, 50)
    store.disconnect()
    engine.report(1, s0=(2, 1))
    await engine.subscribe(1)
    await engine.round_trip()
    store.reconnect()
    await engine.open(1, B, 51)
    assert sequencer.term == 1 and sequencer.status()["term"]["end_pos"] == 2


async def test_hello_comes_first(cluster: Any) -> None:
    sequencer = await cluster.sequencer()
    await sequencer.serving()
    engine = Participant()
    engine.peer = await connect_messages(sequencer.address, engine)
    with pytest.raises(ProtocolError, match="HELLO"):
        await engine.peer.call(protocol.OP_STATUS)
    await engine.lost.wait()


async def test_an_unknown_message(cluster: Any) -> None:
    sequencer = await cluster.sequencer()
    await sequencer.serving()
    engine = await Participant.connect(sequencer.address)
    with pytest.raises(BokiError, match="knows no opcode 77"):
        await engine.peer.call(77)
