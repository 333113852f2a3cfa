"""The token in an `Authorization` header."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.http.http_credential import shown_in


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("header", "shown"),
    [
        ("Bearer abc", "abc"),
        ("bearer   abc ", "abc"),
        (basic("anybody:abc"), "abc"),
        (basic(":a:b"), "a:b"),
        (basic("user:abc").replace("Basic", "BASIC"), "abc"),
        (None, None),
        ("", None),
        ("Bearer", None),
        ("Bearer ", None),
        ("abc", None),
        ("Digest abc", None),
        (basic("nocolon"), None),
        (basic("user:"), None),
        ("Basic !!!", None),
        ("Basic " + base64.b64encode(b"u:\xff").decode(), None),
    ],
)
def test_bearer_and_the_password_of_basic_are_what_is_shown(header: str | None, shown: str | None) -> None:
    assert shown_in(header) == shown


@given(st.text())
def test_no_header_raises(header: str) -> None:
    found = shown_in(header)
    assert found is None or found


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1))
def test_every_token_comes_through_both_ways(token: str) -> None:
    assert shown_in(f"Bearer {token}") == shown_in(basic(f"boki:{token}")) == token
