"""Tags of libraries: within bounds, distinct, and the same in every version."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bokilib.records import tags

NAMED = {
    "lib/member/g": tags.member("g"),
    "lib/carry/store": tags.rewriter("store"),
    "store/o/x": tags.store_object("x"),
    "store/ck/x": tags.store_checkpoint("x"),
    "store/dir/c/3": tags.store_directory("c", 3),
    "store/dirck/c/3": tags.store_directory_checkpoint("c", 3),
    "flow/own/i": tags.flow_own("i"),
    "flow/wf/i": tags.flow_history("i"),
    "flow/part/g/63": tags.flow_part("g", 63),
    "flow/to/g/63": tags.flow_to("g", 63),
    "flow/partown/g/63": tags.flow_partition_owner("g", 63),
    "flow/done/g/63": tags.flow_done("g", 63),
    "flow/attr/63/k=v": tags.flow_attribute(63, "k", "v"),
    "flow/out/i/k": tags.flow_output("i", "k"),
    "lock/k": tags.lock("k"),
    "lock/ck/k": tags.lock_checkpoint("k"),
    "queue/cfg/q": tags.queue_config("q"),
    "queue/p/q/1": tags.queue_messages("q", 1),
    "queue/own/q/1/g": tags.queue_owner("q", 1, "g"),
    "queue/c/q/1/g": tags.queue_consumer("q", 1, "g"),
}


def test_the_table() -> None:
    assert list(NAMED) == list(NAMED.values())


@given(st.text(max_size=400), st.text(max_size=400))
def test_a_tag_of_any_name_is_a_tag_and_of_two_names_they_are_two(one: str, other: str) -> None:
    try:
        (one + other).encode()
    except UnicodeEncodeError:
        return
    for tag in (tags.store_object(one), tags.store_object(other)):
        assert 1 <= len(tag.encode()) <= 255
    assert (tags.store_object(one) == tags.store_object(other)) == (one == other)


def test_long_names_keep_their_beginning_and_their_characters_whole() -> None:
    for name in ("ü" * 300, "xü" * 300, "€" * 300):
        tag = tags.store_object(name)
        assert len(tag.encode()) <= 255 and tag.startswith("store/o/" + name[:50])
    assert tags.tag_of("a" * 255) == "a" * 255
    assert tags.tag_of("a" * 256) == "a" * 222 + "~81730296e694d87f3fdb4ff1846c90f3", "for ever"


def test_where_names_are_does_not_depend_on_the_process() -> None:
    assert [tags.bucket_of(name) for name in ("ann", "bob", "")] == BUCKETS
    assert [tags.partition_of(name) for name in ("ann", "bob", "")] == PARTITIONS
    assert {tags.bucket_of(str(number)) for number in range(500)} == set(range(tags.DIRECTORY_BUCKETS))
    assert {tags.partition_of(str(number)) for number in range(5_000)} == set(range(tags.PARTITIONS))


BUCKETS = [8, 5, 2]
PARTITIONS = [8, 37, 2]
