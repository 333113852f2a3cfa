"""What is asked, and what of an answer is new; the rest is in `itests/sdk/test_read_since.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import boki
from boki._book import Book
from boki._since import check_seen
from boki_common.ids import tag_id

if TYPE_CHECKING:
    pass


async def test_a_stream_may_be_named_by_its_number(book: Book) -> None:
    first, second = [await book.append(b"x", tags=["a"]), await book.append(b"y", tags=["a"])]
    for seen, expected in ((0, [first, second]), (first, [second]), (second, [])):
        found = await book.read_since({tag_id("a"): seen})
        assert [record.seqnum for record in found.records] == expected


def test_a_stream_is_named_once() -> None:
    with pytest.raises(boki.InvalidArgument, match="given twice"):
        check_seen({"a": 1, tag_id("a"): 2})
    assert [(one.tag, one.seen) for one in check_seen({"b": 2, "a": 1})] == [("b", 2), ("a", 1)]


@pytest.mark.parametrize("wrong", [["a"], "a", {"a": 1.5}, {"a": True}, {1.5: 1}])
def test_what_is_no_mapping_of_tags_to_seqnums_is_refused(wrong: Any) -> None:
    with pytest.raises(boki.InvalidArgument):
        check_seen(wrong)
