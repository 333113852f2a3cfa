"""Reads of acknowledged entries: pipelined, verified, from whichever replica has a good copy.

A range is asked for in batches first (`batch_reads`); what they did not bring, and every lone entry, is read singly.

Every such entry is asked from one replica at a time, in the order of its write set with those that seem down last; whatever is
not a valid copy (no answer, an error, a negative, a damaged body) goes to the next replica. One that is slow, by
`speculative_read_s` and twice that for each further one, may still answer while the next is asked: the first valid copy
counts. A bookie that fails is reported to the `BookieChooser`; those in quarantine come last, too. When none had a valid copy the
metadata is read again, since the entry may have moved, and after a pause all are asked again, until `retry_for_s` is over.

An acknowledged entry is never absent because some bookie says so. Only if *every* replica of the metadata, read again,
denies it, NoSuchEntry is raised: that is evidence of loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from boki_common.backoff import Backoff
from boki_common.bookkeeper import v2
from boki_common.bookkeeper.digests import Digest
from boki_common.bookkeeper.entry_body import is_sound, payloads_of_run, verify_body
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BokiError, CallTimeout, DigestMismatch, EntryUnknown, NoSuchEntry, Overloaded
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.net.deadlines import Deadlines
from boki_ledger.metadata.ensemble_change import fragment_of
from boki_ledger.metric_definitions import LedgerMetrics
from boki_ledger.read.batch_reads import BatchReads
from boki_ledger.rules.answers import Answer, answer_of
from boki_ledger.rules.write_set import write_set
from boki_ledger.settings import LedgerSettings
from boki_ledger.transport import BookieChooser, BookieTransport, ReadAnswer

_NEVER_HAD: Final = "never had it"
_NO_FAILURES: Final = (DigestMismatch, Overloaded)
"""Not the bookie's failure to serve: a damaged copy is its disk's, and too many reads are ours."""

Asked = dict[asyncio.Future[ReadAnswer], tuple[int, BookieId]]
"""Reads under way: (entry, bookie)."""

_log = get_logger("ledger")


async def _nothing_newer() -> None:
    """The caller's metadata is a snapshot that must not be renewed."""


def _end(wait: asyncio.Future[None], _: object) -> None:
    if not wait.done():
        wait.set_result(None)


class ReplicaReads:
    """See the module."""

    def __init__(
        self,
        ledger_id: int,
        digest: Digest,
        transport: BookieTransport,
        settings: LedgerSettings,
        metrics: LedgerMetrics,
        chooser: BookieChooser | None = None,
    ) -> None:
        self._ledger_id = ledger_id
        self._digest = digest
        self._transport = transport
        self._settings = settings
        self._metrics = metrics
        self._chooser = chooser
        self._payload_start = v2.ENTRY_HEADER_BYTES + digest.size
        self._first_wait_s = min(settings.speculative_read_s, settings.answer_timeout_s)
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._loop)
        self._batches = BatchReads(ledger_id, self._take_run, transport, settings, metrics)

    async def read(
        self,
        first: int,
        last: int,
        metadata: Callable[[], LedgerMetadata],
        refresh: Callable[[], Awaitable[None]] = _nothing_newer,
        *,
        sticky: bool = False,
        following: int = 0,
    ) -> list[memoryview]:
        """Payloads of the entries `first` … `last`, both inclusive.

        Args:
            first: the first entry wanted; `last` likewise. All must be known to be acknowledged.
            refresh: reads the metadata again.
            sticky: the caller reads on from here, see `batch_reads`.
            following: so many more entries, acknowledged too, the caller will probably ask for next.

        Raises:
            NoSuchEntry: every replica denies an entry. DigestMismatch: the copies that exist are damaged.
            EntryUnknown: too few replicas answered within `retry_for_s`.
        """
        if first == last:
            return [(await self.read_body(first, metadata, refresh))[self._payload_start :]]
        found = await self._batches.read(first, last, metadata(), sticky=sticky, following=following)
        wanted = range(first, last + 1)
        if len(found) < len(wanted):
            missing = [entry_id for entry_id in wanted if entry_id not in found]
            step = self._settings.reads_in_flight
            for start in range(0, len(missing), step):
                singly: dict[int, memoryview] = {}
                await self._read_singly(missing[start : start + step], singly, metadata, refresh)
                found.update((entry_id, body[self._payload_start :]) for entry_id, body in singly.items())
        return [found[entry_id] for entry_id in wanted]

    def forget_ahead(self) -> None:
        """The caller reads no more: what was asked for ahead is given up."""
        self._batches.forget_ahead()

    async def read_body(
        self,
        entry_id: int,
        metadata: Callable[[], LedgerMetadata],
        refresh: Callable[[], Awaitable[None]] = _nothing_newer,
    ) -> memoryview:
        """The whole body of a lone entry, verified; raises as `read`.

        From its first replica: with no task, and no timer of its own. What that does not bring takes the long way.
        """
        known = metadata()
        _, bookies = fragment_of(known.ensembles, entry_id)
        bookie = bookies[entry_id % len(bookies)]
        if not self._is_well(bookie):
            bookie = self._order(entry_id, known)[0]
        future = self._transport.read(bookie, self._ledger_id, entry_id)
        if not future.done():
            enough: asyncio.Future[None] = self._loop.create_future()
            future.add_done_callback(partial(_end, enough))
            at = self._loop.time() + self._first_wait_s
            self._deadlines.due[enough] = at
            if at < self._deadlines.timer_at:
                self._deadlines.set_timer(at)
            try:
                await enough
            except TimeoutError:
                pass  # it may come still
            except asyncio.CancelledError:
                future.cancel()
                raise
            finally:
                del self._deadlines.due[enough]
        if future.done():
            status, body, _, _ = future.result()
            if status is V2Status.OK and body is not None and is_sound(body, self._ledger_id, entry_id, self._digest):
                return body
        found: dict[int, memoryview] = {}
        await self._read_singly((entry_id,), found, metadata, refresh, begun={future: (entry_id, bookie)})
        return found[entry_id]

    async def _read_singly(
        self,
        wanted: Sequence[int],
        found: dict[int, memoryview],
        metadata: Callable[[], LedgerMetadata],
        refresh: Callable[[], Awaitable[None]],
        begun: Asked | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._settings.retry_for_s
        backoff = self._settings.backoff()
        refreshed = False
        while True:
            faults = await self._ask_replicas(wanted, metadata(), found, begun)
            begun = None
            missing = next((entry_id for entry_id in wanted if entry_id not in found), None)
            if missing is None:
                return
            error = self._error(missing, faults[missing])
            if refreshed and (not isinstance(error, EntryUnknown) or loop.time() >= give_up_at):
                raise error
            await refresh()
            if refreshed:
                await asyncio.sleep(min(backoff.next(), max(0.0, give_up_at - loop.time())))
            refreshed = True

    async def _ask_replicas(
        self, wanted: Sequence[int], metadata: LedgerMetadata, found: dict[int, memoryview], begun: Asked | None
    ) -> dict[int, list[str | BokiError]]:
        """Asks for all entries not found yet, replica by replica; returns what was wrong with each replica, by entry.

        With `begun` the first replica was asked, and waited for, already.
        """
        orders = {entry_id: self._order(entry_id, metadata) for entry_id in wanted if entry_id not in found}
        faults: dict[int, list[str | BokiError]] = {entry_id: [] for entry_id in orders}
        asked: Asked = begun or {}
        for entry_id, bookie in asked.values():
            orders[entry_id] = [bookie, *(one for one in orders[entry_id] if one != bookie)]
        speculation = Backoff(self._first_wait_s, self._settings.answer_timeout_s)
        for turn in range(metadata.write_quorum):
            missing = [entry_id for entry_id in orders if entry_id not in found]
            if not missing:
                break
            if asked and not (begun and turn == 0):
                slow = frozenset(entry_id for entry_id, _ in asked.values())
                self._metrics.speculative_reads.inc(len(slow))
            for entry_id in missing if not (begun and turn == 0) else ():
                bookie = orders[entry_id][turn]
                asked[self._transport.read(bookie, self._ledger_id, entry_id)] = entry_id, bookie
            last = turn == metadata.write_quorum - 1
            timeout_s = self._settings.answer_timeout_s if last else speculation.next()
            if begun and turn == 0 and not last:
                timeout_s = 0.0
            await self._take_answers(asked, len(missing), found, faults, timeout_s)
        for future, (entry_id, bookie) in asked.items():
            future.cancel()
            if self._chooser is not None:
                self._chooser.failed(bookie)
            faults[entry_id].append(
                CallTimeout(f"bookie {bookie} gave no answer in {self._settings.answer_timeout_s} s", bookie_id=bookie)
            )
        return faults

    async def _take_answers(
        self,
        asked: Asked,
        entries: int,
        found: dict[int, memoryview],
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
                entry_id, bookie = asked.pop(future)
                taken = self._taken(entry_id, future.result())
                if isinstance(taken, memoryview):
                    found.setdefault(entry_id, taken)
                    continue
                faults[entry_id].append(taken)
                if self._chooser is not None and taken is not _NEVER_HAD and not isinstance(taken, _NO_FAILURES):
                    self._chooser.failed(bookie)
            for future in [one for one, (entry_id, _) in asked.items() if entry_id in found]:
                del asked[future]
                future.cancel()

    def _order(self, entry_id: int, metadata: LedgerMetadata) -> list[BookieId]:
        _, bookies = fragment_of(metadata.ensembles, entry_id)
        replicas = [bookies[slot] for slot in write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)]
        return sorted(replicas, key=lambda bookie: not self._is_well(bookie))

    def _is_well(self, bookie: BookieId) -> bool:
        return self._transport.seems_up(bookie) and (self._chooser is None or not self._chooser.is_quarantined(bookie))

    def _taken(self, entry_id: int, answer: ReadAnswer) -> memoryview | str | BokiError:
        """The verified body, or what is wrong with the answer."""
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

    def _take_run(self, first: int, bodies: Sequence[memoryview], found: dict[int, memoryview]) -> None:
        payloads = payloads_of_run(bodies, self._ledger_id, first, self._digest)
        found.update(enumerate(payloads, first))
        for at in range(len(payloads), len(bodies)):  # from one that is damaged on they are taken one by one
            verified = self._verify(first + at, bodies[at])
            if isinstance(verified, memoryview):
                found[first + at] = verified[self._payload_start :]

    def _verify(self, entry_id: int, body: memoryview) -> memoryview | BokiError:
        try:
            verify_body(body, self._ledger_id, entry_id, self._digest)
            return body
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
