"""Who should own which partition."""

from __future__ import annotations

from bokiflow.worker.partition_rules import assigned, to_claim
from bokilib.records.tags import PARTITIONS


def test_each_partition_is_assigned_once_and_one_that_goes_moves_only_its_share() -> None:
    workers = ["a", "b", "c"]
    before = {one: set(assigned(one, workers)) for one in workers}
    assert sorted(part for owned in before.values() for part in owned) == list(range(PARTITIONS))
    after = {one: set(assigned(one, ["a", "b"])) for one in ("a", "b")}
    assert before["a"] <= after["a"] and before["b"] <= after["b"]
    assert all(len(owned) > PARTITIONS // 8 for owned in before.values())


def test_until_the_view_has_settled_only_what_nobody_living_holds_is_claimed() -> None:
    holders = {0: "me", 1: "dead", 2: "alive"}
    assert to_claim([0, 1, 2, 3], holders, "me", ["dead"], settled=False) == [1, 3]
    assert to_claim([0, 1, 2, 3], holders, "me", ["dead"], settled=True) == [1, 2, 3]


def test_what_its_holder_took_from_this_worker_rests_and_what_is_free_does_not() -> None:
    holders = {0: "me", 1: "dead", 2: "alive"}
    assert to_claim([0, 1, 2, 3], holders, "me", ["dead"], settled=True, lost=[1, 2, 3]) == [3]
    assert to_claim([0, 1, 2, 3], holders, "me", ["dead"], settled=False, lost=[1]) == [3]
    assert to_claim([0, 1, 2, 3], holders, "me", ["dead"], settled=True, lost=[2]) == [1, 3]
