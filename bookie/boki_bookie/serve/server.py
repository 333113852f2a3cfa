"""BookKeeper's v2 protocol over a Storage: what each request of a connection is answered, and when.

One port serves v2 and v3: a frame whose first byte is that of a v3 message goes to `server_v3`, in the same batch.

All frames of one network read are one batch: adds of one ledger that follow one another are taken as one run where nothing is
against any of them, else one by one, with the same answers; and one callback sends the acknowledgements of
the whole batch as one buffer when their group is durable. Reads of one entry are looked up together, and leave together. Refusals
and what is in memory are answered at once; reads that need the disk go in one task a batch. Answers carry the ids of their
request, so their order does not matter.

| request | answered |
|---|---|
| add | OK when durable; see `fence_rules` for refusals; BAD_REQUEST for a body whose 32-byte header cannot be right |
| fencing read | after the fence is durable, whatever the answer is; UNAUTHORIZED at once, and not fenced |
| read, batch read | body, NO_ENTRY, NO_LEDGER (certain); IO_ERROR for an entry that is there and cannot be read (unknown) |
| handshake | the bookie's id if it was asked for, else that there is no authentication: see `boki_common.bookkeeper.auth` |
| other version, not v3 | BAD_VERSION |
| other opcode, wrong length | the connection ends: the stream cannot be trusted |
| too many unanswered, or a peer that does not read | TOO_MANY_REQUESTS; it is not read from either, see `backpressure` |

No failure of a request ends the bookie. When the journal fails, connections end without an answer: the outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Final, NamedTuple

from boki_bookie import metric_definitions
from boki_bookie.entries.ledger_index import Extent, Place, RunPart
from boki_bookie.serve.backpressure import Backpressure, BackpressureLimits
from boki_bookie.serve.lac import LacWatchers, StoredLacs
from boki_bookie.serve.server_v3 import V3Requests
from boki_bookie.storage.fence_rules import is_possible
from boki_bookie.storage.storage_router import Store
from boki_common import limits
from boki_common.background_tasks import BackgroundTasks
from boki_common.bookkeeper import auth, v2, v3
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BokiError, Overloaded
from boki_common.logs import get_logger
from boki_common.metrics import Counter, Metrics
from boki_common.net.connection import FrameConnection
from boki_common.runtime.ports import Clock

BATCH_READ_ENTRIES: Final = 4_096
"""Entries in one batch read response, whatever its client asks for."""
LOAD_BYTES: Final = 1 * limits.MIB
"""What one connection loads at a time, and is answered in one turn of the loop: others have theirs."""
_BATCH_READ_HEADER_BYTES: Final = 32
_BATCH_READ_SIZE_BYTES: Final = 4
_ACK_LEDGER: Final = 12
"""Where an encoded add response has its ledger."""
_LEDGER_BYTES: Final = 8

Single = tuple[int, int]
"""(ledger, entry) of a read of one entry, once whether it fences does not matter any more."""
Read = v2.ReadRequest | v2.BatchReadRequest
_log = get_logger("bookie")


DEFAULT_BACKPRESSURE: Final = BackpressureLimits(16 * limits.MIB, limits.CONNECTION_UNSENT_BYTES, 30.0)


class _Waiting(NamedTuple):
    """One read that waits for the disk, or for its client to take other answers: what it is of, and about its bytes."""

    request: Single | v2.BatchReadRequest
    found: Sequence[memoryview | Place | RunPart]
    size: int


class BookieServer:
    """What all connections share."""

    def __init__(
        self,
        storage: Store,
        *,
        requests_limit: int,
        free_bytes: Callable[[], Awaitable[int]],
        metrics: Metrics,
        backpressure: BackpressureLimits = DEFAULT_BACKPRESSURE,
        clock: Clock | None = None,
        bookie_id: str = "",
    ) -> None:
        """`clock` gives long polls the time at which the LAC advanced; without it they get none. `bookie_id` is sent in handshakes."""
        self.storage = storage
        self.bookie_id = bookie_id
        self.requests_limit = requests_limit
        self.backpressure = backpressure
        self.clock = clock
        self.load_bytes = LOAD_BYTES
        self.free_bytes = free_bytes
        self.stored_lacs = StoredLacs()
        self.watchers = LacWatchers()
        self.tasks = BackgroundTasks()
        self._adds = metrics.counter(metric_definitions.ADDS)
        self._reads = metrics.counter(metric_definitions.READS)
        self.adds_ok: Counter = self._adds.labels(status=V2Status.OK.name)
        self._reads_ok: Counter = self._reads.labels(status=V2Status.OK.name)

    def connected(self, connection: FrameConnection) -> BookieConnection:
        """The handler of a new connection."""
        return BookieConnection(self, connection)

    def count_adds(self, status: V2Status, count: int = 1) -> None:
        (self.adds_ok if status is V2Status.OK else self._adds.labels(status=status.name)).inc(count)

    def count_reads(self, status: V2Status, count: int = 1) -> None:
        (self._reads_ok if status is V2Status.OK else self._reads.labels(status=status.name)).inc(count)

    def spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        """Runs what a connection cannot answer at once."""
        self.tasks.spawn(work, name)

    async def close(self) -> None:
        """Ends what still reads; to be called when no connection is left."""
        await self.tasks.close()


class BookieConnection:
    """One client. `_unanswered` counts requests taken and not answered, in all their ways.

    What one read brought is sorted by how it is answered, and answered when all of it was looked at.
    """

    def __init__(self, server: BookieServer, connection: FrameConnection) -> None:
        self._server = server
        self._storage = server.storage
        self._connection = connection
        self._backpressure = Backpressure(connection, server.backpressure, server.requests_limit // 2)
        self._requests_limit = server.requests_limit
        self._unanswered = 0
        self._acks: list[bytes] = []
        """Whole responses to the adds that are stored, to be sent when those are durable."""
        self._added = 0
        self._added_bytes = 0
        """Of those adds, whose number is `_added`."""
        self._others = False
        """Whether this read brought anything but adds that are stored."""
        self._reads: list[Single] = []
        self._ranges: list[v2.BatchReadRequest] = []
        self._fencing: list[Read] = []
        self._to_load: deque[_Waiting] = deque()
        self._loading = False
        self._turn_bytes = 0
        """Bodies that were answered in this turn."""
        self._v3: V3Requests | None = None

    def frames_received(self, frames: list[memoryview]) -> None:
        """One batch. Raises ProtocolError for a frame whose length cannot be right."""
        at = one_by_one = 0  # frames before `one_by_one` have to be taken one by one
        end = len(frames)
        try:
            while at < end:
                frame = frames[at]
                if frame.nbytes == v2.READ_BYTES and (reads := v2.decode_unfenced_reads(frames, at)):
                    self._take_reads(reads)
                    at += len(reads)
                    continue
                run = v2.decode_add_run(frames, at) if at >= one_by_one else None
                if run is not None:
                    count = run.count
                    one_by_one = at + count
                    storage = self._storage.of(run.ledger_id)
                    if self._unanswered + self._added + count <= self._requests_limit and storage.add_run(run):
                        self._acks += v2.encode_add_acks(run.ledger_id, run.entry_ids)
                        self._added += count
                        self._added_bytes += run.body_bytes
                        at = one_by_one
                        continue
                at += 1
                self._take_one(frame)
        finally:
            # also when a later frame is bad: what was taken is answered as far as the connection lives
            if self._acks:
                self._finish_adds()
            if self._others or self._connection.paused:
                self._finish_others()

    def _take_one(self, frame: memoryview) -> None:
        self._others = True
        request = v2.decode_request(frame)
        if type(request) is v2.AddRequest:
            self._take_add(request)
        elif frame[0] == v3.FIRST_BYTE:
            self._take_v3(frame)
        else:
            self._sort_out(request)

    def _room(self) -> int:
        """How many more requests may be taken."""
        return self._requests_limit - self._unanswered - self._added

    def connection_lost(self, error: BokiError | None) -> None:
        """What was taken is finished without it; its answers go nowhere."""
        if isinstance(error, Overloaded) and not self._connection.is_stranger:
            _log.warning("dropped a connection", peer=self._connection.peer, error=error)
        if self._v3 is not None:
            self._v3.connection_lost()

    def add_answered(self, status: V2Status, ledger_id: int, entry_id: int) -> None:
        """A late answer of the storage."""
        self._unanswered -= 1
        self._backpressure.answered_late()
        self._server.count_adds(status)
        self._connection.send(v2.encode_add_response(status, ledger_id, entry_id))
        self._server.watchers.changed(ledger_id)

    def _take_v3(self, frame: memoryview) -> None:
        if self._v3 is None:
            self._v3 = V3Requests(self._server, self._connection, self._backpressure)
        self._v3.take(frame)

    # -- adds

    def _take_add(self, request: v2.AddRequest) -> None:
        flags, _, ledger_id, entry_id, lac, body = request
        length = int.from_bytes(body[24:32], "big", signed=True)
        if self._room() <= 0:
            status: V2Status | None = V2Status.TOO_MANY_REQUESTS
        elif not is_possible(ledger_id, entry_id, lac, length, recovery=flags & v2.FLAG_RECOVERY_ADD):
            status = V2Status.BAD_REQUEST
        else:
            status = self._storage.of(ledger_id).add(request, self)
        if status is V2Status.OK:
            self._acks.append(v2.encode_add_response(V2Status.OK, ledger_id, entry_id))
            self._added += 1
            self._added_bytes += len(body)
        elif status is None:
            self._unanswered += 1
            self._backpressure.took_late(len(body))
        else:
            self._server.count_adds(status)
            self._connection.send(v2.encode_add_response(status, ledger_id, entry_id))

    def _finish_adds(self) -> None:
        """All adds of a read are acknowledged together."""
        acks, self._acks = self._acks, []
        count, self._added = self._added, 0
        size, self._added_bytes = self._added_bytes, 0
        joined = acks[0] if count == 1 else b"".join(acks)
        self._unanswered += count
        self._backpressure.took(size, count)
        if self._server.watchers.looks:
            self._notify_watchers(joined)
        if self._storage.when_durable(partial(self._acknowledge, joined, count, size)):
            self._backpressure.wait_for_room()

    def _finish_others(self) -> None:
        self._others = False
        if self._v3 is not None:
            self._v3.finish_batch()
        if self._fencing:
            fencing, self._fencing = self._fencing, []
            self._unanswered += len(fencing)
            self._storage.journal.when_durable(partial(self._fenced, fencing))
        if self._reads or self._ranges:
            reads, self._reads = self._reads, []
            ranges, self._ranges = self._ranges, []
            self._unanswered += len(reads) + len(ranges)
            self._serve(reads, ranges)
        self._backpressure.look()

    def _notify_watchers(self, acks: bytes) -> None:
        ledgers = (acks[at : at + _LEDGER_BYTES] for at in range(_ACK_LEDGER, len(acks), v2.ADD_RESPONSE_BYTES))
        for ledger_id in dict.fromkeys(ledgers):
            self._server.watchers.changed(int.from_bytes(ledger_id, "big"))

    def _acknowledge(self, acks: bytes, count: int, size: int, error: BokiError | None) -> None:
        self._unanswered -= count
        self._backpressure.released(size, count)
        if error is not None:
            self._connection.abort(error)
            return
        self._server.adds_ok.value += count
        if self._unanswered:  # more of them may follow in this turn, and leave together
            self._connection.send(acks)
        else:
            self._connection.send_now((acks,))

    # -- reads

    def _sort_out(self, request: v2.Request) -> None:
        """Everything but adds: sorted, or answered."""
        if isinstance(request, v2.UnknownRequest):
            self._connection.send(v2.encode_unknown_response(request))
            return
        if isinstance(request, v2.AuthRequest):
            self._connection.send(v2.encode_auth(auth.answer(request.message, self._server.bookie_id)))
            return
        if isinstance(request, v2.HoldRequest):
            self._take_hold(request)
            return
        assert isinstance(request, v2.ReadRequest | v2.BatchReadRequest)
        self._take_read(request)

    def _take_read(self, request: Read) -> None:
        """Sort a read into those that fence, those of one entry and those of a range, or refuse it."""
        if self._room() <= self._all_reads() or self._is_crowded():
            self._refuse_read(request, V2Status.TOO_MANY_REQUESTS)
            return
        if request.master_key is None:
            if isinstance(request, v2.ReadRequest):
                self._reads.append((request.ledger_id, request.entry_id))
            else:
                self._ranges.append(request)
            return
        status = self._storage.of(request.ledger_id).fence(request.ledger_id, request.master_key)
        if status is V2Status.OK:
            self._fencing.append(request)
        else:
            self._refuse_read(request, status)

    def _take_hold(self, request: v2.HoldRequest) -> None:
        """Answers once the hold is durable, also one that was there before: it may be on its way."""
        storage = self._storage.of(request.ledger_id)
        if self._room() <= 0:
            status = V2Status.TOO_MANY_REQUESTS
        else:
            status = storage.hold(request.ledger_id, request.master_key, request.version)
        if status is not V2Status.OK:
            self._connection.send(v2.encode_hold_response(status, request.ledger_id, request.version))
            return
        self._unanswered += 1
        storage.journal.when_durable(partial(self._held, request))

    def _held(self, request: v2.HoldRequest, error: BokiError | None) -> None:
        self._unanswered -= 1
        if error is not None:
            self._connection.abort(error)
            return
        self._connection.send(v2.encode_hold_response(V2Status.OK, request.ledger_id, request.version))

    def _all_reads(self) -> int:
        return len(self._reads) + len(self._ranges) + len(self._fencing)

    def _take_reads(self, reads: list[Single]) -> None:
        """Reads of one entry each that do not fence."""
        self._others = True
        room = 0 if self._is_crowded() else max(0, self._room() - self._all_reads())
        self._reads += reads[:room]
        for refused in reads[room:]:
            self._answer_read(refused, V2Status.TOO_MANY_REQUESTS)

    def _fenced(self, requests: list[Read], error: BokiError | None) -> None:
        if error is not None:
            self._unanswered -= len(requests)
            self._connection.abort(error)
            return
        for request in requests:
            self._server.watchers.changed(request.ledger_id, fenced=True)
        self._serve(
            [(one.ledger_id, one.entry_id) for one in requests if isinstance(one, v2.ReadRequest)],
            [one for one in requests if isinstance(one, v2.BatchReadRequest)],
        )

    def _serve(self, reads: Sequence[Single], ranges: Sequence[v2.BatchReadRequest]) -> None:
        """Answers what is in memory, ours or the system's, as far as one turn goes; the rest goes into one task."""
        self._turn_bytes = 0
        waiting = len(self._to_load)
        if reads:
            self._serve_single(reads)
        for request in ranges:
            self._serve_range(request)
        self._unanswered -= len(reads) + len(ranges) - (len(self._to_load) - waiting)
        if self._to_load and not self._loading:
            self._loading = True
            self._server.spawn(self._load(), "bookie read")

    def _serve_single(self, reads: Sequence[Single]) -> None:
        """What is at hand leaves in one piece."""
        bodies = self._storage.bodies_at_hand(reads, 0 if self._is_crowded() else self._server.load_bytes)
        found = [body for body in bodies if body is not None]
        late: Sequence[Single] = reads[len(bodies) :]
        if len(found) < len(bodies):
            late = [*(read for read, body in zip(reads, bodies, strict=False) if body is None), *late]
            reads = [read for read, body in zip(reads, bodies, strict=False) if body is not None]
        if found:
            self._turn_bytes += sum(map(len, found))
            self._server.count_reads(V2Status.OK, len(found))
            self._connection.send_now(v2.encode_found_reads(reads[: len(found)], found))
        for read in late:
            self._look_up(read)

    def _is_crowded(self) -> bool:
        """The client takes its answers more slowly than it asks: it is answered no faster than it reads."""
        return self._connection.unsent_bytes > self._server.backpressure.unsent_bytes

    def _must_wait(self) -> bool:
        return self._turn_bytes >= self._server.load_bytes or self._is_crowded()

    def _look_up(self, read: Single) -> None:
        """Answers a read of what is not at hand: there is no such entry, or it has to wait."""
        ledger_id, entry_id = read
        storage = self._storage.of(ledger_id)
        status, body, place = storage.look_up(ledger_id, entry_id)
        if place is not None and entry_id < 0 and not self._must_wait():  # only now it is known which one that is
            body = storage.at_hand(ledger_id, place)
        if body is not None and not self._must_wait():
            self._answer_read(read, status, body)
        elif body is not None:
            self._to_load.append(_Waiting(read, [body], len(body)))
        elif place is not None:
            self._to_load.append(_Waiting(read, [place], place.body_bytes))
        else:
            self._answer_read(read, status)

    def _serve_range(self, request: v2.BatchReadRequest) -> None:
        count = min(request.max_count if request.max_count > 0 else BATCH_READ_ENTRIES, BATCH_READ_ENTRIES)
        room = min(request.max_bytes if request.max_bytes > 0 else limits.FRAME_BYTES, limits.FRAME_BYTES)
        storage = self._storage.of(request.ledger_id)
        status, parts = storage.look_up_run(
            request.ledger_id,
            request.entry_id,
            count=count,
            room=room - _BATCH_READ_HEADER_BYTES,
            overhead=_BATCH_READ_SIZE_BYTES,
        )
        if not parts:
            self._answer_batch(request, status, [])
            return
        bodies = None if self._must_wait() else storage.run_at_hand(request.ledger_id, parts)
        if bodies is None:
            self._to_load.append(_Waiting(request, parts, LOAD_BYTES))
        else:
            self._answer_batch(request, status, bodies)

    async def _load(self) -> None:
        """Answers what waits, a bounded amount a turn.

        Once the client is far behind it is answered no faster than it reads; `Backpressure` sees how far that is, and for how long.
        """
        try:
            while self._to_load:
                first = self._to_load[0]
                if isinstance(first.request, v2.BatchReadRequest):
                    await self._load_batch(first.request, first)
                else:
                    await self._load_some()
                self._backpressure.look()
                try:
                    if self._is_crowded():
                        await self._connection.drain()
                    elif self._turn_bytes >= self._server.load_bytes:
                        self._turn_bytes = 0
                        await asyncio.sleep(0)
                except BokiError:
                    self._to_load.clear()  # the client is gone, nobody waits for the rest
        finally:
            self._loading = False

    async def _load_some(self) -> None:
        """Single reads, those that wait up to the next batch."""
        reads: list[tuple[Single, memoryview | Place]] = []
        size = 0
        for waiting in self._to_load:
            if size >= LOAD_BYTES or isinstance(waiting.request, v2.BatchReadRequest):
                break
            (found,) = waiting.found
            assert isinstance(found, memoryview | Place)
            reads.append((waiting.request, found))
            size += waiting.size
        places = [(read[0], found) for read, found in reads if isinstance(found, Place)]
        loaded = iter(await self._storage.load(places) if places else ())
        for read, found in reads:
            self._to_load.popleft()
            body = next(loaded) if isinstance(found, Place) else found
            self._unanswered -= 1
            if isinstance(body, memoryview):
                self._answer_read(read, V2Status.OK, body)
            else:
                self._answer_read(read, V2Status.IO_ERROR)

    async def _load_batch(self, request: v2.BatchReadRequest, waiting: _Waiting) -> None:
        """One batch; it ends before the first entry that cannot be read, and nothing readable is an IO_ERROR."""
        parts = [part for part in waiting.found if isinstance(part, Extent | list)]
        bodies = await self._storage.of(request.ledger_id).load_run(request.ledger_id, parts)
        self._to_load.popleft()
        self._unanswered -= 1
        self._answer_batch(request, V2Status.OK if bodies else V2Status.IO_ERROR, bodies)

    def _refuse_read(self, request: Read, status: V2Status) -> None:
        if isinstance(request, v2.ReadRequest):
            self._answer_read((request.ledger_id, request.entry_id), status)
        else:
            self._answer_batch(request, status, [])

    def _answer_read(self, read: Single, status: V2Status, body: memoryview | None = None) -> None:
        self._server.count_reads(status)
        if body is not None:
            self._turn_bytes += len(body)
        self._connection.send(*v2.encode_read_response(status, *read, body))

    def _answer_batch(self, request: v2.BatchReadRequest, status: V2Status, bodies: list[memoryview]) -> None:
        self._server.count_reads(status)
        frame = v2.encode_batch_read_response(status, request.ledger_id, request.entry_id, request.request_id, bodies)
        self._turn_bytes += sum(map(len, frame))
        self._connection.send(*frame)
