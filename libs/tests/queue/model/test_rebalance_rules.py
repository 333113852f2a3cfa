"""Plans are fair and the same for all members; shards move without two owners and without being left."""

from __future__ import annotations

from collections import Counter

from bokilib.records.conflict_rules import Claim
from bokiqueue.model.rebalance_rules import (
    CARRIED,
    LEFT,
    NOBODY,
    ShardHolder,
    ShardStanding,
    careful,
    carried_scope,
    holder_of,
    moves,
    plan,
    spares,
)


def test_shards_are_dealt_evenly_and_alike_by_all() -> None:
    for members in range(1, 9):
        names = [f"m{number}" for number in range(members)]
        planned = plan("q", "g", 16, names)
        assert planned == plan("q", "g", 16, names[::-1])
        counts = Counter(planned)
        assert max(counts.values()) - min(counts[name] for name in names) <= 1
    assert plan("q", "g", 2, []) == [NOBODY, NOBODY]
    assert {plan(f"q{number}", "g", 1, ["a", "b"])[0] for number in range(16)} == {"a", "b"}


def test_only_what_is_free_or_of_the_dead_or_ones_own_is_taken() -> None:
    standings = [
        ShardStanding(NOBODY, mine=False, dead=False),
        ShardStanding("b", mine=False, dead=False),
        ShardStanding("b", mine=False, dead=True),
        ShardStanding("a", mine=False, dead=False),
        ShardStanding("a", mine=True, dead=False),
    ]
    assert moves("a", ["a"] * 5, standings) == ([0, 2, 3], [])
    assert moves("a", ["b"] * 5, standings) == ([3], [4]), "its own, though it is to be another's: nobody else takes it"
    assert moves("a", [NOBODY] * 5, standings) == ([3], [])


def test_from_any_standing_members_come_to_the_plan_and_stay() -> None:
    members = ["a", "b", "c"]
    planned = plan("q", "g", 5, members)
    for start in range(4**5):
        holders = [["a", "b", "c", NOBODY][start // 4**shard % 4] for shard in range(5)]
        owned = [False] * 5
        for _ in range(3):
            for me in members:
                standings = [
                    ShardStanding(holder, holder == me and owned[shard], dead=False)
                    for shard, holder in enumerate(holders)
                ]
                todo = moves(me, planned, standings)
                for shard in todo.take:
                    assert holders[shard] in (NOBODY, me)
                    holders[shard], owned[shard] = me, True
                for shard in todo.give:
                    holders[shard] = NOBODY
        assert holders == planned


def test_an_owner_is_careful_after_who_did_not_give_back_and_was_carried() -> None:
    assert [careful("a", "t"), careful(NOBODY, "t"), careful(NOBODY, CARRIED + "/3")] == [True, False, True]


def carry(last: Claim) -> Claim:
    """The claim of a carrier that replaces `last`."""
    scope = carried_scope(last)
    return Claim(last.seqnum + 1, "carrier", NOBODY, f"{scope}/7" if scope else "7")


def test_a_carried_shard_is_still_its_members_own_and_after_that_nobodys() -> None:
    for who in ("a", "host/7", "Jörg"):
        held = Claim(5, "by", who, "by-2/3")
        for claim in (held, carry(held), carry(carry(held))):
            assert holder_of(claim) == ShardHolder(who, "by-2") and careful(claim.who, claim.token)
            assert spares(claim, "by-2") and not spares(claim, "by") and not spares(claim, "by-3")
    for token in ("", "12", f"{CARRIED}/", f"{CARRIED}/12", f"{LEFT}/"):  # the fourth is of an older version
        released = Claim(5, "by", NOBODY, token)
        for claim in (released, carry(released), carry(carry(released))):
            assert holder_of(claim).who == NOBODY and careful(claim.who, claim.token) == token.startswith(CARRIED)
            assert spares(claim, "by-2") == token.startswith(LEFT)
    assert holder_of(None).who == NOBODY and not spares(None, "by")
    assert holder_of(carry(Claim(5, "by", "a", "older"))) == ShardHolder("a", "")
