"""The partitions that each member of a group should own, and those that it takes and gives. Pure.

- Members that see the same members compute the same assignment. If they disagree, the fence of each partition decides.
- A member takes partitions that are assigned to it and that are free for it. A library says which are free: partitions without a holder,
  those of dead members, or also those of living members.
- A member takes partitions that it holds by the log and does not own, whatever the assignment: their claim had an unknown outcome, or is of
  an earlier start of this member. No other member would take them, since this one is alive.
- A member gives partitions that it owns and that are assigned to another member.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import xxhash

NOBODY: Final = ""
"""The holder of a partition that was released or never claimed."""


def by_weight(members: Iterable[str], partitions: int) -> list[str]:
    """Return the member of each partition, by number, by highest random weight; `NOBODY` if there are no members.

    A partition goes to the member whose hash with it is the largest, so a member that joins or leaves moves only its share.
    """
    names = sorted(set(members))
    if not names:
        return [NOBODY] * partitions
    return [max(names, key=lambda name: _weight(name, one)) for one in range(partitions)]


def _weight(member: str, partition: int) -> tuple[int, str]:
    return xxhash.xxh3_64_intdigest(f"{partition}/{member}".encode()), member


def in_turn(members: Iterable[str], partitions: int, of: str) -> list[str]:
    """Return the member of each partition, by number, in turn by name; `NOBODY` if there are no members.

    The first member depends on the name `of` what is partitioned, so that the partitions of many small things do not all go to one member.
    Shares differ by one partition at most.
    """
    names = sorted(members)
    if not names:
        return [NOBODY] * partitions
    first = xxhash.xxh3_64_intdigest(of.encode())
    return [names[(first + one) % len(names)] for one in range(partitions)]


class Standing(NamedTuple):
    """The known state of a partition.

    Attributes:
        holder: the member of the newest claim, or `NOBODY`.
        mine: True if this start of the member owns it.
        free: True if the member may claim it from its holder.
    """

    holder: str
    mine: bool
    free: bool


class Moves(NamedTuple):
    """Partitions, by number, that a member is to take and to give."""

    take: list[int]
    give: list[int]


def moves(me: str, assigned: Sequence[str], standings: Sequence[Standing]) -> Moves:
    """Return the partitions that a member is to take and to give, given the member and the standing of each partition."""
    take, give = [], []
    for partition, (member, standing) in enumerate(zip(assigned, standings, strict=True)):
        if standing.mine:
            if member not in (me, NOBODY):
                give.append(partition)
        elif standing.holder == me or (member == me and standing.free):
            take.append(partition)
    return Moves(take, give)
