"""The plan that gives the shards of a queue to the members of a group. Pure.

- Shards are dealt to the living members in turn, by name, from a place that depends on queue and group, so that the
  shards of many small queues do not all go to the first member. Members that see the same members make the same plan.
- A member takes shards that the plan gives it and that no living member owns. It takes shards that it owns by the log
  (from an earlier life, or left because an append had an unknown outcome) whatever the plan, since no other member
  will; then it releases them.
- A member releases shards that the plan gives to another living one: it stops delivering, waits for the messages in
  flight, and appends a claim for no member. The other member takes the shard at once, and no message was delivered
  twice.
- Members may disagree about which of them are alive; the fence of each shard decides.
- A carrier replaces an old claim by one for no member, whose token names the member of the old claim. That member may be
  alive: its settings and the carrier's differ, or the log's clock jumped. Until it is dead, the shard is still its own.
- A shard that returns to the same member, or that a member released, was not left by a process that died: `spares`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import xxhash

from bokilib.records.conflict_rules import Claim, scope_of

NOBODY = ""
"""The claimant of a shard that is released."""
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


def plan(queue: str, group: str, shards: int, members: Sequence[str]) -> list[str]:
    """Return the member of each shard, by number; "" if there are no members."""
    names = sorted(members)
    if not names:
        return [NOBODY] * shards
    first = xxhash.xxh3_64_intdigest(f"{queue}/{group}".encode())
    return [names[(first + shard) % len(names)] for shard in range(shards)]


class ShardStanding(NamedTuple):
    """The known state of a shard.

    Attributes:
        holder: the member of the newest claim, "" if the shard was released or never claimed.
        mine: True if this incarnation owns it.
        dead: True if the holder was silent for its lease.
    """

    holder: str
    mine: bool
    dead: bool


class ShardMoves(NamedTuple):
    """Shards, by number, that a member is to take and to release."""

    take: list[int]
    give: list[int]


def moves(me: str, planned: Sequence[str], standings: Sequence[ShardStanding]) -> ShardMoves:
    """Return the shards that this member is to take and to release."""
    take, give = [], []
    for shard, (member, standing) in enumerate(zip(planned, standings, strict=True)):
        if standing.mine:
            if member not in (me, NOBODY):
                give.append(shard)
        elif standing.holder == me or (member == me and (standing.holder == NOBODY or standing.dead)):
            take.append(shard)
    return ShardMoves(take, give)
