"""The record of a sealed term: what it ordered, for ever (DESIGN §5, §8).

`/boki/terms/<term>`, JSON:

    {"version": 1, "term": 7, "log": 0, "slots": [[0, 1023]], "metalog_ledger": 31, "last_entry": 1204, "end_pos": 90210,
     "last_time_ms": 1767225600000, "location": {"kind": "ledgers", "path": ""}}

Rules:
- Created once, after the term's metalog is closed and before the view drops the term. Its content follows from the closed
  metalog and the view, so any driver writes the same bytes and "exists" is success.
- Only `location` changes later, by compare-and-swap: the ledgers, or what became of them. A record whose records are not in
  the ledgers, or not only, has version 2, so that a program that does not know this refuses it by name:
    copied       cold files have its live records, too; `path` is their manifest. Who does not know files reads the ledgers
    reclaimed    no record of the term is live, and an index snapshot lies behind its end: its ledgers are deleted after a grace
    deleted      they are. `path`, where there is one, names files that are not deleted yet
- `last_entry` is -1 for a term that ordered nothing; its final vector is in its last entry.
- `given_up` is there only where a person ended the term before an entry of its metalog that nobody can read (`term_end`); such a
  record has version 3. Its metalog ledger then goes on behind `last_entry`, and nobody applies that.

Pure: values and their bytes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from boki_common.errors import CorruptData
from boki_common.runtime.ports import Buffer
from boki_metalog.entries.metalog_entry import EntryHead, MetalogEntry
from boki_metalog.terms.view import Installed, SlotRange, decode_versioned

VERSION: Final = 1
MOVED_VERSION: Final = 2
"""Of a record whose location is not the ledgers."""
GIVEN_UP_VERSION: Final = 3
"""Of a record that says `given_up`, wherever its records are."""
TERMS_PATH: Final = "/boki/terms"
IN_LEDGERS: Final = "ledgers"
COPIED: Final = "copied"
RECLAIMED: Final = "reclaimed"
DELETED: Final = "deleted"


class Location(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the term's records are. `kind` "ledgers": in the ledgers that its metalog names. `path`: of the manifest of its files."""

    kind: str = IN_LEDGERS
    path: str = ""


class GivenUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The entries of a metalog from `first_entry` to `last_entry` that a person gave up. The rest is evidence, for people.
    `fault`: why the first of them cannot be read. `time_ms`: when, by the clock of who did it."""

    first_entry: int
    last_entry: int
    fault: str
    reason: str
    time_ms: int


class TermRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """See the module."""

    version: int
    term: int
    log: int
    slots: tuple[SlotRange, ...]
    metalog_ledger: int
    last_entry: int
    end_pos: int
    last_time_ms: int
    location: Location
    given_up: GivenUp | None = None

    def same_term_as(self, other: TermRecord) -> bool:
        """Whether both say the same, apart from the location."""
        return msgspec.structs.replace(self, version=other.version, location=other.location) == other

    @property
    def closed_at(self) -> int:
        """The last entry of the metalog ledger, which is closed."""
        return self.last_entry if self.given_up is None else self.given_up.last_entry

    @property
    def reclaimed(self) -> bool:
        """Whether its ledgers are gone, or will be soon: all that matters of it is in the index snapshot."""
        return self.location.kind in (RECLAIMED, DELETED)

    def at(self, kind: str, path: str | None = None) -> TermRecord:
        """The record after its records went elsewhere. `path`: of the manifest of its files; None: as it was."""
        version = MOVED_VERSION if self.given_up is None else GIVEN_UP_VERSION
        location = Location(kind, self.location.path if path is None else path)
        return msgspec.structs.replace(self, version=version, location=location)


def term_path(term: int) -> str:
    """Where a term's record is."""
    return f"{TERMS_PATH}/{term}"


def record_of(
    log: int,
    installed: Installed,
    slots: tuple[SlotRange, ...],
    last_entry: int,
    last: EntryHead | MetalogEntry | None,
    given_up: GivenUp | None = None,
) -> TermRecord:
    """The record of a term whose metalog is closed; `last` is its last entry, or the head of it, None when it has none."""
    assert (last is None) == (last_entry < 0), "the last entry of a closed metalog decides its record"
    return TermRecord(
        version=VERSION if given_up is None else GIVEN_UP_VERSION,
        term=installed.term,
        log=log,
        slots=slots,
        metalog_ledger=installed.metalog_ledger,
        last_entry=last_entry,
        end_pos=0 if last is None else last.end_pos,
        last_time_ms=installed.start_time_ms if last is None else last.time_ms,
        location=Location(),
        given_up=given_up,
    )


def encode_record(record: TermRecord) -> bytes:
    """The bytes of a record: equal records have equal bytes."""
    return msgspec.json.encode(record)


def decode_record(data: Buffer, term: int) -> TermRecord:
    """Reads the record of `term`. Raises VersionMismatch, CorruptData."""
    later = (MOVED_VERSION, GIVEN_UP_VERSION)
    record = decode_versioned(data, TermRecord, path=term_path(term), version=VERSION, or_versions=later)
    if record.term != term or record.last_entry < -1 or record.end_pos < 0:
        raise CorruptData(f"{term_path(term)} holds the record of term {record.term}", expected=term, found=record.term)
    given_up = record.given_up
    if (given_up is None) == (record.version == GIVEN_UP_VERSION) or (
        given_up is not None and not record.last_entry + 1 == given_up.first_entry <= given_up.last_entry
    ):
        raise CorruptData(f"{term_path(term)} does not say what was given up of it", term=term)
    return record
