"""Reading one ledger, closed or still being written.

Rules:
- Only entries that are certainly part of the ledger are read: up to the last entry of a closed ledger, up to the LAC of an
  open one. A copy on a bookie beyond the LAC proves nothing; recovery may drop it.
- The LAC of an open ledger is learned from bookies (`read_lac`; it rides in entries, and an idle writer sends it by
  itself), or from a caller who learned it from the writer or from a cut that names the entries (`confirm`).
- Payloads are verified against their digest; a damaged copy is passed over for the next replica.

An open ledger's metadata is watched, so that changed ensembles and the close are noticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from boki_common.bookkeeper import v2
from boki_common.bookkeeper.digests import digest_for
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.errors import (
    BokiError,
    ClosedError,
    EntryUnknown,
    InvalidArgument,
    MetadataUnavailable,
    NoSuchEntry,
    NoSuchLedger,
)
from boki_common.logs import get_logger
from boki_common.metadata.store import Watch
from boki_ledger.metadata.metadata_update import SeenMetadata
from boki_ledger.ports import LedgerPorts
from boki_ledger.read.lac_reads import LacReads
from boki_ledger.read.read_ahead import ReadAhead
from boki_ledger.read.replica_reads import ReplicaReads
from boki_ledger.read.tail import Tail

_log = get_logger("ledger")


class LedgerReader:
    """See the module. Made by `LedgerClient.open`; `last_entry` never goes back."""

    def __init__(
        self,
        ledger_id: int,
        seen: SeenMetadata,
        ports: LedgerPorts,
        *,
        floor: int,
    ) -> None:
        self.ledger_id = ledger_id
        self._ports = ports
        self._digest = digest_for(seen.metadata.digest_type, seen.metadata.password)
        self._payload_start = v2.ENTRY_HEADER_BYTES + self._digest.size
        self._lacs = LacReads(ledger_id, self._digest, ports.transport, ports.settings)
        self._reads = ReplicaReads(
            ledger_id, self._digest, ports.transport, ports.settings, ports.metrics, ports.chooser
        )
        self._ended: BokiError | None = None
        self._change: asyncio.Future[None] | None = None
        self._last_entry = floor - 1
        self._read_up_to: int | None = None
        """The last entry of the last range that was read."""
        self._seen = seen
        self._take(seen)
        self._task: asyncio.Task[None] | None = None
        if not self.closed:
            watch = ports.updates.watch(ledger_id)
            self._task = asyncio.create_task(self._follow(watch), name=f"metadata of ledger {ledger_id}")

    @property
    def closed(self) -> bool:
        """Whether the ledger is closed: `last_entry` is final then."""
        return self.metadata.state is LedgerState.CLOSED

    @property
    def last_entry(self) -> int:
        """The last entry of a closed ledger, the known LAC of an open one; -1 for none."""
        return self._last_entry

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as last seen."""
        return self._seen.metadata

    def confirm(self, entry_id: int) -> None:
        """Confirms that entries up to `entry_id` were acknowledged, which the caller knows from elsewhere."""
        if not self.closed:
            self._last_entry = max(self._last_entry, entry_id)

    async def read(self, first: int, last: int) -> list[memoryview]:
        """Payloads of the entries `first` … `last`, both inclusive.

        When ranges are read one behind the other, the next one, if it is small, is under way or there already.

        Raises:
            InvalidArgument: not 0 <= first <= last.
            NoSuchEntry: beyond the end of a closed ledger, or every replica denies an entry that was acknowledged.
            EntryUnknown: beyond the LAC of an open ledger, or its bookies did not answer within `retry_for_s`.
            DigestMismatch: every copy that exists is damaged. NoSuchLedger: deleted. ClosedError: the reader is closed.
        """
        _check_range(first, last)
        self._check_open()
        if last > self._last_entry:
            await self._reach(last)
        goes_on, self._read_up_to = self._read_up_to == first - 1, last
        if first == last:
            body = await self._reads.read_body(first, lambda: self.metadata, self._refresh)
            return [body[self._payload_start :]]
        following = min(last + 1 - first, self._last_entry - last) if goes_on else 0
        return await self._reads.read(first, last, lambda: self.metadata, self._refresh, following=following)

    def read_range(self, first: int, last: int) -> AsyncIterator[tuple[int, memoryview]]:
        """(entry id, payload) of the entries `first` … `last`, both inclusive, with what comes next under way.

        For long ranges: what is read before it is consumed is bounded (`read_ahead_entries`, `read_ahead_bytes`), and the
        reads keep to one replica of a fragment while it answers well. Leave it early only by `aclose`, as any generator.

        Raises:
            InvalidArgument. While iterating, as `read`, after all entries before.
        """
        _check_range(first, last)
        return ReadAhead(self._read_on, self._ports.settings).entries(first, last)

    async def _read_on(self, first: int, last: int) -> list[memoryview]:
        self._check_open()
        if last > self._last_entry:
            await self._reach(last)
        return await self._reads.read(first, last, lambda: self.metadata, self._refresh, sticky=True)

    async def read_unconfirmed(self, first: int, last: int) -> list[memoryview]:
        """As `read`, but beyond the LAC too: entries as they are on replicas, *not* known to be part of the ledger.

        Recovery may drop them, another entry may take their place, and two readers may see different ones. Only `read`
        says what is certain.

        Raises:
            NoSuchEntry: beyond the end of a closed ledger, or no replica has it (yet). As `read` otherwise.
        """
        _check_range(first, last)
        self._check_open()
        if self.closed:
            return await self.read(first, last)
        return await self._reads.read(first, last, lambda: self.metadata, self._refresh)

    def follow(self, start: int, *, wait_s: float = 10.0) -> AsyncIterator[tuple[int, memoryview]]:
        """(entry id, payload) of every entry from `start` on, as they are acknowledged; ends when a closed ledger ends.

        Args:
            start: the first entry wanted.
            wait_s: how long one long poll may wait at a bookie; the iterator waits as long as the ledger is open.

        Raises:
            InvalidArgument. While iterating, as `read`: after EntryUnknown follow again from where it ended.
        """
        if start < 0 or wait_s <= 0:
            raise InvalidArgument(f"expected a start from 0 and a wait above 0 s, found {start} and {wait_s}")
        ports = self._ports
        return Tail(self, self._digest, self._lacs, ports.transport, ports.settings, wait_s=wait_s).entries(start)

    def changed(self) -> asyncio.Future[None]:
        """Ends when the metadata was seen to change, or the reader ends. Raises what ended it before."""
        self._check_open()
        if self._change is None:
            self._change = asyncio.get_running_loop().create_future()
        return self._change

    async def read_lac(self) -> int:
        """Asks the bookies of the last fragment how far the ledger is acknowledged; the last entry if it is closed. Raises
        EntryUnknown: no bookie gave a definite answer. NoSuchLedger, ClosedError."""
        self._check_open()
        if self.closed:
            return self._last_entry
        lac = await self._lacs.read(self.metadata)
        self._check_open()
        self.confirm(lac)
        return self._last_entry

    async def close(self) -> None:
        """Stops following the metadata; later reads raise ClosedError. Idempotent."""
        if self._ended is None:
            self._end(ClosedError(f"the reader of ledger {self.ledger_id} is closed", ledger_id=self.ledger_id))
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _reach(self, last: int) -> None:
        """Makes sure that `last` is part of the ledger, or raises."""
        if not self.closed:
            await self._refresh()
        if not self.closed:
            await self.read_lac()
        if last <= self._last_entry:
            return
        if self.closed:
            raise NoSuchEntry(
                f"ledger {self.ledger_id} is closed and ends at entry {self._last_entry}; there is no entry {last}",
                ledger_id=self.ledger_id,
                entry_id=last,
                last_entry=self._last_entry,
            )
        raise EntryUnknown(
            f"entry {last} of ledger {self.ledger_id} is not known to be acknowledged (LAC {self._last_entry}); wait, or "
            "confirm() it if its writer or a cut says so",
            ledger_id=self.ledger_id,
            entry_id=last,
            lac=self._last_entry,
        )

    # -- metadata

    def _check_open(self) -> None:
        if self._ended is not None:
            raise self._ended

    def _end(self, error: BokiError) -> None:
        self._ended = error
        self._reads.forget_ahead()
        self._announce_change()

    def _announce_change(self) -> None:
        change, self._change = self._change, None
        if change is not None and not change.done():
            change.set_result(None)

    def _take(self, seen: SeenMetadata) -> None:
        self._announce_change()
        self._seen = seen
        metadata = seen.metadata
        if metadata.state is LedgerState.CLOSED:
            if metadata.last_entry < self._last_entry:
                _log.error(
                    "a ledger was closed below what was acknowledged",
                    ledger_id=self.ledger_id,
                    expected=self._last_entry,
                    found=metadata.last_entry,
                )
            self._last_entry = metadata.last_entry
        else:
            self._last_entry = max(self._last_entry, metadata.ensembles[-1][0] - 1)

    async def _refresh(self) -> None:
        """Reads the metadata again. While the store is away, what is known must do."""
        try:
            seen = await self._ports.updates.read_now(self.ledger_id)
        except MetadataUnavailable as error:
            _log.info("metadata not read again", ledger_id=self.ledger_id, error=error)
            return
        except NoSuchLedger as error:
            self._end(error)
            raise
        if seen.version > self._seen.version:
            self._take(seen)

    async def _follow(self, watch: Watch) -> None:
        try:
            while not self.closed:
                await self._refresh()
                if not self.closed:
                    await watch.changed()
        except NoSuchLedger:
            _log.info("a ledger that is being read was deleted", ledger_id=self.ledger_id)
        except BokiError as error:
            self._end(error)
        finally:
            watch.close()


def _check_range(first: int, last: int) -> None:
    if not 0 <= first <= last:
        raise InvalidArgument(f"expected 0 <= first <= last, found {first} and {last}")
