"""Queues on a LogBook: leases, acknowledgements, order by key, dead letters, and one record for what is consumed, changed and pushed.

    queue = await Queue.open(client.book("shop"), "emails", Email, dead_letter="emails.dead")
    await queue.push(Email("ann@example.org"), key="ann")
    async with queue.consume() as messages:
        async for message in messages:
            async with message:                       # acked on exit, delivered again after an error
                await send(message.body)

- Effects outside the log happen at least once. Effects in the log happen exactly once if they share a record with the
  ACK (`message.acked()`, `queue.handler`).
- `Receiving` makes a message a step of a workflow; `bokiflow.in_atomic` starts a workflow in the record of an ACK.
- The members of a group share the shards of a queue. Another member takes over the shards of one that stops, and no
  acked message is delivered again.
- `mode="pop"` is the queue of the paper, whose messages are removed when they are taken.

Read the rooms in this order: `model` (events, state and rules, all pure), `checkpoint`, `push`, `shard` (the owner of
one shard), `consume` (members, messages, handlers), `manage` (statistics, rewriting of old records), then `popper` and
`queue`, which joins them.
"""

from bokilib.records.codec import Json, JsonObject
from bokiqueue.consume.consumer import Consumer
from bokiqueue.consume.handlers import Handler
from bokiqueue.consume.messages import Message
from bokiqueue.consume.receiving import Received, Receiving
from bokiqueue.errors import (
    HandlerConflict,
    HandlerExited,
    HandlerTimeout,
    NoSuchGroup,
    NoSuchQueue,
    NotEntered,
    QueueDiffers,
    QueueEmpty,
    ResultTrimmed,
    StaleReceipt,
    UnfitMessage,
    WrongMode,
)
from bokiqueue.manage.carrying import carried
from bokiqueue.manage.inspection import Peeked, ShardStats, Stats
from bokiqueue.model.events import Limits, Mode, Source
from bokiqueue.push.copies import PushResult
from bokiqueue.queue import Queue, Redriven

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
    "NotEntered",
    "Peeked",
    "PushResult",
    "Queue",
    "QueueDiffers",
    "QueueEmpty",
    "Received",
    "Receiving",
    "Redriven",
    "ResultTrimmed",
    "UnfitMessage",
    "ShardStats",
    "Source",
    "StaleReceipt",
    "Stats",
    "WrongMode",
    "carried",
]
