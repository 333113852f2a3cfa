"""Which slots engines say they index, and which slots lack engines."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.errors import InvalidArgument
from boki_metalog.terms.index_slots import (
    EngineMember,
    engine_members,
    index_slots_text,
    parse_index_slots,
    thin_slots,
)
from boki_metalog.terms.term_order import ALL_SLOTS


def test_texts_of_slots() -> None:
    assert parse_index_slots("all") == ALL_SLOTS == parse_index_slots("0-1023")
    assert parse_index_slots("0-1,5") == 0b100011
    assert index_slots_text(ALL_SLOTS) == "all"
    assert index_slots_text(0b100011) == "0-1,5"
    for wrong in ("", "none", "0-1024", "5-3", "x", "All"):
        with pytest.raises(InvalidArgument):
            parse_index_slots(wrong)


@given(st.integers(1, ALL_SLOTS))
def test_texts_of_any_slots_are_read_as_they_were_written(slots: int) -> None:
    assert parse_index_slots(index_slots_text(slots)) == slots


def test_members_without_slots_index_all_and_strange_ones_none() -> None:
    listed: dict[str, dict[str, Any]] = {
        "b": {"addresses": ["b:1"], "index_slots": "0-3"},
        "a": {"addresses": ["a:1"]},
        "c": {"index_slots": "?"},
    }
    assert engine_members(listed) == [
        EngineMember("a", ("a:1",), ALL_SLOTS),
        EngineMember("b", ("b:1",), 0b1111),
        EngineMember("c", (), 0),
    ]


def test_slots_that_too_few_engines_serve() -> None:
    def engines(*texts: str) -> list[EngineMember]:
        return [EngineMember(text, (), parse_index_slots(text)) for text in texts]

    assert thin_slots([]) == ("", "")
    assert thin_slots(engines("all")) == ("", ""), "one engine alone is what it is"
    assert thin_slots(engines("all", "all")) == ("", "")
    assert thin_slots(engines("all", "0-511")) == ("", "512-1023")
    assert thin_slots(engines("0-99")) == ("100-1023", "")
    assert thin_slots(engines("0-511", "500-1000", "all")) == ("", "1001-1023")
    assert thin_slots(engines("0-511", "512-600")) == ("601-1023", "0-600")
