"""The claims of a queue's shards: which member has a shard, and whether its owner before may have died of a message. Pure.

- A member releases a shard by a claim for no member, after its messages in flight have ended, or with what it says about
  them. Another member takes the shard at once (`bokilib.partitions`).
- A carrier replaces an old claim by one for no member, whose token names the member of the old claim. That member may be
  alive: its settings and the carrier's differ, or the log's clock jumped. Until it is dead, the shard is still its own.
- A shard that returns to the same member, or that a member released, was not left by a process that died: `spares`.
"""

from __future__ import annotations

from typing import NamedTuple

from bokilib.partitions.assignment import NOBODY as NOBODY
from bokilib.records.conflict_rules import Claim, scope_of

CARRIED = "carried"
"""The scope of claims for no member that replace a claim which was not released; its holder follows, if it is known."""
LEFT = f"{CARRIED}/left"
"""The scope of a claim that releases a shard whose stream the member did not read: messages may be delivered by the log."""


def fence_name(queue: str, shard: int, group: str) -> str:
    """Return the name of a shard's fence in its claims."""
    return f"shard {shard} of queue {queue!r} for {group!r}"


class ShardHolder(NamedTuple):
    """The member that has a shard by the log.

    Attributes:
        who: its name; "" if no member has the shard. scope: the scope of its claims, unique to the member and its process.
    """

    who: str
    scope: str


def holder_of(claim: Claim | None) -> ShardHolder:
    """Return the member that has a shard by its newest claim, also if a carrier replaced the member's claim."""
    if claim is None:
        return ShardHolder(NOBODY, "")
    scope = scope_of(claim.token)
    if claim.who != NOBODY:
        return ShardHolder(claim.who, scope)
    carried, _, named = scope.partition("/")
    before, _, who = named.partition("/") if carried == CARRIED else ("", "", "")
    return ShardHolder(who, before)


def carried_scope(last: Claim) -> str:
    """Return the scope of a carrier's claim that replaces `last`: it names the holder of `last`."""
    scope = scope_of(last.token)
    return scope if last.who == NOBODY else f"{CARRIED}/{scope}/{last.who}"


def spares(last: Claim | None, scope: str) -> bool:
    """Return whether the member that had a shard before did not die.

    It is the member that claims with `scope` itself, or it left and said so.
    """
    return last is not None and (holder_of(last).scope == scope or scope_of(last.token) == LEFT)


def careful(who: str, token: str) -> bool:
    """Return True if the owner of this claim may have died of a message: it did not release the shard."""
    return who != NOBODY or token.startswith(f"{CARRIED}/")
