"""The SDKs' side of an engine: connections, HELLO first, appends, reads, status (boki_common.engine.engine_protocol).

Rules:
- The first message is HELLO with a version both sides know, and the cluster token if there is one; anything else ends the
  connection.
- Only an engine asks for headers, and has calls forwarded; an SDK is refused, and its connection ends.
- Bytes that cannot be right raise ProtocolError: the peer is sent it, and its connection ends. What is right but not possible
  (a batch over a limit, a full queue) is refused by name, for that request only.
- An append has no answer but a refusal; what was ordered is pushed, for all that one turn applied, in messages of a size.
  What has lost for certain is answered at once, and ordered without its payload (`early_conflicts`).
- SDKs push appends, so a refusal has no request to fail: it ends the SDK's connection at its end. The SDK connects again
  after a pause and sends everything undecided again under the same numbers; the numbers keep it from being applied twice.
- An engine that indexes some slots forwards what is about other books (`forwarding`), unless it was forwarded already.
- While the append queue is crowded, a connection that appended is not read from: its SDK slows down before it is refused.
- Bounds: requests that wait (`PENDING_READS` a connection), bytes that the peer does not take
  (`limits.CONNECTION_UNSENT_BYTES`). Above that nothing is read from it: there is no more to answer than what it had appended, which
  the append queue bounds. A peer that takes none for long is dropped: it will ask again by resending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from boki_common import limits
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.engine import engine_protocol as wire
from boki_common.engine.admission import Admission
from boki_common.engine.answers import Answers, encode_answers
from boki_common.engine.engine_protocol import Consistency, Query, Token
from boki_common.engine.reads_together import decode_reads, encode_read_answers
from boki_common.engine.tag_reads import TagRead, decode_tag_read
from boki_common.errors import (
    DECODE_FAULTS,
    BokiError,
    ConnectionLost,
    NotPermitted,
    Overloaded,
    ProtocolError,
    RecordTooLarge,
    SlotNotInTerm,
    VersionMismatch,
)
from boki_common.ids import slot_of
from boki_common.logs import get_logger
from boki_common.net.messages import MessagePeer
from boki_common.records.batch_layout import FLAG_ZSTD
from boki_common.records.payload_check import check_payloads
from boki_common.records.record_batch import RecordBatch
from boki_common.runtime.ports import Buffer
from boki_logbook.append.router import AppendRouter
from boki_logbook.connection_ports import EngineState, Hello
from boki_logbook.intake import Intake
from boki_logbook.peers.forwarding import FORWARDED, Forwarder, Neighbours, book_of
from boki_logbook.peers.header_publisher import HeaderPublisher
from boki_logbook.peers.pushed_headers import HEADERS
from boki_logbook.read.barrier_reads import Answer
from boki_logbook.read.reader import Reader
from boki_logbook.scan.messages import SCAN
from boki_logbook.state.some_slots import indexed

PENDING_READS: Final = 4_096
"""Reads of one connection that may wait at the same time."""
COPIED_BYTES: Final = 32 * limits.KIB
"""Answers to READS up to this are copied into one message."""
_OF_ITS_OWN_BYTES: Final = limits.CONNECTION_BUFFER_BYTES // 2
"""Batches below this are copied out of the receive buffer: kept in the cache, they would keep more than twice what they count."""
_FLAGS_OFFSET: Final = 1
_ABOUT_A_BOOK: Final = frozenset(
    (
        wire.OP_READ,
        wire.OP_READ_PREV_MANY,
        wire.OP_POSITION,
        wire.OP_TRIM,
        wire.OP_SET_AUX,
        wire.OP_WRITER,
        wire.OP_SEEK,
        wire.OP_READ_TAGS,
    )
)
"""Requests that another engine may answer."""

_log = get_logger("engine.server")


class SdkConnection:
    """One SDK, or an engine that forwards for one. Implements MessageHandler, AppendSource, forwarding.Requester and
    barrier_reads.Requester."""

    def __init__(
        self,
        peer: MessagePeer,
        *,
        engine: EngineState,
        engines: Callable[[], list[str]],
        appender: AppendRouter,
        reader: Reader,
        headers: HeaderPublisher,
        lost: Callable[[SdkConnection], None],
        neighbours: Neighbours | None = None,
        token: ClusterToken = NO_TOKEN,
    ) -> None:
        """`engines`: addresses of the cluster's engines, as who connects reaches them. `neighbours`: of an engine that does not
        index all slots. `token`: asked of who connects."""
        self._token = token
        self._peer = peer
        self._connection = peer.connection
        self._neighbours = neighbours
        self._forwarder: Forwarder | None = None
        self._engine = engine
        self._engines = engines
        self._appender = appender
        self._reader = reader
        self._headers = headers
        self._reads = engine.reads
        self._lost = lost
        self._role = ""
        """Of who connected, once it is greeted; of those of earlier versions, which say none, that of an engine."""
        self._intake = Intake(peer.connection)
        self._waiting: dict[asyncio.Task[None], None] = {}
        self._takes_reads = False
        """Whether its HELLO has READS."""
        self._announced_more = False
        """Whether the READS that it sent last announced that others follow."""
        self._cursors: dict[int, tuple[int, asyncio.Task[None]]] = {}
        """The request of each that waits."""
        self._in_groups = 0
        """Reads that wait for a barrier together with others."""

    # -- MessageHandler

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        if not self._role:
            self._greet(opcode, request_id, body)
        elif opcode == wire.OP_APPEND:
            self._append(request_id, body)
        elif opcode == wire.OP_HEADERS:
            _check_engine(self._role, "HEADERS")
            self._headers.subscribe(peer)
            peer.respond(request_id, opcode)
        elif opcode == wire.OP_SCAN:
            self._check_room()
            peer.respond(request_id, opcode, self._engine.scan(self, body))
        elif opcode == wire.OP_STATUS:
            peer.respond(request_id, opcode, msgspec.json.encode(self._engine.status()))
        elif self._neighbours is not None and self._forwarded(opcode, request_id, body):
            return
        elif opcode == wire.OP_READ:
            self._read(request_id, body)
        elif opcode == wire.OP_READS:
            self._read_together(*decode_reads(body))
        else:
            self._call(opcode, request_id, body)

    def _call(self, opcode: int, request_id: int, body: memoryview) -> None:
        """Requests that may wait for something."""
        reader = self._reader
        work: Coroutine[Any, Any, list[Buffer]]
        if opcode == wire.OP_READ_PREV_MANY:
            work = reader.prev_many(*wire.decode_prev_many(body))
        elif opcode == wire.OP_POSITION:
            work = reader.position(*wire.decode_position(body))
        elif opcode == wire.OP_TRIM:
            _, book, pairs, forget = wire.decode_trim(body)
            work = reader.trim(book, pairs, forget=forget)
        elif opcode == wire.OP_WRITER:
            work = reader.writer_last(*wire.decode_writer(body))
        elif opcode == wire.OP_SEEK:
            work = reader.seek(*wire.decode_seek(body))
        elif opcode == wire.OP_READ_TAGS:
            self._read_tags(request_id, *decode_tag_read(body))
            return
        elif opcode == wire.OP_SET_AUX:
            self._peer.respond(request_id, opcode, bytes([reader.set_aux(*wire.decode_set_aux(body))]))
            return
        else:
            raise ProtocolError(f"expected an opcode from {wire.OP_HELLO} to {wire.OP_SCAN}, found {opcode}")
        self._later(opcode, request_id, work)

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        for task in list(self._waiting):
            task.cancel()
        self._intake.close()
        if self._forwarder is not None:
            self._forwarder.lost()
        self._headers.leave(peer)
        self._engine.end_scan(self)
        self._lost(self)

    # -- AppendSource

    def answered(self, token: Token, answers: Answers) -> None:
        for body in answers.encode(token):
            self._push(body)

    def answers_forwarded(self, body: memoryview) -> None:
        self._push(body)

    def _push(self, answers: Buffer) -> None:
        self._intake.answering()
        self._peer.push_now(wire.OP_ANSWERS, answers)

    def refused(self, request_id: int, error: BokiError) -> None:
        if not self._peer.closed:
            self._peer.respond_error(request_id, error)

    # -- requests

    def _greet(self, opcode: int, request_id: int, body: memoryview) -> None:
        if opcode != wire.OP_HELLO:
            raise ProtocolError(f"expected HELLO ({wire.OP_HELLO}) as the first message, found opcode {opcode}")
        try:
            hello = msgspec.msgpack.decode(body, type=Hello)
        except DECODE_FAULTS as error:
            raise ProtocolError(
                f"expected a HELLO of versions, features and auth, found something else: {error}"
            ) from error
        if wire.PROTOCOL_VERSION not in hello.versions:
            raise VersionMismatch(
                f"expected an SDK that speaks engine protocol {wire.PROTOCOL_VERSION}, found one of {hello.versions}: "
                "upgrade the older side",
                expected=wire.PROTOCOL_VERSION,
                found=list(hello.versions),
            )
        self._token.admit(hello.auth, "this engine")
        earlier = hello.role is None and not self._token.asks
        role = wire.ROLE_ENGINE if earlier else str(hello.role) or "unnamed"
        if FORWARDED in hello.features:
            _check_engine(role, "calls that were forwarded")
        self._role = role
        self._peer.introduced()
        self._takes_reads = wire.READS in hello.features
        if self._neighbours is not None and FORWARDED not in hello.features:
            self._forwarder = self._neighbours.forwarder(self)
        answer = {
            "version": wire.PROTOCOL_VERSION,
            "features": [HEADERS, wire.READS, SCAN],
            "engine": self._engine.incarnation,
            "engines": self._engines(),
            "cluster": self._engine.cluster,
            "now_ms": self._engine.now_ms(),
        }
        self._peer.respond(request_id, opcode, msgspec.msgpack.encode(answer))
        if not self._engine.admission.taken:
            self.announce_admission(self._engine.admission)

    def announce_admission(self, admission: Admission) -> None:
        """Says whether new appends are taken; earlier versions pass it over, and wait."""
        if self._role == wire.ROLE_SDK and not self._peer.closed:
            self._push(encode_answers({}, [admission.row()])[0])

    def _append(self, request_id: int, body: memoryview) -> None:
        token, view = wire.decode_token(body)
        size = len(view)
        if size > limits.ENTRY_BYTES:
            raise RecordTooLarge(
                f"expected at most {limits.ENTRY_BYTES} bytes in one append frame, found {size}: send fewer records at once",
                expected=limits.ENTRY_BYTES,
                found=size,
            )
        if size < _OF_ITS_OWN_BYTES:
            view = memoryview(bytes(view))
        batch = RecordBatch.parse(view)
        if view[_FLAGS_OFFSET] & FLAG_ZSTD:
            raise ProtocolError("expected an uncompressed batch from an SDK: the engine compresses")
        check_payloads(batch)
        if batch.run_count and self._neighbours is not None:
            self._appender.check_running()
            rest = self._forward(body[: len(body) - size], batch, request_id)
            if rest is None:
                return
            batch = rest
        if batch.run_count:
            if batch.crc_count:
                self._engine.check_named(batch)
            early = self._engine.early_conflicts(token, batch) if batch.expectation_count else None
            crowded = self._appender.append(batch if early is None else early.batch, self, request_id)
            if early is not None:
                answers = Answers()
                answers.add(early.rows)
                self.answered(early.token, answers)
            if crowded:
                self._intake.hold_back(self._appender.when_room)

    def _forward(self, token: memoryview, batch: RecordBatch, request_id: int) -> RecordBatch | None:
        """Sends what is of other slots where it belongs; returns what is left."""
        forwarder = self._forwarder
        if forwarder is None:
            for book in dict.fromkeys(run.book for run in batch.runs):
                self._check_own(book)
            return batch
        rest = forwarder.append(bytes(token), batch, request_id)
        if forwarder.crowded:
            self._intake.hold_back(forwarder.when_room)
        return rest

    def _forwarded(self, opcode: int, request_id: int, body: memoryview) -> bool:
        """Has another engine answer, if the call is about a book of its slots."""
        if opcode not in _ABOUT_A_BOOK:
            return False
        book = book_of(opcode, body)
        forwarder = self._forwarder
        if forwarder is None:
            self._check_own(book)
            return False
        if indexed(book, forwarder.neighbours.slots):
            return False
        self._check_room()
        self._later(opcode, request_id, forwarder.call(opcode, body, book))
        return True

    def _check_own(self, book: int) -> None:
        """What was forwarded once stays here."""
        assert self._neighbours is not None
        if not indexed(book, self._neighbours.slots):
            raise SlotNotInTerm(
                f"engine {self._engine.incarnation} does not index slot {slot_of(book)}, and forwards nothing that was "
                "forwarded: ask an engine that indexes it",
                found=slot_of(book),
            )

    def _read(self, request_id: int, body: memoryview) -> None:
        token, query = wire.decode_read(body)
        if self._connection.paused:
            self._check_room()
        self._reads.value += 1
        if query.consistency is Consistency.LINEARIZABLE:
            self._linearizable(token, [(request_id, query)])
            return
        reply = self._reader.answer_now(token, query)
        if reply is not None:
            self._peer.respond(request_id, wire.OP_READ, *reply)
            return
        self._later(wire.OP_READ, request_id, self._reader.answer(token, query))

    def _read_tags(self, request_id: int, token: Token, read: TagRead) -> None:
        """The request of a cursor ends the one of it that still waits."""
        self._reads.value += 1
        reply = None if read.cursor else self._reader.answer_now(token, read.query, read.rows)
        if reply is not None:
            self._check_room()
            self._peer.respond(request_id, wire.OP_READ_TAGS, *reply)
            return
        earlier = self._cursors.pop(read.cursor, None)
        if earlier is not None:
            waits, task = earlier
            task.cancel()
            self._peer.respond_error(waits, Overloaded("the cursor has asked for something else since"))
        self._later(wire.OP_READ_TAGS, request_id, self._reader.answer(token, read.query, read.rows))
        if read.cursor:
            task = next(reversed(self._waiting))
            self._cursors[read.cursor] = request_id, task
            task.add_done_callback(partial(self._cursor_answered, read.cursor))

    def _cursor_answered(self, cursor: int, task: asyncio.Task[None]) -> None:
        if self._cursors.get(cursor, (0, None))[1] is task:
            del self._cursors[cursor]

    def _read_together(self, token: Token, reads: list[tuple[int, Query]]) -> None:
        """Reads that an SDK sent as one message: what is refused of them is answered to each that asked."""
        if self._neighbours is not None:
            reads = [one for one in reads if not self._read_elsewhere(token, *one)]
        self._reads.value += len(reads)
        try:
            self._check_room()
            self._linearizable(token, reads)
        except Overloaded as error:
            for request_id, _ in reads:
                self._peer.respond_error(request_id, error)

    def _read_elsewhere(self, token: Token, request_id: int, query: Query) -> bool:
        try:
            return self._forwarded(wire.OP_READ, request_id, memoryview(wire.encode_read(token, query)[0]))
        except BokiError as error:
            self._peer.respond_error(request_id, error)
            return True

    def _linearizable(self, token: Token, reads: list[tuple[int, Query]]) -> None:
        self._check_pending(len(reads))
        self._reader.linearizable(self, token, reads)
        self._in_groups += len(reads)

    # -- barrier_reads.Requester

    @property
    def closed(self) -> bool:
        return self._peer.closed

    def respond_reads(self, answers: Sequence[Answer], *, more: bool) -> None:
        self._in_groups -= len(answers)
        peer, together = self._peer, self._takes_reads and (more or self._announced_more or len(answers) > 1)
        small = []
        for answer in answers:
            request_id, reply = answer
            if together and sum(map(len, reply)) <= COPIED_BYTES:
                small.append(answer)
            else:
                peer.respond(request_id, wire.OP_READ, *reply)
        if together:
            more = more and not self._connection.paused
            if small or more is not self._announced_more:
                peer.push_now(wire.OP_READS, encode_read_answers(small, more=more))
                self._announced_more = more

    def read_later(self, request_id: int, token: Token, query: Query) -> None:
        self._in_groups -= 1
        self._start(wire.OP_READ, request_id, self._reader.answer(token, query))

    def read_failed(self, request_id: int, error: BaseException) -> None:
        self._in_groups -= 1
        if not isinstance(error, BokiError):
            _log.error("a read failed inside", peer=self._peer.peer, error=error, exc_info=error)
        self._peer.respond_error(request_id, error)

    # -- room

    def _check_room(self) -> None:
        if not self._connection.paused:
            return
        unsent = self._connection.unsent_bytes
        if unsent > limits.CONNECTION_UNSENT_BYTES:
            raise Overloaded(f"{unsent} bytes of answers wait for this connection to take them", found=unsent)

    def _later(self, opcode: int, request_id: int, work: Coroutine[Any, Any, list[Buffer]]) -> None:
        """Answers when the work is done."""
        try:
            self._check_pending()
        except Overloaded:
            work.close()
            raise
        self._start(opcode, request_id, work)

    def _check_pending(self, reads: int = 1) -> None:
        waiting = len(self._waiting) + self._in_groups
        if waiting + reads > PENDING_READS:
            raise Overloaded(f"{PENDING_READS} reads of this connection wait already", found=waiting)

    def _start(self, opcode: int, request_id: int, work: Coroutine[Any, Any, list[Buffer]]) -> None:
        task = asyncio.ensure_future(self._answer(opcode, request_id, work))
        self._waiting[task] = None
        task.add_done_callback(partial(self._ended, work))

    def _ended(self, work: Coroutine[Any, Any, list[Buffer]], task: asyncio.Task[None]) -> None:
        del self._waiting[task]
        work.close()  # which never began where the connection ended in the turn of the request

    async def _answer(self, opcode: int, request_id: int, work: Coroutine[Any, Any, list[Buffer]]) -> None:
        try:
            reply = await work
        except BokiError as error:
            self._peer.respond_error(request_id, error)
        except Exception as error:  # noqa: BLE001 - one request must not end the engine for all others
            _log.error("a read failed inside", peer=self._peer.peer, error=error, exc_info=True)
            self._peer.respond_error(request_id, error)
        else:
            self._peer.respond(request_id, opcode, *reply)

    def end(self) -> None:
        """Ends the connection; nothing that waits in it is looked at."""
        self._connection.abort(ConnectionLost(f"{self._connection.peer} may have sent long ago what would be read now"))

    async def close(self) -> None:
        """Ends the connection and what still works for it."""
        self._peer.close()
        for task in list(self._waiting):
            task.cancel()
        while self._waiting:
            await asyncio.wait(list(self._waiting))
        if self._forwarder is not None:
            await self._forwarder.close()


def _check_engine(role: str, what: str) -> None:
    """Raises NotPermitted; before HELLO was accepted nothing else is taken from such a connection."""
    if role != wire.ROLE_ENGINE:
        raise NotPermitted(
            f"expected {what} from an engine, whose HELLO says so, found an SDK: connect without asking for it"
        )
