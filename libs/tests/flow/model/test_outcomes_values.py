"""Values of users as JSON."""

from __future__ import annotations

from dataclasses import dataclass

import pydantic
import pytest

from bokiflow.model.outcomes import as_json
from bokilib import NotEncodable


@dataclass
class Pair:
    both: tuple[int, int]


class Model(pydantic.BaseModel):
    both: tuple[int, int]


def test_tuples_are_lists_wherever_they_are() -> None:
    assert as_json((1, {"a": (2,)}, Pair((3, 4)))) == [1, {"a": [2]}, {"both": [3, 4]}]
    assert as_json(Model(both=(1, 2))) == {"both": [1, 2]}
    assert as_json("a") == "a" and as_json(None) is None


@pytest.mark.parametrize("wrong", [object(), {1: object()}, float("nan"), "\ud800"])
def test_what_is_no_json_is_refused(wrong: object) -> None:
    with pytest.raises(NotEncodable):
        as_json(wrong)


def test_what_is_too_deep_is_refused() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(NotEncodable):
        as_json(deep)
