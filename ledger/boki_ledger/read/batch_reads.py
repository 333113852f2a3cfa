"""Ranges of acknowledged entries by BookKeeper's batch read: one request for many entries of one replica. Best effort.

Only where every replica stores every entry (E == Qw). A range is cut into chunks, at fragments too; a bounded number of
chunks is under way at once, consecutive ones at different replicas; or, where the caller reads on and on (`sticky`), all at
one replica of the fragment, whose disk then reads on too, until another one answers first. A chunk goes on where the last
batch ended, and to the next replica where a replica gives nothing; a slow one is not waited for alone
(`speculative_read_s`).

Ranges that follow one another (`following`) are asked for *ahead*: when the bodies of one have come, the next one is asked
for before they are checked, so that the bookie works while its reader does. One batch of `AHEAD_BYTES` is kept a ledger;
it counts only once its turn has come, and is checked like any other.

What is returned was verified. What is missing proves nothing at all: a batch may end early for any reason, so whatever is
not there is the business of `replica_reads`, entry by entry. It asks nobody again, and knows no pauses.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from boki_common import limits
from boki_common.backoff import Backoff
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.bookkeeper.status import V2Status
from boki_common.ids import BookieId
from boki_ledger.metadata.ensemble_change import Fragment, fragment_of
from boki_ledger.metric_definitions import LedgerMetrics
from boki_ledger.rules.write_set import write_set
from boki_ledger.settings import LedgerSettings
from boki_ledger.transport import BatchAnswer, BookieTransport

AHEAD_BYTES: Final = 1 * limits.MIB
"""What one reader has in memory at most that nobody asked it for yet."""
NOTHING: Final = range(0)

T = TypeVar("T")
"""What is kept of a verified body."""

TakeRun = Callable[[int, Sequence[memoryview], dict[int, T]], None]
"""First entry and bodies of a run; puts what it keeps of those that are sound, by id, into the dict."""


class _Ahead(NamedTuple):
    """A batch that was asked for before anybody wanted it."""

    first: int
    bookie: BookieId
    future: asyncio.Future[BatchAnswer]


class BatchReads(Generic[T]):
    """See the module. Stateless but for its ports, what was asked ahead, and the replicas that sticky reads keep to."""

    def __init__(
        self,
        ledger_id: int,
        take: TakeRun[T],
        transport: BookieTransport,
        settings: LedgerSettings,
        metrics: LedgerMetrics,
    ) -> None:
        self._ledger_id = ledger_id
        self._take = take
        self._transport = transport
        self._settings = settings
        self._metrics = metrics
        self._kept: dict[int, BookieId] = {}
        self._ahead: _Ahead | None = None

    async def read(
        self, first: int, last: int, metadata: LedgerMetadata, *, sticky: bool = False, following: int = 0
    ) -> dict[int, T]:
        """Those of the entries `first` … `last` that batches gave, by id; perhaps none.

        The caller expects to read the `following` entries next; they must be acknowledged, too.
        """
        found: dict[int, T] = {}
        if last == first or metadata.ensemble_size != metadata.write_quorum:
            return found
        chunks = self._chunks(first, last, metadata)
        size = self._settings.batch_read_entries
        workers = min(self._settings.batch_reads_in_flight, (last - first) // size + len(metadata.ensembles))
        chunk = next(chunks)
        if chunk.stop > last:
            after = next(self._chunks(last + 1, last + following, metadata), NOTHING) if following > 1 else NOTHING
            await self._read_chunk(chunk, metadata, found, sticky, after)
            return found
        chunks = itertools.chain((chunk,), chunks)
        if workers == 1:
            await self._work(chunks, metadata, found, sticky)
            return found
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(
                    self._work(chunks, metadata, found, sticky), name=f"batch reads of ledger {self._ledger_id}"
                )
        return found

    def forget_ahead(self) -> None:
        """Gives up what was asked for ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.future.cancel()

    def _chunks(self, first: int, last: int, metadata: LedgerMetadata) -> Iterator[range]:
        size = self._settings.batch_read_entries
        bounds = [fragment_first for fragment_first, _ in metadata.ensembles if fragment_first > first]
        for bound in (*(one for one in bounds if one <= last), last + 1):
            for start in range(first, bound, size):
                yield range(start, min(start + size, bound))
            first = bound

    async def _work(self, chunks: Iterator[range], metadata: LedgerMetadata, found: dict[int, T], sticky: bool) -> None:
        """Takes one chunk after another; several of these share the iterator."""
        for chunk in chunks:
            await self._read_chunk(chunk, metadata, found, sticky)

    async def _read_chunk(
        self, chunk: range, metadata: LedgerMetadata, found: dict[int, T], sticky: bool, after: range = NOTHING
    ) -> None:
        """With `after` the chunk that is wanted next is asked for as soon as this one is there, before it is checked."""
        start = chunk.start
        fragment = fragment_of(metadata.ensembles, start)
        replicas = self._order(start, metadata, sticky)
        begun: asyncio.Future[BatchAnswer] | None = None
        if (ahead := self._ahead) is not None and ahead.first == start:
            self._ahead, begun = None, ahead.future
            replicas.sort(key=lambda bookie: bookie != ahead.bookie)
            if replicas[0] != ahead.bookie:
                replicas.insert(0, ahead.bookie)
        while start < chunk.stop:
            replicas, bodies = await self._ask(replicas, start, chunk.stop - start, begun)
            begun = None
            if not bodies:
                break
            if sticky:
                self._keep(fragment, replicas[0])
            if after and start + len(bodies) == chunk.stop:
                await self._begin_ahead(after, metadata, sticky)
            self._take(start, bodies, found)
            start += len(bodies)

    async def _begin_ahead(self, chunk: range, metadata: LedgerMetadata, sticky: bool) -> None:
        self.forget_ahead()
        bookie = self._order(chunk.start, metadata, sticky)[0]
        if not self._transport.serves_batches(bookie):
            return
        future = self._transport.read_batch(
            bookie, self._ledger_id, chunk.start, max_count=len(chunk), max_bytes=AHEAD_BYTES
        )
        self._ahead = _Ahead(chunk.start, bookie, future)
        await asyncio.sleep(0)  # a turn of the loop, at whose end the request leaves

    async def _ask(
        self, replicas: list[BookieId], first: int, count: int, begun: asyncio.Future[BatchAnswer] | None
    ) -> tuple[list[BookieId], list[memoryview]]:
        """The first bodies that a replica gives, and the replicas from that one on; no bodies if none gives any.

        With `begun` the first replica was asked already.
        """
        settings, loop = self._settings, asyncio.get_running_loop()
        serving = [bookie for bookie in replicas if self._transport.serves_batches(bookie)]
        if begun is not None and serving[:1] != replicas[:1]:
            serving.insert(0, replicas[0])
        asked: dict[asyncio.Future[BatchAnswer], int] = {}
        speculation = Backoff(min(settings.speculative_read_s, settings.answer_timeout_s), settings.answer_timeout_s)
        try:
            for turn, bookie in enumerate(serving):
                if asked:
                    self._metrics.speculative_reads.inc()
                future = (begun if turn == 0 else None) or self._transport.read_batch(
                    bookie, self._ledger_id, first, max_count=count, max_bytes=limits.FRAME_BYTES
                )
                asked[future] = turn
                last = turn == len(serving) - 1
                give_up_at = loop.time() + (settings.answer_timeout_s if last else speculation.next())
                while asked:
                    left = max(0.0, give_up_at - loop.time())
                    done_already = future in asked and future.done()
                    if (
                        not done_already
                        and not (await asyncio.wait(asked, timeout=left, return_when=asyncio.FIRST_COMPLETED))[0]
                    ):
                        break
                    for done in [one for one in asked if one.done()]:
                        given = asked.pop(done)
                        answer = done.result()
                        if answer.status is V2Status.OK and answer.bodies:
                            return serving[given:], answer.bodies[:count]
            return [], []
        finally:
            for future in asked:
                future.cancel()

    def _keep(self, fragment: Fragment, bookie: BookieId) -> None:
        if len(self._kept) > limits.LEDGER_FRAGMENTS_KEPT:
            self._kept.clear()
        self._kept[fragment[0]] = bookie

    def _order(self, start: int, metadata: LedgerMetadata, sticky: bool) -> list[BookieId]:
        """The replica that is kept to comes first; else chunk by chunk another one. Those that seem down come last."""
        fragment_first, bookies = fragment_of(metadata.ensembles, start)
        kept = self._kept.get(fragment_first) if sticky else None
        turn = self._ledger_id if sticky else start // self._settings.batch_read_entries
        replicas = [bookies[slot] for slot in write_set(turn, metadata.ensemble_size, metadata.write_quorum)]
        return sorted(replicas, key=lambda bookie: (not self._transport.seems_up(bookie), bookie != kept))
