"""Rules of retention: which data of ended workflows may be deleted, and when."""

from __future__ import annotations

import msgspec
import pytest

from bokiflow.history.instance_state import status_of
from bokiflow.model.flow_events import Ended, Started, Tombed
from bokiflow.model.outcomes import Failure, Outcome, failed
from bokiflow.retention import collect_rules as rules
from bokiflow.retention.collect_rules import (
    EndedWorkflow,
    Excess,
    FenceContent,
    Histories,
    Measured,
    TrimMarks,
    beyond,
)
from bokilib.records.tags import partition_of
from bokilib.retention.checkpoint_rules import Ages

AGES = Ages(grace_ms=10, retention_ms=1_000, forget_ms=50, carry_ms=200)
ENDED = Ended("x", 5, "n", "d", Outcome(1), 0)


HISTORIES = Histories(ms=100, failed_ms=400)


def workflow_ended(time_ms: int = 0, done_ms: int = 0, seqnum: int = 9) -> EndedWorkflow:
    return EndedWorkflow("x", 3, seqnum, time_ms, done_ms, ENDED)


FAILED = EndedWorkflow("x", 3, 9, 0, 0, Ended("x", 5, "n", "d", failed(ValueError("no")), 0))


@pytest.mark.parametrize(
    ("one", "own", "now_ms", "pressing", "expected"),
    [
        (workflow_ended(), FenceContent(), 0, False, "drop"),
        (workflow_ended(), FenceContent(emptied=True), 50, False, "keep"),
        (workflow_ended(), FenceContent(emptied=True), 51, False, "forget"),
        (workflow_ended(), FenceContent(12, start=5), 0, False, "trim"),
        (workflow_ended(), FenceContent(12, start=11), 0, False, "drop"),
        (workflow_ended(), FenceContent(12), 0, False, "drop"),
        (workflow_ended(), FenceContent(9, start=5), 199, False, "keep"),
        (workflow_ended(), FenceContent(9, start=5), 200, False, "tomb"),
        (workflow_ended(), FenceContent(9, start=5), 100, True, "tomb"),
        (workflow_ended(), FenceContent(9, start=5), 99, True, "keep"),
        (workflow_ended(900, 0), FenceContent(9, start=5), 1_000, False, "forget"),
        (workflow_ended(960, 0), FenceContent(9, start=5), 1_000, False, "keep"),
        (workflow_ended(700, 1), FenceContent(9, start=5), 1_000, False, "tomb"),
    ],
)
def test_what_is_done_about_an_end(
    one: EndedWorkflow, own: FenceContent, now_ms: int, pressing: bool, expected: str
) -> None:
    assert rules.fate(one, own, now_ms, AGES, pressing=pressing) == expected


def test_retention_does_not_begin_anew_with_a_tomb() -> None:
    """Whenever the end is repeated, the id is forgotten soon after the retention."""
    time_ms = 0
    for now_ms in range(0, 3_000, 10):
        fate = rules.fate(workflow_ended(time_ms), FenceContent(9, start=5), now_ms, AGES, pressing=False)
        if fate == "tomb":
            time_ms = now_ms
        if fate == "forget":
            assert AGES.retention_ms <= now_ms <= AGES.retention_ms + AGES.forget_ms + 10
            return
    raise AssertionError("it is kept for ever")


def test_nothing_is_due_before_it_is_looked_at() -> None:
    for ages in (AGES, AGES._replace(retention_ms=60), AGES._replace(retention_ms=10)):
        for pressing in (False, True):
            for age_ms in range(rules.looked_at(ages, pressing=pressing)):
                assert rules.fate(workflow_ended(), FenceContent(9, start=5), age_ms, ages, pressing=pressing) == "keep"


@pytest.mark.parametrize(
    ("own", "seqnum", "age_ms", "expected"),
    [
        (FenceContent(9), 7, 10_000, "pass"),
        (FenceContent(9, end=workflow_ended()), 8, 10_000, "pass"),
        (FenceContent(9, end=workflow_ended()), 10, 99, "hold"),
        (FenceContent(9, end=workflow_ended()), 10, 100, "trim"),
        (FenceContent(9, end=workflow_ended(150)), 8, 99, "hold"),
        (FenceContent(9, end=FAILED), 10, 399, "pass"),
        (FenceContent(9, end=FAILED), 10, 400, "trim"),
        (FenceContent(), 8, 50, "hold"),
        (FenceContent(), 8, 51, "forget"),
        (FenceContent(emptied=True), 8, 51, "forget"),
    ],
)
def test_what_becomes_of_what_was_sent_to_nobody(own: FenceContent, seqnum: int, age_ms: int, expected: str) -> None:
    """An event before the end of the workflow is part of its history; one after the end is trimmed after the history."""
    assert rules.fate_of_sent(own, seqnum, 0, age_ms, HISTORIES, AGES) == expected


def test_a_history_goes_when_it_is_due_whenever_its_end_is_repeated() -> None:
    """At each age at which the end may be repeated, one of the rules trims the history when it is due, and not before."""
    for ended in (ENDED, FAILED.ended):
        for first in range(1, AGES.carry_ms + 1, 7):
            record = EndedWorkflow("x", 3, 9, 0, 0, ended)
            trimmed: list[int] = []
            for now_ms in range(AGES.retention_ms):
                if rules.fate_of_history(record, now_ms, HISTORIES, AGES) == "trim":
                    trimmed.append(now_ms)
                if now_ms == first or ((now_ms - first) % AGES.carry_ms == 0 and now_ms > first):
                    fate = rules.outlives(record, now_ms, HISTORIES, AGES)
                    trimmed += [now_ms] * (fate == "trim")
                    assert fate != "rewrite" or not trimmed
                    record = record._replace(time_ms=now_ms)
            kept_ms = HISTORIES.kept_ms(ended)
            late_ms = AGES.carry_ms if kept_ms > AGES.carry_ms else 0
            assert trimmed and kept_ms <= trimmed[0] <= kept_ms + late_ms


def test_a_partition_is_checkpointed_after_so_many_starts_or_when_it_is_old() -> None:
    assert rules.is_due(1_000, 10, 0, 0, 200) and not rules.is_due(999, 10, 0, 0, 200)
    assert rules.is_due(5_000, 5_000, 0, 0, 200) and not rules.is_due(4_999, 5_000, 0, 0, 200)
    assert rules.is_due(0, 1, 100, 300, 200) and not rules.is_due(0, 1, 101, 300, 200)
    assert not rules.is_due(0, 0, 0, 10_000, 200)


def test_records_take_254_tombs_of_a_partition_and_no_more_streams_than_fit() -> None:
    plain = [(workflow_ended(seqnum=number), Tombed("x", ENDED, 0)) for number in range(600)]
    assert [len(batch) for batch in rules.batches(plain)] == [254, 254, 92]
    many = [(one._replace(partition=number % 64), event) for number, (one, event) in enumerate(plain)]
    for batch in rules.batches(many):
        assert len(batch) + len({one.partition for one, _ in batch}) <= 255
    assert sum(len(batch) for batch in rules.batches(many)) == 600
    large = Tombed("x", Ended("x", 5, "n", "d", Outcome("y" * 4_000), 0), 0)
    assert max(len(batch) for batch in rules.batches([(one, large) for one, _ in plain])) < 130
    assert list(rules.batches([])) == []


def test_a_large_failure_is_a_failure_in_the_tomb_too() -> None:
    failure = Failure("builtins:ValueError", "no price " + "y" * 5_000, ["y" * 5_000])
    failed = workflow_ended()._replace(ended=Ended("x", 5, "n", "d", Outcome(None, failure), 0))
    ended = rules.tomb(failed, 77).ended
    assert rules.is_large(failed) and status_of(ended, "") == "failed"
    assert ended.outcome.error == Failure("builtins:ValueError", failure.message[: rules.MESSAGE_CHARS])


def test_a_large_result_is_not_in_the_tomb() -> None:
    large = workflow_ended()._replace(ended=Ended("x", 5, "n", "d", Outcome("y" * 5_000), 0))
    assert (
        rules.is_large(large)
        and not rules.is_large(workflow_ended())
        and rules.is_large(workflow_ended()._replace(large=8))
    )
    assert rules.tomb(large, 77) == Tombed("x", ENDED_WITHOUT, 0, 77)
    assert rules.tomb(workflow_ended(), 0) == Tombed("x", ENDED, 0)
    assert rules.ended_workflow(4, 7, ENDED) == EndedWorkflow("x", partition_of("x"), 4, 7, 7, ENDED)
    assert rules.ended_workflow(4, 7, Tombed("x", ENDED, 2, 1)) == EndedWorkflow(
        "x", partition_of("x"), 4, 7, 2, ENDED, 1
    )
    assert rules.ended_workflow(4, 7, Started("x", "n", "d", [], 0)) is None


ENDED_WITHOUT = Ended("x", 5, "n", "d", Outcome(), 0)


def test_streams_are_trimmed_below_the_first_that_is_needed() -> None:
    marks = TrimMarks()
    for partition, seqnum in ((1, 3), (1, 4), (2, 3)):
        marks.dropped(partition, seqnum)
    marks.kept(1, 4)
    marks.kept(3, 9)
    assert marks.all() == [(1, 4), (2, 4)]


def test_the_oldest_histories_beyond_a_bound_in_bytes_are_found_by_kind() -> None:
    one, other = Measured(), Measured()
    for seqnum, (minute, size) in enumerate([(5, 10), (6, 20), (6, 5), (8, 40)], 1):
        one.ended(ended_in(minute, seqnum, size))
    other.ended(ended_in(7, 9, 30))
    other.ended(ended_in(7, 10, 1_000)._replace(time_ms=60_000 * 9))  # repeated: not counted again
    both = [one, other]
    assert [beyond(both, bound) for bound in (105, 104, 95, 94, 70, 39, 0)] == [
        [],
        [Excess(False, 5, 1)],
        [Excess(False, 5, 10)],
        [Excess(False, 6, 1)],
        [Excess(False, 6, 25)],
        [Excess(False, 8, 1)],
        [Excess(False, 8, 40)],
    ]
    excess = beyond(both, 94)[0]
    assert [measured.ends_of(excess) for measured in both] == [(1, 3), None]
    assert [one.has(ended_in(minute, seqnum, 5), excess) for minute, seqnum in ((5, 1), (6, 2), (8, 4))] == [
        True,
        True,
        False,
    ]
    for minute, seqnum, size in ((5, 1, 10), (6, 2, 20)):
        one.trimmed([ended_in(minute, seqnum, size)])
    assert beyond(both, 94) == [] and not one.has(ended_in(6, 2, 20), excess) and one.has(ended_in(6, 3, 5), excess)
    assert beyond(both, 74) == [Excess(False, 6, 1)]
    one.forget(7, failed=False)
    assert one.by_minute(failed=False) == {8: 40}


def test_failed_workflows_and_others_have_half_of_the_bound_each() -> None:
    measured = Measured()
    for seqnum in range(1, 11):
        measured.ended(ended_in(seqnum, seqnum, 10, failed=seqnum > 7))
    assert beyond([measured], 100) == []
    assert beyond([measured], 80) == [Excess(False, 2, 10)], "30 bytes of failed ones fit into a half"
    assert beyond([measured], 40) == [Excess(False, 5, 10), Excess(True, 8, 10)]
    few = Measured()
    for seqnum in range(1, 11):
        few.ended(ended_in(seqnum, seqnum, 10, failed=seqnum > 1))
    assert beyond([few], 60) == [Excess(True, 5, 10)]


def ended_in(minute: int, seqnum: int, size: int, *, failed: bool = False) -> EndedWorkflow:
    ended = msgspec.structs.replace(FAILED.ended if failed else ENDED, history_bytes=size)
    return EndedWorkflow("x", 3, seqnum, 60_000 * minute, 60_000 * minute, ended)
