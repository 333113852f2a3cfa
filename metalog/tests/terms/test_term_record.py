"""Term records: their bytes are a format."""

from __future__ import annotations

import msgspec
import pytest

from boki_common.errors import CorruptData, VersionMismatch
from boki_metalog.entries.metalog_entry import MetalogEntry
from boki_metalog.terms.term_record import (
    COPIED,
    DELETED,
    RECLAIMED,
    GivenUp,
    Location,
    TermRecord,
    decode_record,
    encode_record,
    record_of,
    term_path,
)
from boki_metalog.terms.view import first_view

VIEW = first_view().with_term(0, ledger_id=31, sequencer="5e" * 16, token="70" * 16, start_time_ms=900)
LAST = MetalogEntry(40, 42, 950, ())


def record_with(last_entry: int, last: MetalogEntry | None, given_up: GivenUp | None = None) -> TermRecord:
    """The record of the term in `VIEW`."""
    installed = VIEW.installed(0)
    assert installed is not None
    return record_of(0, installed, VIEW.slots_of(0), last_entry, last, given_up)


def test_record_of_a_term() -> None:
    record = record_with(11, LAST)
    assert encode_record(record) == (
        b'{"version":1,"term":1,"log":0,"slots":[[0,1023]],"metalog_ledger":31,"last_entry":11,"end_pos":42,'
        b'"last_time_ms":950,"location":{"kind":"ledgers","path":""}}'
    )
    assert decode_record(encode_record(record), 1) == record
    moved = msgspec.structs.replace(record, location=Location("cold", "s3://x"))
    assert record.same_term_as(moved) and not record.same_term_as(msgspec.structs.replace(record, end_pos=43))
    with pytest.raises(CorruptData, match=term_path(2)):
        decode_record(encode_record(record), 2)


def test_a_term_without_entries_passes_its_start_time_on() -> None:
    record = record_with(-1, None)
    assert (record.last_time_ms, record.end_pos, record.last_entry) == (900, 0, -1)


def test_a_reclaimed_term_is_one_of_version_two() -> None:
    record = record_with(11, LAST)
    for kind in (RECLAIMED, DELETED):
        moved = record.at(kind)
        assert moved.reclaimed and not record.reclaimed
        assert (moved.version, moved.same_term_as(record), record.same_term_as(moved)) == (2, True, True)
        assert decode_record(encode_record(moved), 1) == moved
    with pytest.raises(VersionMismatch, match="upgrade"):
        decode_record(encode_record(msgspec.structs.replace(record, version=4)), 1)


def test_a_copied_term_names_its_ledgers_until_they_are_deleted() -> None:
    """`copied` is of the version that earlier programs read. Files alone would be of one that they refuse."""
    record = TermRecord(1, 7, 0, (), 30, 9, 100, 5, Location())
    copied = record.at(COPIED, "s3://cold/manifest-1.json")
    assert (copied.version, copied.reclaimed, copied.same_term_as(record)) == (2, False, True)
    assert decode_record(encode_record(copied), 7) == copied
    gone = copied.at(RECLAIMED).at(DELETED)
    assert (
        gone.reclaimed
        and gone.location.path == copied.location.path
        and gone.at(DELETED, "").location == Location(DELETED)
    )
    cold = msgspec.structs.replace(copied, version=3, location=Location("cold", copied.location.path))
    with pytest.raises(CorruptData):
        decode_record(encode_record(cold), 7)


def test_a_record_of_a_term_that_a_person_ended_says_so_in_its_own_version() -> None:
    gone = GivenUp(12, 14, "ProtocolError: none", "a broken machine", 999)
    plain = record_with(11, LAST)
    record = record_with(11, LAST, gone)
    assert (plain.closed_at, record.closed_at, record.version) == (11, 14, 3)
    assert decode_record(encode_record(record), 1) == record != plain and not record.same_term_as(plain)
    moved = record.at(RECLAIMED)
    assert moved.reclaimed and decode_record(encode_record(moved), 1) == moved and moved.same_term_as(record)
    assert b"given_up" not in encode_record(plain)
    for wrong in (
        msgspec.structs.replace(record, version=1),
        msgspec.structs.replace(plain, version=3),
        msgspec.structs.replace(record, last_entry=12),
        msgspec.structs.replace(record, given_up=msgspec.structs.replace(gone, last_entry=11)),
    ):
        with pytest.raises(CorruptData, match="does not say what was given up"):
            decode_record(encode_record(wrong), 1)
