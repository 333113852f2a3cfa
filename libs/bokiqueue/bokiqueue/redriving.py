"""Dead letters go back to the queue they came from: each in one record with its ACK, so once.

The process that redrives is a member of the consumers of the dead letters meanwhile, which hands out no other messages (`is_letter`).
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from bokilib.atomic import Atomic
from bokilib.log import Log, Tokens
from bokiqueue.consumer import Consumer
from bokiqueue.events import Item
from bokiqueue.producer import Producer
from bokiqueue.settings import existing

QUIET_S: Final = 5.0
"""Nothing came for so long: the rest is with other consumers."""


def is_letter(item: Item) -> bool:
    """Return whether a message is a dead letter, and not one that was pushed to their queue."""
    return item.source is not None


async def redrive(log: Log, letters: Consumer[object], random: Tokens, most: int, *, quiet_s: float = QUIET_S) -> int:
    """Moves dead letters back, `most` at most; returns how many. What is no dead letter is left. Raises NoSuchQueue."""
    producers: dict[str, Producer] = {}
    moved = 0
    async with letters:
        while moved < most:
            try:
                async with asyncio.timeout(quiet_s):
                    message = await anext(letters)
            except TimeoutError:
                break
            source = message.source
            assert source is not None, "the consumer hands out dead letters only"
            if source.queue not in producers:
                producers[source.queue] = Producer(log, (await existing(log, source.queue)).config, random)
            item: Item = msgspec.structs.replace(message.item, source=None)
            async with message, Atomic(log) as tx:
                tx.add(message.acked())
                tx.add(producers[source.queue].part([item]))
            moved += 1
    return moved
