"""Frames of Apache BookKeeper's v2 protocol: adds, reads, batch reads, handshake. Pure; both sides share it.

Big endian. Every frame has its 4-byte length before it (`net.frames`), which the encoders below include.

    header               version u8 = 2 | opcode u8 | flags u16 (1 fence, 2 recovery add, 4 high priority)
    add request          header | master key 20 B | body
    add response         header | rc u32 | ledger i64 | entry i64
    read request         header | ledger i64 | entry i64 (-1 = last stored) | with flag 1: master key 20 B
    read response        header | rc u32 | ledger i64 | entry i64 | with rc 0: body
    batch read request   header | ledger i64 | entry i64 | request id i64 | max count u32 | max size i64 | flag 1: master key
    batch read response  header | rc u32 | ledger i64 | entry i64 | request id i64 | (size u32 | body)*
    auth, both ways      header | message, see `auth`
    hold request         header | master key 20 B | ledger i64 | version i64     of ours: Apache's bookies know no such opcode
    hold response        header | rc u32 | ledger i64 | version i64
    body                 ledger i64 | entry i64 | LAC i64 | cumulative length i64 | digest | payload

A request of another version is answered BAD_VERSION under its own version and numbers; an unknown opcode ends the connection.

Source: frames recorded from Apache BookKeeper 4.18.0 (`common/tests/vectors/bookkeeper`), and BookieProtoEncoding.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from boki_common.bookkeeper import auth
from boki_common.bookkeeper.digests import CRC32C, MASTER_KEY_BYTES, Digest, crc32c
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import ProtocolError, VersionMismatch
from boki_common.runtime.ports import Buffer

VERSION: Final = 2
OP_ADD: Final = 1
OP_READ: Final = 2
OP_AUTH: Final = 3
OP_BATCH_READ: Final = 7
OP_HOLD: Final = 66
"""Of ours, far from those that Apache gives out."""
V3_FIRST_BYTE: Final = 0x0A
"""A frame of version 3 begins with it (`v3.FIRST_BYTE`); it is left to the decoder of those."""
FLAG_FENCE: Final = 1
FLAG_RECOVERY_ADD: Final = 2
FLAG_HIGH_PRIORITY: Final = 4
_CONTROL_MASK: Final = FLAG_HIGH_PRIORITY | FLAG_RECOVERY_ADD
NUMBERS_END: Final = 2**62
"""Ledger and entry numbers, and lengths, are below this: room to count without overflow."""
LAST_ENTRY: Final = -1

_LENGTH: Final = Struct(">I")
_HEADER: Final = Struct(">BBH")
_ENTRY: Final = Struct(">qqqq")
_ADD_START: Final = Struct(f">IBBH{MASTER_KEY_BYTES}s")
"""Length, header and key of a whole add frame."""
_CRC_ADD: Final = Struct(f">IBBH{MASTER_KEY_BYTES}s{_ENTRY.size}sI")
"""The same, the entry's header and its CRC32C: all that is before the payload."""
_READ: Final = Struct(">BBHqq")
_WHOLE_READ: Final = Struct(">IBBHqq")
_READ_IN_RUN: Final = Struct(">Iqq")
_UNFENCED_READS: Final = frozenset(VERSION << 24 | OP_READ << 16 | flags for flags in (0, FLAG_HIGH_PRIORITY))
"""First words of reads that do not fence."""
READ_BYTES: Final = _READ.size
"""Of a read that does not fence, without its length."""
_HOLD: Final = Struct(f">BBH{MASTER_KEY_BYTES}sqq")
_BATCH_READ: Final = Struct(">BBHqqqIq")
_RESPONSE: Final = Struct(">BBHIqq")
_WHOLE_RESPONSE: Final = Struct(">IBBHIqq")
_ACKS_ALIKE: Final = Struct(">IBBHIq")
"""What the responses to adds of one ledger have in common, where all is well."""
_ACK: Final = Struct(f">{_ACKS_ALIKE.size}sq")
_REQUEST_ID: Final = Struct(">q")
_ADD_ALIKE: Final = Struct(f">I{MASTER_KEY_BYTES}sq")
"""What adds of one run have in common: version, opcode and flags, key, ledger."""
_ADD_IN_RUN: Final = Struct(f">{_ADD_ALIKE.size}sqqq")
_ADD_WORD: Final = VERSION << 8 | OP_ADD
_IDS: Final = Struct(">qq")

_JOINED_BODY_BYTES: Final = 8_192
"""On average, up to which bodies of a batch, or of several reads, are joined."""

ENTRY_HEADER_BYTES: Final = _ENTRY.size
_BODY_START: Final = _HEADER.size + MASTER_KEY_BYTES
ADD_OVERHEAD_BYTES: Final = _LENGTH.size + _BODY_START + ENTRY_HEADER_BYTES
ADD_RESPONSE_BYTES: Final = _WHOLE_RESPONSE.size
"""A whole add response, its length included."""


class EntryHeader(NamedTuple):
    """The 32 bytes before each entry. `length` is the ledger's payload bytes up to and with this entry."""

    ledger_id: int
    entry_id: int
    lac: int
    length: int


class AddRequest(NamedTuple):
    """A normal or a recovery add; `body` is what the bookie stores."""

    flags: int
    master_key: bytes
    ledger_id: int
    entry_id: int
    lac: int
    body: memoryview

    @property
    def recovery(self) -> bool:
        return bool(self.flags & FLAG_RECOVERY_ADD)

    @property
    def control(self) -> bool:
        """Whether it is a normal add of high priority, which a bookie takes on a full disk too, as long as its reserve lasts."""
        return self.flags & _CONTROL_MASK == FLAG_HIGH_PRIORITY


@dataclass(slots=True, eq=False)
class AddRun:
    """Adds of one client, one or more, that came one after another and differ in their entries only, as columns: what is
    decided of one of them is decided of all. Entries ascend and no header is impossible (`is_possible`)."""

    ledger_id: int
    master_key: bytes
    recovery: bool
    entry_ids: list[int]
    bodies: list[memoryview]
    count: int
    body_bytes: int
    """Of all of them."""
    control: bool = False
    """As `AddRequest.control`."""


class ReadRequest(NamedTuple):
    """A read; `master_key` is there when it fences."""

    flags: int
    ledger_id: int
    entry_id: int
    master_key: bytes | None


class BatchReadRequest(NamedTuple):
    """A read of consecutive entries; counts and sizes of 0 mean no limit of the client's."""

    flags: int
    ledger_id: int
    entry_id: int
    request_id: int
    max_count: int
    max_bytes: int
    master_key: bytes | None


class HoldRequest(NamedTuple):
    """A request to drop nothing of a ledger by a reading of its metadata at `version` or before."""

    flags: int
    master_key: bytes
    ledger_id: int
    version: int


class AuthRequest(NamedTuple):
    """A step of a handshake."""

    message: auth.AuthMessage


class UnknownRequest(NamedTuple):
    """A request of a version that is not served; it is answered under its own version and numbers, a batch read's id too."""

    version: int
    opcode: int
    status: V2Status
    ledger_id: int = -1
    entry_id: int = -1
    request_id: int | None = None


class AddResponse(NamedTuple):
    status: V2Status
    ledger_id: int
    entry_id: int


class ReadResponse(NamedTuple):
    status: V2Status
    ledger_id: int
    entry_id: int
    body: memoryview | None


class HoldResponse(NamedTuple):
    """OK: the hold is durable."""

    status: V2Status
    ledger_id: int
    version: int


class BatchReadResponse(NamedTuple):
    status: V2Status
    ledger_id: int
    entry_id: int
    request_id: int
    bodies: list[memoryview]


Request = AddRequest | ReadRequest | BatchReadRequest | HoldRequest | AuthRequest | UnknownRequest
Response = AddResponse | ReadResponse | BatchReadResponse | HoldResponse


# -- requests


def encode_add(
    header: EntryHeader, digest: Digest, master_key: bytes, payload: Sequence[Buffer], *, recovery: bool = False
) -> list[Buffer]:
    """One whole add frame; the same buffers go to every replica, the payload is not copied."""
    head = _ENTRY.pack(*header)
    size = ADD_OVERHEAD_BYTES - _LENGTH.size + digest.size + sum(map(len, payload))
    flags = FLAG_RECOVERY_ADD | FLAG_HIGH_PRIORITY if recovery else 0
    start = _ADD_START.pack(size, VERSION, OP_ADD, flags, master_key)
    return [start + head + digest.compute(head, payload), *payload]


def encode_small_add(
    ledger_id: int,
    entry_id: int,
    lac: int,
    length: int,
    digest: Digest,
    master_key: bytes,
    payload: Sequence[Buffer],
    payload_bytes: int,
) -> bytes:
    """A normal `encode_add` as one buffer: small payloads are copied once rather than sent in pieces to each replica."""
    head = _ENTRY.pack(ledger_id, entry_id, lac, length)
    if digest is CRC32C:  # nearly every ledger
        value = crc32c(head)
        for part in payload:
            value = crc32c(part, value)
        size = _CRC_ADD.size - _LENGTH.size + payload_bytes
        return b"".join((_CRC_ADD.pack(size, VERSION, OP_ADD, 0, master_key, head, value), *payload))
    return b"".join(encode_add(EntryHeader(ledger_id, entry_id, lac, length), digest, master_key, payload))


def as_control(frame: Sequence[Buffer]) -> list[Buffer]:
    """The frame of a normal add with high priority, for a bookie whose disk is full."""
    first = bytearray(frame[0])
    _HEADER.pack_into(first, _LENGTH.size, VERSION, OP_ADD, FLAG_HIGH_PRIORITY)
    return [bytes(first), *frame[1:]]


def encode_body(header: EntryHeader, digest: Digest, payload: Sequence[Buffer]) -> list[Buffer]:
    """An entry as bookies store it."""
    head = _ENTRY.pack(*header)
    return [head + digest.compute(head, payload), *payload]


def encode_add_body(body: Sequence[Buffer], master_key: bytes, *, recovery: bool = False) -> list[Buffer]:
    """One whole add frame for a body that was read from a bookie."""
    flags = FLAG_RECOVERY_ADD | FLAG_HIGH_PRIORITY if recovery else 0
    return [_ADD_START.pack(_BODY_START + sum(map(len, body)), VERSION, OP_ADD, flags, master_key), *body]


def encode_read(ledger_id: int, entry_id: int, *, fence_key: bytes | None = None, high_priority: bool = False) -> bytes:
    """One whole read frame; with `fence_key` (the master key) it fences the ledger first."""
    flags = FLAG_HIGH_PRIORITY if high_priority else 0
    if fence_key is None:
        return _WHOLE_READ.pack(_READ.size, VERSION, OP_READ, flags, ledger_id, entry_id)
    size = _READ.size + len(fence_key)
    return _WHOLE_READ.pack(size, VERSION, OP_READ, flags | FLAG_FENCE, ledger_id, entry_id) + fence_key


def encode_batch_read(
    ledger_id: int,
    entry_id: int,
    *,
    request_id: int,
    max_count: int,
    max_bytes: int,
    fence_key: bytes | None = None,
    high_priority: bool = False,
) -> bytes:
    """One whole batch read frame; `max_bytes` bounds the response frame with its 32 bytes of header."""
    flags = (FLAG_HIGH_PRIORITY if high_priority else 0) | (FLAG_FENCE if fence_key is not None else 0)
    frame = _BATCH_READ.pack(VERSION, OP_BATCH_READ, flags, ledger_id, entry_id, request_id, max_count, max_bytes)
    frame += fence_key or b""
    return _LENGTH.pack(len(frame)) + frame


def encode_hold(ledger_id: int, master_key: bytes, version: int) -> bytes:
    """Encode a hold request as a whole frame."""
    return _LENGTH.pack(_HOLD.size) + _HOLD.pack(VERSION, OP_HOLD, 0, master_key, ledger_id, version)


def encode_auth(message: auth.AuthMessage) -> bytes:
    """One whole frame of a handshake, request or response."""
    body = auth.encode(message)
    return _LENGTH.pack(_HEADER.size + len(body)) + _HEADER.pack(VERSION, OP_AUTH, 0) + body


def decode_auth(frame: memoryview) -> auth.AuthMessage:
    """A step of a handshake, as its client reads it. Raises ProtocolError: it is something else."""
    if len(frame) < _HEADER.size:
        raise ProtocolError(f"expected a handshake of at least {_HEADER.size} bytes, found {len(frame)}")
    version, opcode, _ = _HEADER.unpack_from(frame)
    if (version, opcode) != (VERSION, OP_AUTH):
        raise ProtocolError(f"expected a handshake, found version {version}, opcode {opcode}", found=opcode)
    return auth.decode(frame[_HEADER.size :])


def decode_add_run(frames: Sequence[memoryview], start: int) -> AddRun | None:
    """The adds that begin at `frames[start]`, as far as they are a run; None if the first is no add, or an impossible one."""
    unpack, least = _ADD_IN_RUN.unpack_from, _ADD_IN_RUN.size
    frame = frames[start]
    size = frame.nbytes
    if size < least:
        return None
    alike, previous, lac, length = unpack(frame)
    word, key, ledger_id = _ADD_ALIKE.unpack(alike)
    if word >> 16 != _ADD_WORD or ledger_id < 0:
        return None
    if not (0 <= previous < NUMBERS_END and -1 <= lac < previous and 0 <= length < NUMBERS_END):
        return None
    entry_ids: list[int] = [previous]
    bodies: list[memoryview] = [frame[_BODY_START:]]
    add_id, add_body = entry_ids.append, bodies.append
    count = 1
    for frame in itertools.islice(frames, start + 1, None):
        frame_bytes = frame.nbytes
        if frame_bytes < least:
            break
        found, entry_id, lac, length = unpack(frame)
        if found != alike:
            break
        if not (previous < entry_id < NUMBERS_END and -1 <= lac < entry_id and 0 <= length < NUMBERS_END):
            break
        add_id(entry_id)
        add_body(frame[_BODY_START:])
        size += frame_bytes
        count += 1
        previous = entry_id
    body_bytes = size - _BODY_START * count
    control = word & _CONTROL_MASK == FLAG_HIGH_PRIORITY
    return AddRun(ledger_id, key, bool(word & FLAG_RECOVERY_ADD), entry_ids, bodies, count, body_bytes, control)


def decode_unfenced_reads(frames: Sequence[memoryview], start: int) -> list[tuple[int, int]]:
    """(ledger, entry) of the reads that begin at `frames[start]`, up to the first frame that is none, or fences."""
    unpack = _READ_IN_RUN.unpack_from
    reads: list[tuple[int, int]] = []
    for frame in itertools.islice(frames, start, None):
        if len(frame) != READ_BYTES:
            break
        word, ledger_id, entry_id = unpack(frame)
        if word not in _UNFENCED_READS:
            break
        reads.append((ledger_id, entry_id))
    return reads


def decode_request(frame: memoryview) -> Request:
    """Reads a request without its length. Raises ProtocolError: no opcode, or too short or too long for it: the stream cannot
    be trusted any more."""
    if len(frame) < _HEADER.size:
        raise ProtocolError(f"expected a request of at least {_HEADER.size} bytes, found {len(frame)}")
    version, opcode, flags = _HEADER.unpack_from(frame)
    if version != VERSION:
        return _other_version(frame, version, opcode)
    if opcode == OP_ADD:
        if len(frame) < _ADD_IN_RUN.size:
            raise ProtocolError(f"expected an add of at least {_ADD_IN_RUN.size} bytes, found {len(frame)}")
        ledger_id, entry_id, lac, _ = _ENTRY.unpack_from(frame, _BODY_START)
        return AddRequest(
            flags, bytes(frame[_HEADER.size : _BODY_START]), ledger_id, entry_id, lac, frame[_BODY_START:]
        )
    if opcode == OP_READ:
        key = _fence_key(frame, flags, _READ.size)
        _, _, _, ledger_id, entry_id = _READ.unpack_from(frame)
        return ReadRequest(flags, ledger_id, entry_id, key)
    if opcode == OP_BATCH_READ:
        key = _fence_key(frame, flags, _BATCH_READ.size)
        _, _, _, ledger_id, entry_id, request_id, max_count, max_bytes = _BATCH_READ.unpack_from(frame)
        return BatchReadRequest(flags, ledger_id, entry_id, request_id, max_count, max_bytes, key)
    if opcode == OP_AUTH:
        return AuthRequest(auth.decode(frame[_HEADER.size :]))
    if opcode == OP_HOLD:
        if len(frame) != _HOLD.size:
            raise ProtocolError(f"expected a hold of {_HOLD.size} bytes, found {len(frame)}", expected=_HOLD.size)
        _, _, _, key, ledger_id, held = _HOLD.unpack_from(frame)
        return HoldRequest(flags, key, ledger_id, held)
    raise ProtocolError(f"expected an add, a read, a hold or a handshake, found opcode {opcode}", found=opcode)


def _other_version(frame: memoryview, version: int, opcode: int) -> UnknownRequest:
    if version == V3_FIRST_BYTE:
        return UnknownRequest(version, opcode, V2Status.BAD_VERSION)
    start = {OP_ADD: _BODY_START, OP_READ: _HEADER.size, OP_BATCH_READ: _HEADER.size}.get(opcode)
    numbers = _IDS.size + (_REQUEST_ID.size if opcode == OP_BATCH_READ else 0)
    if start is None or len(frame) < start + numbers:
        raise ProtocolError(f"expected a request of version {VERSION}, found version {version}, opcode {opcode}")
    ledger_id, entry_id = _IDS.unpack_from(frame, start)
    request_id = _REQUEST_ID.unpack_from(frame, start + _IDS.size)[0] if opcode == OP_BATCH_READ else None
    return UnknownRequest(version, opcode, V2Status.BAD_VERSION, ledger_id, entry_id, request_id)


def _fence_key(frame: memoryview, flags: int, fixed_bytes: int) -> bytes | None:
    expected = fixed_bytes + (MASTER_KEY_BYTES if flags & FLAG_FENCE else 0)
    if len(frame) != expected:
        raise ProtocolError(f"expected a read of {expected} bytes, found {len(frame)}", expected=expected)
    return bytes(frame[fixed_bytes:]) if flags & FLAG_FENCE else None


# -- responses


def answer_columns(frames: Sequence[memoryview]) -> Iterable[tuple[int, int, int, int, int, int]]:
    """What every response begins with: version, opcode, flags, code, ledger, entry. Raises ProtocolError for a short one."""
    least = _RESPONSE.size
    sizes = set(map(len, frames))
    if sizes == {least}:  # acks and refusals alone, as under load: decoded in one call
        return _RESPONSE.iter_unpack(b"".join(frames))
    if min(sizes) < least:
        raise ProtocolError(f"expected a response of at least {least} bytes, found {min(sizes)}")
    return map(_RESPONSE.unpack_from, frames)


def encode_add_response(status: V2Status, ledger_id: int, entry_id: int) -> bytes:
    """One whole add response frame, 28 bytes."""
    return _WHOLE_RESPONSE.pack(_RESPONSE.size, VERSION, OP_ADD, 0, status, ledger_id, entry_id)


def encode_add_acks(ledger_id: int, entry_ids: Sequence[int]) -> list[bytes]:
    """Whole responses to adds of one ledger, all of them OK."""
    alike = _ACKS_ALIKE.pack(_RESPONSE.size, VERSION, OP_ADD, 0, V2Status.OK, ledger_id)
    return list(map(_ACK.pack, itertools.repeat(alike), entry_ids))


def encode_read_response(status: V2Status, ledger_id: int, entry_id: int, body: Buffer | None) -> list[Buffer]:
    """One whole read response frame; `entry_id` as it was asked (-1 stays -1)."""
    size = _RESPONSE.size + (0 if body is None else len(body))
    head = _WHOLE_RESPONSE.pack(size, VERSION, OP_READ, 0, status, ledger_id, entry_id)
    return [head] if body is None else [head, body]


def encode_found_reads(reads: Sequence[tuple[int, int]], bodies: Sequence[Buffer]) -> list[Buffer]:
    """Whole responses to reads, (ledger, entry) as they were asked, whose bodies are there; joined as in batches."""
    pack, start = _WHOLE_RESPONSE.pack, _RESPONSE.size
    frames: list[Buffer] = []
    append = frames.append
    size = 0
    for (ledger_id, entry_id), body in zip(reads, bodies, strict=True):
        length = start + len(body)
        append(pack(length, VERSION, OP_READ, 0, 0, ledger_id, entry_id))
        append(body)
        size += length
    return [b"".join(frames)] if size <= _JOINED_BODY_BYTES * len(bodies) else frames


def encode_batch_read_response(
    status: V2Status, ledger_id: int, entry_id: int, request_id: int, bodies: Sequence[Buffer]
) -> list[Buffer]:
    """One whole batch read response frame; small bodies are copied into one buffer, which is cheaper than to send each."""
    size = _RESPONSE.size + _REQUEST_ID.size + _LENGTH.size * len(bodies) + sum(map(len, bodies))
    head = _WHOLE_RESPONSE.pack(size, VERSION, OP_BATCH_READ, 0, status, ledger_id, entry_id)
    frame: list[Buffer] = [head + _REQUEST_ID.pack(request_id)]
    append, pack = frame.append, _LENGTH.pack
    previous, prefix = -1, b""
    for body in bodies:
        length = len(body)
        if length != previous:
            previous, prefix = length, pack(length)
        append(prefix)
        append(body)
    return [b"".join(frame)] if size <= _JOINED_BODY_BYTES * len(bodies) else frame


def encode_hold_response(status: V2Status, ledger_id: int, version: int) -> bytes:
    """Encode a response to a hold request as a whole frame."""
    return _WHOLE_RESPONSE.pack(_RESPONSE.size, VERSION, OP_HOLD, 0, status, ledger_id, version)


def encode_refusal(
    request: AddRequest | ReadRequest | BatchReadRequest | HoldRequest | UnknownRequest, status: V2Status
) -> bytes:
    """Answers a request, whichever it is, with a status alone."""
    if isinstance(request, AddRequest):
        return encode_add_response(status, request.ledger_id, request.entry_id)
    if isinstance(request, HoldRequest):
        return encode_hold_response(status, request.ledger_id, request.version)
    if isinstance(request, ReadRequest):
        return b"".join(encode_read_response(status, request.ledger_id, request.entry_id, None))
    if isinstance(request, BatchReadRequest):
        return b"".join(encode_batch_read_response(status, request.ledger_id, request.entry_id, request.request_id, []))
    return encode_unknown_response(request._replace(status=status))


def encode_unknown_response(request: UnknownRequest) -> bytes:
    """Answers a request that is not served."""
    version, opcode, status, ledger_id, entry_id, request_id = request
    extra = b"" if request_id is None else _REQUEST_ID.pack(request_id)
    return _WHOLE_RESPONSE.pack(_RESPONSE.size + len(extra), version, opcode, 0, status, ledger_id, entry_id) + extra


def decode_response(frame: memoryview) -> Response:
    """Reads a response without its length. Raises ProtocolError: a length, opcode or status that cannot be; VersionMismatch:
    another protocol version."""
    if len(frame) < _RESPONSE.size:
        raise ProtocolError(f"expected a response of at least {_RESPONSE.size} bytes, found {len(frame)}")
    version, opcode, _, code, ledger_id, entry_id = _RESPONSE.unpack_from(frame)
    if version != VERSION:
        raise VersionMismatch(f"expected protocol version {VERSION}, found {version}", expected=VERSION, found=version)
    try:
        status = V2Status(code)
    except ValueError as error:
        raise ProtocolError(f"expected a known result code, found {code}", found=code) from error
    if opcode == OP_ADD:
        if len(frame) != _RESPONSE.size:
            raise ProtocolError(f"expected an add response of {_RESPONSE.size} bytes, found {len(frame)}")
        return AddResponse(status, ledger_id, entry_id)
    if opcode == OP_READ:
        return ReadResponse(status, ledger_id, entry_id, frame[_RESPONSE.size :] if status is V2Status.OK else None)
    if opcode == OP_HOLD:
        if len(frame) != _RESPONSE.size:
            raise ProtocolError(f"expected a hold response of {_RESPONSE.size} bytes, found {len(frame)}")
        return HoldResponse(status, ledger_id, entry_id)
    if opcode == OP_BATCH_READ:
        return _batch_read_response(frame, status, ledger_id, entry_id)
    raise ProtocolError(f"expected a response to an add or a read, found opcode {opcode} ({status.name})", found=opcode)


def _batch_read_response(frame: memoryview, status: V2Status, ledger_id: int, entry_id: int) -> BatchReadResponse:
    offset = _RESPONSE.size + _REQUEST_ID.size
    if len(frame) < offset:
        raise ProtocolError(f"expected a batch read response of at least {offset} bytes, found {len(frame)}")
    (request_id,) = _REQUEST_ID.unpack_from(frame, _RESPONSE.size)
    bodies: list[memoryview] = []
    append, unpack, prefix, end = bodies.append, _LENGTH.unpack_from, _LENGTH.size, len(frame)
    while offset < end:
        start = offset + prefix
        if start > end:
            raise ProtocolError("a batch read response ends inside a size")
        (size,) = unpack(frame, offset)
        offset = start + size
        if offset > end:
            raise ProtocolError(f"a batch read response names a body of {size} bytes, {end - start} are left")
        append(frame[start:offset])
    return BatchReadResponse(status, ledger_id, entry_id, request_id, bodies)
