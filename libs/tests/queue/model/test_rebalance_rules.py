"""Which member has a shard, and whether its owner may have died of a message."""

from __future__ import annotations

from bokilib.records.conflict_rules import Claim
from bokiqueue.model.rebalance_rules import (
    CARRIED,
    LEFT,
    NOBODY,
    ShardHolder,
    careful,
    carried_scope,
    holder_of,
    spares,
)


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
