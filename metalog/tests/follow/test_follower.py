"""Following a log through live pushes, gaps, lost sequencers and sealed terms."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from boki_common import limits
from boki_common.errors import BokiError, EntryUnknown, MetadataUnavailable, NoSuchEntry, NotEnoughBookies
from boki_common.ids import Position
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.metalog_entry import Carried, Close, MetalogEntry, Open, ShardEnd
from boki_metalog.entries.progress import ShardRange
from boki_metalog.errors import ShardNotOpen
from boki_metalog.follow.sequencer_member import sequencer_path

BodyOf = Callable[..., bytes]

A, B = "aa" * 16, "bb" * 16


async def test_a_live_log(cluster: Any) -> None:
    engine = await cluster.follow()
    sequencer = await cluster.sequencer()
    link = await engine.seen.linked(1)
    shard = await link.open_shard(A, 50)
    link.report(shard, 3, 1)
    await engine.seen.until(lambda: engine.seen.vector.end_pos == 3)
    link.report(shard, 5, 2)
    link.report(shard, 9, 3)
    await engine.seen.until(lambda: engine.seen.vector.end_pos == 9)
    assert engine.seen.events[:2] == ["started 1", "up 1"]
    assert engine.seen.entries[1][0].commands == (Open(shard, A, 50),)
    assert engine.seen.ranges[1] == [ShardRange(0, 0, 3, 0, 1, 0), ShardRange(0, 3, 6, 1, 2, 3)], (
        "reports are coalesced"
    )
    assert engine.follower.position == Position(1, 3)
    await link.close_shard(shard)
    await engine.seen.until(lambda: engine.seen.count(1) == 4)
    assert engine.seen.entries[1][3].commands == (Close(shard),)
    with pytest.raises(ShardNotOpen):
        await link.open_shard(A, 50)
    assert sequencer.term == 1


async def test_what_entries_carry_is_delivered_live_and_from_ledgers(cluster: Any, body_of: BodyOf) -> None:
    engine = await cluster.follow()
    await cluster.sequencer()
    link = await engine.seen.linked(1)
    shard = await link.open_shard(A, 50)
    link.report(shard, 3, 1)
    await engine.seen.until(lambda: engine.seen.vector.end_pos == 3)
    body = body_of(1, shard, 3, 2)
    link.carry(shard, 5, 2, (body[:9], body[9:]))
    await engine.seen.until(lambda: engine.seen.vector.end_pos == 5)
    assert [entry.carried for entry in engine.seen.entries[1]] == [(), (), (Carried(shard, body),)]
    assert engine.seen.ranges[1][-1] == ShardRange(shard, 3, 2, 1, 1, 3)
    late = await cluster.up_to(1)
    await cluster.replace()
    sealed = await cluster.up_to(2)
    assert late.seen.entries[1] == sealed.seen.entries[1] == engine.seen.entries[1]


async def test_what_was_to_be_carried_is_reported_when_the_connection_was_lost(cluster: Any, body_of: BodyOf) -> None:
    """It may have arrived, or not: the report of it, once it is durable, changes nothing then."""
    sequencer, engine, link = await fill(cluster, 1)
    link.report(0, 3, 1)
    await engine.seen.until(lambda: engine.seen.vector.end_pos == 3)
    for arrives in (True, False):
        entries = engine.seen.vector.shards[0].entries_end
        link = await engine.seen.linked(1)
        ups = engine.seen.events.count("up 1")
        if arrives:
            link.carry(0, 3 + entries, entries + 1, (body_of(1, 0, 3, 1),))
            await engine.seen.until(lambda: engine.seen.vector.end_pos == 4)
        for peer in list(sequencer.term_server._peers):
            peer.close()
        await engine.seen.until(lambda: engine.seen.events.count("up 1") > ups)  # noqa: B023 - awaited at once
        link = await engine.seen.linked(1)
        link.report(0, 3 + entries, entries + 1)
        await link.barrier()
        assert engine.seen.vector.shards[0] == ShardEnd(0, 3 + entries, entries + 1)
    assert [bool(entry.carried) for entry in engine.seen.entries[1]].count(True) == 1


async def test_terms_follow_one_another(cluster: Any) -> None:
    engine = await cluster.follow()
    for term in (1, 2, 3):
        await cluster.replace()
        link = await engine.seen.linked(term)
        shard = await link.open_shard(A, 50 + term)
        link.report(shard, term, 1)
        await engine.seen.until(lambda: engine.seen.vector.end_pos == term)  # noqa: B023 - awaited at once
    assert [event for event in engine.seen.events if not event.startswith("ordered")] == (
        ["started 1", "up 1", "down", "ended 1", "started 2", "up 2", "down", "ended 2", "started 3", "up 3"]
    )
    late = await cluster.up_to(3)
    assert late.seen.entries == engine.seen.entries and late.seen.ranges == engine.seen.ranges


async def test_a_link_of_a_term_that_is_over(cluster: Any) -> None:
    engine = await cluster.follow()
    await cluster.sequencer()
    link = await engine.seen.linked(1)
    await cluster.replace()
    await engine.seen.linked(2)
    link.report(0, 1, 1)
    with pytest.raises(BokiError) as caught:
        await link.open_shard(A, 50)
    assert caught.value.retryable
    assert link.closed


async def fill(cluster: Any, entries: int, **settings: float) -> Any:
    """A sequencer with that many entries acknowledged in its term, and the link of the engine that made them."""
    sequencer = await cluster.sequencer(take_over=True, **settings)
    engine = await cluster.follow()
    link = await engine.seen.linked(await sequencer.serving())
    for ledger in range(entries):
        await link.open_shard(A, 1_000 * sequencer.term + ledger)
    return sequencer, engine, link


@pytest.mark.parametrize(("entries", "memory"), [(10, 1), (10, 9), (300, 5)])
async def test_what_the_sequencer_forgot_is_read_from_the_ledger(cluster: Any, entries: int, memory: int) -> None:
    _, _, link = await fill(cluster, entries, recent_entries=memory)
    late = await cluster.up_to(1)
    assert late.seen.count(1) == entries
    assert late.seen.events.count("caught up") >= 1
    await link.open_shard(A, 1)
    await late.seen.until(lambda: late.seen.count(1) == entries + 1)


async def test_reading_from_the_ledger_goes_on_when_bookies_come_back(cluster: Any) -> None:
    await fill(cluster, 10, recent_entries=1)
    cluster.ledgers.faults += [
        ("open", EntryUnknown("two bookies are down")),
        ("open", NoSuchEntry("not found yet")),
        ("open", MetadataUnavailable("away")),
    ]
    late = await cluster.up_to(1)
    assert late.seen.count(1) == 10 and not cluster.ledgers.faults


async def test_batches_are_bounded_and_pressed_back(cluster: Any) -> None:
    await fill(cluster, 40)
    await cluster.replace()
    late = await cluster.up_to(2, read_entries=7)
    ordered = [event for event in late.seen.events if event.startswith("ordered 1")]
    assert ordered[:2] == ["ordered 1:0+7", "ordered 1:7+7"] and late.seen.events.count("caught up") == 6


async def test_small_reads_for_large_entries(cluster: Any) -> None:
    await fill(cluster, 100)
    await cluster.replace()
    late = await cluster.up_to(2, read_bytes=2_000)
    assert late.seen.count(1) == 100
    assert "ordered 1:64+32" in late.seen.events


@pytest.mark.parametrize("start", [Position(1, 0), Position(1, 4), Position(1, 10), Position(2, 0), Position(2, 3)])
async def test_a_start_in_the_middle(cluster: Any, start: Position) -> None:
    await fill(cluster, 10)
    await fill(cluster, 5)
    got: list[tuple[int, int]] = []

    late = await cluster.follow(start=start)
    recorder = late.seen

    def ordered(term: int, first: int, entries: Sequence[MetalogEntry]) -> None:
        got.extend((term, first + offset) for offset in range(len(entries)))
        recorder._event("ordered")

    recorder.entries_ordered = ordered
    recorder.term_ended = lambda record: asyncio.sleep(0)
    await recorder.linked(2)
    expected = [(1, entry) for entry in range(10)] + [(2, entry) for entry in range(5)]
    assert got == [place for place in expected if place >= tuple(start)]


async def unacknowledged(cluster: Any, sequencer: Any, link: Any) -> Any:
    """The metalog, whose fourth entry has no quorum."""
    ledger = cluster.hold(sequencer)
    link.report(0, 4, 1)
    await cluster.until(lambda: len(ledger.entries) == 4)
    return ledger


async def test_a_sequencer_that_dies_between_the_ack_and_the_push(cluster: Any) -> None:
    """The entry is acknowledged, nobody got it: it is read from the closed ledger, once."""
    sequencer, engine, link = await fill(cluster, 3)
    ledger = await unacknowledged(cluster, sequencer, link)
    ledger.abandon()
    ledger.ack()
    await sequencer.close()
    await cluster.sequencer()
    await engine.seen.linked(2)
    assert engine.seen.count(1) == 4 and engine.seen.ranges[1] == [ShardRange(0, 0, 4, 0, 1, 0)]


async def test_what_a_lost_sequencer_ordered_is_read_where_no_bookies_take_a_next_metalog(cluster: Any) -> None:
    """The disks of all bookies are full: whoever stands by closes the metalog, and has no spare to go on in."""
    sequencer, _, _ = await fill(cluster, 3)
    cluster.metalog(sequencer).abandon()
    await sequencer.close()
    full = NotEnoughBookies("expected at least 1 bookies that take writes, found 0")
    cluster.ledgers.faults += [("create", full)] * 10_000
    await cluster.sequencer()
    late = await cluster.follow()
    await late.seen.until(lambda: "complete" in late.seen.events)
    assert late.seen.count(1) == 3
    assert late.seen.events.count("complete") == 1
    cluster.ledgers.faults.clear()
    await late.seen.linked(2)
    assert late.seen.count(1) == 3
    assert late.seen.events[-3:] == ["ended 1", "started 2", "up 2"]


async def test_an_entry_that_no_quorum_has_is_never_seen(cluster: Any) -> None:
    sequencer, engine, link = await fill(cluster, 3)
    await unacknowledged(cluster, sequencer, link)
    late = await cluster.up_to(1)
    assert late.seen.count(1) == 3
    await cluster.replace()
    await engine.seen.linked(2)
    await late.seen.linked(2)
    assert engine.seen.count(1) == late.seen.count(1) == 3


async def test_a_lost_connection_is_made_again_and_reports_are_repeated(cluster: Any) -> None:
    sequencer, engine, link = await fill(cluster, 1)
    link.report(0, 2, 1)
    await engine.seen.until(lambda: engine.seen.vector.end_pos == 2)
    participants = list(sequencer.term_server._peers)
    link.report(0, 5, 2)
    link._unsent.clear()  # the report is lost with the connection
    for peer in participants:
        peer.close()
    await engine.seen.until(lambda: engine.seen.vector.end_pos == 5)
    assert engine.seen.events.count("up 1") == 2
    again = await engine.seen.linked(1)
    assert again is not link
    again.report(0, 7, 3)
    await engine.seen.until(lambda: engine.seen.vector.end_pos == 7)
    assert all(not entry.commands for entry in engine.seen.entries[1][1:]), "no shard was closed"


async def test_closed_shards_are_not_reported_again(cluster: Any) -> None:
    _, engine, link = await fill(cluster, 2)
    link.report(0, 2, 1)
    await link.close_shard(0)
    assert engine.follower._shards.reported == {}
    link.report(1, 3, 1)
    await engine.seen.until(lambda: engine.seen.vector.end_pos == 5)
    assert engine.follower._shards.reported == {1: (3, 1)}


async def test_a_lagging_follower_subscribes_again(cluster: Any) -> None:
    sequencer, engine, link = await fill(cluster, 3, recent_entries=2)
    server = sequencer.term_server
    for peer in list(server._subscribers.peers):
        del server._subscribers.peers[peer]
    for ledger in range(6):
        await link.open_shard(A, ledger)
    assert engine.seen.count(1) == 3
    for peer in server._peers:
        peer.push(protocol.OP_LAGGED, protocol.encode_term(1))
    await engine.seen.until(lambda: engine.seen.count(1) == 9)
    assert engine.seen.events.count("up 1") == 1, "the link goes on"
    await link.open_shard(A, 77)
    await engine.seen.until(lambda: engine.seen.count(1) == 10)


async def test_the_metadata_store_is_away(cluster: Any) -> None:
    store = await cluster.store()
    sequencer, _, _ = await fill(cluster, 1)
    engine, link = await cluster.linked(1, store=store)
    store.disconnect()
    await link.open_shard(B, 60)
    await engine.seen.until(lambda: engine.seen.count(1) == 2)
    for peer in list(sequencer.term_server._peers):
        peer.close()
    await engine.seen.until(lambda: engine.seen.events.count("up 1") == 2)
    link = await engine.seen.linked(1)
    await link.open_shard(B, 61)
    await sequencer.close()
    await cluster.replace()
    await engine.seen.until(lambda: engine.seen.link is None)
    store.reconnect()
    await engine.seen.linked(2)
    assert engine.seen.count(1) >= 3


async def test_a_follower_starts_before_anything_exists(cluster: Any) -> None:
    store = await cluster.store()
    store.disconnect()
    engine = await cluster.follow(store=store)
    store.reconnect()
    await cluster.sequencer()
    await engine.seen.linked(1)


async def test_a_fault_of_the_listener_ends_it(cluster: Any) -> None:
    _, engine, link = await fill(cluster, 1)
    engine.seen.fault = ZeroDivisionError("a bug in the index")
    opening = asyncio.ensure_future(link.open_shard(A, 7))
    with pytest.raises(ZeroDivisionError):
        await engine.task
    assert engine.seen.events[-1] == "down"
    await asyncio.gather(opening, return_exceptions=True)


async def test_a_zombie_sequencer_does_not_hold_a_follower_back(cluster: Any) -> None:
    """It cannot see the view and keeps its connections; followers leave it when the view names the next term."""
    store = await cluster.store()
    zombie = await cluster.sequencer(store=store)
    engine, old = await cluster.linked(1)
    await old.open_shard(A, 50)
    store.disconnect()
    await cluster.replace()
    link = await engine.seen.linked(2)
    assert zombie.term == 1 and old.closed
    shard = await link.open_shard(A, 51)
    link.report(shard, 1, 1)
    await engine.seen.until(lambda: engine.seen.vector.end_pos == 1)
    store.reconnect()
    await cluster.until(lambda: not zombie.term)


async def test_pushes_that_overlap_or_leave_a_gap(cluster: Any) -> None:
    sequencer, engine, link = await fill(cluster, 6)
    server = sequencer.term_server
    entries = server.recent.since(0)
    late = await cluster.up_to(1, start=Position(1, 0))
    (peer,) = [peer for peer in server._subscribers.peers if peer is not next(iter(server._subscribers.peers))]
    del server._subscribers.peers[peer]
    await link.open_shard(B, 90)
    await link.open_shard(B, 91)
    entries = server.recent.since(0)
    peer.push(protocol.OP_ENTRIES, *protocol.encode_entries(1, 2, entries[2:7]))
    await late.seen.until(lambda: late.seen.count(1) == 7)
    assert late.seen.events[-1] == "ordered 1:6+1", "what it has is passed over"
    await link.open_shard(B, 92)
    peer.push(protocol.OP_ENTRIES, *protocol.encode_entries(1, 8, server.recent.since(8)))
    await late.seen.until(lambda: late.seen.count(1) == 9)
    assert late.seen.events[-1] == "ordered 1:7+2", "a gap is asked for again"
    assert late.seen.entries == engine.seen.entries


async def test_a_sequencer_that_says_nothing_is_left_as_soon_as_the_view_moves(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the connection and never answers: a call to it may not outlive its term. No time-out of a call ends it here."""
    monkeypatch.setattr(limits, "CONNECT_TIMEOUT_S", 1_000.0)
    silent = asyncio.Event()
    connected: list[asyncio.StreamWriter] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(writer)
        await silent.wait()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sequencer = await cluster.serving(take_over=True)
    store = await cluster.store()
    path = sequencer_path(sequencer.incarnation)
    member = await store.get(path)
    await sequencer.close()
    await store.create(path, member.value.replace(member.value.split(b'"')[3], f"127.0.0.1:{port}".encode()))
    engine = await cluster.follow(retry_limit_s=60.0)
    await cluster.until(lambda: connected)
    await cluster.replace()
    await engine.seen.linked(2)
    silent.set()
    for writer in connected:
        writer.close()
    server.close()
    await server.wait_closed()
