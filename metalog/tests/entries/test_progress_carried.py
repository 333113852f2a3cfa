"""Entries that cuts carry: the next one of a shard, with its bytes, before its data ledger has it. `test_progress` has the model."""

from __future__ import annotations

import pytest

from boki_common import limits
from boki_metalog.entries.metalog_entry import Carried, Close, MetalogEntry, ShardEnd
from boki_metalog.entries.progress import CutBuilder, ProgressVector, ShardRange
from boki_metalog.errors import ImpossibleReport, ShardNotOpen, TermFull

A, B, C = ("aa" * 16, "bb" * 16, "cc" * 16)


def take(builder: CutBuilder) -> MetalogEntry:
    entry = builder.take(0)
    assert entry is not None
    return entry


def builder_of(*incarnations: str) -> CutBuilder:
    """A builder whose shards 0, 1, … are open."""
    builder = CutBuilder()
    for number, incarnation in enumerate(incarnations):
        assert builder.open(incarnation, 100 + number) == number
    take(builder)
    return builder


def cut_of(*incarnations: str) -> tuple[CutBuilder, ProgressVector]:
    """A builder whose shards 0, 1, … are cut behind their first entry of 5 records, and a reader that is that far."""
    builder = builder_of(*incarnations)
    for shard in range(len(incarnations)):
        builder.report(shard, 5, 1)
    return builder, ProgressVector.after(take(builder))


def test_what_is_carried_is_ordered_with_its_bytes_by_the_next_entry_alone() -> None:
    builder, state = cut_of(A, B)
    builder.carry(1, 7, 2, b"of 1")
    builder.carry(0, 6, 2, b"of 0")
    entry = take(builder)
    assert entry.shards == (ShardEnd(0, 6, 2), ShardEnd(1, 7, 2))
    assert entry.carried == (Carried(0, b"of 0"), Carried(1, b"of 1")), "by shard"
    assert state.apply(entry) == [ShardRange(0, 5, 1, 1, 1, 10), ShardRange(1, 5, 2, 1, 1, 11)]
    builder.report(0, 7, 3)
    builder.carry(1, 8, 3, b"more of 1")
    assert take(builder).carried == (Carried(1, b"more of 1"),)


def test_what_is_carried_twice_or_reported_meanwhile_is_ordered_once() -> None:
    builder, _ = cut_of(A)
    for body in (b"first", b"again"):
        builder.carry(0, 6, 2, body)
    builder.report(0, 6, 2)
    builder.report(0, 5, 1)
    entry = take(builder)
    assert (entry.shards, entry.carried) == ((ShardEnd(0, 6, 2),), (Carried(0, b"first"),))
    builder.carry(0, 6, 2, b"late")
    builder.report(0, 6, 2)
    assert builder.take(0) is None


def test_a_report_that_overtakes_what_waits_to_be_carried_has_it_durable() -> None:
    builder, state = cut_of(A)
    builder.carry(0, 6, 2, b"carried")
    builder.report(0, 9, 3)
    builder.carry(0, 6, 2, b"carried")
    entry = take(builder)
    assert (entry.shards, entry.carried) == ((ShardEnd(0, 9, 3),), ())
    assert state.apply(entry) == [ShardRange(0, 5, 4, 1, 2, 5)]


@pytest.mark.parametrize(
    ("records", "entries"),
    [(6, 3), (6, 2**64 - 1), (5, 2), (4, 2), (5 + limits.BATCH_RECORDS + 1, 2)],
    ids=["one is missing", "far ahead", "no records", "fewer records", "more records than it holds"],
)
def test_what_cannot_be_the_next_entry_is_not_carried(records: int, entries: int) -> None:
    builder, _ = cut_of(A)
    with pytest.raises(ImpossibleReport):
        builder.carry(0, records, entries, b"x")
    assert builder.take(0) is None


def test_of_a_shard_one_entry_at_a_time_waits_to_be_carried() -> None:
    """The one before it would be ordered, and be nowhere."""
    builder, _ = cut_of(A)
    builder.carry(0, 6, 2, b"2")
    with pytest.raises(ImpossibleReport, match="cannot be carried next"):
        builder.carry(0, 7, 3, b"3")
    assert take(builder).shards == (ShardEnd(0, 6, 2),)
    builder.carry(0, 7, 3, b"3")
    assert take(builder).carried == (Carried(0, b"3"),)


def test_the_first_entry_of_a_shard_is_not_carried() -> None:
    builder = builder_of(A)
    with pytest.raises(ImpossibleReport):
        builder.carry(0, 5, 1, b"x")
    assert builder.take(0) is None


def test_what_is_carried_needs_an_open_shard() -> None:
    builder, _ = cut_of(A)
    with pytest.raises(ShardNotOpen):
        builder.carry(1, 6, 2, b"x")
    shard = builder.open(B, 7)
    with pytest.raises(ShardNotOpen):
        builder.carry(shard, 6, 2, b"x")
    take(builder)
    builder.close(0)
    for records, entries in ((6, 2), (5, 1), (9, 9)):
        with pytest.raises(ShardNotOpen):
            builder.carry(0, records, entries, b"x")
    assert take(builder).carried == ()
    with pytest.raises(ShardNotOpen):
        builder.carry(0, 6, 2, b"x")


def test_a_close_ends_a_shard_behind_what_was_carried_before_it() -> None:
    builder, state = cut_of(A)
    builder.carry(0, 6, 2, b"last")
    builder.close(0)
    entry = take(builder)
    assert (entry.shards, entry.carried) == ((ShardEnd(0, 6, 2),), (Carried(0, b"last"),))
    assert entry.commands == (Close(0),)
    state.apply(entry)
    assert not state.shards and builder.take(0) is None


def test_what_an_older_shard_carries_comes_before_the_younger_one_that_ends_it() -> None:
    builder, state = cut_of(A, B)
    younger = builder.open(A, 777)
    state.apply(take(builder))
    builder.carry(0, 6, 2, b"of the older")
    builder.report(younger, 1, 1)
    builder.carry(younger, 2, 2, b"of the younger")
    entry = take(builder)
    assert entry.commands == (Close(0),)
    assert entry.carried == (Carried(0, b"of the older"), Carried(younger, b"of the younger"))
    assert [one.shard for one in state.apply(entry)] == [0, younger]
    with pytest.raises(ShardNotOpen):
        builder.carry(0, 7, 3, b"too late")


def test_what_finds_no_room_to_be_carried_is_left_to_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CARRIED_ENTRIES", 2)
    builder, state = cut_of(A, B, C)
    for shard in (2, 0, 1):
        builder.carry(shard, 6, 2, b"x")
    entry = take(builder)
    assert entry.shards == (ShardEnd(0, 6, 2), ShardEnd(1, 5, 1), ShardEnd(2, 6, 2))
    assert [shard for shard, _ in entry.carried] == [0, 2]
    state.apply(entry)
    assert builder.take(0) is None, "nothing was taken of the third"
    builder.report(1, 6, 2)
    assert take(builder).shards[1] == ShardEnd(1, 6, 2)


def test_a_report_makes_room_for_what_is_to_be_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CARRIED_ENTRIES", 1)
    builder, _ = cut_of(A, B)
    builder.carry(0, 6, 2, b"of 0")
    builder.report(0, 7, 3)
    builder.carry(1, 6, 2, b"of 1")
    entry = take(builder)
    assert (entry.shards, entry.carried) == ((ShardEnd(0, 7, 3), ShardEnd(1, 6, 2)), (Carried(1, b"of 1"),))


def test_a_full_term_takes_nothing_of_what_is_to_be_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    builder, _ = cut_of(A)
    monkeypatch.setattr(limits, "POSITION_MAX", 5)
    builder.carry(0, 6, 2, b"x")
    for _ in range(2):
        with pytest.raises(TermFull):
            builder.take(0)
    assert builder.end_pos == 5
