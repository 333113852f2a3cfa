"""Common ground of the libraries on LogBooks: what they write, what it expects, and what is left of it.

    log = Log(client.book("shop"))
    async with Atomic(log) as tx: ...              # effects of several libraries, one record

- Records hold events of any library; each reads its own (`events`, `tags`).
- Appends never guess: what is unknown is raised, or asked until it is known (`log`). Nobody concludes from a Conflict.
- `Carrier`: carries forward what has no owner, so that old terms can be deleted.
- `Fence`: one holder at a time. `Follower`: many streams over few cursors.
- `Members`: who is alive, by heartbeats. `Trimmer`: trims, many at once.
- `bokilib.testing`: crashes at every operation of a program, exhaustively.
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
    UnknownEvent,
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
    "Picker",
    "Trimmer",
    "UnknownEvent",
]
