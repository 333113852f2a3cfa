"""Places below which a queue's shard may be trimmed. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from bokiqueue.model.events import Id


def messages_from(own: Id, others: Mapping[str, Id | None], starts: Mapping[str, int]) -> int:
    """Return the first seqnum of a shard's messages that must stay.

    Args:
        own: the committed floor of this group.
        others: committed floors of the other groups, None for those without a checkpoint.
        starts: starts of the groups, by the settings under which `own` was committed.
    """
    lowest = own.seqnum
    for group, start in starts.items():
        if group in others:
            floor = others[group]
            lowest = min(lowest, floor.seqnum if floor is not None else start)
    return lowest


def consumer_from(covers: int) -> int:
    """Return the first seqnum of a consumer stream that must stay beside a checkpoint of `covers`."""
    return covers + 1
