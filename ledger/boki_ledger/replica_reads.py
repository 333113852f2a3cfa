"""Reads of acknowledged entries: pipelined, verified, from whichever replica has a good copy.

A range is asked for in batches first (`batch_reads`); what they did not bring, and every lone entry, is read singly.

Every such entry is asked from one replica at a time, in the order of its write set with those that seem down last; whatever is
not a valid copy (no answer, an error, a negative, a damaged body) goes to the next replica. One that is slow, by
`speculative_read_s` and twice that for each further one, may still answer while the next is asked: the first valid copy
counts. When all were asked in vain the
metadata is read again, since the entry may have moved, and after a pause all are asked again, until `patience_s` is over.

An acknowledged entry is never absent because some bookie says so. Only if *every* replica of the metadata, read again,
denies it, NoSuchEntry is raised: that is evidence of loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from boki_common.bookkeeper import v2
from boki_common.bookkeeper.digests import Digest
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.errors import BokiError, CallTimeout, DigestMismatch, EntryUnknown, NoSuchEntry
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_ledger.answers import Answer, answer_of
from boki_ledger.batch_reads import BatchReads, Entry
from boki_ledger.ensemble_change import fragment_of
from boki_ledger.metric_definitions import LedgerMetrics
from boki_ledger.settings import LedgerSettings
from boki_ledger.transport import BookieTransport, ReadAnswer
from boki_ledger.write_set import write_set

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
        self._batches = BatchReads(ledger_id, self._verify, transport, settings, metrics)

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
        found = await self._batches.read(first, last, metadata())
        missing = [entry_id for entry_id in range(first, last + 1) if entry_id not in found]
        step = self._settings.reads_in_flight
        for start in range(0, len(missing), step):
            await self._read_singly(missing[start : start + step], found, metadata, refresh)
        return [found[entry_id] for entry_id in range(first, last + 1)]

    async def _read_singly(
        self,
        wanted: Sequence[int],
        found: dict[int, Entry],
        metadata: Callable[[], LedgerMetadata],
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._settings.patience_s
        pause = self._settings.retry_least_s
        refreshed = False
        while True:
            faults = await self._ask_replicas(wanted, metadata(), found)
            missing = next((entry_id for entry_id in wanted if entry_id not in found), None)
            if missing is None:
                return
            error = self._error(missing, faults[missing])
            if refreshed and (not isinstance(error, EntryUnknown) or loop.time() >= give_up_at):
                raise error
            await refresh()
            if refreshed:
                await asyncio.sleep(min(pause, max(0.0, give_up_at - loop.time())))
                pause = min(2 * pause, self._settings.retry_most_s)
            refreshed = True

    async def _ask_replicas(
        self, wanted: Sequence[int], metadata: LedgerMetadata, found: dict[int, Entry]
    ) -> dict[int, list[str | BokiError]]:
        """Asks for all entries not found yet, replica by replica; returns what was wrong with each replica, by entry."""
        orders = {entry_id: self._order(entry_id, metadata) for entry_id in wanted if entry_id not in found}
        faults: dict[int, list[str | BokiError]] = {entry_id: [] for entry_id in orders}
        asked: dict[asyncio.Future[ReadAnswer], tuple[int, BookieId]] = {}
        pause = self._settings.speculative_read_s
        for turn in range(metadata.write_quorum):
            missing = [entry_id for entry_id in orders if entry_id not in found]
            if not missing:
                break
            if asked:
                slow = frozenset(entry_id for entry_id, _ in asked.values())
                self._metrics.speculative_reads.inc(len(slow))
            for entry_id in missing:
                bookie = orders[entry_id][turn]
                asked[self._transport.read(bookie, self._ledger_id, entry_id)] = entry_id, bookie
            last = turn == metadata.write_quorum - 1
            timeout_s = self._settings.answer_timeout_s if last else min(pause, self._settings.answer_timeout_s)
            await self._take_answers(asked, len(missing), found, faults, timeout_s)
            pause *= 2
        for future, (entry_id, bookie) in asked.items():
            future.cancel()
            faults[entry_id].append(
                CallTimeout(f"bookie {bookie} gave no answer in {self._settings.answer_timeout_s} s", bookie_id=bookie)
            )
        return faults

    async def _take_answers(
        self,
        asked: dict[asyncio.Future[ReadAnswer], tuple[int, BookieId]],
        entries: int,
        found: dict[int, Entry],
        faults: dict[int, list[str | BokiError]],
        timeout_s: float,
    ) -> None:
        """Takes answers until no read is open or the time is over; what is found elsewhere is not waited for."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout_s
        # Only when an entry has several reads open, one answer can spare another.
        until = asyncio.ALL_COMPLETED if len(asked) == entries else asyncio.FIRST_COMPLETED
        while asked:
            left = max(0.0, give_up_at - loop.time())
            done, _ = await asyncio.wait(asked, timeout=left, return_when=until)
            if not done:
                return
            for future in [one for one in asked if one.done()]:
                entry_id, _ = asked.pop(future)
                taken = self._take(entry_id, future.result())
                if isinstance(taken, tuple):
                    found.setdefault(entry_id, taken)
                else:
                    faults[entry_id].append(taken)
            for future in [one for one, (entry_id, _) in asked.items() if entry_id in found]:
                del asked[future]
                future.cancel()

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
        return self._verify(entry_id, answer.body)

    def _verify(self, entry_id: int, body: memoryview) -> Entry | BokiError:
        try:
            return v2.verify_body(body, self._ledger_id, entry_id, self._digest)
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
