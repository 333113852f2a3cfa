"""What hardly any writer needs is shared while there is nothing to say, and never changes then."""

from __future__ import annotations

from boki._arguments import NO_TAGS
from boki._numbers import Numbers
from boki._outbox import Outbox
from boki._session import Session
from boki._special import NOTHING, Special
from boki._ticket import Ticket
from boki_common.records.record_batch import RUN_NAMED


def test_nothing_is_special_of_a_new_writer_whatever_is_asked_of_it() -> None:
    numbers = Numbers(Session(), 1, Outbox())
    before = [getattr(NOTHING, name) for name in Special.__slots__]
    assert numbers.add(Ticket(NO_TAGS, b""), 0.0, b"w" * 16)
    numbers.progressed(1.0)
    numbers.connection_lost()
    assert numbers.special is not NOTHING
    numbers.end()
    assert numbers.special is NOTHING
    assert [getattr(NOTHING, name) for name in Special.__slots__] == before


def test_another_writer_begins_without_what_was_special_of_the_last() -> None:
    special = Special(RUN_NAMED, Numbers(Session(), 1, Outbox()))
    special.stall()
    special.fill(3)
    special.sent_before(9)
    special.sent_before(7)
    assert (special.stalled, special.gaps, special.filled_from, special.sent_again) == (True, 1, 3, 9)
    special.begin()
    assert (special.stalled, special.gaps, special.filled_from, special.sent_again) == (False, 0, 0, 0)
    assert special.flags == RUN_NAMED
