"""Directories of collections, and the subjects of checkpoints: an object, or a bucket of a directory. Pure.

A directory is 16 streams of names that are added and removed, the buckets. A name is in one bucket, chosen by its hash, so that creations
in a large collection do not all meet in one stream. A scan reads all buckets at one snapshot; a serializable transaction that scanned
expects that none of them moved. Changes of objects that are in the collection move nothing here: a predicate on names is protected, one on
*fields* is not.

Each subject of checkpoints has a stream of its records, and one of its checkpoints. An object and a bucket may have the same name, and
their checkpoints may share a record, so events are distinguished by kind as well as by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from boki_common.errors import CorruptData, InvalidArgument
from bokilib.records import tags
from bokilib.records.arguments import check_text
from bokilib.records.tags import DIRECTORY_BUCKETS, bucket_of
from bokilib.retention.checkpoint_rules import CheckpointPart
from bokilib.stacks import shown
from bokistore.model.events import (
    AnyEvent,
    Checkpoint,
    Commit,
    Deleted,
    DirectoryCheckpoint,
    DirectoryEnded,
    Ended,
    Entry,
    Expires,
    Ops,
    size_of,
)

SEPARATOR: Final = "/"
TIMES: Final = "/times"
"""The collection of objects that have a time at which they may be deleted; no user's collection has such a name."""


class Directory(msgspec.Struct, frozen=True):
    """The names of one bucket as of `seen`; `records` and `size` lie above its last checkpoint."""

    collection: str
    bucket: int
    seen: int = 0
    ids: frozenset[str] = frozenset()
    records: int = 0
    size: int = 0

    @property
    def name(self) -> str:
        """The name of its checkpoints."""
        return f"{self.collection}{SEPARATOR}{self.bucket}"


_encoder: Final = msgspec.msgpack.Encoder()
_lists: Final = msgspec.msgpack.Decoder(list[str])


def check_object(name: str) -> str:
    """Return the name of an object. Raises InvalidArgument."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"expected the name of an object, a text that is not empty, found {shown(name)}")
    return check_text("the name of an object", name)


def check_collection(name: str) -> str:
    """Return the name of a collection. Raises InvalidArgument."""
    if not isinstance(name, str) or not name or SEPARATOR in name:
        raise InvalidArgument(f"expected the name of a collection, without {SEPARATOR!r}, found {shown(name)}")
    return check_text("the name of a collection", name)


def object_name(collection: str, id: str) -> str:
    """Return the name of the object of an id. Raises InvalidArgument."""
    if not isinstance(id, str) or not id:
        raise InvalidArgument(f"expected an id, a text that is not empty, found {shown(id)}")
    return f"{collection}{SEPARATOR}{check_text('an id', id)}"


def buckets(collection: str) -> list[str]:
    """Return the streams of a collection."""
    return [tags.store_directory(collection, bucket) for bucket in range(DIRECTORY_BUCKETS)]


def stream_of(collection: str, id: str) -> str:
    """Return the stream that an id is in."""
    return tags.store_directory(collection, bucket_of(id))


def _entries(directory: Directory, events: Iterable[AnyEvent]) -> Iterator[Entry]:
    """Yield the events that change the bucket."""
    for event in events:
        if (
            isinstance(event, Entry)
            and event.collection == directory.collection
            and bucket_of(event.id) == directory.bucket
        ):
            yield event


def after_events(directory: Directory, events: Iterable[AnyEvent]) -> Directory:
    """Return a bucket after events, which may be of other collections."""
    ids = directory.ids
    for event in _entries(directory, events):
        ids = ids | {event.id} if event.there else ids - {event.id}
    return directory if ids is directory.ids else msgspec.structs.replace(directory, ids=ids)


def after_records(directory: Directory, records: Iterable[tuple[int, Iterable[AnyEvent]]]) -> Directory:
    """Return a bucket after records (seqnum, events) of its stream, in order."""
    ids = set(directory.ids)
    seen, count, size = directory.seen, directory.records, directory.size
    for seqnum, events in records:
        assert seqnum > seen, "records are folded in order, once"
        for event in _entries(directory, events):
            ids.add(event.id) if event.there else ids.discard(event.id)
            size += size_of(event)
        seen, count = seqnum, count + 1
    return msgspec.structs.replace(directory, seen=seen, ids=frozenset(ids), records=count, size=size)


def checkpoint_data(directory: Directory) -> bytes:
    """Encode the names for a checkpoint, in order, so that equal states are equal bytes."""
    return _encoder.encode(sorted(directory.ids))


def from_checkpoint(collection: str, bucket: int, covers: int, data: bytes) -> Directory:
    """Return the bucket that a checkpoint contains. Raises CorruptData."""
    try:
        return Directory(collection, bucket, covers, frozenset(_lists.decode(data)))
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise CorruptData(
            f"a checkpoint of the collection {collection!r} is damaged: {fault}", covers=covers
        ) from fault


class Subject(NamedTuple):
    """An object, or a bucket of a directory if it has a collection."""

    name: str
    collection: str = ""
    bucket: int = 0

    @property
    def stream(self) -> str:
        """The stream of its records."""
        if self.collection:
            return tags.store_directory(self.collection, self.bucket)
        return tags.store_object(self.name)

    @property
    def checkpoints(self) -> str:
        """The stream of its checkpoints."""
        if self.collection:
            return tags.store_directory_checkpoint(self.collection, self.bucket)
        return tags.store_checkpoint(self.name)

    @property
    def text(self) -> str:
        """The subject in an error."""
        if self.collection:
            return f"bucket {self.bucket} of the collection {self.collection!r}"
        return f"object {self.name!r}"


def of_bucket(collection: str, bucket: int) -> Subject:
    """Return the subject of a bucket."""
    return Subject(f"{collection}{SEPARATOR}{bucket}", collection, bucket)


def subjects_of(events: Iterable[AnyEvent]) -> list[Subject]:
    """Return the subjects of a record's events, each once."""
    found: dict[Subject, None] = {}
    for event in events:
        if isinstance(event, Entry):
            found[of_bucket(event.collection, tags.bucket_of(event.id))] = None
        elif isinstance(event, (DirectoryCheckpoint, DirectoryEnded)):
            collection, _, bucket = event.name.rpartition(SEPARATOR)
            found[of_bucket(collection, int(bucket))] = None
        elif isinstance(event, (Ops, Commit, Deleted, Expires, Checkpoint, Ended)):
            found[Subject(event.name)] = None
    return list(found)


def parts_of(subject: Subject, seqnum: int, time_ms: int, by: str, events: Iterable[AnyEvent]) -> list[CheckpointPart]:
    """Return the parts of the subject's checkpoints that a record contains.

    A deletion counts as a checkpoint of an object that does not exist. If the same record creates the object again behind the deletion, the
    checkpoint covers what was before the record, so that the record is folded.
    """
    found: list[CheckpointPart] = []
    of_checkpoints = DirectoryCheckpoint if subject.collection else Checkpoint
    of_ends = DirectoryEnded if subject.collection else Ended
    deleted = created = False
    for event in events:
        if isinstance(event, of_checkpoints) and event.name == subject.name:
            found.append(CheckpointPart(seqnum, time_ms, event.covers, event.part, event.parts, by, event.data))
        elif isinstance(event, of_ends) and event.name == subject.name:
            found.append(CheckpointPart(seqnum, time_ms, event.covers, 0, 1, by, b"", event.since_ms))
        elif (
            not subject.collection and isinstance(event, (Ops, Commit, Deleted, Expires)) and event.name == subject.name
        ):
            deleted, created = deleted or isinstance(event, Deleted), not isinstance(event, Deleted)
    if deleted:
        found.append(CheckpointPart(seqnum, time_ms, seqnum - 1 if created else seqnum, 0, 1, by, b"", time_ms))
    return found
