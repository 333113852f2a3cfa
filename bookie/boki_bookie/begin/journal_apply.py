"""What the journal says, applied to the index at start. Applying a record twice changes nothing.

Replay goes through the same places as new adds: entries into the write cache, and a checkpoint when that is full. So a
journal may be longer than the memory that is there. On a full disk memory has to do: a bookie that is read-only takes
no more than fills the write cache once more, so the journal is not much longer than that.
"""

from __future__ import annotations

from boki_bookie.begin.journal_replay import JournalReplay
from boki_bookie.entries.checkpoint import Checkpointer
from boki_bookie.entries.ledger_index import Ledger, LedgerIndex
from boki_bookie.entries.tombstones import Run
from boki_bookie.formats import journal_format
from boki_bookie.formats.journal_format import RecordKind
from boki_bookie.journal.journal import JournalPosition
from boki_common.errors import CorruptData, DiskFull


class Replayed:
    """The journal as a checkpoint during replay sees it, after `JournalReplay.repair_end`; or during a salvage."""

    def __init__(self, position: JournalPosition) -> None:
        self.position = position

    async def flushed(self) -> None:
        """What is replayed is durable."""

    async def release(self, generation: int) -> None:
        """Segments are recycled once the journal runs."""


async def replay_journal(replay: JournalReplay, checkpointer: Checkpointer, *, write_cache_bytes: int) -> None:
    """Applies what `replay` hands out; stores entries on the way when the write cache is full. Raises CorruptData: a record
    that makes no sense. DiskFailed."""
    index = checkpointer.index
    has_space = True
    async for generation, groups in replay.segments():
        for group in groups:
            if has_space and index.fresh_bytes >= write_cache_bytes:
                try:
                    await checkpointer.run(Replayed(JournalPosition(generation, group.number)))
                except DiskFull:
                    has_space = False
            for kind, body in zip(group.kinds, group.bodies, strict=True):
                apply(index, kind, body)


def apply(index: LedgerIndex, kind: int, body: memoryview) -> None:
    """One record of the journal. Raises CorruptData."""
    if kind == RecordKind.LEDGER:
        record = journal_format.decode_ledger(body)
        ledger = index.ledgers.get(record.ledger_id)
        if ledger is None:
            index.tombstones.discard(record.ledger_id)
            ledger = index.create(record.ledger_id, record.master_key)
        if record.validated and not ledger.validated:
            index.validate(ledger)
        return
    if kind == RecordKind.ENTRY:
        ledger_id, entry_id = journal_format.entry_ids(body)
        ledger = _known(index, ledger_id)
        if ledger is not None and not ledger.holds(entry_id):
            index.put(ledger, entry_id, body)
        return
    if kind == RecordKind.REPLACED:
        ledger_id, entry_id = journal_format.entry_ids(body)
        ledger = _known(index, ledger_id)
        if ledger is not None and ledger.cached(entry_id) is None:
            index.replace(ledger, entry_id, body)
        return
    if kind == RecordKind.FENCE:
        ledger = _known(index, journal_format.decode_ledger_id(body))
        if ledger is not None and not ledger.fenced:
            index.fence(ledger)
        return
    if kind == RecordKind.LAC:
        ledger = _known(index, journal_format.entry_ids(body)[0])
        if ledger is not None:
            index.note_lac(ledger, bytes(body))
        return
    if kind == RecordKind.EMPTIED:
        ledger = _known(index, journal_format.decode_ledger_id(body))
        if ledger is not None:
            index.empty(ledger)
        return
    if kind == RecordKind.HOLD:
        ledger_id, version = journal_format.decode_hold(body)
        ledger = _known(index, ledger_id)
        if ledger is not None:
            index.hold(ledger, version)
        return
    if kind == RecordKind.TOMBSTONE:
        ledger_id, day = journal_format.decode_tombstone(body)
        index.delete(Run(ledger_id, ledger_id, day))
        return
    raise CorruptData(f"the journal holds a record of kind {kind}, which this version does not know", kind=kind)


def _known(index: LedgerIndex, ledger_id: int) -> Ledger | None:
    """None for a deleted ledger: what came before its deletion may be replayed onto an index that knows of it."""
    ledger = index.ledgers.get(ledger_id)
    if ledger is None and ledger_id not in index.tombstones:
        raise CorruptData(
            f"the journal holds a record of ledger {ledger_id} without the one that made it: checkpoint and journal do not "
            f"belong together: {journal_format.REMEDY}",
            ledger_id=ledger_id,
        )
    return ledger
