"""Manifests: they round-trip, are named by their bytes, and refuse inconsistent contents."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from boki_spark.cold_terms.manifest import (
    VERSION,
    Manifest,
    PlanPoint,
    ShardProof,
    SliceFile,
    decode_manifest,
    encode_manifest,
    folder_of,
    joined,
    manifest_name,
    pack_column,
    pack_spans,
    tiled,
    unpack_column,
    unpack_spans,
)
from boki_spark.errors import ColdDamaged


def spans(*pairs: tuple[int, int]) -> str:
    return pack_spans(np.array(pairs, np.uint64).reshape(-1, 2))


def made(**other: Any) -> Manifest:
    """Return a manifest of ten positions: 0-2 and 5-7 in files, 3 a loser, 4 dead, 8 and 9 given up."""
    slices = (
        SliceFile("a", 5, "00", 1, "00", "a.index", 5, "00", 1, "00", 3, 0, 5),
        SliceFile("b", 5, "00", 1, "00", "b.index", 5, "00", 1, "00", 3, 5, 10),
    )
    facts: dict[str, Any] = {
        "version": VERSION, "term": 1, "log": 0, "end_pos": 10, "committed": 9, "digest": "ab",
        "shards": (ShardProof(0, 2, 5, 4, "cd"), ShardProof(1, 2, 5, 5, "ef")), "snapshot": "12",
        "points": (PlanPoint(0, 2, 7, False),), "slices": slices, "rows": 6, "row_sum": "0" * 32, "losers": spans((3, 4)),
        "dead": spans((4, 5)), "lost": spans((8, 10)), "entry_positions": pack_column(np.array([0, 5], np.uint64)),
        "entry_times": pack_column(np.array([9, 9], np.int64)), "last_time_ms": 9,
    }  # fmt: skip
    return Manifest(**{**facts, **other})


def test_a_manifest_survives_its_bytes_under_its_name() -> None:
    data = encode_manifest(made())
    assert decode_manifest(data, manifest_name(data)) == made()
    assert made().dead_spans().tolist() == [[4, 5]] and made().lost_spans().tolist() == [[8, 10]]


def test_bytes_under_another_name_are_refused() -> None:
    data = encode_manifest(made())
    with pytest.raises(ColdDamaged, match=r"^\[BOKI_COLD_DAMAGED\] expected manifest-00"):
        decode_manifest(data, "manifest-00.json")


def first_slices(**other: Any) -> tuple[SliceFile, ...]:
    one, two = made().slices
    return (msgspec.structs.replace(one, **other), two)


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        ({"version": 2}, "version 1, found 2"),
        ({"slices": first_slices(first_pos=1)}, "tile"),
        ({"slices": first_slices(stop_pos=4)}, "tile"),
        ({"slices": first_slices(rows=9)}, "tile"),
        ({"slices": ()}, "slices end"),
        ({"rows": 7}, "rows"),
        ({"dead": spans()}, "dead"),
        ({"losers": spans((3, 5))}, "losers"),
        ({"lost": spans((7, 9)), "dead": spans((8, 9))}, "twice"),
        ({"shards": (ShardProof(0, 2, 5, 4, "cd"),)}, "shards"),
        ({"losers": "!"}, "cannot be read"),
        ({"dead": pack_column(np.array([5, 4], np.uint64))}, "ascend"),
    ],
)
def test_what_cannot_be_right_is_refused(other: dict[str, Any], fault: str) -> None:
    data = encode_manifest(made(**other))
    with pytest.raises(ColdDamaged, match=fault):
        decode_manifest(data, manifest_name(data))


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"version":1}'])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(ColdDamaged, match="no manifest"):
        decode_manifest(data, manifest_name(data))


def test_columns_and_spans_survive_their_text() -> None:
    for values in ([], [0], [5, 6, 2**63, 3]):
        assert unpack_column(pack_column(np.array(values, np.uint64))).tolist() == values
    pairs = np.array([(0, 3), (5, 9)], np.uint64)
    assert unpack_spans(pack_spans(pairs)).tolist() == pairs.tolist()


def test_paths_and_tiles() -> None:
    assert joined("s3://b/x/", "y") == "s3://b/x/y" and folder_of("s3://b/x/y") == "s3://b/x"
    assert tiled([3, 8, 9], 12) == [(0, 8), (8, 9), (9, 12)] and tiled([3], 5) == [(0, 5)]
