"""Moving dead letters back to the queue that they came from, each in one record with its ACK, so once.

Meanwhile the process is a member of the consumers of the dead letters that delivers no other messages (`is_letter`).
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from bokilib.append.atomic import Atomic
from bokilib.append.log import Log, Tokens
from bokiqueue.consume.consumer import Consumer
from bokiqueue.model.events import Item
from bokiqueue.push.producer import Producer
from bokiqueue.settings import existing

QUIET_S: Final = 5.0
"""The time without a message after which other consumers have the rest."""


def is_letter(item: Item) -> bool:
    """Return True if a message is a dead letter, and not one that was pushed to the queue of dead letters itself."""
    return item.source is not None


async def redrive(log: Log, letters: Consumer[object], random: Tokens, most: int, *, quiet_s: float = QUIET_S) -> int:
    """Move up to `most` dead letters back, and return how many. Other messages are left.

    Raises:
        NoSuchQueue: a queue that a letter came from does not exist.
    """
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
