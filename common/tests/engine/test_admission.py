"""Whether an engine takes new appends."""

from __future__ import annotations

import pytest

from boki_common.engine.admission import NO_WRITER, TAKEN, Admission, admission_of
from boki_common.engine.answers import AnswerRow, decode_answers, encode_answers


@pytest.mark.parametrize(
    ("writable", "read_only", "needed", "taken"),
    [
        (3, 0, 2, True),
        (2, 1, 2, True),
        (1, 2, 2, False),
        (0, 1, 1, False),
        (0, 3, 2, False),
        (1, 0, 2, True),
        (0, 0, 0, True),
    ],
)
def test_appends_are_refused_where_read_only_bookies_are_what_is_missing(
    writable: int, read_only: int, needed: int, taken: bool
) -> None:
    """Not where bookies are away: nobody knows for how long, and what waits may be taken a moment later."""
    assert Admission(writable, read_only, needed).taken is taken


def test_it_travels_as_a_row_that_is_about_no_append() -> None:
    said = Admission(1, 2, 2)
    body = memoryview(b"".join(encode_answers({}, [said.row()])))
    (row,) = decode_answers(body)[1]
    assert admission_of(row) == said
    assert row.writer == NO_WRITER
    assert admission_of(AnswerRow(7, b"w" * 16, 1, 5, 5, 1, 0)) is None


def test_the_error_is_definite_may_be_repeated_and_names_the_cause() -> None:
    error = Admission(1, 2, 2).error()
    assert error.definite and error.retryable
    assert error.facts == {"expected": 2, "found": 1, "read_only": 2}
    assert "2 are up and read-only" in str(error) and TAKEN.taken
