"""Names and numbers go through their text form unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.errors import InvalidArgument
from boki_gateway.calls.names import is_number, name_text, parse_name, parse_number


@given(st.text(min_size=1) | st.integers(0, 2**64 - 1))
def test_what_is_written_is_read(name: str | int) -> None:
    assert parse_name(name_text(name), "tag") == name
    assert type(parse_name(name_text(name), "tag")) is type(name)


def test_integers_are_numbers() -> None:
    assert parse_name(42, "tag") == 42
    assert (parse_number("7", "start"), parse_number(7, "start")) == (7, 7)


@pytest.mark.parametrize("text", ["~", "~x", "~-1", "~ 1", "~١", "~" + "9" * 21])
def test_a_mark_without_a_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="tag: expected a name, or ~ and the digits"):
        parse_name(text, "tag")


@pytest.mark.parametrize("text", ["", "-1", "1.0", " 1", "x", "١", "1" * 21])
def test_what_is_no_number(text: str) -> None:
    assert not is_number(text)
    with pytest.raises(InvalidArgument, match="start: expected decimal digits"):
        parse_number(text, "start")
