"""What may be deleted, and what is compacted: decisions of garbage collection. Pure.

**Ledgers.** A ledger goes only on positive proof: two reads of its own metadata node, `grace_s` apart, in one session with a
store that proved to be this cluster's. A listing proves nothing, it only says where to look first (apache/bookkeeper#870).

    | the metadata says          | fact      | after the second proof                                                |
    |----------------------------|-----------|-----------------------------------------------------------------------|
    | no such node               | GONE      | DELETE the ledger, if it was not made here since the first read        |
    | CLOSED, does not name us   | ELSEWHERE | KEEP; if it is allowed and no hold is against it: EMPTY it, see below  |
    | anything else              | KEEP      |                                                                       |
    | nothing: error, time-out   | KEEP      |                                                                       |

Emptied means that its entries go; the ledger stays, fenced, until its metadata is gone, so no fence is ever lifted. Entries
may be on their way to an over-replicated copy, to make it a proper one again (#4668). Hence nothing may have come for it
between the reads, its metadata version must be the same, and the second read happens under the lock that repair takes.
That is not enough: a repair that copied before the first read, lost its lock with its session and goes on by what it had read
names this bookie afterwards, and takes another off. Hence *holds*: a repair of ours first has this bookie note the version that it
read. The metadata must be of a version above every hold: then no swap that counts on this copy can land any more. Repairs of others
(Apache's) give no hold, so it is off by default, but while the bookie is drained: then it refuses what repairs bring. A
hold that is left over then is overcome by a *touch*: the bookie writes the metadata again as it is, which moves the version. In
limbo holds may be forgotten: nothing is emptied, and what was salvaged is held for good.

**Files.** What lives in a file follows from the index alone; a file that cannot be read lives as long as an entry is said to
be in it (#4607). A file without a live entry is removed; one with few is copied into another, emptiest first, if that gives
back more than the copy's own header and padding: so what was just written is never worth copying.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import Final, NamedTuple

from boki_bookie.formats.entry_log_format import PAGE_BYTES
from boki_bookie.space.limbo_rules import names
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState

COPY_GAIN_BYTES: Final = 3 * PAGE_BYTES
"""More than the header page and the padding of a copy."""


class Fact(Enum):
    """What one read of a ledger's metadata proves."""

    GONE = "gone"
    ELSEWHERE = "elsewhere"
    KEEP = "keep"


class Proof(NamedTuple):
    """One read, and what the ledger was here at that moment."""

    fact: Fact
    read_at: float
    """Seconds of the loop's clock, before the read was sent."""
    session: int
    """How often the session with the metadata store was lost before."""
    version: int
    """Version of the metadata node; -1 for none."""
    entry_count: int
    repeats: int
    """Adds of entries that were held already."""
    hold: int = -1
    """The highest version that a repair read before it counted on what is here; -1 for none."""


class Verdict(Enum):
    """What to do with a ledger after a read."""

    KEEP = "keep"
    BEGIN = "begin"
    """This read is the first proof."""
    WAIT = "wait"
    """The first proof stands and is too young."""
    DELETE = "delete"
    EMPTY = "empty"


class FileUse(NamedTuple):
    """One entry log file that is not written any more."""

    number: int
    size_bytes: int
    live_bytes: int

    @property
    def dead_bytes(self) -> int:
        return max(0, self.size_bytes - self.live_bytes)


def judge(metadata: LedgerMetadata | None, bookie_id: str) -> Fact:
    """What metadata that was read proves; None is a node that is not there."""
    if metadata is None:
        return Fact.GONE
    if metadata.state is LedgerState.CLOSED and not names(metadata, bookie_id):
        return Fact.ELSEWHERE
    return Fact.KEEP


def decide(first: Proof | None, now: Proof, *, grace_s: float, may_empty: bool) -> Verdict:
    """The table; `first` is None when there is none, or when the ledger was made here since."""
    if now.fact is Fact.KEEP or (now.fact is Fact.ELSEWHERE and (not may_empty or now.version <= now.hold)):
        return Verdict.KEEP
    if first is None or (first.fact, first.session) != (now.fact, now.session):
        return Verdict.BEGIN
    if now.fact is Fact.ELSEWHERE and first[3:] != now[3:]:
        return Verdict.BEGIN
    if now.read_at - first.read_at < grace_s:
        return Verdict.WAIT
    return Verdict.DELETE if now.fact is Fact.GONE else Verdict.EMPTY


def nominate(stored: Sequence[int], listed: Collection[int], *, everything: bool) -> list[int]:
    """Whose metadata is worth a read: what the listing lacks; now and then everything."""
    return [ledger_id for ledger_id in stored if everything or ledger_id not in listed]


def dead_files(files: Sequence[FileUse]) -> list[int]:
    """Files that nothing lives in."""
    return [use.number for use in files if use.live_bytes == 0]


def files_to_compact(files: Sequence[FileUse], *, below: float, room_bytes: int, without: Collection[int]) -> list[int]:
    """Files of which less than `below` is live, emptiest first, whose copy fits into `room_bytes`."""
    chosen = [
        use
        for use in files
        if 0 < use.live_bytes < below * use.size_bytes
        and use.dead_bytes >= COPY_GAIN_BYTES
        and use.live_bytes + COPY_GAIN_BYTES <= room_bytes
        and use.number not in without
    ]
    chosen.sort(key=lambda use: (use.live_bytes / use.size_bytes, use.number))
    return [use.number for use in chosen]
