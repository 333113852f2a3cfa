"""The sum of data after other bytes is the one that reading them again would give."""

from __future__ import annotations

import random

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.crc_shift import shifted


@given(st.binary(max_size=5_000), st.integers(0, 2**32 - 1))
def test_the_sum_after_a_start_follows_from_the_sum_alone(data: bytes, start: int) -> None:
    assert crc32c.crc32c(data, start) == crc32c.crc32c(data) ^ shifted(start, len(data))


@pytest.mark.parametrize("length", [0, 1, 1_023, 1_024, 1_025, 65_536, 270_359, 4_194_304, 5_000_001])
def test_any_length_will_do(length: int) -> None:
    data = random.Random(length).randbytes(length)
    for start in (0, 1, 0x8000_0000, 0xFFFF_FFFF, 0x1234_5678):
        assert crc32c.crc32c(data, start) == crc32c.crc32c(data) ^ shifted(start, length)
