"""Checks of arguments: text that UTF-8 can encode, and finite numbers."""

from __future__ import annotations

import math

import pytest

from boki_common.errors import InvalidArgument
from bokilib.records.arguments import check_number, check_text


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
