"""Names of offloaded files and the rules for deleting them, without files."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

from boki_metalog.terms.term_record import COPIED, DELETED, IN_LEDGERS, RECLAIMED, VERSION, Location, TermRecord
from boki_metalog.terms.view import SlotRange
from boki_spark.offload.folder import attempt_folder, attempt_of, attempts_in, file_key, never_named

SPELLINGS = ("s3://bucket/cold", "s3a://bucket/cold", "file:///link", "file:///")


def record(kind: str, path: str) -> TermRecord:
    made = TermRecord(VERSION, 7, 0, (SlotRange(0, 1023),), 31, 4, 90, 0, Location())
    return made if kind == IN_LEDGERS else made.at(kind, path)


def test_an_attempt_is_the_same_however_its_folder_is_spelled() -> None:
    paths = [attempt_folder(folder, "an-id", 7, 3, b"\xab\xcd") + "/slice-000000.index" for folder in SPELLINGS]
    assert {attempt_of(path) for path in paths} == {(7, "v3-abcd")}
    assert len(set(map(file_key, paths))) == 1
    assert attempt_of("s3://bucket/term-7/notes/x") is None and attempt_of("x") is None and attempt_of("") is None


def test_files_of_other_clusters_are_of_nobody_here() -> None:
    own = attempt_folder("s3://cold", "one", 7, 3, b"\1") + "/x"
    other = attempt_folder("s3://cold", "two", 7, 3, b"\2") + "/x"
    earlier = "s3://cold/term-7/v3-03/x"
    found = attempts_in([own, other, earlier, "s3://cold/readme", "s3://cold/term-7/x"], "one")
    assert found == ({7: {"v3-01": [own]}}, {7: {"v3-03": [earlier]}})


@pytest.mark.parametrize("kind", [IN_LEDGERS, COPIED, RECLAIMED, DELETED])
def test_only_what_can_never_be_named_is_deleted(kind: str) -> None:
    for spelled, version in itertools.product(SPELLINGS, (3, 4, 5)):
        named = record(kind, f"{spelled}/cluster-one/term-7/v3-01/manifest-x.json")
        dead, moved = kind in (RECLAIMED, DELETED), version > 3
        assert never_named(named, version, "v3-01") == (moved and (dead or kind == IN_LEDGERS))
        assert never_named(named, version, "v3-02") == moved, "its swap is refused"
        assert never_named(named, version, "v5-03") is False, "it may be going on"
