"""Queues on a LogBook: leases, acknowledgements, order by key, dead letters; and what is consumed, changed and pushed in one record.

    queue = await Queue.open(client.book("shop"), "emails", Email, dead_letter="emails.dead")
    await queue.push(Email("ann@example.org"), key="ann")
    async with queue.consume() as messages:
        async for message in messages:
            async with message:                       # acked when it is left, given back on an error
                await send(message.body)

- At least once for effects outside; exactly once for what is in the log, beside the ACK: `message.acked()`, `queue.handler`.
- A message as a step of a workflow: `Receiving`. A workflow that begins with a message's ACK: `bokiflow.in_atomic`.
- Members of a group share the shards; who stops is replaced, and nothing that was acked comes again.
- `mode="pop"`: the queue of the paper, whose messages are taken and gone.
"""

from bokilib.codec import Json, JsonObject
from bokiqueue.carrying import carried
from bokiqueue.consumer import Consumer
from bokiqueue.copies import PushResult
from bokiqueue.errors import (
    HandlerConflict,
    HandlerExited,
    HandlerTimeout,
    NoSuchGroup,
    NoSuchQueue,
    QueueDiffers,
    QueueEmpty,
    ResultTrimmed,
    StaleReceipt,
    WrongMode,
)
from bokiqueue.events import Limits, Mode, Source
from bokiqueue.handlers import Handler
from bokiqueue.inspection import Peeked, ShardStats, Stats
from bokiqueue.messages import Message
from bokiqueue.queue import Queue
from bokiqueue.receiving import Received, Receiving

__all__ = [
    "Consumer",
    "Handler",
    "HandlerConflict",
    "HandlerExited",
    "HandlerTimeout",
    "Json",
    "JsonObject",
    "Limits",
    "Message",
    "Mode",
    "NoSuchGroup",
    "NoSuchQueue",
    "Peeked",
    "PushResult",
    "Queue",
    "QueueDiffers",
    "QueueEmpty",
    "Received",
    "Receiving",
    "ResultTrimmed",
    "ShardStats",
    "Source",
    "StaleReceipt",
    "Stats",
    "WrongMode",
    "carried",
]
