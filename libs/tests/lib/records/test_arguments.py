"""Checks of arguments: text that UTF-8 can encode, and finite numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from boki_common.errors import InvalidArgument
from bokilib.records.arguments import (
    LEASE_MOST_S,
    NAME_CHARS,
    check_lease,
    check_member_name,
    check_number,
    check_seconds,
    check_text,
    check_whole,
)


@pytest.mark.parametrize("found", ["", "a", "é\x00", "\U0001f600"])
def test_text_passes(found: str) -> None:
    assert check_text("a name", found) is found


@pytest.mark.parametrize("found", ["\ud800", "a\udcff", 5, None, b"x", ["a"]])
def test_what_is_no_text_or_cannot_be_encoded_is_refused(found: object) -> None:
    with pytest.raises(InvalidArgument, match="expected a name that"):
        check_text("a name", found)


@pytest.mark.parametrize("found", [0, -1, 1.5, 2**70])
def test_finite_numbers_pass(found: float) -> None:
    assert check_number("a delay", found) is found


@pytest.mark.parametrize("found", [True, None, "5", math.nan, math.inf, -math.inf, 10**400, [1]])
def test_what_is_no_finite_number_is_refused(found: object) -> None:
    with pytest.raises(InvalidArgument, match="expected a delay that is a"):
        check_number("a delay", found)


@pytest.mark.parametrize("found", [1e-3, 15, LEASE_MOST_S])
def test_leases_of_up_to_an_hour_pass(found: float) -> None:
    assert check_lease(found) is found
    assert check_lease(2 * LEASE_MOST_S, 3 * LEASE_MOST_S) == 2 * LEASE_MOST_S


@pytest.mark.parametrize("found", [0, 0.0, -1, 3_600.5, 15_000, 1e12, math.nan, math.inf, "15", None, True])
def test_a_lease_that_is_none_is_refused(found: Any) -> None:
    with pytest.raises(InvalidArgument, match="a lease"):
        check_lease(found)


def test_times_and_whole_numbers_have_bounds() -> None:
    assert [check_seconds("carry_s=", 0), check_seconds("carry_s=", 9e9, above_0=True)] == [0, 9e9]
    for seconds in (-1, -1e-9, 1e300, math.nan, math.inf, "1", None, True):
        with pytest.raises(InvalidArgument, match="carry_s="):
            check_seconds("carry_s=", seconds)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="more than 0"):
        check_seconds("carry_s=", 0.0, above_0=True)
    assert [check_whole("bytes=", 0), check_whole("bytes=", 7, 7, 7)] == [0, 7]
    for number in (-1, 2**63, 1.0, "1m", None, True, math.inf):
        with pytest.raises(InvalidArgument, match="bytes="):
            check_whole("bytes=", number)  # type: ignore[arg-type]
    assert [check_member_name(None), check_member_name("w" * NAME_CHARS)] == [None, "w" * NAME_CHARS]
    for name in (5, b"w", "\ud800", "w" * (NAME_CHARS + 1)):
        with pytest.raises(InvalidArgument, match="name="):
            check_member_name(name)  # type: ignore[arg-type]
