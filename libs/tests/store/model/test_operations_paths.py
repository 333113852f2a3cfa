"""Paths and keys."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import boki
from bokistore.model.operations import index_of, join, parse


@given(st.lists(st.text(), min_size=1, max_size=64))
def test_any_keys_have_a_path_that_leads_back_to_them(keys: list[str]) -> None:
    assert parse(join(keys)) == (tuple(keys) if keys != [""] else ())


def test_how_paths_are_written() -> None:
    assert parse("") == ()
    assert parse("a.b.0") == ("a", "b", "0")
    assert parse("a\\.b.c\\\\") == ("a.b", "c\\")
    assert parse("a..b.") == ("a", "", "b", "")
    assert join(["a", 0, "b.c"]) == "a.0.b\\.c"


@pytest.mark.parametrize("path", ["a\\b", "\\", "a.b\\", ".".join("a" * 65)])
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(boki.InvalidArgument):
        parse(path)


def test_a_path_is_a_text() -> None:
    with pytest.raises(boki.InvalidArgument, match="found int"):
        parse(cast(Any, 7))


def test_indexes() -> None:
    assert [index_of(key) for key in ("0", "17", "01", "-1", "", "x", "1" * 10)] == [0, 17] + [None] * 5
