"""Bookkeeping of one shard."""

from __future__ import annotations

import pytest

from boki_common import limits
from boki_ledger.testing.model_ledgers import ModelLedger
from boki_logbook.append.shard import Piece, Shard
from boki_logbook.testing.cluster import RecordingSource, RecordSpec, RunSpec, make_batch, model_ledgers


def shard() -> Shard:
    return Shard(1, 0, ModelLedger(model_ledgers(), 5), 10.0)


def submit(one: Shard, entry: int, *, records: int = 2, pieces: int = 1) -> None:
    batch = make_batch(RunSpec(1, bytes(16), 1, (RecordSpec(),) * records))
    one.submitted(entry, batch, [Piece(batch, RecordingSource(), entry, 0.0)] * pieces, 20.0 + entry)


def test_acks_are_cumulative_and_return_when_the_newest_was_sent() -> None:
    one = shard()
    for entry in range(4):
        submit(one, entry)
    assert one.acked(2) == 22.0
    assert (one.acked_entries, one.acked_records, one.in_flight) == (3, 6, 1)
    assert one.acked(2) is None


def test_entry_ids_are_dense() -> None:
    one = shard()
    submit(one, 0)
    with pytest.raises(AssertionError, match="out of turn"):
        submit(one, 2)


def test_entries_are_taken_in_order_and_once() -> None:
    one = shard()
    for entry in range(3):
        submit(one, entry)
    assert one.take(1) is None
    taken = one.take(0)
    assert taken is not None
    assert taken.entry == 0
    assert one.take(0) is None
    assert not one.drained


def test_what_is_beyond_the_cut_comes_back_in_order() -> None:
    one = shard()
    for entry in range(4):
        submit(one, entry, pieces=2)
    one.cut_entries = 2
    assert [piece.request_id for piece in one.take_uncut()] == [2, 2, 3, 3]
    assert one.take_uncut() == []
    assert one.take(0) is not None
    assert one.take(1) is not None
    assert one.drained


def test_a_failed_shard_is_finished_when_all_it_reported_is_cut() -> None:
    one = shard()
    submit(one, 0)
    submit(one, 1)
    one.acked(0)
    one.fail()
    assert not one.accepting
    assert not one.finished
    one.cut_entries = 1
    assert one.finished


def test_a_retiring_shard_is_finished_when_all_it_sent_is_cut() -> None:
    one = shard()
    submit(one, 0)
    submit(one, 1)
    one.retire()
    one.acked(0)
    one.cut_entries = 1
    assert not one.finished
    one.acked(1)
    assert not one.finished
    one.cut_entries = 2
    assert one.finished


def quiet_shard() -> Shard:
    """With one entry, of which everybody knows."""
    one = shard()
    submit(one, 0)
    one.acked(0)
    one.cut_entries = 1
    return one


def carry(one: Shard, entry: int) -> None:
    submit(one, entry)
    one.carried([b"payload"])


def test_an_entry_may_be_carried_when_none_is_on_its_way_and_the_ledger_has_one() -> None:
    one = shard()
    assert not one.may_carry
    submit(one, 0)
    one.acked(0)
    assert not one.may_carry
    one.cut_entries = 1
    assert one.may_carry
    carry(one, 1)
    assert (one.may_carry, one.carrying, one.in_flight) == (False, True, 0)
    one.cut_entries = 2
    assert (one.may_carry, one.carrying) == (True, False)
    one.retire()
    assert not one.may_carry


def test_so_many_carried_entries_may_not_be_acked() -> None:
    one = quiet_shard()
    for entry in range(1, 1 + limits.CARRIED_BEHIND):
        assert one.may_carry
        carry(one, entry)
        one.cut_entries = entry + 1
    assert not one.may_carry
    one.unwritten.clear()
    one.acked(1)
    assert one.may_carry


def test_what_is_cut_already_is_not_to_be_reported_when_it_is_acked() -> None:
    one = quiet_shard()
    carry(one, 1)
    one.cut_entries = 2
    assert one.take(0) is not None and one.take(1) is not None
    submit(one, 2)
    assert one.acked(1) is None
    assert (one.acked_entries, one.in_flight) == (2, 1)
    assert one.acked(2) == 22.0
    assert one.acked_records == 6
    assert [(acked.entry, acked.first_local_id) for acked in one.newly_acked(0)] == [(2, 4)]


def test_a_carried_entry_that_is_acked_before_it_is_cut_is_reported() -> None:
    one = quiet_shard()
    carry(one, 1)
    one.unwritten.clear()
    assert not one.carrying, "nothing need wait for its cut"
    assert one.acked(1) == 21.0
    assert (one.acked_records, one.in_flight) == (4, 0)


def test_what_was_carried_and_not_cut_is_taken_back_and_never_written() -> None:
    one = quiet_shard()
    carry(one, 1)
    one.cut_entries = 2
    carry(one, 2)
    assert not one.finished
    assert len(one.take_uncut()) == 1
    assert len(one.unwritten) == 1
