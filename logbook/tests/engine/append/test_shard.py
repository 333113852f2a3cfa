"""Bookkeeping of one shard."""

from __future__ import annotations

import pytest

from boki_common import limits
from boki_ledger.testing.model_ledgers import ModelLedger
from boki_logbook.append.shard import Piece, Shard
from boki_logbook.testing.cluster import RecordingSource, RecordSpec, RunSpec, make_batch, model_ledgers


@pytest.fixture
def one() -> Shard:
    return Shard(1, 0, ModelLedger(model_ledgers(), 5), 10.0)


def submit(one: Shard, entry: int, *, records: int = 2, pieces: int = 1) -> None:
    batch = make_batch(RunSpec(1, bytes(16), 1, (RecordSpec(),) * records))
    one.submitted(entry, batch, [Piece(batch, RecordingSource(), entry, 0.0)] * pieces, 20.0 + entry)


def test_acks_are_cumulative_and_return_when_the_newest_was_sent(one: Shard) -> None:
    for entry in range(4):
        submit(one, entry)
    assert one.acked(2) == 22.0
    assert (one.acked_entries, one.acked_records, one.in_flight) == (3, 6, 1)
    assert one.acked(2) is None


def test_entry_ids_are_dense(one: Shard) -> None:
    submit(one, 0)
    with pytest.raises(AssertionError, match="out of turn"):
        submit(one, 2)


def test_entries_are_taken_in_order_and_once(one: Shard) -> None:
    for entry in range(3):
        submit(one, entry)
    assert one.take(1) is None
    taken = one.take(0)
    assert taken is not None
    assert taken.entry == 0
    assert one.take(0) is None
    assert not one.drained


def test_what_is_beyond_the_cut_comes_back_in_order(one: Shard) -> None:
    for entry in range(4):
        submit(one, entry, pieces=2)
    one.cut_entries = 2
    assert [piece.request_id for piece in one.take_uncut()] == [2, 2, 3, 3]
    assert one.take_uncut() == []
    assert one.take(0) is not None
    assert one.take(1) is not None
    assert one.drained


def test_a_failed_shard_is_finished_when_all_it_reported_is_cut(one: Shard) -> None:
    submit(one, 0)
    submit(one, 1)
    one.acked(0)
    one.fail()
    assert not one.accepting
    assert not one.finished
    one.cut_entries = 1
    assert one.finished


def test_a_retiring_shard_is_finished_when_all_it_sent_is_cut(one: Shard) -> None:
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


@pytest.fixture
def quiet(one: Shard) -> Shard:
    """With one entry, of which everybody knows."""
    submit(one, 0)
    one.acked(0)
    one.cut_entries = 1
    return one


def carry(one: Shard, entry: int) -> None:
    submit(one, entry)
    one.carried([b"payload"])


def test_an_entry_may_be_carried_when_none_is_on_its_way_and_the_ledger_has_one(one: Shard) -> None:
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


def test_so_many_carried_entries_may_not_be_acked(quiet: Shard) -> None:
    for entry in range(1, 1 + limits.CARRIED_BEHIND):
        assert quiet.may_carry
        carry(quiet, entry)
        quiet.cut_entries = entry + 1
    assert not quiet.may_carry
    quiet.unwritten.clear()
    quiet.acked(1)
    assert quiet.may_carry


def test_what_is_cut_already_is_not_to_be_reported_when_it_is_acked(quiet: Shard) -> None:
    carry(quiet, 1)
    quiet.cut_entries = 2
    assert quiet.take(0) is not None and quiet.take(1) is not None
    submit(quiet, 2)
    assert quiet.acked(1) is None
    assert (quiet.acked_entries, quiet.in_flight) == (2, 1)
    assert quiet.acked(2) == 22.0
    assert quiet.acked_records == 6
    assert [(acked.entry, acked.first_local_id) for acked in quiet.newly_acked(0)] == [(2, 4)]


def test_a_carried_entry_that_is_acked_before_it_is_cut_is_reported(quiet: Shard) -> None:
    carry(quiet, 1)
    quiet.unwritten.clear()
    assert not quiet.carrying, "nothing need wait for its cut"
    assert quiet.acked(1) == 21.0
    assert (quiet.acked_records, quiet.in_flight) == (4, 0)


def test_what_was_carried_and_not_cut_is_taken_back_and_never_written(quiet: Shard) -> None:
    carry(quiet, 1)
    quiet.cut_entries = 2
    carry(quiet, 2)
    assert not quiet.finished
    assert len(quiet.take_uncut()) == 1
    assert len(quiet.unwritten) == 1
