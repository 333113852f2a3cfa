"""Checkpoints: which ones are complete, and the trims that they allow."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from bokilib.retention.checkpoint_rules import (
    GRACE_MS,
    NOTHING,
    Ages,
    CheckpointPart,
    Marks,
    Ripening,
    TrimPlan,
    WholeCheckpoint,
    due,
    must_rewrite,
    newest_first,
    split,
    trim_marks,
    trim_plan,
)


def test_due_by_records_or_by_bytes() -> None:
    assert [due(999, 0), due(1_000, 0), due(0, 2**20 - 1), due(0, 2**20)] == [False, True, False, True]


@given(st.binary(max_size=40), st.integers(1, 9))
def test_parts_are_the_whole_and_within_their_bound(state: bytes, limit: int) -> None:
    parts = split(state, limit)
    assert b"".join(parts) == state
    assert parts and all(len(part) <= limit for part in parts)


@given(st.randoms(use_true_random=False))
def test_those_count_of_which_all_parts_are_there(rng: random.Random) -> None:
    """Writers die between parts and others begin meanwhile: only complete checkpoints count."""
    parts: list[CheckpointPart] = []
    expected: list[WholeCheckpoint] = []
    for number in range(rng.randrange(8)):
        count = rng.choice((1, 1, 2, 3))
        written = count if rng.random() < 0.6 else rng.randrange(count)
        first = len(parts) + 1
        for index in range(written):
            parts.append(
                CheckpointPart(len(parts) + 1, 100 * number, number, index, count, f"w{number}", b"%d" % index)
            )
        if written == count:
            data = b"".join(b"%d" % index for index in range(count))
            expected.append(WholeCheckpoint(first, len(parts), 100 * number, number, data))
    assert newest_first(reversed(parts)) == expected[::-1]


def test_parts_of_two_writers_are_never_one_checkpoint() -> None:
    first, second = CheckpointPart(1, 0, 5, 0, 2, "w", b"a"), CheckpointPart(2, 0, 5, 1, 2, "v", b"b")
    assert newest_first([second, first]) == []
    assert [whole.data for whole in newest_first([second._replace(by="w"), first])] == [b"ab"]


def test_a_checkpoint_whose_first_parts_are_trimmed_does_not_count() -> None:
    assert newest_first([CheckpointPart(9, 0, 5, 2, 3, "w"), CheckpointPart(8, 0, 5, 1, 3, "w")]) == []


def test_the_checkpoint_before_the_newest_trims_once_no_snapshot_is_older() -> None:
    newest, previous, older = (WholeCheckpoint(s, s, 10 * s, c, b"") for s, c in ((30, 28), (20, 18), (10, 8)))
    assert trim_marks([newest, previous, older], 200 + GRACE_MS) == Marks(19, 20)
    assert trim_marks([newest, previous, older], 199 + GRACE_MS) == NOTHING
    assert trim_marks([newest], 10**9) == trim_marks([], 10**9) == NOTHING


def test_frequent_checkpoints_trim_by_the_newest_that_is_old_enough() -> None:
    ripening, marks = Ripening(), []
    for at in range(1, 1_001):
        newest, previous = WholeCheckpoint(at + 1, at + 1, at + 1, at, b""), WholeCheckpoint(at, at, at, at - 1, b"")
        ripening.see([newest, previous], 100)
        ripening.see([newest], 100)
        marks.append(ripening.ripe(at + 1, 100))
    made = [(at, mark) for at, mark in enumerate(marks, 2) if mark != NOTHING]
    assert len(made) > 250, "a mark for every thirty-second of the grace"
    assert all(at - 104 <= mark.checkpoints <= at - 100 for at, mark in made)
    assert all(mark.records == mark.checkpoints for _, mark in made)
    assert ripening.ripe(10_000, 100) != NOTHING and ripening.ripe(10_000, 100) == NOTHING


AGES = Ages(grace_ms=10, retention_ms=1_000, forget_ms=50, carry_ms=100)


def end(seqnum: int, time_ms: int, since_ms: int, covers: int | None = None) -> WholeCheckpoint:
    return WholeCheckpoint(seqnum, seqnum, time_ms, seqnum if covers is None else covers, b"", since_ms)


def test_what_ended_is_trimmed_after_the_grace_and_forgotten_after_the_retention() -> None:
    deletion = end(7, 500, 500)
    assert trim_plan([deletion], 7, 509, AGES) == TrimPlan(NOTHING)
    assert trim_plan([deletion], 7, 510, AGES) == TrimPlan(Marks(8, 7))
    assert trim_plan([deletion], 7, 1_500, AGES) == TrimPlan(Marks(8, 7), forget=True)
    assert trim_plan([deletion], 8, 1_500, AGES) == TrimPlan(NOTHING), "it was made anew"


def test_what_ended_is_forgotten_only_when_the_log_can_forget_it() -> None:
    carried = end(9, 1_490, 500, covers=8)
    assert not trim_plan([carried], 7, 1_540, AGES).forget
    assert trim_plan([carried], 7, 1_541, AGES).forget


def test_idle_checkpoints_are_carried_and_ends_until_their_retention_is_over() -> None:
    assert must_rewrite([], 3, 0, AGES) and not must_rewrite([], 0, 0, AGES)
    whole = WholeCheckpoint(5, 5, 200, 4, b"x")
    assert [must_rewrite([whole], 4, now_ms, AGES) for now_ms in (299, 300)] == [False, True]
    ended_long_ago = end(5, 200, 100)
    assert [must_rewrite([ended_long_ago], 5, now_ms, AGES) for now_ms in (299, 300, 1_099, 1_100)] == [0, 1, 1, 0]
    assert must_rewrite([ended_long_ago], 6, 1_100, AGES), "made anew"
