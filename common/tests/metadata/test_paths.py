"""Paths, versions and values that every store accepts or refuses alike (more in `test_contract.py`)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_common.errors import InvalidArgument
from boki_common.metadata import paths


def test_good_paths() -> None:
    for path in ("/", "/a", "/a/b", "/a b/…", "/.a/b..", "/" + "x" * (paths.PATH_BYTES - 1)):
        paths.check_path(path)
    for prefix in ("/a", "/a/", "/a/ID-"):
        paths.check_prefix(prefix, b"")


def test_parts_of_a_path() -> None:
    assert [paths.parent_of(path) for path in ("/a", "/a/b", "/a/b/c")] == ["/", "/a", "/a/b"]
    assert [paths.name_of(path) for path in ("/a", "/a/b")] == ["a", "b"]
    assert paths.sequential_path("/a/ID-", 7) == "/a/ID-0000000007"


def test_nodes_made_by_one_write_are_bounded() -> None:
    paths.check_set("/a", b"", 0, {f"/a/{number}": b"" for number in range(paths.CREATED_MAX)})
    with pytest.raises(InvalidArgument, match="at most 256 nodes"):
        paths.check_set("/a", b"", 0, {f"/a/{number}": b"" for number in range(paths.CREATED_MAX + 1)})


def test_bounds() -> None:
    paths.check_value(b"x" * limits.METADATA_VALUE_BYTES, "/a")
    with pytest.raises(InvalidArgument, match="at most"):
        paths.check_value(b"x" * (limits.METADATA_VALUE_BYTES + 1), "/a")
    with pytest.raises(InvalidArgument, match="1024 bytes"):
        paths.check_path("/" + "x" * paths.PATH_BYTES)


@given(st.text(max_size=20))
def test_an_accepted_path_has_parts_that_make_it_up(text: str) -> None:
    try:
        paths.check_new_path(text)
    except InvalidArgument:
        return
    parent = paths.parent_of(text)
    paths.check_path(parent)
    assert text == parent.rstrip("/") + "/" + paths.name_of(text)
