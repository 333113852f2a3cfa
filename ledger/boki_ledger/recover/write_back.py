"""Makes durable what a recovery found: adds every entry again as it is, in order, until its ack quorum has it.

An entry whose payload the caller has (`carried`) is added with the header that the writer would have made. Bookies that fail are
replaced in memory only: the swap that closes the ledger commits `fragments`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from boki_common.bookkeeper import v2
from boki_common.bookkeeper.digests import digest_for, master_key
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.errors import BokiError
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.runtime.ports import Buffer
from boki_ledger.metadata.ensemble_change import Fragment, change_ensemble, choose_replacements
from boki_ledger.ports import LedgerPorts
from boki_ledger.recover.fencing_reads import FencingReads
from boki_ledger.rules.recovery_plan import RecoveryPlan
from boki_ledger.write.replicated_adds import JOINED_BYTES, ReplicatedAdds

_log = get_logger("ledger")


class WriteBack:
    """See the module. Entries from `plan.start` + 1 to `written_to` are sent; those up to `durable_to` are safe."""

    def __init__(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        plan: RecoveryPlan,
        carried: Mapping[int, Buffer],
        ports: LedgerPorts,
        reads: FencingReads,
    ) -> None:
        """`reads` get progress and refusals."""
        self.fragments: tuple[Fragment, ...] = tuple(metadata.ensembles)
        self.written_to = plan.start
        self.written_length = -1
        """The ledger's length behind `written_to`; to be set before the first entry that is carried."""
        self._ledger_id = ledger_id
        self._metadata = metadata
        self._digest = digest_for(metadata.digest_type, metadata.password)
        self._key = master_key(metadata.password)
        self._plan = plan
        self._carried = carried
        self._ports = ports
        self._reads = reads
        self._loop = asyncio.get_running_loop()
        self._bodies: dict[int, tuple[memoryview, int]] = {}
        self._adds: ReplicatedAdds | None = None
        self._failed: set[BookieId] = set()

    @property
    def durable_to(self) -> int:
        """The last entry that its ack quorum has."""
        return self._plan.start if self._adds is None else self._adds.acks.lac

    @property
    def unfinished(self) -> bool:
        """Whether entries wait for their ack quorum."""
        return self._adds is not None and bool(self._adds.acks.in_flight)

    @property
    def waits(self) -> bool:
        """Whether acknowledgements may come of what was sent."""
        adds = self._adds
        return adds is not None and bool(adds.acks.in_flight) and adds.ready_slots() >= self._metadata.ack_quorum

    @property
    def has_room(self) -> bool:
        """Whether half of the window is free."""
        adds, settings = self._adds, self._ports.settings
        return adds is None or (
            adds.acks.in_flight <= settings.window_entries // 2 and adds.bytes_in_flight <= settings.window_bytes // 2
        )

    def keep(self, entry_id: int, body: memoryview, length: int) -> None:
        """A valid copy of an entry, and the ledger's length behind it."""
        self._bodies.setdefault(entry_id, (body, length))

    def write(self) -> None:
        """Adds again, in order, what is proven present."""
        plan = self._plan
        if plan.below_floor:
            return
        while self.written_to < plan.present_to:
            if self._adds is None:
                self._adds = self._start()
            entry_id = self.written_to + 1
            body, length = self._made(entry_id) if entry_id in self._carried else self._bodies.pop(entry_id)
            frame: Sequence[Buffer] = v2.encode_add_body([body], self._key, recovery=True)
            if len(body) <= JOINED_BYTES:
                frame = (b"".join(frame),)
            added = self._adds.add(frame, len(body))
            assert added == entry_id, f"expected to write back entry {entry_id}, wrote {added}"
            self.written_to, self.written_length = entry_id, length
        if plan.end is not None:
            self._bodies.clear()

    def close(self) -> None:
        if self._adds is not None:
            self._adds.close()

    def _made(self, entry_id: int) -> tuple[memoryview, int]:
        """The body of a carried entry, and the length behind it. As LAC it names what is known to be acknowledged."""
        payload = self._carried[entry_id]
        length = self.written_length + len(payload)
        header = v2.EntryHeader(self._ledger_id, entry_id, self._plan.start, length)
        return memoryview(b"".join(v2.encode_body(header, self._digest, (payload,)))), length

    def _start(self) -> ReplicatedAdds:
        metadata = self._metadata
        return ReplicatedAdds(
            ledger_id=self._ledger_id,
            ensemble=metadata.ensembles[-1][1],
            write_quorum=metadata.write_quorum,
            ack_quorum=metadata.ack_quorum,
            lac=self._plan.start,
            owner=self,
            ports=self._ports,
        )

    # -- what the adds call

    def acks_arrived(self) -> None:
        assert self._adds is not None
        if self._adds.advance():
            self._reads.progressed()

    def slots_failed(self) -> None:
        """Replaces failing bookies at once: the change is in memory, the closing swap commits it."""
        adds = self._adds
        self._reads.look_again()
        if adds is None or not adds.acks.in_flight:
            return
        failing = adds.failing_slots()
        self._failed.update(adds.ensemble[slot] for slot in failing)
        spares = [bookie for bookie in self._ports.spare_bookies() if bookie not in self._failed]
        replacements = choose_replacements(adds.ensemble, failing, spares)
        if not replacements:
            return
        first_entry = adds.acks.lac + 1
        self.fragments = change_ensemble(self.fragments, first_entry=first_entry, replacements=replacements)
        _log.info("ensemble of a recovery changed", ledger_id=self._ledger_id, first_entry=first_entry)
        adds.acks.frozen = True
        adds.replace(replacements)
        adds.acks.frozen = False
        self._loop.call_soon(self._advance_later)

    def bookie_failed(self, bookie: BookieId) -> None:
        self._ports.chooser.failed(bookie)

    def adds_refused(self, error: BokiError) -> None:
        self._reads.refuse(error)

    def _advance_later(self) -> None:
        if self._adds is not None and not self._adds.closed:
            self.acks_arrived()
