"""Directories of collections: 16 streams of names that are added and removed. Pure.

A name is in one bucket, chosen by its hash, so that creations in a large collection do not all meet in one stream. A scan reads all
buckets at one snapshot; a serializable transaction that scanned expects that none of them moved. Changes of objects that are in the
collection move nothing here: a predicate on names is protected, one on *fields* is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from boki_common.errors import CorruptData, InvalidArgument
from bokilib.records import tags
from bokilib.records.tags import DIRECTORY_BUCKETS, bucket_of
from bokistore.model.events import AnyEvent, Entry, size_of

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


def check_collection(name: str) -> str:
    """Return the name of a collection. Raises InvalidArgument."""
    if not isinstance(name, str) or not name or SEPARATOR in name:
        raise InvalidArgument(f"expected the name of a collection, without {SEPARATOR!r}, found {name!r:.80}")
    return name


def object_name(collection: str, id: str) -> str:
    """Return the name of the object of an id. Raises InvalidArgument."""
    if not isinstance(id, str) or not id:
        raise InvalidArgument(f"expected an id, a text that is not empty, found {id!r:.80}")
    return f"{collection}{SEPARATOR}{id}"


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
