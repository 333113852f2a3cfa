"""Pushing: a contribution to a record, by itself or beside what other libraries do.

One record a push, or a batch; the SDK sends together what is pushed at once. Messages of a batch that may go to any shard go to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from boki_common.errors import InvalidArgument
from bokilib import tags
from bokilib.contribution import Contribution
from bokilib.log import Log, Tokens
from bokiqueue.events import Config, Item, Pushed, shard_id
from bokiqueue.sharding import RoundRobin, shard_of


class Producer:
    """Messages into one queue."""

    def __init__(self, log: Log, config: Config, random: Tokens) -> None:
        self._log: Final = log
        self._config: Final = config
        self._turns: Final = RoundRobin(config.shards, int.from_bytes(random.token(4), "big"))

    def part(self, items: Sequence[Item]) -> Contribution:
        """What pushes these messages. Raises InvalidArgument."""
        if not items:
            raise InvalidArgument("expected one message at least, found none")
        if self._config.mode == "pop" and any(item.dedup or item.delay_ms for item in items):
            raise InvalidArgument(
                "expected neither dedup_id= nor delay_s=: a queue that is popped is first in, first out"
            )
        by_shard: dict[int, list[Item]] = {}
        anywhere: int | None = None
        for item in items:
            shard = shard_of(self._config.shards, item.key, item.dedup)
            if shard is None:
                anywhere = shard = self._turns.take() if anywhere is None else anywhere
            by_shard.setdefault(shard, []).append(item)
        queue = self._config.queue
        return Contribution(
            tuple(tags.queue_messages(queue, shard) for shard in by_shard),
            {},
            tuple(Pushed(shard_id(queue, shard), tuple(chosen)) for shard, chosen in by_shard.items()),
        )

    async def push(self, items: Sequence[Item]) -> int:
        """Pushes messages, all or none; returns where. Raises AtomicTooLarge, AppendUnknown, InvalidArgument."""
        return await self._log.append(self.part(items))
