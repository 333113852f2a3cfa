"""What is kept of a writer: answers as runs, checksums beside them, both from the floor on."""

from __future__ import annotations

import pytest

from boki_common import limits
from boki_common.records.void_checksums import EMPTY_CRC, void_checksum
from boki_logbook.writers.writers import (
    COMMITTED,
    CONFLICT,
    FORGOTTEN,
    NEVER,
    NOBODY,
    REUSED,
    Answer,
    Kept,
    WriterState,
)


def writer(*, named: bool) -> WriterState:
    """A writer with numbers 1-4 committed, 5 in conflict, 6-7 never, 8 committed."""
    state = WriterState(named)
    state.decided(1, 2, 100, COMMITTED)
    state.decided(3, 2, 102, COMMITTED)
    state.decided(5, 1, 0, CONFLICT, ((3, 90),))
    state.decided(6, 1, 0, NEVER)
    state.decided(7, 1, 0, NEVER)
    state.decided(8, 1, 200, COMMITTED)
    return state


def test_adjacent_answers_of_one_kind_are_one_run() -> None:
    kept = [(one.first, one.count, one.verdict) for one in writer(named=False).kept]
    assert kept == [(1, 4, COMMITTED), (5, 1, CONFLICT), (6, 2, NEVER), (8, 1, COMMITTED)]


def test_answers_are_recalled_from_inside_a_run_on() -> None:
    assert list(writer(named=False).recall(9, 4, 7)) == [
        Answer(9, 4, 1, 103, COMMITTED, NOBODY),
        Answer(9, 5, 1, 0, CONFLICT, ((3, 90),)),
        Answer(9, 6, 1, 0, NEVER, NOBODY),
    ]


def test_what_a_session_writer_awaits_no_more_is_forgotten() -> None:
    state = writer(named=False)
    state.forget(6)
    assert [answer.verdict for answer in state.recall(0, 1, 9)] == [FORGOTTEN, NEVER, COMMITTED]
    state.forget(99)
    assert (state.floor, state.kept) == (9, [])


@pytest.mark.parametrize("seqnum", [201, 500])
def test_a_writer_that_awaits_nothing_before_its_last_run_is_four_numbers_again(seqnum: int) -> None:
    one = writer(named=False)
    one.decided(9, 2, seqnum, COMMITTED)
    one.forget(9)
    assert one.fits_row and one.as_table_row == (10, 9, seqnum, 0)
    one.decided(11, 3, seqnum + 2, COMMITTED)
    one.forget(12)
    assert one.fits_row and one.kept == [Kept(12, 2, seqnum + 3, COMMITTED, NOBODY)]


def test_checksums_are_noted_once_and_leave_with_their_answers() -> None:
    state = WriterState(named=True)
    state.decided(1, 3, 100, COMMITTED)
    state.note(1, [11, 12, 13])
    state.note(1, [91, 92, 93])
    state.decided(4, limits.WINDOW_RECORDS, 103, COMMITTED)
    state.note(3, [13, *range(limits.WINDOW_RECORDS)])
    state.forget(0)
    assert (state.floor, len(state.crcs), state.crcs[0]) == (4, limits.WINDOW_RECORDS, 0)


def test_only_the_numbers_that_differ_are_reused() -> None:
    state = writer(named=True)
    state.note(1, list(range(1, 9)))
    recalled = list(state.recall(0, 2, 9))
    assert list(state.checked(recalled, 2, list(range(2, 9)))) == recalled
    answers = list(state.checked(recalled, 2, [2, 77, 4, 77, 77, 77, 8]))
    assert [(answer.first, answer.count, answer.verdict, answer.first_seqnum) for answer in answers] == [
        (2, 1, COMMITTED, 101),
        (3, 1, REUSED, 0),
        (4, 1, COMMITTED, 103),
        (5, 1, REUSED, 0),
        (6, 2, NEVER, 0),
        (8, 1, COMMITTED, 200),
    ]


def test_a_void_is_compared_by_the_checksum_of_the_record_it_is_of() -> None:
    state = WriterState(named=True)
    state.decided(1, 3, 100, COMMITTED)
    state.note(1, [11, EMPTY_CRC, 13])

    def answers(*crcs: int) -> list[int]:
        recalled = state.recall(0, 1, 4)
        found = state.checked(recalled, 1, [*map(void_checksum, crcs)], void=True)
        return [answer.verdict for answer in found for _ in range(answer.count)]

    assert answers(11, EMPTY_CRC, 13) == [COMMITTED] * 3
    assert answers(EMPTY_CRC, 11, 14) == [REUSED] * 3
    of_earlier_sdks = list(state.checked(state.recall(0, 1, 4), 1, [EMPTY_CRC] * 3, void=True))
    assert [(answer.count, answer.verdict) for answer in of_earlier_sdks] == [(3, COMMITTED)], "they say nothing"


def test_a_session_writer_keeps_no_checksums() -> None:
    state = writer(named=False)
    state.note(1, list(range(8)))
    assert not state.crcs


BELOW_FLOOR = Kept(2, 3, 899, COMMITTED, NOBODY)


@pytest.mark.parametrize(
    "runs",
    [
        [Kept(3, 2, 900, COMMITTED, NOBODY)],
        [BELOW_FLOOR],
        [Kept(3, 2, 0, NEVER, NOBODY)],
        [Kept(3, 1, 900, COMMITTED, NOBODY), Kept(4, 1, 0, CONFLICT, ((7, 8),))],
        [],
    ],
)
def test_runs_that_are_taken_are_those_that_were_given_whatever_comes_next(runs: list[Kept]) -> None:
    state = WriterState(named=False)
    state.floor, state.last = (3, 4) if runs else (5, 4)
    state.keep(list(runs))
    if runs == [BELOW_FLOOR]:
        runs = [Kept(3, 2, 900, COMMITTED, NOBODY)]  # what is below the floor is of no use
    assert state.kept == runs
    answers = list(state.recall(0, 3, 5)) if runs else []
    state.decided(5, 1, 902, COMMITTED)
    assert list(state.recall(0, 3, 5) if runs else []) == answers
    state.forget(5)
    assert [one.first + one.count for one in state.kept] == [6]
    state.decided(6, 2, 950, COMMITTED)
    state.forget(6)
    assert state.kept == [Kept(6, 2, 950, COMMITTED, NOBODY)]
