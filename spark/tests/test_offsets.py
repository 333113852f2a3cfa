"""Offsets as text: stable, whole, and refused when they are none."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from boki_spark.faults import BadOffset
from boki_spark.offsets import decode_offset, encode_offset


def test_the_same_offset_has_the_same_text_in_whatever_order_its_logs_come() -> None:
    logs = [(log, (log + 1, 10 * log)) for log in range(12)]
    texts = set()
    for seed in range(20):
        random.Random(seed).shuffle(logs)
        texts.add(json.dumps(encode_offset(dict(logs))))
    assert len(texts) == 1
    assert decode_offset(json.loads(texts.pop())) == dict(logs)


def test_an_offset_before_the_first_term_survives() -> None:
    assert decode_offset(encode_offset({0: (0, 0)})) == {0: (0, 0)}
    assert decode_offset(encode_offset({})) == {}


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"v": 2, "logs": {}},
        {"v": 1, "logs": []},
        {"v": 1, "logs": {"a": [1, 2]}},
        {"v": 1, "logs": {"0": [1]}},
        {"v": 1, "logs": {"0": [1, -2]}},
        {"v": 1, "logs": {"0": [0, 5]}},
        {"v": 1, "logs": {"0": [True, 5]}},
        {"v": 1, "logs": {"0": [1, 2**40]}},
    ],
)
def test_what_is_no_offset_is_refused_with_its_code(value: Any) -> None:
    with pytest.raises(BadOffset, match=r"^\[BOKI_BAD_OFFSET\]"):
        decode_offset(value)
