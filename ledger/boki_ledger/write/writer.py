"""The writer of one ledger: the only process that ever adds normal entries to it.

    writer = await client.create(replicas=3, acks=2)
    writer.listen(acked, failed)
    entry_id = writer.submit(header, payload)          # pipelined; acked(lac) comes later, once per batch of acks
    last = await writer.close()

Rules:
- Entries complete in order; `last_acked` is the LAC and rides in the header of every later entry. An idle writer sends it
  to bookies by itself (`explicit_lac`).
- Bookies that are down never fail the writer. If another bookie is free it takes the place (`ensemble_changes`); otherwise
  the ensemble stays, and the failed bookie gets what it lacks when it returns. The metadata store being away fails nobody either.
- With *deferred sync* bookies may acknowledge entries before they are durable. LAC then moves by `force` alone, and close
  ends the ledger there. No ensemble change is possible, and a bookie that fails while entries are not forced fails the
  writer: nobody knows whether it still has what it acknowledged.
- What fails it: the ledger is fenced, the password is wrong, or the metadata is not OPEN and ours any more. Then the outcome
  of every entry in flight is unknown, and only the recovered ledger shows it. While it closes, only the metadata decides
  a fence: a bookie that gets its first entry late sees a ledger that is closed, and refuses it.

Nothing is allocated per entry but its frame and a place in a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from boki_common.background_tasks import error_taken
from boki_common.bookkeeper import v2
from boki_common.bookkeeper.digests import digest_for, master_key
from boki_common.errors import (
    BokiError,
    ClosedError,
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    MetadataUnavailable,
    Overloaded,
    RecordTooLarge,
)
from boki_common.ids import BookieId
from boki_common.limits import ENTRY_BYTES
from boki_common.logs import get_logger
from boki_common.runtime.ports import Buffer
from boki_ledger.metadata.metadata_update import SeenMetadata
from boki_ledger.metadata.own_metadata import OwnMetadata
from boki_ledger.ports import LedgerPorts
from boki_ledger.write.ack_waiters import AckWaiters
from boki_ledger.write.ensemble_changes import EnsembleChanges
from boki_ledger.write.explicit_lac import ExplicitLac
from boki_ledger.write.force import force_all
from boki_ledger.write.replicated_adds import JOINED_BYTES, ReplicatedAdds

_log = get_logger("ledger")


class LedgerWriter:
    """See the module. Made by `LedgerClient.create`; belongs to one event loop."""

    __slots__ = (
        "_adds", "_changes", "_closing", "_deferred_sync", "_digest", "_explicit_lac", "_fence_met", "_key", "_lac",
        "_lac_length", "_length", "_metadata", "_on_end", "_ports", "_refusal", "_stop_watching", "_waiters", "failed",
        "ledger_id",
    )  # fmt: skip

    def __init__(
        self,
        ledger_id: int,
        seen: SeenMetadata,
        ports: LedgerPorts,
        *,
        on_end: Callable[[LedgerWriter], object] = lambda _: None,
        deferred_sync: bool = False,
        control: bool = False,
    ) -> None:
        metadata = seen.metadata
        self.ledger_id = ledger_id
        self.failed: BokiError | None = None
        self._ports = ports
        self._deferred_sync = deferred_sync
        self._on_end = on_end
        self._digest = digest_for(metadata.digest_type, metadata.password)
        self._key = master_key(metadata.password)
        self._length = 0
        self._lac = -1
        self._lac_length = 0
        self._refusal: BokiError | None = None
        self._waiters = AckWaiters()
        self._closing: asyncio.Task[int] | None = None
        self._fence_met: LedgerFenced | None = None
        """The refusal of a bookie while the ledger was being closed."""
        self._adds = ReplicatedAdds(
            ledger_id=ledger_id,
            ensemble=metadata.ensembles[-1][1],
            write_quorum=metadata.write_quorum,
            ack_quorum=metadata.ack_quorum,
            lac=-1,
            owner=self,
            ports=ports,
            deferred_sync=deferred_sync,
            control=control,
        )
        self._metadata = OwnMetadata(ledger_id, seen, ports.updates)
        self._changes = EnsembleChanges(ledger_id, self._adds, self._metadata, ports, self)
        self._explicit_lac = ExplicitLac(
            ledger_id,
            self._digest,
            self._key,
            lac=lambda: self._lac,
            replicas=self._adds.replicas,
            transport=ports.transport,
            metrics=ports.metrics,
            pause_ms=ports.settings.explicit_lac_ms,
        )
        self._stop_watching = ports.chooser.on_change(self._bookies_changed)

    # -- the caller's side

    @property
    def last_submitted(self) -> int:
        """The last entry given out by `submit`; -1 before the first."""
        return self._adds.acks.last

    @property
    def last_acked(self) -> int:
        """Every entry up to it is acknowledged by its ack quorum, and its turn has come; -1 for none."""
        return self._adds.acks.lac

    @property
    def lac(self) -> int:
        """How far readers may read: every entry up to it is durable. `last_acked`, or what the last force covered."""
        return self._lac

    @property
    def failing_bookies(self) -> list[str]:
        """Bookies of the ensemble that fail to acknowledge, and that no other one has replaced yet."""
        return [str(self._adds.ensemble[slot]) for slot in self._adds.failing_slots()]

    @property
    def in_reserve(self) -> bool:
        """Whether bookies take entries from the reserves of their full disks: only those of a control ledger, and few."""
        return self._adds.in_reserve

    def submit(self, *payload: Buffer, now: bool = False) -> int:
        """Sends the next entry to its replicas and returns its id, without waiting.

        Args:
            payload: byte buffers, one after another; they must not change until the entry is acknowledged.
            now: nothing more is submitted in this turn of the loop, at whose end entries leave together otherwise.

        Raises:
            Overloaded: the window of entries or bytes in flight is full; nothing was sent.
            ClosedError: closed or abandoned. Otherwise what failed the writer.
            RecordTooLarge: over `limits.ENTRY_BYTES`.
        """
        if self._refusal is not None:
            raise self._refusal
        adds = self._adds
        size = 0
        for part in payload:
            size += len(part)
        if size > ENTRY_BYTES:
            raise RecordTooLarge(f"expected an entry of at most {ENTRY_BYTES} bytes, found {size}", found=size)
        acks, settings = adds.acks, self._ports.settings
        in_flight = acks.last - acks.lac
        if in_flight >= settings.window_entries or (in_flight and adds.bytes_in_flight + size > settings.window_bytes):
            raise Overloaded(
                f"{in_flight} entries of {adds.bytes_in_flight} bytes of ledger {self.ledger_id} wait for their ack "
                "quorum; wait for acks",
                ledger_id=self.ledger_id,
            )
        self._length += size
        frame: Sequence[Buffer]
        if size <= JOINED_BYTES:
            frame = (
                v2.encode_small_add(
                    self.ledger_id, acks.last + 1, self._lac, self._length, self._digest, self._key, payload, size
                ),
            )
        else:
            header = v2.EntryHeader(self.ledger_id, acks.last + 1, self._lac, self._length)
            frame = v2.encode_add(header, self._digest, self._key, payload)
        return adds.add(frame, size, now=now)

    def listen(self, acked: Callable[[int], None], failed: Callable[[BokiError], None]) -> None:
        """Calls `acked(last_acked)` once per batch of acks that moves it, `failed(error)` once when the writer fails.

        Both are called synchronously from the network's callback: they must be short and must not raise.
        """
        self._waiters.listen(acked, failed)

    async def append(self, *payload: Buffer) -> int:
        """`submit`, and waits for the acknowledgement. Cancelling withdraws nothing. Raises what `submit` and failing do."""
        return await self._waiters.wait(self.submit(*payload))

    async def acknowledged(self, entry_id: int) -> None:
        """Waits until entries up to this one are submitted and acknowledged. Raises what fails or ends the writer before."""
        if entry_id > self.last_acked:
            if self._refusal is not None:
                raise self._refusal
            await self._waiters.wait(entry_id)

    def ask_unfenced(self, on_answer: Callable[[bool], None]) -> bool:
        """Asks the bookies for proof that nobody had fenced the ledger when this was called: then nobody has recovered it, and no
        reader has seen an entry that was not acknowledged. Costs a round trip, and no flush (`unfenced`).

        Args:
            on_answer: called once, later, with whether it is proven, unless the writer fails or ends before. It must be short
                and must not raise. False means unknown: append an entry to find out.

        Returns:
            Whether it could be asked; not before the first entry, after one over 8 KiB, or with too few bookies.
        """
        return self._refusal is None and not self._deferred_sync and self._adds.checks.ask(on_answer)

    async def force(self) -> int:
        """Makes durable what was acknowledged before this call, on all bookies of the ensemble; returns the LAC then.

        Without deferred sync that is so already. Entries in flight are not covered.

        Raises:
            LedgerError: a bookie did not force; the LAC stays, try again. ClosedError. Otherwise what failed the writer.
        """
        if self._refusal is not None:
            raise self._refusal
        covered, length = self.last_acked, self._length - self._adds.bytes_in_flight
        if covered > self._lac:
            await force_all(self._ports.transport, self.ledger_id, self._adds.ensemble)
            if self._refusal is not None:
                raise self._refusal
            if covered > self._lac:
                self._lac_length = length
                self._lac = covered
                if not self._explicit_lac.waiting:
                    self._explicit_lac.moved()
        return self._lac

    def when_ended(self, callback: Callable[[BokiError], None]) -> None:
        """Calls back once when the writer fails, is closed or abandoned, with what entries in flight fail with."""
        self._waiters.when_ended(callback)

    async def close(self) -> int:
        """Closes the ledger at its LAC; entries in flight fail with LedgerClosed and are not part of it.

        With deferred sync the same is true of what was not forced, though it was acknowledged.

        Returns:
            The last entry, -1 for none.

        Raises:
            LedgerFenced: someone recovers or closed it otherwise. NoSuchLedger: deleted.
            MetadataUnavailable: the store is away and the ledger still open; try again.
            ClosedError: abandoned. Otherwise what failed the writer before.
        """
        if self.failed is not None:
            raise self.failed
        if self._closing is None:
            if self._refusal is not None:
                raise self._refusal
            self._refusal = ClosedError(f"ledger {self.ledger_id} is closed for writing", ledger_id=self.ledger_id)
            self._closing = asyncio.create_task(self._close(), name=f"closing ledger {self.ledger_id}")
            self._closing.add_done_callback(error_taken)  # it is kept for the next who closes
        try:
            return await asyncio.shield(self._closing)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._refusal is not None and self._closing.cancelled() and not (task and task.cancelling()):
                raise self._refusal from None  # not the caller was cancelled: the writer failed, or was abandoned
            raise

    def abandon(self) -> None:
        """Forgets the ledger without touching its metadata; what is in flight has an unknown outcome. Idempotent."""
        if not self._adds.closed:
            self._end(ClosedError(f"the writer of ledger {self.ledger_id} was abandoned", ledger_id=self.ledger_id))

    # -- what the adds call

    def acks_arrived(self) -> None:
        adds = self._adds
        if not adds.advance():
            return
        lac = adds.acks.lac
        if not self._deferred_sync:
            self._lac = lac
            if not self._explicit_lac.waiting:
                self._explicit_lac.moved()
        self._waiters.acked(lac)

    def slots_failed(self) -> None:
        if self._deferred_sync:
            self._fail_unforced()
            return
        self._changes.slots_failed()

    def bookie_failed(self, bookie: BookieId) -> None:
        self._ports.chooser.failed(bookie)

    def adds_refused(self, error: BokiError) -> None:
        if self._closing is not None and isinstance(error, LedgerFenced):
            self._fence_met = error
        else:
            self._fail(error)

    def _fail_unforced(self) -> None:
        failing = [self._adds.ensemble[slot] for slot in self._adds.failing_slots()]
        if failing and self.last_submitted > self._lac:
            self._fail(
                LedgerError(
                    f"bookies {', '.join(failing)} failed while entries {self._lac + 1} … {self.last_submitted} of ledger "
                    f"{self.ledger_id} were not forced: with deferred sync they cannot be replaced, and may have lost what "
                    "they acknowledged; recover the ledger to see what it has, and write to a new one",
                    ledger_id=self.ledger_id,
                    lac=self._lac,
                )
            )

    # -- ensemble changes

    @property
    def writes(self) -> bool:
        """Whether entries are taken: neither closing nor ended."""
        return self._refusal is None

    def change_failed(self, error: BokiError) -> None:
        self._fail(error)

    def _bookies_changed(self) -> None:
        chooser = self._ports.chooser
        self._adds.writable_changed((*chooser.writable(), *chooser.quarantined()))
        if not self._deferred_sync:
            self._changes.consider()

    # -- the end

    async def _close(self) -> int:
        await self._changes.wait_until_idle()
        if self.failed is not None:
            raise self.failed
        acks = self._adds.acks
        acks.frozen = False
        self.acks_arrived()
        acks.frozen = True
        last = self._lac
        length = self._lac_length if self._deferred_sync else self._length - self._adds.bytes_in_flight
        try:
            await self._metadata.close(last, length, retry_for_s=self._ports.settings.retry_for_s)
        except MetadataUnavailable:
            self._closing = self._refusal = None
            acks.frozen = False
            self.acks_arrived()
            if self._fence_met is not None:
                self._fail(self._fence_met)
                raise self._fence_met from None
            raise
        except BokiError as error:
            self._fail(error)
            raise
        beyond = self.last_submitted - last
        self._end(
            LedgerClosed(
                f"ledger {self.ledger_id} was closed at entry {last}, its LAC, with {beyond} entries beyond: they are not in it",
                ledger_id=self.ledger_id,
                last_entry=last,
            ),
            refusal=self._refusal,
        )
        return last

    def _fail(self, error: BokiError) -> None:
        if self.failed is not None or self._adds.closed:
            return
        _log.info("ledger writer failed", ledger_id=self.ledger_id, last_acked=self.last_acked, error=error)
        self.failed = error
        self._end(error)
        self._waiters.failed(error)

    def _end(self, error: BokiError, *, refusal: BokiError | None = None) -> None:
        self._refusal = refusal or error
        self._stop_watching()
        self._on_end(self)
        self._adds.close()
        self._explicit_lac.close()
        self._changes.close()
        self._waiters.ended(error)
        closing = self._closing
        if closing is not None and closing is not asyncio.current_task(closing.get_loop()) and not closing.done():
            closing.cancel()
