"""Common base of the libraries on LogBooks: the format of their records, appends, followers and retention.

    log = Log(client.book("shop"))
    async with Atomic(log) as tx: ...              # effects of several libraries, one record

- A record holds events of any libraries, and each library reads its own (`records.events`, `records.tags`).
- An append with an unknown outcome raises `AppendUnknown`, or waits until the outcome is known (`Log.append`). After a Conflict a
  library reads the streams that moved before it decides.
- `Fence`: one holder at a time. `Follower`: many streams over few cursors. `Members`: liveness by heartbeats.
- `Carrier` rewrites old records that have no owner into the current term, so that old terms can be reclaimed. `Trimmer` trims many
  streams with few commands.
- `bokilib.testing` runs a program with a crash at each of its operations.

Read the rooms in this order: `records` (the format, pure), `append` (the log of a book, fences), `follow` (followers, members),
`partitions` (their owners), `retention` (checkpoints, rewriting, trims).
"""

from bokilib.append.atomic import Atomic
from bokilib.append.fence import Fence
from bokilib.append.log import Log
from bokilib.errors import (
    AppendUnknown,
    AtomicTooLarge,
    Fenced,
    ForeignRecord,
    NoPayloadHook,
    NotEncodable,
    PartlyApplied,
    PayloadHookFailed,
    PayloadHookUnavailable,
    UnknownEvent,
    WrongBook,
)
from bokilib.follow.follower import Follower
from bokilib.follow.members import Members
from bokilib.ports import BookPort, PayloadHook
from bokilib.records.codec import Json, JsonObject
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event, Picker
from bokilib.records.isolation import Isolation
from bokilib.retention.carrier import Carrier, Carries
from bokilib.retention.trimmer import Trimmer

__all__ = [
    "AppendUnknown",
    "PartlyApplied",
    "Atomic",
    "AtomicTooLarge",
    "BookPort",
    "Carrier",
    "Carries",
    "Contribution",
    "Event",
    "Fence",
    "Fenced",
    "Follower",
    "ForeignRecord",
    "Isolation",
    "Json",
    "JsonObject",
    "Log",
    "Members",
    "NoPayloadHook",
    "NotEncodable",
    "PayloadHook",
    "PayloadHookFailed",
    "PayloadHookUnavailable",
    "Picker",
    "Trimmer",
    "UnknownEvent",
    "WrongBook",
]
