"""Subjects of checkpoints: an object, or a bucket of a collection's directory. Pure.

Each subject has a stream of its records, and one of its checkpoints. An object and a bucket may have the same name, and their
checkpoints may share a record, so events are distinguished by kind as well as by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bokilib.records import tags
from bokilib.retention.checkpoint_rules import CheckpointPart
from bokistore.model.directory_rules import SEPARATOR
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
)


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
