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
moved. It names its object, so checkpoints and trims treat it as any other record, and programs of earlier versions read it.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from bokilib.records.events import Event, Picker
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


def size_of(event: Event) -> int:
    """Return the bytes of an event in a record."""
    return len(_encoder.encode(event))
