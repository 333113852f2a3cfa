"""What a record is about, and which checkpoints it has."""

from __future__ import annotations

from bokilib.records.tags import bucket_of
from bokilib.retention.checkpoint_rules import CheckpointPart
from bokistore import Set
from bokistore.model.directory_rules import Subject, of_bucket, parts_of, subjects_of
from bokistore.model.events import Checkpoint, Deleted, DirectoryCheckpoint, DirectoryEnded, Ended, Entry, Ops

WRITES = Ops("x", (Set("a", 1),))


def test_events_are_about_objects_and_buckets_each_once() -> None:
    events = (WRITES, Ended("y", 1, 2), Entry("c", "k", True), DirectoryEnded("c/3", 1, 2), Deleted("x"))
    bucket = of_bucket("c", bucket_of("k"))
    assert subjects_of(events) == [Subject("x"), Subject("y"), bucket, of_bucket("c", 3)]
    assert (bucket.stream, bucket.checkpoints) == (f"store/dir/c/{bucket.bucket}", f"store/dirck/c/{bucket.bucket}")
    assert (Subject("x").stream, Subject("x").checkpoints) == ("store/o/x", "store/ck/x")


def test_an_object_and_a_bucket_of_one_name_have_checkpoints_of_their_own() -> None:
    events = (Checkpoint("c/3", 5, 0, 1, b"object"), DirectoryCheckpoint("c/3", 6, 0, 1, b"bucket"))
    assert parts_of(Subject("c/3"), 9, 7, "w", events) == [CheckpointPart(9, 7, 5, 0, 1, "w", b"object")]
    assert parts_of(of_bucket("c", 3), 9, 7, "w", events) == [CheckpointPart(9, 7, 6, 0, 1, "w", b"bucket")]


def test_a_deletion_is_a_checkpoint_of_nothing() -> None:
    assert parts_of(Subject("x"), 9, 7, "w", (WRITES, Deleted("x"))) == [CheckpointPart(9, 7, 9, 0, 1, "w", b"", 7)]
    assert parts_of(Subject("x"), 9, 7, "w", (Ended("x", 5, 3),)) == [CheckpointPart(9, 7, 5, 0, 1, "w", b"", 3)]
    assert parts_of(Subject("y"), 9, 7, "w", (WRITES, Deleted("x"))) == []


def test_one_that_makes_the_object_anew_in_its_own_record_is_of_what_was_before_it() -> None:
    assert parts_of(Subject("x"), 9, 7, "w", (Deleted("x"), WRITES)) == [CheckpointPart(9, 7, 8, 0, 1, "w", b"", 7)]
