"""What a transaction's record is."""

from __future__ import annotations

from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.records.isolation import Isolation
from bokistore import Inc, Set
from bokistore.commit.transaction_rules import Staging, with_writes
from bokistore.model.directory_rules import buckets, stream_of
from bokistore.model.events import Commit, Deleted, Entry, Expires
from bokistore.model.fold import View

X, Y = tags.store_object("x"), tags.store_object("y")


def staged(isolation: Isolation) -> Staging:
    staging = Staging(7, isolation)
    staging.reads("x")
    staging.reads("y")
    staging.operates("x", Inc("n", 1))
    staging.operates("x", Inc("n", 2))
    return staging


def test_operations_on_one_object_that_follow_one_another_are_one_event() -> None:
    staging = staged("snapshot")
    staging.operates("z", Set("a", 1))
    staging.operates("x", Set("a", 1))
    assert staging.events == (
        Commit("x", (Inc("n", 1), Inc("n", 2)), 7),
        Commit("z", (Set("a", 1),), 7),
        Commit("x", (Set("a", 1),), 7),
    )
    assert staging.written == ("x", "z")


def test_expectations_by_isolation() -> None:
    assert staged("snapshot").contribution().expect == {X: 7}
    assert staged("serializable").contribution().expect == {X: 7, Y: 7}


def test_what_is_written_without_being_read_is_expected_not_to_have_moved() -> None:
    staging = Staging(7, "snapshot")
    staging.operates("x", Inc("n", 1))
    assert staging.contribution() == Contribution((X,), {X: 7}, (Commit("x", (Inc("n", 1),), 7),))


def test_a_scan_expects_all_16_streams_and_a_creation_none_of_them() -> None:
    scanning = Staging(7, "serializable")
    scanning.scans("c")
    assert scanning.contribution().expect == dict.fromkeys(buckets("c"), 7)
    creating = Staging(7, "serializable")
    creating.enters("c", "a", there=True)
    creating.operates("c/a", Set("", {}))
    part = creating.contribution()
    assert set(part.tags) == {tags.store_object("c/a"), stream_of("c", "a")}
    assert part.expect == {tags.store_object("c/a"): 7}


def test_a_deletion_ends_checkpoints_that_are_under_way() -> None:
    staging = Staging(7, "snapshot")
    staging.deletes("x")
    part = staging.contribution()
    assert part.tags == (X, tags.store_checkpoint("x"))
    assert part.expect == {X: 7} and part.events == (Deleted("x"),)


def test_own_writes_are_seen_in_order() -> None:
    staging = Staging(7, "snapshot")
    view = View("x", 5, True, {"n": 1})
    staging.operates("x", Inc("n", 1))
    staging.operates("y", Inc("n", 9))
    assert staging.with_own_writes(view).value == {"n": 2}
    staging.deletes("x")
    assert not staging.with_own_writes(view).exists
    staging.operates("x", Set("a", 1))
    staging.expires("x", 9)
    seen = staging.with_own_writes(view)
    assert (seen.value, seen.expires_ms, seen.seen) == ({"a": 1}, 9, 5)
    assert with_writes(view, [Expires("x", 3), Entry("c", "x", True)]).expires_ms == 3


def test_parts_of_others() -> None:
    staging = Staging(7, "snapshot")
    assert staging.empty
    staging.adds(Contribution(("t",), {"fence": 3}))
    assert staging.empty and staging.fences == {"fence": 3}
    staging.adds(Contribution(("t",), {}, (Deleted("x"),)))
    assert not staging.empty and len(staging.extra) == 2
    assert not staged("snapshot").empty
