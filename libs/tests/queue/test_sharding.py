"""The shard of a message: by key, by deduplication id, or in turn."""

from __future__ import annotations

from collections import Counter

import pytest

from boki_common.errors import InvalidArgument
from bokiqueue.sharding import RoundRobin, check_shards, shard_of


def test_a_key_and_an_id_have_one_shard_and_what_has_neither_has_any() -> None:
    assert shard_of(8, "ann", "e-1") == shard_of(8, "ann", "e-2") == shard_of(8, "ann", None)
    assert shard_of(8, None, "ann") == shard_of(8, "ann", None)
    assert shard_of(8, None, None) is None
    counts = Counter(shard_of(8, f"user-{number}", None) for number in range(8_000))
    assert len(counts) == 8
    assert min(counts.values()) > 800


def test_in_turn_all_get_as_many() -> None:
    turns = RoundRobin(3, 7)
    assert [turns.take() for _ in range(6)] == [1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(("shards", "in_flight"), [(0, 0), (1_025, 0), (5, 4), (True, 0)])
def test_a_wrong_number_is_refused(shards: int, in_flight: int) -> None:
    with pytest.raises(InvalidArgument, match="expected 1 to"):
        check_shards(shards, in_flight)
    assert check_shards(4, 4) == 4
