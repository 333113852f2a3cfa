"""Where a term ends: as its closed metalog says, or before an entry that nobody can read, because a person says so.

    last_of      the head of the last entry, which is all that the record of a term needs of it
    readable_of  the entries that come before the first one that cannot be applied

Rules:
- Nothing is made up. Where the last entry cannot be read, neither the term's end nor its time is known, and no term begins behind
  it (`MetalogUnreadable`): it may be mended, or a later program may know what it is.
- An entry with commands of a later version has a head that this version knows, so the term ends where that says, if it goes on
  from the entry before. A head with a body that cannot be is not believed: both come of one memory.
- A person may have a term end before such an entry (`Decision`, `boki log give-up`). Engines stop before an entry that they
  cannot read, so nobody was answered for what it orders, or for what comes behind: what is not cut goes to the next term under
  the same numbers, as at every end of a term. The record of the term says what was given up, for ever, and the same swap of the
  view as ever decides it once. An engine that has applied the entry nevertheless stops there.
- Only of the current term of a log: the record of an ended one stands, for engines that could read the entry went on from it.

Readers of ledgers are given; nothing here waits, tries again or writes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from boki_common.errors import (
    BokiError,
    CorruptData,
    DigestMismatch,
    InvalidArgument,
    NoSuchEntry,
    ProtocolError,
    VersionMismatch,
)
from boki_ledger.ledgers import LedgerReader
from boki_metalog.entries.metalog_entry import EntryHead, MetalogEntry, decode, decode_head
from boki_metalog.entries.progress import ProgressVector
from boki_metalog.errors import MetalogUnreadable
from boki_metalog.terms.term_record import GivenUp

READ_ENTRIES: Final = 64
REASON_CHARACTERS: Final = 1_000
FAULT_CHARACTERS: Final = 300
UNREADABLE: Final = (ProtocolError, CorruptData, DigestMismatch, NoSuchEntry)
"""What says that an entry is none, or that nobody has it. Whatever else is raised says nothing of the entry."""


class Decision(NamedTuple):
    """A person's, that a term ends before an entry of its metalog.

    `of_later_version`: it is known that no program reads the entry, though it looks as one of a later version.
    """

    entry: int
    reason: str
    time_ms: int
    of_later_version: bool = False


class Readable(NamedTuple):
    """The beginning of a metalog: so many entries, the last of them, and why the next one cannot be applied; None: it ends there."""

    entries: int
    last: MetalogEntry | None
    fault: BokiError | None


async def last_of(reader: LedgerReader, *, term: int, start_time_ms: int) -> EntryHead | None:
    """What the last entry of a closed metalog says of the term's end; None: it has none. Raises MetalogUnreadable."""
    last = reader.last_entry
    if last < 0:
        return None
    try:
        (payload,) = await reader.read(last, last)
        try:
            entry = decode(payload)
            return EntryHead(entry.start_pos, entry.end_pos, entry.time_ms)
        except VersionMismatch as later:
            head = decode_head(payload)
            before = EntryHead(0, 0, start_time_ms)
            if last:
                before = decode_head((await reader.read(last - 1, last - 1))[0])
            if head.start_pos != before.end_pos or head.time_ms < before.time_ms:
                raise CorruptData(f"it does not go on from the entry before it, and: {later}") from later
            return head
    except UNREADABLE as error:
        raise MetalogUnreadable(
            f"the last entry of the metalog of term {term}, entry {last}, cannot be read: {error}; the next term begins when it is "
            f"mended, or this program is upgraded to one that knows it; see docs/unreadable.md, and `boki log give-up {term} {last}`",
            term=term,
            entry=last,
        ) from error


async def readable_of(reader: LedgerReader, end: int) -> Readable:
    """Reads the first `end` entries, until one cannot be applied. Raises what says nothing of an entry: try again."""
    vector = ProgressVector()
    last: MetalogEntry | None = None
    for first in range(0, end, READ_ENTRIES):
        stop = min(first + READ_ENTRIES, end)
        try:
            payloads = await reader.read(first, stop - 1)
        except UNREADABLE:
            payloads = []  # one of them: which one is found below
        for number in range(first, stop):
            try:
                payload = payloads[number - first] if payloads else (await reader.read(number, number))[0]
                entry = decode(payload)
                vector.apply(entry)
            except UNREADABLE as fault:
                return Readable(number, last, fault)
            last = entry
    return Readable(end, last, None)


async def given_up(reader: LedgerReader, decision: Decision, *, term: int) -> tuple[Readable, GivenUp]:
    """What remains of a closed metalog, and what is given up of it. Raises InvalidArgument: it can be read, or is another entry
    than the first that cannot; Others: try again."""
    last = reader.last_entry
    found = await readable_of(reader, last + 1)
    fault = found.fault
    if fault is None or found.entries != decision.entry:
        can = (
            f"all {last + 1} entries of the metalog of term {term} can be read"
            if fault is None
            else f"entry {found.entries} is the first of the metalog of term {term} that cannot be read ({fault})"
        )
        raise InvalidArgument(
            f"expected the first entry that cannot be read, found {decision.entry}: {can}", found=decision.entry
        )
    if isinstance(fault, VersionMismatch) and not decision.of_later_version:
        raise InvalidArgument(
            f"entry {found.entries} of the metalog of term {term} is of a later version, or garbage: {fault}; where it is known that no "
            "program reads it, say --later-version",
            found=decision.entry,
        )
    why = f"{type(fault).__name__}: {fault}"[:FAULT_CHARACTERS]
    return found, GivenUp(found.entries, last, why, decision.reason[:REASON_CHARACTERS], decision.time_ms)
