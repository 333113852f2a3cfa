"""When an index snapshot is written, what it covers, and what may be deleted for it (DESIGN §7, §8). Pure.

Rules:
- A snapshot holds the whole state, so it is written at intervals that grow with it: what was applied since the last one is at
  least half of that one's rows. Bytes written stay a constant factor of what is appended (docs/adr/0012). For the end of a term
  less will do once the last one is so old that its bytes are few for that time: who waits for the end of a term waits for that.
- It holds each log at one metalog position that is applied whole, with the progress vector there. What was received beyond
  is no part of it: two engines at equal positions write equal terms.
- No snapshot replaces one that is further in any log.
- A term may be reclaimed when it is over, no record of it is live, and the snapshot that is named lies at or behind its end:
  whoever starts anew needs neither its entries nor its metalog.
- A snapshot's ledger says at which version of the node it wants to be named. Once the version has moved without naming it,
  it never will be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from boki_common import limits
from boki_common.errors import CorruptData
from boki_common.runtime.ports import Buffer
from boki_logbook.state.snapshot_format import LogPoint
from boki_logbook.state.state_snapshot import StateSnapshot, TermColumns
from boki_metalog.terms.view import decode_versioned

VERSION: Final = 1
SNAPSHOT_PATH: Final = "/boki/snapshot"
ROWS_SHARE: Final = 2
"""What is applied between two snapshots is at least the rows of the first divided by this."""
SMALL_ROWS: Final = 64 * 1024
"""A snapshot of no more rows, about 1 MiB, is written after each term, so that terms of a quiet cluster are reclaimed too."""
ENDS_BYTES_PER_S: Final = limits.MIB
"""What snapshots may cost that are written for ends of terms alone."""
RAW_BYTES_LIMIT: Final = 1 << 40
"""No snapshot is larger: a node that says so is damaged."""


class SnapshotPoint(NamedTuple):
    """How far a snapshot is in a log."""

    log: int
    term: int
    entry: int
    ended: bool


class SnapshotNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`/boki/snapshot`, JSON: the newest snapshot.

    Attributes:
        ledgers: in the order of their chunks; none: there is no snapshot yet.
        rows, records: of the index; positions applied.
        chunks, raw_bytes, bytes: how many, before and after compression.
        digest: xxh3-64 of all chunks, hexadecimal.
        writer: the incarnation of the engine that wrote it.
    """

    version: int
    ledgers: tuple[int, ...]
    logs: tuple[SnapshotPoint, ...]
    rows: int
    records: int
    chunks: int
    raw_bytes: int
    bytes: int
    digest: str
    writer: str

    def covers(self, term: int, log: int) -> bool:
        """Whether the term, which is over, is in the snapshot to its end."""
        return any(
            point.log == log and (point.term > term or (point.term == term and point.ended)) for point in self.logs
        )


NO_SNAPSHOT: Final = SnapshotNode(VERSION, (), (), 0, 0, 0, 0, 0, "", "")


def encode_node(node: SnapshotNode) -> bytes:
    return msgspec.json.encode(node)


def decode_node(data: Buffer) -> SnapshotNode:
    """Raises VersionMismatch, CorruptData."""
    node = decode_versioned(data, SnapshotNode, path=SNAPSHOT_PATH, version=VERSION)
    if not 0 <= node.raw_bytes <= RAW_BYTES_LIMIT or not 0 <= node.chunks <= max(node.raw_bytes, 0):
        raise CorruptData(f"{SNAPSHOT_PATH} names {node.chunks} chunks of {node.raw_bytes} bytes", path=SNAPSHOT_PATH)
    return node


def snapshot_due(
    node: SnapshotNode, *, records: int, ended: Mapping[int, int], least_records: int, age_s: float = 0.0
) -> bool:
    """Whether a new snapshot is worth its bytes.

    Args:
        records: positions applied here, of all terms.
        ended: term applied to its end → its log.
        least_records: applied since the last one, when no term has ended since: what a start reads anyway.
        age_s: for how long, at least, the last one is the newest.
    """
    applied = records - node.records
    enough = applied * ROWS_SHARE >= node.rows
    if enough and applied >= least_records:
        return True
    cheap = node.rows <= SMALL_ROWS or age_s * ENDS_BYTES_PER_S > node.bytes
    return (enough or cheap) and any(not node.covers(term, log) for term, log in ended.items())


def behind(node: SnapshotNode, logs: Iterable[LogPoint]) -> list[int]:
    """The logs in which a snapshot at these points would be behind the one that is named, ascending: it must not replace that one,
    on whose word terms were reclaimed."""
    points = {point.log: (point.term, point.ended, point.entry) for point in logs}
    nowhere = (0, False, 0)
    return sorted(
        point.log for point in node.logs if points.get(point.log, nowhere) < (point.term, point.ended, point.entry)
    )


def as_applied(state: StateSnapshot, logs: Iterable[LogPoint]) -> StateSnapshot:
    """The state without what running terms have received beyond the positions of their logs."""
    running = {point.term: point for point in logs if not point.ended}
    terms = tuple(_term_as_applied(term, running[term.term]) if term.term in running else term for term in state.terms)
    return replace(state, terms=terms)


def _term_as_applied(term: TermColumns, point: LogPoint) -> TermColumns:
    still_open = {number: ends for number, *ends in point.shards}
    shards = []
    for shard in term.shards:
        if shard.number in still_open:
            records_end, entries_end = still_open[shard.number]
            shards.append(shard._replace(records_end=records_end, entries_end=entries_end, closed=False))
        elif shard.number < point.next_shard:
            shards.append(shard._replace(closed=True))
    return term._replace(shards=tuple(shards))


def never_named(ledger_id: int, wanted_version: int, node: SnapshotNode, node_version: int) -> bool:
    """Whether a snapshot's ledger is not in use, and never will be."""
    return ledger_id not in node.ledgers and node_version > wanted_version
