"""Nothing goes that a registered group has to read."""

from __future__ import annotations

import pytest

from bokiqueue.model.events import Id
from bokiqueue.model.floor_rules import consumer_from, messages_from


@pytest.mark.parametrize(
    ("own", "others", "starts", "expected"),
    [
        (Id(50, 3), {}, {"a": 1}, 50),
        (Id(50, 0), {"b": Id(40, 1)}, {"a": 1, "b": 30}, 40),
        (Id(50, 0), {"b": Id(60, 1)}, {"a": 1, "b": 30}, 50),
        (Id(50, 0), {"b": None}, {"a": 1, "b": 30}, 30),
        (Id(50, 0), {"gone": None}, {"a": 1}, 50),
    ],
)
def test_messages_go_below_the_lowest_floor(
    own: Id, others: dict[str, Id | None], starts: dict[str, int], expected: int
) -> None:
    assert messages_from(own, others, starts) == expected


def test_a_consumers_stream_goes_below_what_its_checkpoint_covers() -> None:
    assert consumer_from(9) == 10
