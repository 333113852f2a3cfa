"""Bodies, names and delays are checked before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from boki_common.errors import InvalidArgument
from bokilib import NotEncodable
from bokiqueue.model.items import body_of, check_name, delay_ms, item_of, json_of


@dataclass
class Order:
    id: str
    lines: list[int]


def test_a_body_comes_back_as_its_type() -> None:
    item = item_of(Order("o-1", [1, 2]), key="k", dedup_id="d")
    assert (item.key, item.dedup, item.delay_ms) == ("k", "d", 0)
    assert json_of(item) == {"id": "o-1", "lines": [1, 2]}
    assert body_of(Order, item) == Order("o-1", [1, 2])
    with pytest.raises(NotEncodable):
        body_of(int, item)
    with pytest.raises(NotEncodable):
        item_of({1: object()})


def test_wrong_names_and_delays_are_refused() -> None:
    for name in ("", "x" * 201):
        with pytest.raises(InvalidArgument):
            check_name(name, "queue")
    with pytest.raises(InvalidArgument, match="slash"):
        check_name("a/b", "group", slash=False)
    assert check_name("a/b", "queue") == "a/b"
    assert delay_ms(1.5) == 1_500
    for delay in (-1, 901, float("nan")):
        with pytest.raises(InvalidArgument):
            delay_ms(delay)
    with pytest.raises(InvalidArgument, match="dedup_id"):
        item_of(1, dedup_id="")
