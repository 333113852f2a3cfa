"""What may be trimmed of a queue's shard. Pure.

- Each group has a floor: below it all is done. It counts when a checkpoint with it is committed, under the owner's claim and an
  expectation of the queue's settings: a group that registers meanwhile voids the checkpoint, so its floor is not overlooked.
- Messages go below the lowest floor of all registered groups: those that made no checkpoint yet count from their start.
- A consumer's stream goes below `covers + 1` of a checkpoint that is committed; never below itself, because what is above `covers`
  comes on top of it.
- A group that is dropped holds nothing back; one that nobody consumes does, until it is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

from bokiqueue.events import Id


def messages_from(own: Id, others: Mapping[str, Id | None], starts: Mapping[str, int]) -> int:
    """The first seqnum of a shard's messages that must stay.

    Args:
        own: committed floor of the group that asks. others: committed floors of the other groups, None: no checkpoint yet.
        starts: of the groups, by the settings under which the own floor was committed.
    """
    lowest = own.seqnum
    for group, start in starts.items():
        if group in others:
            floor = others[group]
            lowest = min(lowest, floor.seqnum if floor is not None else start)
    return lowest


def consumer_from(covers: int) -> int:
    """The first seqnum of a consumer's stream that must stay, with a checkpoint of `covers`."""
    return covers + 1
