"""Frames of Apache BookKeeper's v3 protocol: protobuf messages, checked here and turned into plain values. Pure.

Every frame has its 4-byte big-endian length before it (`net.frames`), which the encoders below include; then one message
`Request` or `Response` of `bookkeeper_protocol.proto`. A request begins with byte `FIRST_BYTE`, which no v2 frame does.

| operation | request | answer, besides ledger and status |
|---|---|---|
| 1 read | ledger, entry (-1 = last stored); to fence: key; to wait (long poll): previous LAC, time-out | body, LAC, its time |
| 2 add | ledger, entry, key, body; recovery flag; deferred-sync flag | entry |
| 5 auth | message, see `auth` | the same |
| 6 write LAC | ledger, LAC, key, body: ledger i64, LAC i64, digest | |
| 7 read LAC | ledger | explicit LAC body, body of the last entry |
| 8 bookie info | which of 1 total, 2 free disk space | total, free |
| 10 force | ledger | |
| 11 list of entries | ledger | availability, see `availability` |

- Results are `V2Status` everywhere in Boki; only the bytes have v3's numbers. An answer carries its status twice.
- Decoders check every length, flag and number and raise ProtocolError; a body names the ledger and entry of its request.
- An operation, version or flag that is not served is an `UnknownRequest` with its answer, not an error.
- Apache's encoder writes a request's flag (field 100) before the other fields, so ours does.

Source: frames recorded from Apache BookKeeper 4.18.0 (`common/tests/vectors/bookkeeper/v3-*.txt`).
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeVar

from google.protobuf import message

from boki_common.bookkeeper import auth, v3_messages
from boki_common.bookkeeper import bookkeeper_protocol_pb2 as pb
from boki_common.bookkeeper.digests import MASTER_KEY_BYTES
from boki_common.bookkeeper.ledger_metadata import varint
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v2 import ENTRY_HEADER_BYTES, LAST_ENTRY
from boki_common.errors import ProtocolError
from boki_common.runtime.ports import Buffer

VERSION: Final = 3
FIRST_BYTE: Final = 0x0A
"""Tag of a request's header, its first field."""
OP_READ: Final = 1
OP_ADD: Final = 2
OP_AUTH: Final = 5
OP_WRITE_LAC: Final = 6
OP_READ_LAC: Final = 7
OP_BOOKIE_INFO: Final = 8
OP_FORCE: Final = 10
OP_LIST_ENTRIES: Final = 11
INFO_TOTAL: Final = 1
INFO_FREE: Final = 2

_READ_FLAG_FENCE: Final = 1
_READ_FLAG_WAIT: Final = 2
_ADD_FLAG_RECOVERY: Final = 1
_WRITE_FLAG_DEFERRED_SYNC: Final = 1
_FLAG_FIELD: Final = 100
_LENGTH: Final = Struct(">I")
_IDS: Final = Struct(">qq")
_LAC_BODY_BYTES: Final = range(_IDS.size, _IDS.size + 20 + 1)
"""The two numbers and the shortest (none) to the longest (HMAC) digest."""

_STATUS_CODES: Final = {
    V2Status.OK: 0,
    V2Status.NO_LEDGER: 402,
    V2Status.NO_ENTRY: 403,
    V2Status.BAD_REQUEST: 404,
    V2Status.IO_ERROR: 501,
    V2Status.UNAUTHORIZED: 502,
    V2Status.BAD_VERSION: 503,
    V2Status.FENCED: 504,
    V2Status.READ_ONLY: 505,
    V2Status.TOO_MANY_REQUESTS: 506,
    V2Status.UNKNOWN_LEDGER_STATE: 507,
}
_STATUSES: Final = {code: status for status, code in _STATUS_CODES.items()}
# Apache's StatusCode; v2 and v3 name the same outcomes.


KnownRequest = (
    v3_messages.AddRequest
    | v3_messages.ReadRequest
    | v3_messages.WriteLacRequest
    | v3_messages.ReadLacRequest
    | v3_messages.ForceRequest
    | v3_messages.ListEntriesRequest
    | v3_messages.BookieInfoRequest
    | v3_messages.AuthRequest
)
Request = KnownRequest | v3_messages.UnknownRequest
Response = (
    v3_messages.AddResponse
    | v3_messages.ReadResponse
    | v3_messages.WriteLacResponse
    | v3_messages.ReadLacResponse
    | v3_messages.ForceResponse
    | v3_messages.ListEntriesResponse
    | v3_messages.BookieInfoResponse
    | v3_messages.AuthResponse
    | v3_messages.UnknownResponse
)
_Whole = TypeVar("_Whole", pb.Request, pb.Response)


# -- requests


def encode_request(request: KnownRequest) -> bytes:
    """One whole request frame."""
    operation, field, inner = _inner_request(request)
    header = pb.PacketHeader(version=VERSION, operation=operation, txnId=request.txn_id, priority=request.priority)
    return _frame(_field(1, header.SerializeToString()), field, inner)


def _inner_request(request: KnownRequest) -> tuple[int, int, bytes]:
    """Operation, number of the field and its bytes."""
    if isinstance(request, v3_messages.AddRequest):
        add = pb.AddRequest(
            ledgerId=request.ledger_id, entryId=request.entry_id, masterKey=request.master_key, body=bytes(request.body)
        )
        if request.deferred_sync:
            add.writeFlags = _WRITE_FLAG_DEFERRED_SYNC
        return OP_ADD, 101, _flag(_ADD_FLAG_RECOVERY if request.recovery else 0) + add.SerializeToString()
    if isinstance(request, v3_messages.ReadRequest):
        assert not (request.waits and request.master_key is not None), "a read fences or waits"
        read = pb.ReadRequest(ledgerId=request.ledger_id, entryId=request.entry_id, masterKey=request.master_key)
        if request.waits:
            read.previousLAC, read.timeOut = request.previous_lac, request.timeout_ms
        flag = _READ_FLAG_WAIT if request.waits else _READ_FLAG_FENCE if request.master_key is not None else 0
        return OP_READ, 100, _flag(flag) + read.SerializeToString()
    if isinstance(request, v3_messages.WriteLacRequest):
        lac = pb.WriteLacRequest(
            ledgerId=request.ledger_id, lac=request.lac, masterKey=request.master_key, body=bytes(request.body)
        )
        return OP_WRITE_LAC, 103, lac.SerializeToString()
    if isinstance(request, v3_messages.BookieInfoRequest):
        return OP_BOOKIE_INFO, 105, pb.BookieInfoRequest(requested=request.wanted).SerializeToString()
    if isinstance(request, v3_messages.AuthRequest):
        return OP_AUTH, 102, auth.encode(request.message)
    ledger = pb.LedgerRequest(ledgerId=request.ledger_id).SerializeToString()
    if isinstance(request, v3_messages.ReadLacRequest):
        return OP_READ_LAC, 104, ledger
    return (OP_FORCE, 107, ledger) if isinstance(request, v3_messages.ForceRequest) else (OP_LIST_ENTRIES, 108, ledger)


def decode_request(frame: memoryview) -> Request:
    """Reads a request without its length. Raises ProtocolError: not such a message, or lengths and numbers that cannot be: the
    stream cannot be trusted any more."""
    whole = _parse(pb.Request(), frame)
    header = whole.header
    txn_id, operation = header.txnId, header.operation
    priority = header.priority if header.HasField("priority") else None
    if header.version != VERSION:
        return v3_messages.UnknownRequest(txn_id, operation, V2Status.BAD_VERSION)
    if operation == OP_ADD:
        return _add_request(_present(whole, "addRequest"), txn_id, priority)
    if operation == OP_READ:
        return _read_request(_present(whole, "readRequest"), txn_id, priority)
    if operation == OP_WRITE_LAC:
        lac = _present(whole, "writeLacRequest").writeLacRequest
        if len(lac.body) not in _LAC_BODY_BYTES or _IDS.unpack_from(lac.body) != (lac.ledgerId, lac.lac):
            raise ProtocolError(f"expected the body of LAC {lac.lac} of ledger {lac.ledgerId}, found another")
        return v3_messages.WriteLacRequest(
            txn_id, priority, lac.ledgerId, lac.lac, _key(lac.masterKey), memoryview(lac.body)
        )
    if operation == OP_READ_LAC:
        return v3_messages.ReadLacRequest(txn_id, priority, _present(whole, "readLacRequest").readLacRequest.ledgerId)
    if operation == OP_BOOKIE_INFO:
        wanted = _present(whole, "bookieInfoRequest").bookieInfoRequest.requested
        return v3_messages.BookieInfoRequest(txn_id, priority, wanted)
    if operation == OP_FORCE:
        return v3_messages.ForceRequest(
            txn_id, priority, _present(whole, "forceLedgerRequest").forceLedgerRequest.ledgerId
        )
    if operation == OP_LIST_ENTRIES:
        return v3_messages.ListEntriesRequest(
            txn_id, priority, _present(whole, "listEntriesRequest").listEntriesRequest.ledgerId
        )
    if operation == OP_AUTH:
        step = _present(whole, "authRequest").authRequest
        return v3_messages.AuthRequest(txn_id, priority, auth.AuthMessage(step.authPluginName, step.payload))
    return v3_messages.UnknownRequest(txn_id, operation, V2Status.BAD_REQUEST)


def decode_auth_request(frame: memoryview) -> v3_messages.AuthRequest | None:
    """The step of a handshake that a frame is; None: it is another request. Raises ProtocolError."""
    if _parse(pb.Request(), frame).header.operation != OP_AUTH:
        return None
    request = decode_request(frame)
    return request if isinstance(request, v3_messages.AuthRequest) else None


def encode_refusal(frame: memoryview, status: V2Status) -> bytes:
    """Answers a request, whichever it is, with a status alone, as Apache's bookie refuses those who are not authenticated. Raises
    ProtocolError: not such a message."""
    header = _parse(pb.Request(), frame).header
    return encode_response(v3_messages.UnknownResponse(header.txnId, header.operation, status))


def _add_request(whole: pb.Request, txn_id: int, priority: int | None) -> Request:
    add = whole.addRequest
    if len(add.body) < ENTRY_HEADER_BYTES or _IDS.unpack_from(add.body) != (add.ledgerId, add.entryId):
        raise ProtocolError(f"expected the body of entry {add.entryId} of ledger {add.ledgerId}, found another")
    if add.flag not in (0, _ADD_FLAG_RECOVERY) or add.writeFlags not in (0, _WRITE_FLAG_DEFERRED_SYNC):
        return v3_messages.UnknownRequest(txn_id, OP_ADD, V2Status.BAD_REQUEST)
    return v3_messages.AddRequest(
        txn_id,
        priority,
        add.ledgerId,
        add.entryId,
        _key(add.masterKey),
        memoryview(add.body),
        add.flag == _ADD_FLAG_RECOVERY,
        add.writeFlags == _WRITE_FLAG_DEFERRED_SYNC,
    )


def _read_request(whole: pb.Request, txn_id: int, priority: int | None) -> Request:
    read = whole.readRequest
    if read.flag not in (0, _READ_FLAG_FENCE, _READ_FLAG_WAIT):
        return v3_messages.UnknownRequest(txn_id, OP_READ, V2Status.BAD_REQUEST)
    key = _key(read.masterKey) if read.flag == _READ_FLAG_FENCE else None
    waits = read.flag == _READ_FLAG_WAIT
    if waits and not read.HasField("previousLAC"):
        return v3_messages.UnknownRequest(txn_id, OP_READ, V2Status.BAD_REQUEST)
    previous = read.previousLAC if waits else LAST_ENTRY
    timeout_ms = read.timeOut if waits else 0
    if timeout_ms < 0 or previous < LAST_ENTRY:
        raise ProtocolError(f"expected a LAC from -1 and a time-out from 0, found {previous} and {timeout_ms} ms")
    return v3_messages.ReadRequest(txn_id, priority, read.ledgerId, read.entryId, key, waits, previous, timeout_ms)


# -- responses


def encode_response(response: Response) -> bytes:
    """One whole response frame."""
    code = _STATUS_CODES[response.status]
    operation, field, inner = _inner_response(response, code)
    header = pb.PacketHeader(version=VERSION, operation=operation, txnId=response.txn_id)
    return _frame(_field(1, header.SerializeToString()) + b"\x10" + varint(code), field, inner)


def _inner_response(response: Response, code: int) -> tuple[int, int, bytes]:
    """Operation, number of the field (0: none) and its bytes."""
    if isinstance(response, v3_messages.AddResponse):
        add = pb.AddResponse(status=code, ledgerId=response.ledger_id, entryId=response.entry_id)
        return OP_ADD, 101, add.SerializeToString()
    if isinstance(response, v3_messages.ReadResponse):
        read = pb.ReadResponse(
            status=code,
            ledgerId=response.ledger_id,
            entryId=response.entry_id,
            body=_optional(response.body),
            maxLAC=response.lac,
            lacUpdateTimestamp=response.lac_time_ms,
        )
        return OP_READ, 100, read.SerializeToString()
    if isinstance(response, v3_messages.ReadLacResponse):
        lac = pb.ReadLacResponse(
            status=code,
            ledgerId=response.ledger_id,
            lacBody=_optional(response.lac_body),
            lastEntryBody=_optional(response.last_entry_body),
        )
        return OP_READ_LAC, 104, lac.SerializeToString()
    if isinstance(response, v3_messages.ListEntriesResponse):
        entries = pb.ListEntriesResponse(
            status=code, ledgerId=response.ledger_id, availability=_optional(response.availability)
        )
        return OP_LIST_ENTRIES, 108, entries.SerializeToString()
    if isinstance(response, v3_messages.BookieInfoResponse):
        info = pb.BookieInfoResponse(
            status=code, totalDiskCapacity=response.total_bytes, freeDiskSpace=response.free_bytes
        )
        return OP_BOOKIE_INFO, 105, info.SerializeToString()
    if isinstance(response, v3_messages.AuthResponse):
        return OP_AUTH, 102, auth.encode(response.message)
    if isinstance(response, v3_messages.UnknownResponse):
        return response.operation, 0, b""
    ledger = pb.LedgerResponse(status=code, ledgerId=response.ledger_id).SerializeToString()
    return (OP_FORCE, 107, ledger) if isinstance(response, v3_messages.ForceResponse) else (OP_WRITE_LAC, 103, ledger)


def decode_response(frame: memoryview) -> Response:
    """Reads a response without its length. Raises ProtocolError: not such a message, or a version, operation, status or length
    that cannot be."""
    whole = _parse(pb.Response(), frame)
    header = whole.header
    if header.version != VERSION:
        raise ProtocolError(f"expected protocol version {VERSION}, found {header.version}", found=header.version)
    txn_id, operation, status = header.txnId, header.operation, _status(whole.status)
    if operation == OP_ADD and whole.HasField("addResponse"):
        add = whole.addResponse
        return v3_messages.AddResponse(txn_id, _status(add.status), add.ledgerId, add.entryId)
    if operation == OP_READ and whole.HasField("readResponse"):
        return _read_response(whole.readResponse, txn_id)
    if operation == OP_WRITE_LAC and whole.HasField("writeLacResponse"):
        written = whole.writeLacResponse
        return v3_messages.WriteLacResponse(txn_id, _status(written.status), written.ledgerId)
    if operation == OP_READ_LAC and whole.HasField("readLacResponse"):
        lac = whole.readLacResponse
        lac_body = memoryview(lac.lacBody) if lac.HasField("lacBody") else None
        last = memoryview(lac.lastEntryBody) if lac.HasField("lastEntryBody") else None
        return v3_messages.ReadLacResponse(txn_id, _status(lac.status), lac.ledgerId, lac_body, last)
    if operation == OP_FORCE and whole.HasField("forceLedgerResponse"):
        forced = whole.forceLedgerResponse
        return v3_messages.ForceResponse(txn_id, _status(forced.status), forced.ledgerId)
    if operation == OP_LIST_ENTRIES and whole.HasField("listEntriesResponse"):
        listed = whole.listEntriesResponse
        availability = listed.availability if listed.HasField("availability") else None
        return v3_messages.ListEntriesResponse(txn_id, _status(listed.status), listed.ledgerId, availability)
    if operation == OP_BOOKIE_INFO and whole.HasField("bookieInfoResponse"):
        info = whole.bookieInfoResponse
        total = info.totalDiskCapacity if info.HasField("totalDiskCapacity") else None
        free = info.freeDiskSpace if info.HasField("freeDiskSpace") else None
        return v3_messages.BookieInfoResponse(txn_id, _status(info.status), total, free)
    if operation == OP_AUTH and whole.HasField("authResponse"):
        step = whole.authResponse
        return v3_messages.AuthResponse(txn_id, status, auth.AuthMessage(step.authPluginName, step.payload))
    if status is V2Status.OK:
        raise ProtocolError(f"expected the answer to operation {operation}, found only that it succeeded")
    return v3_messages.UnknownResponse(txn_id, operation, status)


def _read_response(read: pb.ReadResponse, txn_id: int) -> v3_messages.ReadResponse:
    return v3_messages.ReadResponse(
        txn_id,
        _status(read.status),
        read.ledgerId,
        read.entryId,
        memoryview(read.body) if read.HasField("body") else None,
        read.maxLAC if read.HasField("maxLAC") else None,
        read.lacUpdateTimestamp if read.HasField("lacUpdateTimestamp") else None,
    )


# -- bytes


def _parse(into: _Whole, frame: memoryview) -> _Whole:
    try:
        into.ParseFromString(bytes(frame))
    except message.DecodeError as error:
        raise ProtocolError(
            f"expected a message of BookKeeper's v3 protocol, found {len(frame)} other bytes"
        ) from error
    if not into.IsInitialized():  # protobuf's C parser takes a message without its required fields, as if they were 0
        raise ProtocolError("expected a whole message of BookKeeper's v3 protocol, found one without a required field")
    return into


def _present(whole: pb.Request, field: str) -> pb.Request:
    if not whole.HasField(field):
        raise ProtocolError(f"expected operation {whole.header.operation} to carry its {field}, found none")
    return whole


def _key(key: bytes) -> bytes:
    if len(key) != MASTER_KEY_BYTES:
        raise ProtocolError(f"expected a master key of {MASTER_KEY_BYTES} bytes, found {len(key)}")
    return key


def _status(code: int) -> V2Status:
    status = _STATUSES.get(code)
    if status is None:
        raise ProtocolError(f"expected a known status code, found {code}", found=code)
    return status


def _optional(body: Buffer | None) -> bytes | None:
    return None if body is None else bytes(body)


def _flag(flag: int) -> bytes:
    """The flag field, or nothing for 0."""
    return varint(_FLAG_FIELD << 3) + varint(flag) if flag else b""


def _field(number: int, inner: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(inner)) + inner


def _frame(head: bytes, field: int, inner: bytes) -> bytes:
    body = head + _field(field, inner) if field else head
    return _LENGTH.pack(len(body)) + body
