"""The copies of one ledger on one bookie: those that it lacks are read from its peers and sent to it.

For a bookie that lost part of its disk and was started on the rest, and for one that gets the place of another (`repair`). What it
answers about itself decides:

| it was asked for its list of entries, and | then |
|---|---|
| it gives the list | what is on it is there, durably |
| it knows no such ledger | nothing is there |
| anything else (in limbo it lists nothing, so that no absence is concluded) | each entry is read from it: whole, or it lacks it |

Rules:
- An entry is sent as a peer gave it, and only if its digest is right. It goes as a recovery add: a fenced ledger takes it.
- A copy counts when the bookie acknowledged it, so when it is durable. A run that was stopped in between begins again.
- Entries of a closed ledger never change, nor do those before the last fragment of any other: only these are copied. Their copies
  may move, so the metadata is read again before an entry is called lost. It is never written.
- `limits.LEDGER_COPIES_AT_ONCE` entries are under way, and `limits.LEDGER_COPY_BYTES` of adds. A peer is asked once for an entry; the
  bookie is sent an entry again when the connection breaks, or when it refuses for a while.

It does not know which entries the bookie owes: the caller names them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from boki_common import limits
from boki_common.bookkeeper import availability, v2
from boki_common.bookkeeper.digests import digest_for, master_key
from boki_common.bookkeeper.entry_body import verify_body
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import (
    BokiError,
    DigestMismatch,
    LedgerError,
    MetadataUnavailable,
    ProtocolError,
    Unauthorized,
    Unreachable,
)
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.runtime.ports import Buffer
from boki_ledger.ports import LedgerPorts
from boki_ledger.rules.answers import Answer, answer_of
from boki_ledger.rules.write_set import write_set
from boki_ledger.transport import AddChannel, ReadAnswer

NAMED_LIMIT: Final = 10_000
"""Entries of each kind of failure that are named; further ones are only counted."""

Pace = Callable[[int], Awaitable[None]]

_log = get_logger("ledger")


class Uncopied(NamedTuple):
    """Entries that the bookie still lacks."""

    total: int
    entries: Sequence[int]
    """The first of them, ascending, `NAMED_LIMIT` at most."""


class Copied(NamedTuple):
    """What came of it."""

    held: int
    """Entries that the bookie had."""
    copied: int
    copied_bytes: int
    """As they are stored: with header and digest."""
    lost: Uncopied
    """Every peer denies the entry, or its copy is damaged."""
    unanswered: Uncopied
    """No peer gave the entry, and one at least did not answer: try again when it is back."""


class ReplicaCopies:
    """See the module. One run: use `make_whole` once. A `transport.ChannelListener`."""

    def __init__(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        bookie: BookieId,
        ports: LedgerPorts,
        *,
        pace: Pace | None = None,
        only_durable: bool = False,
    ) -> None:
        """`pace`: awaited with the bytes of each entry before it is sent.

        `only_durable`: what the bookie gives to a read may be lost in a crash, so without a list all entries are sent to it.
        """
        closed = metadata.state is LedgerState.CLOSED
        self._end = metadata.last_entry + 1 if closed else metadata.ensembles[-1][0]
        self._ledger_id = ledger_id
        self._metadata = metadata
        self._bookie = bookie
        self._pace = pace
        self._only_durable = only_durable
        self._updates = ports.updates
        self._transport = ports.transport
        self._settings = ports.settings
        self._metrics = ports.metrics
        self._digest = digest_for(metadata.digest_type, metadata.password)
        self._key = master_key(metadata.password)
        self._channel: AddChannel | None = None
        self._channel_error: BokiError | None = None
        self._waiting: dict[int, tuple[Sequence[Buffer], asyncio.Future[V2Status]]] = {}
        self._waiting_bytes = 0
        self._room = asyncio.Event()
        self._held = self._copied = self._copied_bytes = 0
        self._lost: list[int] = []
        self._unanswered: list[int] = []
        self._uncounted = {Answer.NEVER_HAD: 0, Answer.UNKNOWN: 0}

    async def make_whole(self, entries: Iterable[int], *, looked_at: Callable[[int], None] = lambda _: None) -> Copied:
        """Sends the bookie those of `entries` that it lacks; each is of a closed ledger, or before its last fragment.

        Args:
            entries: ids, each once.
            looked_at: called with the bytes copied (0: it was there, or nobody gives it) for each entry that is done.

        Raises:
            Unreachable: the bookie itself does not answer. Unauthorized, LedgerError: it refuses. NoSuchLedger: deleted.
        """
        held = await self._listed()
        wanted = self._without(held, entries, looked_at)
        workers = [
            asyncio.create_task(
                self._work(wanted, looked_at, probe=held is None and not self._only_durable), name="copying entries"
            )
            for _ in range(limits.LEDGER_COPIES_AT_ONCE)
        ]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)
            if self._channel is not None:
                self._channel.close()
        if self._copied:
            _log.info(
                "copied entries to a bookie",
                ledger_id=self._ledger_id,
                bookie_id=self._bookie,
                entries=self._copied,
                bytes=self._copied_bytes,
            )
        return Copied(
            self._held,
            self._copied,
            self._copied_bytes,
            Uncopied(len(self._lost) + self._uncounted[Answer.NEVER_HAD], sorted(self._lost)),
            Uncopied(len(self._unanswered) + self._uncounted[Answer.UNKNOWN], sorted(self._unanswered)),
        )

    async def lacking(self, entries: Iterable[int]) -> int | None:
        """How many of `entries` the bookie has not, by its list; None if it does not say. Raises Unreachable: it does not answer."""
        held = await self._listed()
        return None if held is None else sum(not held[entry_id] for entry_id in entries)

    async def replace(self, entry_id: int, body: memoryview) -> bool:
        """Sends the bookie a sound body of an entry of which it has a damaged copy; whether it took it. It refuses a body that
        contradicts what it finds sound."""
        try:
            return await self._add(entry_id, v2.encode_add_body([body], self._key, recovery=True)) is V2Status.OK
        except Unreachable as error:
            _log.info("damaged copy not replaced", ledger_id=self._ledger_id, entry_id=entry_id, error=error)
            return False
        finally:
            if self._channel is not None:
                self._channel.close()
                self._channel = None

    # -- what the bookie has

    async def _listed(self) -> bytearray | None:
        """By entry: 1 for those that the bookie says it stores; None if it does not say. A byte for each of the ledger."""
        future = self._transport.list_entries(self._bookie, self._ledger_id)
        answer = await future  # always ends, see `transport`
        if answer.status is None:
            raise self._away(answer.error)
        size = self._end
        if size > availability.ENTRIES_LIMIT:
            return None
        held = bytearray(size)
        if answer.status is V2Status.NO_LEDGER:
            return held
        if answer.status is not V2Status.OK or answer.availability is None:
            return None
        try:
            for run in availability.decode(answer.availability):
                within = range(size)[run.start : run.stop]
                held[run.start : run.stop] = b"\x01" * len(within)
        except ProtocolError as error:
            _log.warning("a list of entries cannot be read; each is asked for", bookie_id=self._bookie, error=error)
            return None
        return held

    def _without(
        self, held: bytearray | None, entries: Iterable[int], looked_at: Callable[[int], None]
    ) -> Iterator[int]:
        for entry_id in entries:
            assert entry_id < self._end, f"entry {entry_id} may still change: entries are fixed below {self._end}"
            if held is not None and held[entry_id]:
                self._held += 1
                looked_at(0)
            else:
                yield entry_id

    async def _gives(self, entry_id: int) -> bool:
        answer = await self._read(self._bookie, entry_id)
        if answer.status is None:
            raise self._away(answer.error)
        return self._whole(entry_id, answer) is not None

    # -- entry by entry

    async def _work(self, wanted: Iterator[int], looked_at: Callable[[int], None], *, probe: bool) -> None:
        """One of several that share `wanted`."""
        for entry_id in wanted:
            if probe and await self._gives(entry_id):
                self._held += 1
                looked_at(0)
                continue
            body = await self._from_peers(entry_id)
            if body is not None:
                if self._pace is not None:
                    await self._pace(len(body))
                await self._send(entry_id, body)
                self._copied += 1
                self._copied_bytes += len(body)
            looked_at(0 if body is None else len(body))

    async def _from_peers(self, entry_id: int) -> memoryview | None:
        asked: dict[BookieId, None] = {}
        evidence = Answer.NEVER_HAD
        metadata: LedgerMetadata | None = self._metadata
        while metadata is not None and (peers := self._peers(metadata, entry_id, asked)):
            for peer in peers:
                asked[peer] = None
                answer = await self._read(peer, entry_id)
                body = self._whole(entry_id, answer)
                if body is not None:
                    return body
                if answer_of(answer.status) is Answer.UNKNOWN:
                    evidence = Answer.UNKNOWN
            metadata = await self._newest()
            if metadata is None:
                evidence = Answer.UNKNOWN
        named = self._lost if evidence is Answer.NEVER_HAD else self._unanswered
        if len(named) < NAMED_LIMIT:
            named.append(entry_id)
        else:
            self._uncounted[evidence] += 1
        return None

    def _peers(self, metadata: LedgerMetadata, entry_id: int, asked: Container[BookieId]) -> list[BookieId]:
        """The bookies to ask that were not asked yet; those that seem up first."""
        ensemble = metadata.ensemble_of(entry_id)
        slots = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)
        peers = [ensemble[slot] for slot in slots if ensemble[slot] != self._bookie and ensemble[slot] not in asked]
        return sorted(peers, key=lambda peer: not self._transport.seems_up(peer))

    async def _newest(self) -> LedgerMetadata | None:
        """The metadata as it is now: copies may have moved. None while the store is away. Raises NoSuchLedger."""
        try:
            return (await self._updates.read_now(self._ledger_id)).metadata
        except MetadataUnavailable as error:
            _log.info("metadata not read again", ledger_id=self._ledger_id, error=error)
            return None

    async def _read(self, bookie: BookieId, entry_id: int) -> ReadAnswer:
        """An answer, or none in time."""
        future = self._transport.read(bookie, self._ledger_id, entry_id)
        timeout_s = self._settings.answer_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            return ReadAnswer(None, error=Unreachable(f"bookie {bookie} gave no answer within {timeout_s} s"))

    def _whole(self, entry_id: int, answer: ReadAnswer) -> memoryview | None:
        """The body, if its digest is right."""
        if answer.status is not V2Status.OK or answer.body is None:
            return None
        try:
            verify_body(answer.body, self._ledger_id, entry_id, self._digest)
        except DigestMismatch as error:
            self._metrics.digest_mismatches.inc()
            _log.warning("damaged copy met in a repair", ledger_id=self._ledger_id, entry_id=entry_id, error=error)
            return None
        return answer.body

    # -- sending

    async def _send(self, entry_id: int, body: memoryview) -> None:
        """Until the bookie has it durably."""
        while self._waiting_bytes and self._waiting_bytes + len(body) > limits.LEDGER_COPY_BYTES:
            self._room.clear()
            await self._room.wait()
        self._waiting_bytes += len(body)
        try:
            await self._send_until_taken(entry_id, v2.encode_add_body([body], self._key, recovery=True))
        finally:
            self._waiting_bytes -= len(body)
            self._room.set()

    async def _send_until_taken(self, entry_id: int, frame: Sequence[Buffer]) -> None:
        settings = self._settings
        backoff, paused_s = settings.backoff(), 0.0
        while True:
            status = await self._add(entry_id, frame)
            if status is V2Status.OK:
                return
            facts = {"ledger_id": self._ledger_id, "entry_id": entry_id, "bookie_id": self._bookie}
            if status is V2Status.UNAUTHORIZED:
                raise Unauthorized(
                    f"bookie {self._bookie} refuses the password that the metadata of ledger {self._ledger_id} has",
                    **facts,
                )
            if paused_s >= settings.retry_for_s:
                raise LedgerError(
                    f"bookie {self._bookie} answers {status.name} to the copy of entry {entry_id} of ledger "
                    f"{self._ledger_id}: look at its log, then begin again",
                    status=int(status),
                    **facts,
                )
            pause_s = backoff.next()
            await asyncio.sleep(pause_s)
            paused_s += pause_s

    async def _add(self, entry_id: int, frame: Sequence[Buffer]) -> V2Status:
        """Sends one copy; what the bookie says to it. Over a broken connection it is sent again."""
        if self._channel is None:
            self._channel = self._transport.open_channel(self._bookie, self._ledger_id, self)
        future: asyncio.Future[V2Status] = asyncio.get_running_loop().create_future()
        self._waiting[entry_id] = frame, future
        if self._channel.up:
            self._channel.send(frame)
        try:
            async with asyncio.timeout(self._settings.answer_timeout_s):
                return await future
        except TimeoutError:
            raise self._away(self._channel_error) from None
        finally:
            self._waiting.pop(entry_id, None)

    def _away(self, why: BokiError | None) -> BokiError:
        return Unreachable(
            f"bookie {self._bookie} does not answer ({why or 'nothing in time'}); what it took is safe: begin again when it "
            "is up",
            bookie_id=self._bookie,
            ledger_id=self._ledger_id,
        )

    # -- what the channel calls

    def channel_up(self) -> None:
        assert self._channel is not None
        self._channel_error = None
        for frame, _ in tuple(self._waiting.values()):
            self._channel.send(frame)

    def channel_down(self, error: BokiError) -> None:
        self._channel_error = error

    def adds_answered(self, acked: Sequence[tuple[int, int]], refused: Sequence[tuple[int, V2Status]]) -> None:
        for first, count in acked:
            for entry_id in range(first, first + count):
                self._answered(entry_id, V2Status.OK)
        for entry_id, status in refused:
            self._answered(entry_id, status)

    def _answered(self, entry_id: int, status: V2Status) -> None:
        waiting = self._waiting.get(entry_id)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result(status)
