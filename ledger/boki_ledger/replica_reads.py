"""Reads of acknowledged entries: pipelined, verified, from whichever replica has a good copy.

Every entry is asked from one replica at a time, in the order of its write set with those that seem down last; whatever is
not a valid copy (no answer, an error, a negative, a damaged body) goes to the next replica. When all were asked in vain the
metadata is read again, since the entry may have moved, and after a pause all are asked again, until `patience_s` is over.

An acknowledged entry is never absent because some bookie says so. Only if *every* replica of the metadata, read again,
denies it, NoSuchEntry is raised: that is evidence of loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from boki_common.bookkeeper import v2
from boki_common.bookkeeper.digests import Digest
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.errors import BokiError, CallTimeout, DigestMismatch, EntryUnknown, NoSuchEntry
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_ledger.answers import Answer, answer_of
from boki_ledger.ensemble_change import fragment_of
from boki_ledger.metric_definitions import LedgerMetrics
from boki_ledger.settings import LedgerSettings
from boki_ledger.transport import BookieTransport, ReadAnswer
from boki_ledger.write_set import write_set

Entry = tuple[v2.EntryHeader, memoryview]
"""(header, payload) of a verified body."""

_NEVER_HAD: Final = "never had it"

_log = get_logger("ledger")


async def _nothing_newer() -> None:
    """The caller's metadata is a snapshot that must not be renewed."""


class ReplicaReads:
    """See the module."""

    def __init__(
        self,
        ledger_id: int,
        digest: Digest,
        transport: BookieTransport,
        settings: LedgerSettings,
        metrics: LedgerMetrics,
    ) -> None:
        self._ledger_id = ledger_id
        self._digest = digest
        self._transport = transport
        self._settings = settings
        self._metrics = metrics

    async def read(
        self,
        first: int,
        last: int,
        metadata: Callable[[], LedgerMetadata],
        refresh: Callable[[], Awaitable[None]] = _nothing_newer,
    ) -> list[Entry]:
        """Entries `first` … `last`, both inclusive.

        Args:
            first: the first entry wanted; `last` likewise. All must be known to be acknowledged.
            metadata: the metadata as known now.
            refresh: reads it again.

        Raises:
            NoSuchEntry: every replica denies an entry. DigestMismatch: the copies that exist are damaged.
            EntryUnknown: too few replicas answered within `patience_s`.
        """
        entries: list[Entry] = []
        step = self._settings.reads_in_flight
        for start in range(first, last + 1, step):
            entries += await self._read_window(range(start, min(start + step, last + 1)), metadata, refresh)
        return entries

    async def _read_window(
        self, wanted: range, metadata: Callable[[], LedgerMetadata], refresh: Callable[[], Awaitable[None]]
    ) -> list[Entry]:
        loop = asyncio.get_running_loop()
        found: dict[int, Entry] = {}
        give_up_at = loop.time() + self._settings.patience_s
        pause = self._settings.retry_least_s
        refreshed = False
        while True:
            faults = await self._ask_replicas(wanted, metadata(), found)
            if len(found) == len(wanted):
                return [found[entry_id] for entry_id in wanted]
            missing = next(entry_id for entry_id in wanted if entry_id not in found)
            error = self._error(missing, faults[missing])
            if refreshed and (not isinstance(error, EntryUnknown) or loop.time() >= give_up_at):
                raise error
            await refresh()
            if refreshed:
                await asyncio.sleep(min(pause, max(0.0, give_up_at - loop.time())))
                pause = min(2 * pause, self._settings.retry_most_s)
            refreshed = True

    async def _ask_replicas(
        self, wanted: Iterable[int], metadata: LedgerMetadata, found: dict[int, Entry]
    ) -> dict[int, list[str | BokiError]]:
        """Asks for all entries not found yet, replica by replica; returns what was wrong with each replica, by entry."""
        orders = {entry_id: self._order(entry_id, metadata) for entry_id in wanted if entry_id not in found}
        faults: dict[int, list[str | BokiError]] = {entry_id: [] for entry_id in orders}
        for turn in range(metadata.write_quorum):
            reads = {
                entry_id: self._transport.read(order[turn], self._ledger_id, entry_id)
                for entry_id, order in orders.items()
                if entry_id not in found
            }
            if not reads:
                break
            await asyncio.wait(reads.values(), timeout=self._settings.answer_timeout_s)
            for entry_id, future in reads.items():
                bookie = orders[entry_id][turn]
                if future.done():
                    taken = self._take(entry_id, future.result())
                else:
                    future.cancel()
                    taken = CallTimeout(f"bookie {bookie} gave no answer in {self._settings.answer_timeout_s} s")
                if isinstance(taken, tuple):
                    found[entry_id] = taken
                else:
                    faults[entry_id].append(taken)
        return faults

    def _order(self, entry_id: int, metadata: LedgerMetadata) -> list[BookieId]:
        _, bookies = fragment_of(metadata.ensembles, entry_id)
        replicas = [bookies[slot] for slot in write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)]
        return sorted(replicas, key=lambda bookie: not self._transport.seems_up(bookie))

    def _take(self, entry_id: int, answer: ReadAnswer) -> Entry | str | BokiError:
        if answer.status is None:
            assert answer.error is not None
            return answer.error
        taken = answer_of(answer.status)
        if taken is Answer.NEVER_HAD:
            return _NEVER_HAD
        if taken is Answer.UNKNOWN:
            return f"answered {answer.status.name}"
        assert answer.body is not None
        try:
            return v2.verify_body(answer.body, self._ledger_id, entry_id, self._digest)
        except DigestMismatch as error:
            self._metrics.digest_mismatches.inc()
            _log.warning("damaged copy met in a read", ledger_id=self._ledger_id, entry_id=entry_id, error=error)
            return error

    def _error(self, entry_id: int, faults: list[str | BokiError]) -> BokiError:
        facts = {"ledger_id": self._ledger_id, "entry_id": entry_id, "replicas": len(faults)}
        damaged = [fault for fault in faults if isinstance(fault, DigestMismatch)]
        denied = faults.count(_NEVER_HAD)
        if denied == len(faults):
            return NoSuchEntry(
                f"all {denied} replicas deny entry {entry_id} of ledger {self._ledger_id}: if it was acknowledged, it is lost",
                **facts,
            )
        if damaged and len(damaged) + denied == len(faults):
            return DigestMismatch(
                f"entry {entry_id} of ledger {self._ledger_id}: all {len(damaged)} copies that exist are damaged",
                **facts,
            )
        return EntryUnknown(
            f"no replica gives entry {entry_id} of ledger {self._ledger_id} now ({'; '.join(str(one) for one in faults)}); "
            "try again when its bookies are back",
            **facts,
        )
