"""Events of a store's records. Pure.

| event | in the stream | meaning |
|---|---|---|
| store.ops | o | operations without a condition, in order |
| store.commit | o | the part of a transaction that changes one object |
| store.delete | o and ck | the object is deleted; also an empty checkpoint |
| store.expire | o | when the object may be deleted, or never |
| store.entry | dir | a name is added to a collection, or removed |
| store.ck, store.dirck | ck, dirck | a part of a checkpoint: the state as of `covers` |
| store.end, store.dirend | ck, dirck | an empty checkpoint, and since when there is nothing |

A store.commit without operations is a *claim* (`turns`): it changes nothing, and fails records that expect its stream not to have
moved. It names its object, so checkpoints and trims treat it as any other record, and programs of earlier versions read it. Its last
field says for how long its sender needs the stream; earlier programs pass that field.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from bokilib.records.events import Envelope, Event, Picker
from bokistore.model.operations import AnyOperation


class Ops(Event, tag="store.ops", frozen=True):
    """Operations without a condition."""

    name: str
    operations: tuple[AnyOperation, ...]


class Commit(Event, tag="store.commit", frozen=True):
    """Operations of a transaction on one object; `snapshot` is where it read."""

    name: str
    operations: tuple[AnyOperation, ...]
    snapshot: int


class Claim(Commit, tag="store.commit", frozen=True):
    """A commit without operations, as a process appends it that wants the stream for itself for a moment.

    Attributes:
        needs_ms: how long its transactions take from here to their record; 0 in claims of earlier programs.
    """

    needs_ms: int = 0


class Deleted(Event, tag="store.delete", frozen=True):
    """The object is deleted."""

    name: str


class Expires(Event, tag="store.expire", frozen=True):
    """The object may be deleted once the log's clock is past `at_ms`; None: never."""

    name: str
    at_ms: int | None


class Entry(Event, tag="store.entry", frozen=True):
    """A name is added to a collection, or removed."""

    collection: str
    id: str
    there: bool


class Checkpoint(Event, tag="store.ck", frozen=True):
    """A part of the state of an object as of `covers`."""

    name: str
    covers: int
    part: int
    parts: int
    data: bytes


class DirectoryCheckpoint(Event, tag="store.dirck", frozen=True):
    """A part of the names in a bucket as of `covers`; `name` is `collection/bucket`."""

    name: str
    covers: int
    part: int
    parts: int
    data: bytes


class Ended(Event, tag="store.end", frozen=True):
    """There is no such object as of `covers`, since `since_ms` by the log's clock."""

    name: str
    covers: int
    since_ms: int


class DirectoryEnded(Event, tag="store.dirend", frozen=True):
    """No name is in the bucket as of `covers`; as `Ended`."""

    name: str
    covers: int
    since_ms: int


AnyEvent: TypeAlias = (
    Ops | Commit | Deleted | Expires | Entry | Checkpoint | DirectoryCheckpoint | Ended | DirectoryEnded
)
ObjectEvent: TypeAlias = Ops | Commit | Deleted | Expires
PICKER: Final[Picker[AnyEvent]] = Picker(
    "store", (Ops, Commit, Deleted, Expires, Entry, Checkpoint, DirectoryCheckpoint, Ended, DirectoryEnded)
)
LIBRARY: Final = "store"

_encoder: Final = msgspec.msgpack.Encoder()
_claims: Final = msgspec.msgpack.Decoder(Claim)


def size_of(event: Event) -> int:
    """Return the bytes of an event in a record."""
    return len(_encoder.encode(event))


def needed_ms(events: Iterable[AnyEvent], envelope: Envelope) -> int:
    """Return for how long the sender of a record needs the streams that it claims; 0: the record is no claim, or does not say.

    Args:
        events: of the record, as `PICKER` gave them, of one object at least.
    """
    if not any(isinstance(event, Commit) and not event.operations for event in events):
        return 0
    longest = 0
    for raw in envelope.events:
        try:
            longest = max(longest, _claims.decode(raw).needs_ms)
        except msgspec.DecodeError:  # another event, or the field of a later program: a claim is a hint
            continue
    return longest
