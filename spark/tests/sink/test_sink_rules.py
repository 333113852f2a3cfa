"""The rules of an attempt at a partition, alone and in all executions of a small batch."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_spark.errors import SinkReplayDiffers, SinkStale, SinkTrimmed
from boki_spark.sink import sink_rules as rules
from boki_spark.sink.sink_rules import (
    AttemptRecord,
    BeginAttempt,
    CommitRecord,
    CompareRows,
    EndRecord,
    NewestRecord,
    OpenQuery,
    RowTally,
    SinkRow,
    SkipBatch,
)
from boki_spark.testing.sink_model import RULES, Search

SAME = ("abb", "abb")
SHUFFLED = ("abc", "cab")
FEWER = ("abc", "ab")
MORE = ("ab", "abcd")
REPLAYS = (SAME, SHUFFLED, FEWER, MORE)
NEEDED = {
    "rows_without_condition": REPLAYS,
    "nothing_skipped": REPLAYS,
    "leftovers_ignored": (FEWER,),
    "no_end": (FEWER, MORE),
}


@pytest.mark.parametrize("rows", REPLAYS, ids="-".join)
def test_every_execution_leaves_the_rows_of_an_attempt_that_ended_each_once(rows: tuple[str, str]) -> None:
    found = Search(*rows).run()
    assert found.hole is None and not found.doubled and found.committed > 100
    assert bool(found.differs) == (rows in (FEWER, MORE)), (
        "rows that changed are noticed, and nothing else is called a change"
    )


@pytest.mark.parametrize(("rule", "rows"), [(rule, rows) for rule in RULES for rows in NEEDED[rule]], ids=str)
def test_each_rule_is_needed(rule: str, rows: tuple[str, str]) -> None:
    found = Search(*rows, without=rule).run()
    assert found.hole is not None or found.doubled


COMMITTED = NewestRecord(10, CommitRecord(4, ()))


@pytest.mark.parametrize(
    ("batch", "query", "partition", "step"),
    [
        (0, None, None, OpenQuery()),
        (0, NewestRecord(1, CommitRecord(-1, ())), None, BeginAttempt(0, None, 1)),
        (5, COMMITTED, None, BeginAttempt(0, None, 10)),
        (4, COMMITTED, NewestRecord(9, EndRecord(4, 0, 1, "")), SkipBatch(CommitRecord(4, ()), EndRecord(4, 0, 1, ""))),
        (4, COMMITTED, NewestRecord(9, EndRecord(3, 0, 1, "")), SkipBatch(CommitRecord(4, ()))),
        (4, COMMITTED, NewestRecord(9, None), SkipBatch(CommitRecord(4, ()))),
        (4, COMMITTED, None, SkipBatch(CommitRecord(4, ()))),
        (5, COMMITTED, NewestRecord(9, EndRecord(4, 0, 1, "")), BeginAttempt(0, 9, 10)),
        (5, COMMITTED, NewestRecord(11, AttemptRecord(5, 0, 0)), BeginAttempt(11, 11, 10)),
        (5, COMMITTED, NewestRecord(15, AttemptRecord(5, 0, 11)), BeginAttempt(11, 15, 10)),
        (5, COMMITTED, NewestRecord(16, EndRecord(5, 0, 7, "ab")), CompareRows(EndRecord(5, 0, 7, "ab"), 16)),
        (5, COMMITTED, NewestRecord(9, None), BeginAttempt(0, 9, 10)),
    ],
)
def test_the_newest_records_decide_what_an_attempt_does(
    batch: int, query: NewestRecord | None, partition: NewestRecord | None, step: rules.Step
) -> None:
    assert rules.next_step(batch, query, partition) == step


def test_a_task_of_a_batch_that_is_over_is_stale() -> None:
    with pytest.raises(SinkStale, match=r"\[BOKI_SINK_STALE\].*found 6"):
        rules.next_step(5, COMMITTED, NewestRecord(12, AttemptRecord(6, 0, 0)))
    with pytest.raises(SinkStale, match=r"found 4, which is committed.*another checkpoint"):
        rules.next_step(3, COMMITTED, None)


@pytest.mark.parametrize(("query", "partition"), [(NewestRecord(10, None), None), (COMMITTED, NewestRecord(11, None))])
def test_what_was_trimmed_and_must_be_known_is_an_error(query: NewestRecord, partition: NewestRecord | None) -> None:
    with pytest.raises(SinkTrimmed, match=r"nobody|may be there"):
        rules.next_step(5, query, partition)


@given(st.lists(st.sampled_from("abc"), max_size=8), st.integers(0, 8), st.randoms(use_true_random=False))
def test_rows_in_another_order_are_the_same_and_skipped_as_often_as_they_are_there(
    rows: list[str], left: int, random: Random
) -> None:
    records = [SinkRow(row.encode(), (row,)) for row in rows]
    shuffled = random.sample(records, len(records))
    tally, whole = RowTally(shuffled[:left]), RowTally()
    written = [row for row in records if tally.take(row)]
    tally.check_all_taken()
    assert sorted(written) == sorted(shuffled[left:])
    for row in shuffled:
        whole.take(row)
    whole.check_same(EndRecord(0, 0, tally.rows, tally.sum))


def test_rows_left_over_are_a_replay_that_differs() -> None:
    tally = RowTally([SinkRow(b"a"), SinkRow(b"a")])
    assert not tally.take(SinkRow(b"a"))
    with pytest.raises(SinkReplayDiffers, match="wrote 1 rows"):
        tally.check_all_taken()


def test_rows_are_distinguished_by_data_and_by_each_of_their_tags() -> None:
    rows = [
        SinkRow(b"a"),
        SinkRow(b"b"),
        SinkRow(b"a", ("x",)),
        SinkRow(b"a", ("x", "y")),
        SinkRow(b"a", ("xy",)),
        SinkRow(b"a", (7,)),
        SinkRow(b"a", ("7",)),
    ]
    assert len({rules.row_hash(row) for row in rows}) == len(rows)


def test_ends_with_other_rows_or_with_others_as_many_differ() -> None:
    tally = RowTally()
    tally.take(SinkRow(b"a"))
    with pytest.raises(SinkReplayDiffers, match="ended with 2 rows, this one has 1"):
        tally.check_same(EndRecord(1, 0, 2, tally.sum))
    with pytest.raises(SinkReplayDiffers, match="and others"):
        tally.check_same(EndRecord(1, 0, 1, "0" * 32))


def test_other_partitions_than_an_earlier_run_are_an_error() -> None:
    rules.check_partitions(1, [0, 1, 1], [0, 1, 2])
    with pytest.raises(SinkReplayDiffers, match="had partitions 3, 4"):
        rules.check_partitions(1, [0, 3, 4], [0, 1, 2])


def test_a_committed_batch_with_other_rows_or_partitions_differs() -> None:
    commit, tally = CommitRecord(4, ((0, 9, 1), (2, 8, 0))), RowTally()
    tally.take(SinkRow(b"a"))
    rules.check_committed(commit, 0, tally, None)
    rules.check_committed(commit, 0, tally, EndRecord(4, 0, 1, tally.sum))
    rules.check_committed(commit, 2, RowTally(), None)
    with pytest.raises(
        SinkReplayDiffers, match=r"with 1 rows in partition 0, this write has others.*a writeId of its own"
    ):
        rules.check_committed(commit, 0, tally, EndRecord(4, 0, 1, "0" * 32))
    with pytest.raises(SinkReplayDiffers, match="with 0 rows in partition 2, this write has 1"):
        rules.check_committed(commit, 2, tally, None)
    for empty_or_not in (tally, RowTally()):
        with pytest.raises(SinkReplayDiffers, match="with no partition 1"):
            rules.check_committed(commit, 1, empty_or_not, None)
    rules.check_same_partitions(commit, [0, 2])
    with pytest.raises(SinkReplayDiffers, match="with partitions 2, this write does not have them"):
        rules.check_same_partitions(commit, [0])


@pytest.mark.parametrize("control", [AttemptRecord(3, 1, 0), EndRecord(3, 1, 9, "ff"), CommitRecord(3, ((0, 12, 9),))])
def test_control_records_are_read_as_they_were_written(control: rules.Control) -> None:
    assert rules.decode(rules.encode(control)) == control


@pytest.mark.parametrize("data", [b"", b"a row", b'{"kind":"commit","batch":1,"ends":[],"v":2}'])
def test_what_no_sink_of_this_version_wrote_is_refused(data: bytes) -> None:
    with pytest.raises(SinkTrimmed, match="expected"):
        rules.decode(data)


def test_rows_get_their_own_tags_back() -> None:
    names = rules.names_of("q", 3)
    for row in (SinkRow(b"a"), SinkRow(b"a", ("x", 7))):
        assert rules.row_of(rules.tags_of(row, names), b"a", names) == row
