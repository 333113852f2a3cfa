"""BookKeeper's v3 protocol over a Storage, on a connection that `server` owns and may share with v2 frames.

The rules are those of v2 (see `server`): all frames of one read are a batch, one callback acknowledges its adds when they
are durable, fencing reads are answered after their fence is, what needs the disk goes in one task.

| request | answered |
|---|---|
| add, recovery add | as in v2 |
| add with deferred sync | once taken, before it is durable: a crash may lose it until a force of its ledger is answered; |
| | when durable, as others, while more than half of the requests that a connection may have wait for the journal |
| read | body, and the LAC this bookie knows (see `lac`); a fencing read without it |
| force | after everything taken before, of any ledger, is durable; OK for an unknown ledger as well |
| list of entries | what is held, in memory or stored, once it is durable: who asks names this bookie for it; NO_LEDGER |
| any of them, of a ledger in limbo | what is held; UNKNOWN_LEDGER_STATE for all else, see `limbo_rules` |
| bookie info | free space of the disk, and with the files of this bookie as total |
| LAC write | when the LAC is durable; a lower one than held is forgotten; UNAUTHORIZED, READ_ONLY |
| LAC read | the LAC that was written by itself and the last entry; NO_ENTRY when there is neither |
| long poll | see `long_polls`; at once BAD_REQUEST unless of entry -1 |
| handshake | the bookie's id, or that there is no authentication: see `auth` |
| START_TLS, everything else | BAD_REQUEST |
| message that cannot be read | the connection ends |

`_unanswered` counts v3 requests apart from v2 ones: a client speaks one of the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Final, NamedTuple, Protocol

from boki_bookie.entries.ledger_index import NO_ENTRY, Place
from boki_bookie.serve.backpressure import Backpressure, BackpressureLimits
from boki_bookie.serve.lac import LacWatchers, StoredLacs, explicit_lac_of, lac_of
from boki_bookie.serve.long_polls import LongPolls
from boki_bookie.storage.fence_rules import is_possible
from boki_bookie.storage.storage_reads import Found
from boki_bookie.storage.storage_router import Store
from boki_common import limits
from boki_common.bookkeeper import auth, availability, v2, v3, v3_messages
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BokiError, StorageError
from boki_common.net.connection import FrameConnection
from boki_common.runtime.ports import Clock

_RESPONSE_ROOM_BYTES: Final = 1_024
"""What a response needs at most besides the body it carries."""


_Durably = v3_messages.ReadRequest | v3_messages.ForceRequest | v3_messages.WriteLacRequest
"""What is answered when it is durable."""


class Shared(Protocol):
    """What the server offers to every connection."""

    storage: Store
    bookie_id: str
    requests_limit: int
    backpressure: BackpressureLimits
    stored_lacs: StoredLacs
    watchers: LacWatchers
    load_bytes: int
    clock: Clock | None
    free_bytes: Callable[[], Awaitable[int]]

    def count_adds(self, status: V2Status, count: int = 1) -> None: ...
    def count_reads(self, status: V2Status, count: int = 1) -> None: ...
    def spawn(self, work: Coroutine[None, None, None], name: str) -> None: ...


class _LateAdd:
    """Answers one add that the storage could not answer at once."""

    __slots__ = ("_requests", "_txn_id")

    def __init__(self, requests: V3Requests, txn_id: int) -> None:
        self._requests = requests
        self._txn_id = txn_id

    def add_answered(self, status: V2Status, ledger_id: int, entry_id: int) -> None:
        self._requests.late_add_answered(v3_messages.AddResponse(self._txn_id, status, ledger_id, entry_id))


class _Lookup(NamedTuple):
    """A read of which the entry, or the last entry for its LAC, is to be loaded."""

    request: v3_messages.ReadRequest
    found: Found
    last: Found | None
    lac: int | None = None
    """What a long poll learned."""
    lac_time_ms: int | None = None
    """When it was woken by it."""


class V3Requests:
    """The v3 requests of one connection."""

    def __init__(self, shared: Shared, connection: FrameConnection, backpressure: Backpressure) -> None:
        self._shared = shared
        self._storage = shared.storage
        self._connection = connection
        self._backpressure = backpressure
        self._unanswered = 0
        self._acks: list[bytes] = []
        self._early_acks: list[bytes] = []
        self._reads: list[v3_messages.ReadRequest] = []
        self._durably: list[_Durably] = []
        self._to_load: deque[_Lookup] = deque()
        self._loading = False
        self._added: dict[int, None] = {}
        self._polls = LongPolls(
            shared.storage,
            self,
            stored_lacs=shared.stored_lacs,
            watchers=shared.watchers,
            clock=shared.clock,
            spawn=shared.spawn,
        )
        self._taken_bytes = 0
        """Of the adds of this batch."""

    def connection_lost(self) -> None:
        """Nobody waits any more."""
        self._polls.connection_lost()

    @property
    def closed(self) -> bool:
        """Whether the connection has ended: answers are dropped."""
        return self._connection.closed

    # -- one batch

    def take(self, frame: memoryview) -> None:
        """One request; `finish_batch` follows. Raises ProtocolError."""
        request = v3.decode_request(frame)
        if isinstance(request, v3_messages.AddRequest):
            self._add(request)
        elif isinstance(request, v3_messages.ReadRequest):
            self._read(request)
        elif isinstance(request, v3_messages.UnknownRequest):
            self._send(v3_messages.UnknownResponse(*request))
        elif isinstance(request, v3_messages.WriteLacRequest):
            self._write_lac(request)
        elif isinstance(request, v3_messages.ReadLacRequest):
            self._read_lac(request)
        elif isinstance(request, v3_messages.BookieInfoRequest):
            if self._is_full():
                self._send(v3_messages.BookieInfoResponse(request.txn_id, V2Status.TOO_MANY_REQUESTS))
            else:
                self._unanswered += 1
                self._shared.spawn(self._answer_space(request), "bookie info")
        elif isinstance(request, v3_messages.AuthRequest):
            answer = auth.answer(request.message, self._shared.bookie_id)
            self._send(v3_messages.AuthResponse(request.txn_id, V2Status.OK, answer))
        elif isinstance(request, v3_messages.ListEntriesRequest):
            listed = self._list_entries(request)
            if listed.availability is None:
                self._send(listed)
            else:
                self._send_once_durable(listed, len(listed.availability))
        elif self._is_full():
            self._send(v3_messages.ForceResponse(request.txn_id, V2Status.TOO_MANY_REQUESTS, request.ledger_id))
        else:
            self._unanswered += 1
            self._durably.append(request)

    def finish_batch(self) -> None:
        """The frames of one read were taken: what waits for the journal waits together."""
        if self._added:
            added, self._added = self._added, {}
            for ledger_id in added:
                self._shared.watchers.changed(ledger_id)
        if self._taken_bytes:
            self._finish_adds()
        if self._durably:
            durably, self._durably = self._durably, []
            self._storage.journal.when_durable(partial(self._now_durable, durably))
        if self._reads:
            reads, self._reads = self._reads, []
            self._serve(reads)

    def _finish_adds(self) -> None:
        acks, self._acks = self._acks, []
        early, self._early_acks = self._early_acks, []
        size, self._taken_bytes = self._taken_bytes, 0
        self._backpressure.took(size, len(acks) + len(early))
        if early:
            self._shared.count_adds(V2Status.OK, len(early))
            self._connection.send(b"".join(early))
        if self._storage.when_durable(partial(self._acknowledge, b"".join(acks), len(acks), len(early), size)):
            self._backpressure.wait_for_room()

    def _is_full(self) -> bool:
        return (
            self._unanswered >= self._shared.requests_limit
            or self._connection.unsent_bytes > self._shared.backpressure.unsent_bytes
        )

    def _send(self, response: v3.Response) -> None:
        self._connection.send(v3.encode_response(response))

    # -- adds

    def _add(self, request: v3_messages.AddRequest) -> None:
        txn_id, priority, ledger_id, entry_id, key, body, recovery, deferred_sync = request
        lac, length = lac_of(body), int.from_bytes(body[24:32], "big", signed=True)
        status: V2Status | None
        if self._unanswered >= self._shared.requests_limit:
            status = V2Status.TOO_MANY_REQUESTS
        elif not is_possible(ledger_id, entry_id, lac, length, recovery=recovery):
            status = V2Status.BAD_REQUEST
        else:
            flags = (v2.FLAG_RECOVERY_ADD if recovery else 0) | (v2.FLAG_HIGH_PRIORITY if priority else 0)
            add = v2.AddRequest(flags, key, ledger_id, entry_id, lac, body)
            status = self._storage.of(ledger_id).add(add, _LateAdd(self, txn_id))
        if status is None or status is V2Status.OK:
            self._unanswered += 1
        if status is None:
            self._backpressure.took_late(len(body))
        elif status is V2Status.OK:
            self._added[ledger_id] = None
            self._taken_bytes += len(body)
            early = deferred_sync and self._unanswered <= self._shared.requests_limit // 2
            acks = self._early_acks if early else self._acks
            acks.append(v3.encode_response(v3_messages.AddResponse(txn_id, status, ledger_id, entry_id)))
        else:
            self._shared.count_adds(status)
            self._send(v3_messages.AddResponse(txn_id, status, ledger_id, entry_id))

    def late_add_answered(self, response: v3_messages.AddResponse) -> None:
        self._unanswered -= 1
        self._backpressure.answered_late()
        self._shared.count_adds(response.status)
        self._send(response)
        self._shared.watchers.changed(response.ledger_id)

    def _acknowledge(self, acks: bytes, count: int, early: int, size: int, error: BokiError | None) -> None:
        """`early` ones were answered before: they counted until now, so that they cannot outrun the disk for ever."""
        self._unanswered -= count + early
        self._backpressure.released(size, count + early)
        if error is not None:
            self._connection.abort(error)
        elif count:
            self._shared.count_adds(V2Status.OK, count)
            self._connection.send(acks)

    # -- LACs

    def _write_lac(self, request: v3_messages.WriteLacRequest) -> None:
        if request.ledger_id < 0 or request.lac < NO_ENTRY:
            status = V2Status.BAD_REQUEST
        elif self._is_full():
            status = V2Status.TOO_MANY_REQUESTS
        else:
            storage = self._storage.of(request.ledger_id)
            status = storage.write_lac(request.ledger_id, request.master_key, bytes(request.body))
        if status is V2Status.OK:
            self._unanswered += 1
            self._durably.append(request)
            self._added[request.ledger_id] = None
        else:
            self._send(v3_messages.WriteLacResponse(request.txn_id, status, request.ledger_id))

    def _read_lac(self, request: v3_messages.ReadLacRequest) -> None:
        last = self._storage.of(request.ledger_id).look_up(request.ledger_id, NO_ENTRY)
        if self._is_full():
            self._send(v3_messages.ReadLacResponse(request.txn_id, V2Status.TOO_MANY_REQUESTS, request.ledger_id))
        elif last.status is V2Status.UNKNOWN_LEDGER_STATE:
            self._send(v3_messages.ReadLacResponse(request.txn_id, last.status, request.ledger_id))
        elif last.place is not None:
            self._unanswered += 1
            self._shared.spawn(self._load_last(request, last.place), "bookie LAC read")
        else:
            self._answer_lac(request, last.body)

    async def _load_last(self, request: v3_messages.ReadLacRequest, place: Place) -> None:
        last = (await self._storage.load([(request.ledger_id, place)]))[0]
        self._unanswered -= 1
        if isinstance(last, StorageError):
            self._send(v3_messages.ReadLacResponse(request.txn_id, V2Status.IO_ERROR, request.ledger_id))
        else:
            self._answer_lac(request, last)

    def _answer_lac(self, request: v3_messages.ReadLacRequest, last: memoryview | None) -> None:
        """Neither an entry nor a LAC, or no ledger, is NO_ENTRY, as Apache's bookie says it."""
        lac = self._storage.of(request.ledger_id).explicit_lac(request.ledger_id) or None
        status = V2Status.NO_ENTRY if last is None and lac is None else V2Status.OK
        self._send(v3_messages.ReadLacResponse(request.txn_id, status, request.ledger_id, lac, last))

    # -- what waits for the journal

    def _now_durable(self, requests: list[_Durably], error: BokiError | None) -> None:
        if error is not None:
            self._unanswered -= len(requests)
            self._connection.abort(error)
            return
        for request in requests:
            if isinstance(request, v3_messages.ForceRequest):
                self._unanswered -= 1
                self._send(v3_messages.ForceResponse(request.txn_id, V2Status.OK, request.ledger_id))
            elif isinstance(request, v3_messages.WriteLacRequest):
                self._unanswered -= 1
                self._send(v3_messages.WriteLacResponse(request.txn_id, V2Status.OK, request.ledger_id))
            else:
                self._shared.watchers.changed(request.ledger_id, fenced=True)
        self._serve([request for request in requests if isinstance(request, v3_messages.ReadRequest)])

    # -- reads

    def _read(self, request: v3_messages.ReadRequest) -> None:
        if request.waits and request.entry_id != NO_ENTRY:
            self._refuse_read(request, V2Status.BAD_REQUEST)
        elif self._is_full() or (request.waits and self._polls.are_full):
            self._refuse_read(request, V2Status.TOO_MANY_REQUESTS)
        elif request.waits:
            self._unanswered += 1
            self._polls.begin(request)
        elif request.master_key is None:
            self._unanswered += 1
            self._reads.append(request)
        else:
            status = self._storage.of(request.ledger_id).fence(request.ledger_id, request.master_key)
            if status is V2Status.OK:
                self._unanswered += 1
                self._durably.append(request)
            else:
                self._refuse_read(request, status)

    def _refuse_read(self, request: v3_messages.ReadRequest, status: V2Status) -> None:
        self._shared.count_reads(status)
        self._send(v3_messages.ReadResponse(request.txn_id, status, request.ledger_id, request.entry_id))

    def _serve(self, requests: list[v3_messages.ReadRequest]) -> None:
        """Answers what is in memory; the rest goes into one task."""
        for request in requests:
            found, last = self._look_up(request)
            lac = None if last is None else self._polls.known_lac(request.ledger_id, last)
            crowded = found.body is not None and self._connection.unsent_bytes > self._shared.backpressure.unsent_bytes
            if found.place is not None or (last is not None and lac is None) or crowded:
                self._to_load.append(_Lookup(request, found, last))
            else:
                self.answer(request, found.status, found.body, lac)
        self._begin_load()

    def _begin_load(self) -> None:
        if self._to_load and not self._loading:
            self._loading = True
            self._shared.spawn(self._load(), "bookie read")

    def _look_up(self, request: v3_messages.ReadRequest) -> tuple[Found, Found | None]:
        """The entry; and the last one, when the answer carries the LAC: not of negative answers and fencing reads."""
        storage = self._storage.of(request.ledger_id)
        found = storage.look_up(request.ledger_id, request.entry_id)
        if found.status is not V2Status.OK or request.master_key is not None:
            return found, None
        last = storage.look_up(request.ledger_id, NO_ENTRY)
        return found, last if last.status is V2Status.OK else None

    async def _load(self) -> None:
        """Answers what waits for the disk, a bounded amount at a time and no faster than the client reads."""
        try:
            while self._to_load:
                lookups: list[_Lookup] = []
                wanted: list[tuple[int, Place]] = []
                size = 0
                while self._to_load and size < self._shared.load_bytes:
                    lookup = self._to_load.popleft()
                    lookups.append(lookup)
                    for found in (lookup.found, lookup.last):
                        if found is not None and found.place is not None:
                            wanted.append((lookup.request.ledger_id, found.place))
                            size += found.place.body_bytes
                    if lookup.found.body is not None:
                        size += len(lookup.found.body)
                loaded = deque(await self._storage.load(wanted))
                for lookup in lookups:
                    self._answer_loaded(lookup, loaded)
                try:
                    await self._connection.drain()
                except BokiError:
                    self._unanswered -= len(self._to_load)
                    self._to_load.clear()  # the client is gone, nobody waits for the rest
        finally:
            self._loading = False

    def _answer_loaded(self, lookup: _Lookup, loaded: deque[memoryview | StorageError]) -> None:
        """Takes the bodies of this lookup off `loaded`; an unreadable last entry costs only the LAC."""
        request, found, last, lac, lac_time_ms = lookup
        body = loaded.popleft() if found.place is not None else found.body
        if last is not None and last.place is not None:
            last_body = loaded.popleft()
            if not isinstance(last_body, StorageError):
                lac = self._shared.stored_lacs.remember(request.ledger_id, last.place.entry_id, last_body)
        elif last is not None and last.body is not None:
            lac = lac_of(last.body)
        if isinstance(body, StorageError):
            self.answer(request, V2Status.IO_ERROR, None, None)
        else:
            self.answer(request, V2Status.OK, body, lac, lac_time_ms)

    def answer_loaded_later(
        self, request: v3_messages.ReadRequest, found: Found, lac: int, lac_time_ms: int | None
    ) -> None:
        """`answer`, once the body that was found on the disk is loaded."""
        self._to_load.append(_Lookup(request, found, None, lac, lac_time_ms))
        self._begin_load()

    def answer(
        self,
        request: v3_messages.ReadRequest,
        status: V2Status,
        body: memoryview | None,
        lac: int | None,
        lac_time_ms: int | None = None,
    ) -> None:
        """Answers a read that was counted as unanswered."""
        self._unanswered -= 1
        self._shared.count_reads(status)
        if lac is not None:
            lac = max(lac, explicit_lac_of(self._storage.of(request.ledger_id).explicit_lac(request.ledger_id)))
        response = v3_messages.ReadResponse(
            request.txn_id, status, request.ledger_id, request.entry_id, body, lac, lac_time_ms
        )
        self._send(response)

    # -- about the bookie

    def _list_entries(self, request: v3_messages.ListEntriesRequest) -> v3_messages.ListEntriesResponse:
        if self._is_full():
            return v3_messages.ListEntriesResponse(request.txn_id, V2Status.TOO_MANY_REQUESTS, request.ledger_id)
        storage = self._storage.of(request.ledger_id)
        if storage.doubts(request.ledger_id):
            return v3_messages.ListEntriesResponse(request.txn_id, V2Status.UNKNOWN_LEDGER_STATE, request.ledger_id)
        entries = storage.entry_ids(request.ledger_id)
        if entries is None:
            return v3_messages.ListEntriesResponse(request.txn_id, V2Status.NO_LEDGER, request.ledger_id)
        listed = availability.encode_within(entries, limits.FRAME_BYTES - _RESPONSE_ROOM_BYTES)
        if listed is None:
            return v3_messages.ListEntriesResponse(request.txn_id, V2Status.IO_ERROR, request.ledger_id)
        return v3_messages.ListEntriesResponse(request.txn_id, V2Status.OK, request.ledger_id, listed)

    def _send_once_durable(self, listed: v3_messages.ListEntriesResponse, size: int) -> None:
        self._unanswered += 1
        self._backpressure.took(size, 1)

        def durable(error: BokiError | None) -> None:
            self._unanswered -= 1
            self._backpressure.released(size, 1)
            if error is not None:
                self._connection.abort(error)
            else:
                self._send(listed)

        self._storage.journal.when_durable(durable)

    async def _answer_space(self, request: v3_messages.BookieInfoRequest) -> None:
        try:
            free = await self._shared.free_bytes()
        except BokiError:
            response = v3_messages.BookieInfoResponse(request.txn_id, V2Status.IO_ERROR)
        else:
            total = free + self._storage.file_bytes if request.wanted & v3.INFO_TOTAL else None
            response = v3_messages.BookieInfoResponse(
                request.txn_id, V2Status.OK, total, free if request.wanted & v3.INFO_FREE else None
            )
        self._unanswered -= 1
        self._send(response)
