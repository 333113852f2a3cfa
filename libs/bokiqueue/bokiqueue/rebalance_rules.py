"""Which member of a group has which shard. Pure.

- Members are those seen alive; shards are dealt to them in turn, by name, from a place that depends on the queue and the group, so that of
  many small queues not all are at the first member. Everybody who sees the same members makes the same plan.
- A member takes what the plan gives it and nobody has, or a dead member has. What it has by the log (from an earlier life,
  or abandoned because it is not known what became of a record) it takes whatever the plan, for nobody else will; then it gives it back.
- A member gives back what the plan gives to another who is alive: it hands out nothing more, waits for what is in flight, and appends
  that nobody has the shard. Then the other takes it at once, and nothing was handed out twice.
- Members may differ about who is alive; the fence of each shard decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import xxhash

NOBODY = ""
"""Who claims a shard to give it back."""
CARRIED = "carried"
"""The scope of claims for nobody that replace one which was not given back."""


def careful(who: str, token: str) -> bool:
    """Whether who had a claim may have handed out what nobody decided, and died of it: he did not give it back."""
    return who != NOBODY or token.startswith(f"{CARRIED}/")


def plan(queue: str, group: str, shards: int, members: Sequence[str]) -> list[str]:
    """The member of each shard, by number; "" where there is no member."""
    names = sorted(members)
    if not names:
        return [NOBODY] * shards
    first = xxhash.xxh3_64_intdigest(f"{queue}/{group}".encode())
    return [names[(first + shard) % len(names)] for shard in range(shards)]


class Standing(NamedTuple):
    """What is known of a shard.

    Attributes:
        holder: who claimed it last; "" nobody, or it was given back. mine: whether this incarnation holds it.
        dead: whether the holder was not seen for a lease.
    """

    holder: str
    mine: bool
    dead: bool


class Moves(NamedTuple):
    """What a member is to do, by numbers of shards."""

    take: list[int]
    give: list[int]


def moves(me: str, planned: Sequence[str], standings: Sequence[Standing]) -> Moves:
    """What this member is to take and to give back."""
    take, give = [], []
    for shard, (member, standing) in enumerate(zip(planned, standings, strict=True)):
        if standing.mine:
            if member not in (me, NOBODY):
                give.append(shard)
        elif standing.holder == me or (member == me and (standing.holder == NOBODY or standing.dead)):
            take.append(shard)
    return Moves(take, give)
