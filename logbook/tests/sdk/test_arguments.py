"""Encoded tags and their cache; expectations; bounds."""

from __future__ import annotations

from enum import StrEnum
from itertools import product
from struct import unpack

import pytest

from boki import _arguments as arguments
from boki._bounds import FRAME_TARGET_BYTES
from boki_common import limits
from boki_common.errors import InvalidArgument, InvalidTag, RecordTooLarge
from boki_common.ids import tag_id
from boki_common.records.tag_names import NO_NAMES, split_payload


def test_tags_travel_in_the_order_given_with_their_names() -> None:
    encoded = arguments.encode_tags(["b", 7, "a"])
    assert unpack("<3Q", encoded.packed) == (tag_id("b"), 7, tag_id("a"))
    names, rest = split_payload(memoryview(encoded.names + b"data"))
    assert names == [(0, "b"), (2, "a")]
    assert bytes(rest) == b"data"
    assert arguments.encode_tags([5]).names == NO_NAMES
    assert arguments.encode_tags(()).tag_count == 0


def test_names_are_encoded_once() -> None:
    assert arguments.encode_tags(["cached", "pair"]) is arguments.encode_tags(("cached", "pair"))

    class Kind(StrEnum):
        CACHED = "cached"

    assert arguments.encode_tags([Kind.CACHED, "pair"]) is arguments.encode_tags(["cached", "pair"])


def test_what_looks_like_a_kept_tag_is_checked() -> None:
    arguments.encode_tags([1])
    for tag in (True, 1.0):
        with pytest.raises(InvalidTag):
            arguments.encode_tags([tag])  # type: ignore[list-item]


def test_the_cache_is_bounded() -> None:
    for number in range(arguments.TAG_CACHE_COMBINATIONS + 100):
        arguments.encode_tags([f"bounded {number}"])
    assert len(arguments._cache) == arguments.TAG_CACHE_COMBINATIONS
    assert (f"bounded {arguments.TAG_CACHE_COMBINATIONS + 99}",) in arguments._cache


def test_expectations_keep_the_callers_names() -> None:
    expectations = arguments.encode_expectations({"a": None, 7: 12, 0: 3})
    assert expectations.pairs == ((tag_id("a"), 0), (7, 12), (0, 3))
    assert expectations.keys == {tag_id("a"): "a", 7: 7, 0: 0}
    assert expectations.highest == 12
    assert arguments.encode_record(b"", (), None)[2] is arguments.NO_EXPECTATIONS


def test_the_largest_record_fits_every_message_and_entry_on_its_way() -> None:
    tags = arguments.encode_tags([f"{number:03}" + "n" * 252 for number in range(limits.RECORD_TAGS)])
    payload = len(tags.names) + limits.RECORD_BYTES
    assert payload == limits.PAYLOAD_BYTES
    overhead = tags.overhead_bytes + limits.RECORD_EXPECTATIONS * 32 + 1_024
    chunk = FRAME_TARGET_BYTES + payload + overhead  # a chunk is closed by the record that fills it
    assert FRAME_TARGET_BYTES + chunk < limits.ENTRY_BYTES  # and a frame by the chunk
    page = limits.READ_BYTES + payload + overhead  # the first record of a page is taken, whatever its size
    assert page + limits.AUX_BYTES < limits.FRAME_BYTES
    with pytest.raises(RecordTooLarge, match="found 1048577; split it"):
        arguments.encode_record(bytes(limits.RECORD_BYTES + 1), (), None)


def test_bounds_are_clipped_to_seqnums() -> None:
    assert arguments.check_bound(None, "x", 5) == 5
    assert arguments.check_bound(2**64 - 1, "x", 5) == 2**63
    with pytest.raises(InvalidArgument, match="expected x"):
        arguments.check_bound(2**64, "x", 5)


@pytest.mark.parametrize(("value", "name"), list(product((True, "1", float("nan"), -1), ("wait", "timeout"))))
def test_durations(value: object, name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"expected {name}"):
        arguments.check_seconds(value, name, 1.0)  # type: ignore[arg-type]
    assert arguments.check_seconds(float("inf"), name, 1.0) == float("inf")


def test_the_record_at_fault_is_named() -> None:
    with pytest.raises(InvalidTag, match="in record 1: ") as caught:
        arguments.encode_many([(b"", []), (b"", [-1])])
    assert caught.value.index == 1
    assert caught.value.found == -1
    with pytest.raises(InvalidArgument, match="list of"):
        arguments.encode_many(7)  # type: ignore[arg-type]
