"""What a log says before it is applied: in order, or refused whole; shards open, grow and close as soon as it is said."""

from __future__ import annotations

import pytest

from boki_common.errors import CorruptData
from boki_common.ids import Position
from boki_logbook.apply.received_order import Begin, Cut, End, ReceivedOrder
from boki_logbook.state.frontier import Frontier
from boki_metalog.entries.metalog_entry import Close, Command, MetalogEntry, Open, ShardEnd, Trim
from boki_metalog.terms.term_info import TermInfo
from boki_metalog.terms.view import SlotRange

INFO = TermInfo(1, 0, (SlotRange(0, 1023),), 7)
FIRST, SECOND = Open(0, "a" * 32, 40), Open(1, "b" * 32, 41)
BOTH = ShardEnd(0, 0, 0), ShardEnd(1, 0, 0)


def entry(start: int, end: int, *shards: ShardEnd, commands: tuple[Command, ...] = ()) -> MetalogEntry:
    return MetalogEntry(start_pos=start, end_pos=end, time_ms=5, shards=shards, commands=commands)


def received_of(frontier: Frontier) -> ReceivedOrder:
    received = ReceivedOrder(0, frontier)
    received.begun(INFO)
    return received


def test_shards_open_grow_and_close_while_what_changes_the_state_waits() -> None:
    frontier = Frontier()
    received = received_of(frontier)
    trim = Trim(3, ((0, 9),), forget=False)
    cut = received.ordered(1, 0, entry(0, 0, ShardEnd(0, 0, 0), commands=(FIRST, trim)))
    assert [place.ledger_id for place in cut.opened] == [40] and list(cut.commands) == [trim]
    received.ordered(1, 1, entry(0, 3, ShardEnd(0, 3, 2), commands=(Close(0),)))
    place = received.shards[0]
    assert (place.records_end, place.entries_end, place.closed) == (3, 2, True)
    assert place.counts == (0, 0, 0, 0, 0), "nothing is applied"
    received.ended(1)
    assert [type(one) for one in received.queue] == [Begin, Cut, Cut, End]
    assert frontier.received == {0: Position(1, 2)}


def test_an_entry_that_cannot_follow_changes_nothing() -> None:
    frontier = Frontier()
    received = received_of(frontier)
    received.ordered(1, 0, entry(0, 0, ShardEnd(0, 0, 0), commands=(FIRST,)))
    with pytest.raises(CorruptData):
        received.ordered(1, 1, entry(8, 9, ShardEnd(0, 1, 1)))
    assert received.shards[0].entries_end == 0 and len(received.queue) == 2
    assert frontier.received == {0: Position(1, 1)}
    received.ordered(1, 1, entry(0, 1, ShardEnd(0, 1, 1)))
    assert received.shards[0].entries_end == 1


def test_shards_that_were_open_when_a_term_ended_are_closed_once() -> None:
    received = received_of(Frontier())
    received.ordered(1, 0, entry(0, 0, *BOTH, commands=(FIRST, SECOND)))
    received.ordered(1, 1, entry(0, 0, *BOTH, commands=(Close(0),)))
    assert received.close_shards() == [1] and received.close_shards() == []
    assert received.shard(1, 1) is received.shards[1] and received.shard(2, 0) is None
    assert {place.number for place in received.applied(1)} == {0, 1} and received.shard(1, 1) is None
