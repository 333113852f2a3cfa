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
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import xxhash

NOBODY = ""
"""The claimant of a shard that is released."""
CARRIED = "carried"
"""The scope of claims for no member that replace a claim which was not released."""


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
