"""Bookkeeping of one shard."""

from __future__ import annotations

import pytest

from boki_logbook.shard import Piece, Shard
from boki_logbook.testing import RecordingSource, RecordSpec, RunSpec, ScriptedLedger, ScriptedLedgers, make_batch


def shard() -> Shard:
    return Shard(1, 0, ScriptedLedger(ScriptedLedgers(), 5), 10.0)


def submit(one: Shard, entry: int, *, records: int = 2, pieces: int = 1) -> None:
    batch = make_batch(RunSpec(1, bytes(16), 1, (RecordSpec(),) * records))
    one.submitted(entry, batch, [Piece(batch, RecordingSource(), entry, 0.0)] * pieces, 20.0 + entry)


def test_acks_are_cumulative_and_tell_when_the_newest_was_sent() -> None:
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
