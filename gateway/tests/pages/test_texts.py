"""What others wrote, on a terminal or a page: on one line, whatever is in it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_gateway.pages.texts import preview, printable, span_text, value_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("cart/7", "cart/7"), ("é 7", "é 7"), ("a\nb\x1b[2J", "a\\nb\\x1b[2J"), ("\u202e", "\\u202e"), ("\x85", "\\x85")],
)
def test_a_text_stays_on_its_line(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(JSON)
def test_a_value_is_json_and_its_preview_is_short(value: object) -> None:
    assert json.loads(value_text(value)) == json.loads(value_text(value, indent=2))
    short = preview(value, 20)
    assert len(short) <= 20 and short.isprintable()


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_400, "1.4 s"),
        (720_000, "12 min"),
        (12_600_000, "3.5 h"),
        (2_592_000_000, "30.0 days"),
    ],
)
def test_time_spans(ms: int, text: str) -> None:
    assert span_text(ms) == text
