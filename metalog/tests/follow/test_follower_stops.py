"""A log whose next entry cannot be applied stops before it, and says so; nothing is passed over, and nothing else ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from boki_common.ids import Position
from boki_metalog.entries.metalog_entry import (
    Carried,
    Close,
    Expire,
    Lost,
    MetalogEntry,
    Open,
    ShardEnd,
    Trim,
    decode,
    encode,
)
from boki_metalog.follow.follower import LogFollower, LogStopped
from boki_metalog.terms.term_info import TermInfo

A = "aa" * 16
BodyOf = Callable[..., bytes]
RecorderOf = Callable[[], Any]


async def filled(cluster: Any, entries: int) -> Any:
    """A sequencer whose metalog has so many entries, of which only the first opens a shard, and a follower that has them."""
    sequencer = await cluster.sequencer()
    engine, link = await cluster.linked(sequencer.term or 1)
    shard = await link.open_shard(A, 50)
    for number in range(1, entries):
        link.report(shard, number, number)
        await engine.seen.until(lambda: engine.seen.vector.end_pos == number)  # noqa: B023 - awaited at once
    return sequencer, engine, link


async def test_a_log_stops_before_an_unreadable_entry_and_goes_on_when_it_is_mended(cluster: Any) -> None:
    sequencer, _, _ = await filled(cluster, 5)
    ledger = cluster.metalog(sequencer)
    good, ledger.entries[2] = ledger.entries[2], b"garbage"
    await cluster.replace()
    late = await cluster.stopped()
    assert (late.seen.count(1), late.follower.position) == (2, Position(1, 2))
    ((position, why),) = late.seen.stops
    assert position == (1, 2) and "metalog entry 2 of term 1" in why
    ledger.entries[2] = good
    await late.seen.linked(2)
    assert late.seen.count(1) == 5 and [why for _, why in late.seen.stops][1:] == [None]
    assert not late.task.done()


@pytest.mark.parametrize("live", [True, False])
async def test_what_was_pushed_badly_is_read_from_bookies(cluster: Any, live: bool) -> None:
    """The sequencer's memory is one copy of many."""
    sequencer, engine, link = await filled(cluster, 3)
    recent = sequencer.term_server.recent
    if live:
        push = sequencer.term_server._push
        sequencer.term_server._push = lambda first, data: push(first, b"garbage")
        link.report(0, 3, 3)
        await engine.seen.until(lambda: engine.seen.stops)
        sequencer.term_server._push = push
    else:
        recent._entries[-1] = b"garbage"
        engine = await cluster.stopped()
    whole = 4 if live else 3
    await engine.seen.until(lambda: engine.seen.count(1) == whole)
    assert [why is None for _, why in engine.seen.stops] == [False, True]
    linked = await engine.seen.linked(1)
    (linked if live else link).report(0, 9, 9)  # who opened the shard
    await engine.seen.until(lambda: engine.seen.vector.end_pos == 9)


async def test_an_entry_whose_copies_are_all_damaged_stops_the_log(cluster: Any) -> None:
    sequencer, _, _ = await filled(cluster, 3)
    ledger = cluster.metalog(sequencer)
    await cluster.replace()
    ledger.damaged = True
    late = await cluster.stopped()
    assert "all copies" in late.seen.stops[0][1]
    ledger.damaged = False
    await late.seen.linked(2)
    assert late.seen.count(1) == len(ledger.entries)


async def test_a_record_that_disagrees_with_its_ledger_stops_the_log(cluster: Any) -> None:
    sequencer, engine, _ = await filled(cluster, 2)
    ledger = cluster.metalog(sequencer)
    await cluster.replace()
    await engine.seen.linked(2)
    ledger.closed_at -= 1
    late = await cluster.stopped()
    assert "as its term's record says" in late.seen.stops[0][1]
    ledger.closed_at += 1
    await late.seen.linked(2)


async def test_a_record_that_ends_elsewhere_than_its_entries_stops_the_log(cluster: Any) -> None:
    await filled(cluster, 5)
    await cluster.replace()
    record = cluster.tree.get("/boki/terms/1").value
    cluster.tree.set("/boki/terms/1", record.replace(b'"end_pos":4', b'"end_pos":5'), 0)
    late = await cluster.stopped()
    assert "position 5" in late.seen.stops[0][1] and late.seen.count(1) == 5
    assert "ended 1" not in late.seen.events


async def test_having_applied_more_than_the_term_has_stops_the_log(cluster: Any) -> None:
    await filled(cluster, 2)
    await cluster.replace()
    late = await cluster.stopped(start=Position(1, 3))
    assert "do not go on" in late.seen.stops[0][1] and not late.seen.entries[1]


def entries(body_of: BodyOf) -> list[MetalogEntry]:
    """A metalog with all that an entry may have."""
    return [
        MetalogEntry(0, 0, 5, (ShardEnd(0, 0, 0), ShardEnd(1, 0, 0)), (Open(0, A, 50), Open(1, A, 51))),
        MetalogEntry(0, 5, 6, (ShardEnd(0, 3, 1), ShardEnd(1, 2, 2)), (Trim(7, ((0, 3), (5, 2)), True),)),
        MetalogEntry(
            5,
            7,
            6,
            (ShardEnd(0, 5, 2), ShardEnd(1, 2, 2)),
            (Expire(7, bytes(16), 3), Lost(1, 1, 0, 1, b"{}"), Close(1)),
            (Carried(0, body_of(1, 0, 3, 2)),),
        ),
        MetalogEntry(7, 8, 9, (ShardEnd(0, 6, 3),)),
    ]


def every_byte_changed(data: bytes) -> Iterator[bytes]:
    for at in range(len(data)):
        for bits in (0x01, 0x80, 0xFF):
            yield data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]


async def test_a_metalog_entry_with_any_byte_changed_is_applied_or_stops_the_log(
    body_of: BodyOf, recorder_of: RecorderOf
) -> None:
    """All bytes of all entries, one at a time: never an error that ends the follower, and nothing is passed over."""
    good = [encode(one) for one in entries(body_of)]
    stopped = dict.fromkeys(range(len(good) + 1), 0)
    for place, data in enumerate(good):
        for changed in every_byte_changed(data):
            seen = recorder_of()
            follower = LogFollower(metadata=None, ledgers=None, listener=seen)  # type: ignore[arg-type]  # none is asked
            await follower._begin(TermInfo(1, 0, (), 5))
            payloads = [memoryview(one) for one in (*good[:place], changed, *good[place + 1 :])]
            try:
                follower._deliver(0, payloads)
            except LogStopped:
                pass
            taken = follower.position.entry
            assert place <= taken and seen.entries[1] == [decode(one) for one in payloads[:taken]]
            stopped[taken] += 1
    assert stopped[len(good)], "some numbers nobody can know to be wrong: a ledger id, a tag, the time of the last one"
    assert all(stopped.values()), stopped
