"""Parsed options: an unknown name is refused with the nearest known one."""

from __future__ import annotations

import pytest

from boki_spark.errors import BadOption
from boki_spark.plan.options import SinkOptions, sink_options


def test_options_are_known_in_any_case() -> None:
    found = sink_options(
        {"URL": "boki://a:1", "book": "results", "tokenfile": "/t", "timeout": "2.5", "checkpointLocation": "/c"}
    )
    assert found == SinkOptions("results", "boki://a:1", "/t", 2.5)
    assert sink_options({"bookNumber": "7"}).book == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"\[BOKI_BAD_OPTION\] expected the option book"),
        ({"book": "a", "tokenfil": "x"}, "did you mean tokenFile"),
        ({"book": "a", "zzz": "x"}, "there are book, bookNumber"),
        ({"book": "a", "bookNumber": "1"}, "found both"),
        ({"bookNumber": "-1"}, "from 0 to"),
        ({"bookNumber": "orders"}, "from 0 to"),
        ({"book": "a" * 2_000}, "1 to 1,024 bytes"),
        ({"book": "a", "timeout": "0"}, "seconds"),
        ({"book": "a", "timeout": "nan"}, "seconds"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        sink_options(options)
