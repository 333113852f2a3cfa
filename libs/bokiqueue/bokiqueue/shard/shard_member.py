"""Members that own shards, and the names of their fences."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bokilib.retention.checkpoint_rules import REWRITE_MS
from bokiqueue.attempts import BACKOFF_S
from bokiqueue.model.events import Item


class Member(NamedTuple):
    """A member that owns shards.

    Attributes:
        who: its name.
        token: the scope of its claims, which tells members under one `Log` apart.
        carry_ms: the age that none of its needed records reaches.
        only: selects the messages that it delivers; None for all.
        backoff_s: the wait after the first attempt that ended with its process.
    """

    who: str
    token: str
    carry_ms: int = REWRITE_MS
    only: Callable[[Item], bool] | None = None
    backoff_s: float = BACKOFF_S


def members_of(queue: str, group: str) -> str:
    """Return the name under which the members of a group send heartbeats."""
    return f"queue/{queue}/{group}"


def fence_name(queue: str, shard: int, group: str) -> str:
    """Return the name of a shard's fence in its claims."""
    return f"shard {shard} of queue {queue!r} for {group!r}"
