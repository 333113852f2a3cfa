"""The choice of a shard for each message. Pure.

- A message with a key goes by the key's hash, so that one owner has all messages of a key. A message without one goes
  by its deduplication id, so that both duplicates meet. Others go round robin from a random start, so that many
  producers do not begin at one shard.
- The number of shards is fixed for the life of a queue: otherwise keys would move and lose their order.
- A queue with a limit in flight has at most as many shards as may be in flight, so that each has a share.
"""

from __future__ import annotations

from typing import Final

import xxhash

from boki_common.errors import InvalidArgument

SHARDS: Final = 8
SHARDS_MOST: Final = 1_024


def shard_of(shards: int, key: str | None, dedup: str | None) -> int | None:
    """Return the shard that a message must go to, or None for any."""
    named = key if key is not None else dedup
    if named is None:
        return None
    return int(xxhash.xxh3_64_intdigest(named.encode()) % shards)


class RoundRobin:
    """The shards in turn."""

    def __init__(self, shards: int, start: int) -> None:
        self._shards = shards
        self._next = start % shards

    def take(self) -> int:
        """Return the next shard."""
        shard, self._next = self._next, (self._next + 1) % self._shards
        return shard


def check_shards(shards: int, in_flight: int = 0) -> int:
    """Return a number of shards; raise InvalidArgument if it is out of range."""
    most = min(SHARDS_MOST, in_flight) if in_flight else SHARDS_MOST
    if type(shards) is not int or not 1 <= shards <= most:
        why = f": each has a share of the limit of {in_flight}" if in_flight and most == in_flight else ""
        raise InvalidArgument(f"expected 1 to {most} shards, found {shards!r}{why}", found=shards)
    return shards
