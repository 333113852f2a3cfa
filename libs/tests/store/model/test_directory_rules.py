"""Names of collections in buckets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import boki
from boki_common.errors import CorruptData
from bokilib.records.tags import bucket_of
from bokistore.model.directory_rules import (
    Directory,
    after_events,
    after_records,
    buckets,
    check_collection,
    checkpoint_data,
    from_checkpoint,
    object_name,
    stream_of,
)
from bokistore.model.events import AnyEvent, Entry, Ops

ENTRIES = st.lists(st.builds(Entry, st.sampled_from("cd"), st.sampled_from("abcdefgh"), st.booleans()), max_size=30)


@given(ENTRIES, st.integers(0, 30))
def test_buckets_against_a_set_from_anywhere(entries: list[Entry], cut: int) -> None:
    ids: set[str] = set()
    for entry in entries:
        if entry.collection == "c":
            ids.add(entry.id) if entry.there else ids.discard(entry.id)
    found: set[str] = set()
    for bucket in range(16):
        records: list[tuple[int, list[AnyEvent]]] = [
            (seqnum, [entry, Ops("x", ())]) for seqnum, entry in enumerate(entries, 1)
        ]
        whole = after_records(Directory("c", bucket), records)
        half = after_records(Directory("c", bucket), records[:cut])
        restored = from_checkpoint("c", bucket, half.seen, checkpoint_data(half))
        assert after_records(restored, records[cut:]).ids == whole.ids
        assert after_events(Directory("c", bucket), entries).ids == whole.ids
        assert all(bucket_of(id) == bucket for id in whole.ids)
        found |= whole.ids
    assert found == ids


def test_names() -> None:
    assert object_name("user", "ann/1") == "user/ann/1"
    assert len(set(buckets("user"))) == 16
    assert stream_of("user", "ann") in buckets("user")
    assert Directory("user", 3).name == "user/3"


@pytest.mark.parametrize("name", ["", "a/b", 5])
def test_what_is_no_collection(name: object) -> None:
    with pytest.raises(boki.InvalidArgument):
        check_collection(name)  # type: ignore[arg-type]


def test_an_id_is_a_text_that_is_not_empty() -> None:
    with pytest.raises(boki.InvalidArgument):
        object_name("user", "")


def test_a_damaged_checkpoint_is_named() -> None:
    with pytest.raises(CorruptData, match="'c'"):
        from_checkpoint("c", 3, 7, b"\xc1")
