"""The model behind the protocol of an engine: messages in, verdicts and records out.

Implements `MessageHandler`, so it serves connections inside of the process (`MemoryCluster`) and sockets alike. One
instance serves all connections; it knows no socket and no thread.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, Protocol

import msgspec

from boki.testing._model import ALL, TERM, Answer, Append, Model, Outcome, Stored
from boki_common import limits
from boki_common.engine import engine_protocol as wire
from boki_common.engine.answers import AnswerRow, encode_answers
from boki_common.engine.engine_protocol import Consistency, Direction, GapKind, GapRow, Query, Verdict
from boki_common.engine.read_reply import encode_read_reply, encode_records
from boki_common.engine.reads_together import decode_reads
from boki_common.engine.tag_reads import FROM_BEGINNING, TagRead, TagRow, decode_tag_read
from boki_common.errors import BokiError, Overloaded, ProtocolError, RecordTooLarge, Trimmed
from boki_common.ids import SEQNUM_MAX, Position
from boki_common.records.record_batch import RUN_NAMED, RUN_VOID, RecordBatch
from boki_common.runtime.ports import Buffer, Clock

LOG: Final = 0
"""All books of a model are on one physical log."""
PARKED_READS: Final = 65_536
AUX_CACHE_BYTES: Final = 64 * limits.MIB
"""Aux data kept; beyond that the oldest goes, as it may at any time."""

_U64: Final = Struct("<Q")
_VERDICTS: Final = {
    Outcome.COMMITTED: Verdict.COMMITTED,
    Outcome.CONFLICT: Verdict.CONFLICT,
    Outcome.NEVER: Verdict.NEVER,
    Outcome.GAP: Verdict.GAP,
    Outcome.FORGOTTEN: Verdict.FORGOTTEN,
    Outcome.REUSED: Verdict.REUSED,
    Outcome.TOO_OLD: Verdict.TOO_OLD,
}


class Peer(Protocol):
    """One connection, as this end sees it: what is needed of `MessagePeer`."""

    def push(self, opcode: int, *body: Buffer) -> None: ...

    def respond(self, request_id: int, opcode: int, *body: Buffer) -> None: ...

    def respond_error(self, request_id: int, error: BaseException) -> None: ...


@dataclass(eq=False, slots=True)
class _Parked:
    """A request that waits: for the view it asks for, or for a record."""

    peer: Peer
    request_id: int
    token: dict[int, Position]
    query: Query
    deadline: float
    looked: int
    """Everything of the range below this was looked at when it was there."""
    tags: TagRead | None = None
    """Of a read of several."""
    streams: frozenset[int] = frozenset()
    """What it waits for a record of, once its view is reached: looked at whenever one comes, so that there is none when its time is up."""
    timer: asyncio.TimerHandle | None = None


class ModelEngine:
    """Answers requests from a model.

    Attributes:
        model: what it serves.
        mute: while True, verdicts are not pushed (records are ordered all the same), as if the answers were lost.
        frames: APPEND frames received so far.
    """

    def __init__(self, model: Model, clock: Clock) -> None:
        self.model: Final = model
        self.mute = False
        self.frames = 0
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._parked: dict[_Parked, None] = {}
        self._aux: OrderedDict[int, bytes] = OrderedDict()
        self._aux_bytes = 0

    def message_received(self, peer: Peer, opcode: int, request_id: int, body: memoryview) -> None:
        if opcode == wire.OP_APPEND:
            self._append(peer, body)
        elif opcode == wire.OP_READ:
            self._read(peer, request_id, *wire.decode_read(body))
        elif opcode == wire.OP_READS:
            token, reads = decode_reads(body)
            for number, query in reads:
                self._read(peer, number, token, query)
        elif opcode == wire.OP_READ_TAGS:
            self._read_tags(peer, request_id, *decode_tag_read(body))
        elif opcode == wire.OP_READ_PREV_MANY:
            self._read_prev_many(peer, request_id, body)
        elif opcode == wire.OP_POSITION:
            wire.decode_position(body)
            peer.respond(request_id, opcode, *wire.encode_position(self._token(), self.model.position))
        elif opcode == wire.OP_TRIM:
            _, book, pairs, forget = wire.decode_trim(body)
            self.trim(book, pairs, forget=forget)
            peer.respond(request_id, opcode, *wire.encode_position(self._token(), self.model.position))
        elif opcode == wire.OP_SET_AUX:
            peer.respond(request_id, opcode, bytes([self._set_aux(*wire.decode_set_aux(body))]))
        elif opcode == wire.OP_WRITER:
            _, book, writer = wire.decode_writer(body)
            peer.respond(request_id, opcode, *wire.encode_position(self._token(), self.model.last(book, writer)))
        elif opcode == wire.OP_SEEK:
            _, _, time_ms, _ = wire.decode_seek(body)
            found = wire.encode_found(self._token(), self.model.position, self.model.seek(time_ms))
            peer.respond(request_id, opcode, *found)
        elif opcode == wire.OP_HELLO:
            hello = {
                "version": wire.PROTOCOL_VERSION,
                "features": [wire.READS],
                "engine": "memory",
                "cluster": self.model.cluster,
                "now_ms": self._clock.now_ms(),
            }
            peer.respond(request_id, wire.OP_HELLO, msgspec.msgpack.encode(hello))
        elif opcode == wire.OP_STATUS:
            peer.respond(request_id, wire.OP_STATUS, msgspec.json.encode({"records_ordered": self.model.end}))
        else:
            raise ProtocolError(f"expected an opcode from 1 to {wire.OP_READ_TAGS}, found {opcode}", found=opcode)

    def trim(self, book: int, pairs: Sequence[tuple[int, int]], *, forget: bool) -> None:
        """Orders a trim."""
        self.model.trim(book, pairs, self._clock.now_ms(), forget=forget)
        self._wake()

    def _set_aux(self, book: int, seqnum: int, data: bytes) -> bool:
        if not self.model.has(book, seqnum):
            return False
        self._aux_bytes += len(data) - len(self._aux.pop(seqnum, b""))
        self._aux[seqnum] = data
        while self._aux_bytes > AUX_CACHE_BYTES:
            self._aux_bytes -= len(self._aux.popitem(last=False)[1])
        return True

    def peer_lost(self, peer: Peer, error: BokiError | None) -> None:
        for parked in [one for one in self._parked if one.peer is peer]:
            self._unpark(parked)

    def close(self) -> None:
        """Forgets all that waits."""
        for parked in list(self._parked):
            self._unpark(parked)

    def _token(self) -> dict[int, Position]:
        return {LOG: Position(TERM, self.model.entries)}

    # -- appends

    def _append(self, peer: Peer, body: memoryview) -> None:
        _, rest = wire.decode_token(body)
        if len(rest) > limits.ENTRY_BYTES:
            raise RecordTooLarge(f"expected at most {limits.ENTRY_BYTES} bytes in one append frame, found {len(rest)}")
        batch = RecordBatch.parse(rest)
        self.frames += 1
        now_ms = self._clock.now_ms()
        rows: list[AnswerRow] = []
        touched: dict[int, set[int]] = {}
        for item in appends_of(batch):
            known = item.number <= self.model.last(item.book, item.writer)
            row = self._row(item, self.model.append(item, now_ms))
            again = known and row.verdict == wire.Verdict.COMMITTED
            touched.setdefault(item.book, {ALL}).update(item.tags)
            rows.append(row._replace(flags=wire.ROW_DUPLICATE) if again else row)
        if rows and not self.mute:
            for answers in encode_answers(self._token(), _joined(rows)):
                peer.push(wire.OP_ANSWERS, answers)
        self._appended(touched)

    def _row(self, item: Append, answer: Answer) -> AnswerRow:
        verdict = _VERDICTS[answer.outcome]
        return AnswerRow(
            item.book, item.writer, item.number, answer.seqnum, self.model.position, 1, verdict, answer.actual
        )

    # -- reads

    def _read_tags(self, peer: Peer, request_id: int, token: dict[int, Position], read: TagRead) -> None:
        """The request of a cursor ends the one of it that still waits."""
        for parked in [one for one in self._parked if one.peer is peer and one.tags is not None]:
            assert parked.tags is not None
            if 0 != read.cursor == parked.tags.cursor:
                self._unpark(parked)
                peer.respond_error(parked.request_id, Overloaded("the cursor has asked for something else since"))
        self._read(peer, request_id, token, read.query, read)

    def _read(
        self, peer: Peer, request_id: int, token: dict[int, Position], query: Query, tags: TagRead | None = None
    ) -> None:
        deadline = self._loop.time() + query.wait_ms / 1000
        parked = _Parked(peer, request_id, token, query, deadline, query.start, tags)
        if self._answered(parked):
            return
        if len(self._parked) >= PARKED_READS:
            peer.respond_error(request_id, Overloaded(f"{len(self._parked)} reads wait already"))
            return
        self._parked[parked] = None
        if query.wait_ms:
            parked.timer = self._loop.call_at(parked.deadline, self._expired, parked)

    def _answered(self, parked: _Parked, *, last: bool = False) -> bool:
        """Answers a read, unless its view is not reached, or it waits for a record and time is left."""
        query, model = parked.query, self.model
        behind = parked.token.get(LOG, Position(0, 0)) > Position(TERM, model.entries)
        if behind and query.consistency != Consistency.ANY:
            return False
        found, gaps = self._found(parked) if not parked.streams or not last else ([], [])
        if not found and not gaps and query.wait_ms and not last and model.position < query.stop - 1:
            parked.looked = max(parked.looked, model.position + 1)
            if query.stop > SEQNUM_MAX:
                parked.streams = frozenset(
                    (query.tag,) if parked.tags is None else (row.tag for row in parked.tags.rows)
                )
            return False
        page = _clipped(found[: query.max_records], query.max_bytes)
        reply = encode_read_reply(
            self._token(),
            model.position,
            more=len(page) < len(found),
            records=_columns(list(page)),
            gaps=gaps,
            aux=self._aux_of(page),
            takes_tags=not page,
        )
        opcode = wire.OP_READ if parked.tags is None else wire.OP_READ_TAGS
        parked.peer.respond(parked.request_id, opcode, *reply)
        return True

    def _found(self, parked: _Parked) -> tuple[list[Stored], list[GapRow]]:
        """What a range has, with one more than is wanted, and where records may be missing that it has not looked at."""
        query, model = parked.query, self.model
        book, tag, most = query.book, query.tag, query.max_records + 1
        if query.direction == Direction.PREV:
            mark, floor = model.mark(book, tag), model.floor(book)
            found = model.downwards(book, tag, query.start, query.stop, most)
            low = mark if query.start < mark else 0 if found or query.start >= floor else floor
            return found, [GapRow(query.stop, low - 1, GapKind.TRIMMED)] if low else []
        rows = (TagRow(tag, 0),) if parked.tags is None else parked.tags.rows
        records: dict[int, Stored] = {}
        gaps = []
        for place, (stream, begin, flags) in enumerate(rows, 1):
            for record in model.upwards(book, stream, max(begin, query.start), query.stop, most):
                records[record.seqnum] = record
            looked = max(begin, parked.looked)
            until = model.missing(book, stream, looked, query.stop, anew=bool(flags & FROM_BEGINNING) or looked <= 1)
            if until > looked:
                gaps.append(GapRow(looked, until - 1, GapKind.TRIMMED, 0 if parked.tags is None else place))
        return [records[seqnum] for seqnum in sorted(records)[:most]], sorted(gaps)

    def _aux_of(self, records: Sequence[Stored | None]) -> dict[int, bytes]:
        """Aux data by row, as far as it fits a reply."""
        found: dict[int, bytes] = {}
        room = limits.AUX_BYTES
        for row, record in enumerate(records):
            if record is not None and record.seqnum in self._aux and len(self._aux[record.seqnum]) <= room:
                found[row] = self._aux[record.seqnum]
                room -= len(found[row])
        return found

    def _read_prev_many(self, peer: Peer, request_id: int, body: memoryview) -> None:
        _, book, queries, _ = wire.decode_prev_many(body)
        model = self.model
        for index, (tag, at_most) in enumerate(queries):
            mark = model.mark(book, tag)
            if at_most < mark:
                raise Trimmed(f"the stream is trimmed below {mark}; read from there", mark=mark, index=index)
        found = [next(iter(model.downwards(book, tag, at_most, 0, 1)), None) for tag, at_most in queries]
        floor = model.floor(book)
        for index, (record, (_, at_most)) in enumerate(zip(found, queries, strict=True)):
            if record is None and at_most < floor:
                raise Trimmed(f"streams were forgotten up to {floor}", mark=floor, index=index)
        size = sum(len(record.payload) for record in found if record is not None)
        if size > limits.ENTRY_BYTES - limits.AUX_BYTES:
            raise RecordTooLarge(f"{len(queries)} records of {size} bytes do not fit one answer; ask for fewer at once")
        reply = encode_read_reply(
            self._token(), model.position, more=False, records=_columns(found), aux=self._aux_of(found)
        )
        peer.respond(request_id, wire.OP_READ_PREV_MANY, *reply)

    def _appended(self, touched: Mapping[int, set[int]]) -> None:
        """Answers reads that wait, after appends to these streams of books. All others have looked at what is there, and have nothing."""
        looked = self.model.position + 1
        for parked in list(self._parked):
            if parked.streams and parked.streams.isdisjoint(touched.get(parked.query.book, ())):
                parked.looked = max(parked.looked, looked)
            elif self._answered(parked):
                self._unpark(parked)

    def _wake(self) -> None:
        for parked in list(self._parked):
            if self._answered(parked):
                self._unpark(parked)

    def _expired(self, parked: _Parked) -> None:
        if parked in self._parked and self._answered(parked, last=True):
            self._unpark(parked)

    def _unpark(self, parked: _Parked) -> None:
        self._parked.pop(parked, None)
        if parked.timer is not None:
            parked.timer.cancel()


def appends_of(batch: RecordBatch) -> list[Append]:
    """The records of a batch, one by one."""
    items: list[Append] = []
    expectations = zip(*batch.expectations, strict=True)
    checksums = iter(batch.crcs.tolist())
    record = 0
    for run in batch.runs:
        expected: dict[int, list[tuple[int, int]]] = {}
        for _ in range(run.expectation_count):
            tag, seqnum, of_record = next(expectations)
            expected.setdefault(of_record, []).append((tag, seqnum))
        for index in range(run.count):
            items.append(
                Append(
                    run.book,
                    run.writer,
                    run.first + index,
                    run.low,
                    tuple(batch.record_tags(record).tolist()),
                    bytes(batch.payload(record)),
                    tuple(expected.get(index, ())),
                    bool(run.flags & RUN_VOID),
                    bool(run.flags & RUN_NAMED),
                    next(checksums) if run.flags & RUN_NAMED else 0,
                )
            )
            record += 1
    return items


def _joined(rows: Sequence[AnswerRow]) -> list[AnswerRow]:
    """Consecutive numbers with consecutive seqnums as one row, as engines send them."""
    joined: list[AnswerRow] = []
    for row in rows:
        before = joined[-1] if joined else None
        if (
            before is not None
            and before.verdict == row.verdict == Verdict.COMMITTED
            and (before.book, before.writer, before.flags) == (row.book, row.writer, row.flags)
            and before.first + before.count == row.first
            and before.first_seqnum + before.count == row.first_seqnum
        ):
            joined[-1] = before._replace(count=before.count + 1, position=row.position)
        else:
            joined.append(row)
    return joined


def _clipped(found: list[Stored], max_bytes: int) -> list[Stored]:
    """As many as fit, and at least one."""
    size = 0
    for index, record in enumerate(found):
        size += len(record.payload)
        if size > max_bytes and index:
            return found[:index]
    return found


def _columns(records: Sequence[Stored | None]) -> list[Buffer]:
    return encode_records(
        [0 if record is None else record.seqnum for record in records],
        [0 if record is None else record.time_ms for record in records],
        [b"" if record is None else b"".join(map(_U64.pack, record.tags)) for record in records],
        [0 if record is None else len(record.tags) for record in records],
        [b"" if record is None else record.payload for record in records],
    )
