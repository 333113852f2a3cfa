"""Messages between a sequencer and its participants, on `boki_common.net.messages`. Little endian.

    1  HELLO      the first message. msgpack {versions, incarnations, role, auth} → msgpack {version, incarnation, log, term,
                  serving, carries}
                  `incarnations`: engines behind this connection that have shards in the term; `role`: see `permissions`;
                  `auth`: the cluster token, or nil; both are absent in a HELLO of earlier versions; `serving`: false for a
                  sequencer that stands by, or whose term is over; `carries`: whether CARRY may be sent
    2  OPEN       term u32 | 0 u32 | ledger_id u64 | incarnation 16 B → shard u32          answered once the OPEN is ordered
    3  REPORT     push. term u32 | count u32 | count × (shard u32 | 0 u32 | records_end u64 | entries_end u64)
    4  CLOSE      term u32 | shard u32 → empty                                             answered once the CLOSE is ordered
    5  SUBSCRIBE  term u32 | 0 u32 | next_entry u64 → first u64 | acked_end u64
                  first ≤ next_entry: ENTRIES from `next_entry` on follow. Else nothing follows: entries below `first` are
                  acknowledged and to be read from the ledger; then subscribe again
    6  ENTRIES    push. term u32 | count u32 | first u64 | count × (length u32 | entry)    acknowledged ones, in order
    7  LAGGED     push. term u32 | 0 u32     the participant took too little; no ENTRIES follow until it subscribes again
    8  TERM_OVER  push. term u32 | 0 u32     nothing more is ordered in the term
    9  REFUSED    push. `errors.to_wire`     why a REPORT was not taken, in part
    10 STATUS     → JSON, for people
    11 BARRIER    term u32 | 0 u32 → term u32 | 0 u32 | entry u64   the sequencer was not fenced when the request came: all
                  that was acknowledged by then is below `entry` (exclusive), and ordered
    12 ORDER      term u32 | 0 u32 | a TRIM, EXPIRE or LOST as in a metalog entry → as BARRIER; its own entry is the last
    13 YIELD      term u32 | 0 u32 → empty     somebody is about to replace the term: answered once it has ended between two
                  entries and its metalog is closed. Who does not know it, or cannot, is fenced, as is who does not answer
    14 CARRY      push. term u32 | shard u32 | records_end u64 | entries_end u64 | body   as a REPORT of one shard; its last
                  entry, which is not its first, is durable nowhere yet, and is this body: a record batch that begins where
                  the entry before ended. It may be ordered, or not: then it is to be reported

A message of another term than the one served is answered TermOver (a push: by TERM_OVER); one that the peer may not send,
NotPermitted (a push: by REFUSED). Who does not show the token that is asked for gets Unauthenticated, and the connection ends.
Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec

from boki_common import limits
from boki_common.cluster_token import ClusterToken
from boki_common.errors import DECODE_FAULTS, InvalidArgument, ProtocolError, VersionMismatch
from boki_common.ids import Position
from boki_common.runtime.ports import Buffer
from boki_metalog.entries.metalog_entry import (
    Close,
    Open,
    ShardEnd,
    check_command,
    decode_command,
    encode_command,
    make_end,
)
from boki_metalog.entries.permissions import OF_EARLIER_VERSION
from boki_metalog.entries.progress import Order

VERSION: Final = 1

OP_HELLO: Final = 1
OP_OPEN: Final = 2
OP_REPORT: Final = 3
OP_CLOSE: Final = 4
OP_SUBSCRIBE: Final = 5
OP_ENTRIES: Final = 6
OP_LAGGED: Final = 7
OP_TERM_OVER: Final = 8
OP_REFUSED: Final = 9
OP_STATUS: Final = 10
OP_BARRIER: Final = 11
OP_ORDER: Final = 12
OP_YIELD: Final = 13
OP_CARRY: Final = 14

_OPEN: Final = Struct("<I4xQ16s")
_SHARD: Final = Struct("<I4x")
_PAIR: Final = Struct("<II")
_ROW: Final = Struct("<I4xQQ")
_ONE_ROW: Final = Struct("<III4xQQ")
_CARRY: Final = Struct("<IIQQ")
_SUBSCRIBE: Final = Struct("<I4xQ")
_SUBSCRIBED: Final = Struct("<QQ")
_ENTRIES: Final = Struct("<IIQ")
_LENGTH: Final = Struct("<I")
_ONE_ENTRY: Final = Struct("<IIQI")
_POSITION: Final = Struct("<I4xQ")

T = TypeVar("T")


class Hello(msgspec.Struct, frozen=True):
    """Who connects."""

    versions: tuple[int, ...]
    incarnations: tuple[str, ...]
    role: str = OF_EARLIER_VERSION
    auth: Any = None

    def __repr__(self) -> str:
        """Without the token."""
        return f"Hello(versions={self.versions}, incarnations={self.incarnations}, role={self.role!r})"


class Welcome(msgspec.Struct, frozen=True):
    """Who answers."""

    version: int
    incarnation: str
    log: int
    term: int
    serving: bool
    carries: bool = False


class OpenRequest(NamedTuple):
    term: int
    incarnation: str
    ledger_id: int


class Report(NamedTuple):
    term: int
    rows: tuple[ShardEnd, ...]


_make_report: Final = cast(Callable[[tuple[int, tuple[ShardEnd, ...]]], Report], partial(tuple.__new__, Report))
"""Without a frame of Python, as `make_end`."""


class Carry(NamedTuple):
    """`body`: the payload of entry `entries_end` - 1 of the shard."""

    term: int
    shard: int
    records_end: int
    entries_end: int
    body: bytes


class Subscribe(NamedTuple):
    term: int
    next_entry: int


class Subscribed(NamedTuple):
    first: int
    acked_end: int


class Entries(NamedTuple):
    term: int
    first: int
    payloads: list[memoryview]


_make_entries: Final = cast(Callable[[tuple[int, int, list[memoryview]]], Entries], partial(tuple.__new__, Entries))


class SequencerTime(NamedTuple):
    """A sequencer's time."""

    now_ms: int
    """Its wall clock."""
    cut_ms: int
    """Of its newest entry."""


def encode_hello(incarnations: Sequence[str] = (), *, token: ClusterToken, role: str) -> bytes:
    return msgspec.msgpack.encode(Hello((VERSION,), tuple(incarnations), role, token.shown))


def decode_hello(body: memoryview) -> Hello:
    """Raises ProtocolError, VersionMismatch when there is no version in common."""
    hello = _decode(body, Hello, "HELLO")
    if VERSION not in hello.versions:
        raise VersionMismatch(
            f"expected a participant that speaks version {VERSION}, found {list(hello.versions)}: upgrade one side",
            expected=VERSION,
            found=list(hello.versions),
        )
    for incarnation in hello.incarnations:
        _incarnation_bytes(incarnation)
    return hello


def encode_welcome(welcome: Welcome) -> bytes:
    return msgspec.msgpack.encode(welcome)


def decode_welcome(body: memoryview) -> Welcome:
    return _decode(body, Welcome, "the answer to HELLO")


def encode_open(term: int, incarnation: str, ledger_id: int) -> bytes:
    """Raises InvalidArgument when the incarnation is not 32 hexadecimal digits."""
    return _OPEN.pack(term, ledger_id, _incarnation_bytes(incarnation))


def decode_open(body: memoryview) -> OpenRequest:
    term, ledger_id, incarnation = _unpack(_OPEN, body, "OPEN")
    return OpenRequest(term, incarnation.hex(), ledger_id)


def encode_shard(shard: int) -> bytes:
    return _SHARD.pack(shard)


def decode_shard(body: memoryview) -> int:
    (shard,) = _unpack(_SHARD, body, "the answer to OPEN")
    return int(shard)


def encode_report(term: int, ends: Mapping[int, tuple[int, int]]) -> bytes:
    """`ends`: shard → (records_end, entries_end). Written by shard: the older ones of an engine come first."""
    return b"".join(
        [
            _PAIR.pack(term, len(ends)),
            *(_ROW.pack(shard, records, entries) for shard, (records, entries) in sorted(ends.items())),
        ]
    )


def encode_report_of_one(term: int, shard: int, records: int, entries: int) -> bytes:
    """`encode_report` of one shard, which most engines have."""
    return _ONE_ROW.pack(term, 1, shard, records, entries)


def decode_report(body: memoryview) -> Report:
    size = len(body)
    if size == _ONE_ROW.size:
        term, count, *end = _ONE_ROW.unpack(body)
        if count == 1:
            return _make_report((term, (make_end(end),)))
    if size < _PAIR.size:
        raise ProtocolError(f"expected a report of at least {_PAIR.size} bytes, found {size}")
    term, count = _PAIR.unpack_from(body)
    if count > limits.TERM_SHARDS or size != _PAIR.size + count * _ROW.size:
        raise ProtocolError(f"a report of {size} bytes cannot hold {count} shards")
    return _make_report((term, tuple(map(make_end, _ROW.iter_unpack(body[_PAIR.size :])))))


def encode_carry(term: int, shard: int, records_end: int, entries_end: int) -> bytes:
    """The head of the body; the entry follows."""
    return _CARRY.pack(term, shard, records_end, entries_end)


def decode_carry(body: memoryview) -> Carry:
    size = len(body) - _CARRY.size
    if not 0 < size <= limits.CARRIED_ENTRY_BYTES:
        raise ProtocolError(f"expected an entry of 1 to {limits.CARRIED_ENTRY_BYTES} bytes to carry, found {size}")
    term, shard, records_end, entries_end = _CARRY.unpack_from(body)
    return Carry(term, shard, records_end, entries_end, bytes(body[_CARRY.size :]))


def encode_close(term: int, shard: int) -> bytes:
    return _PAIR.pack(term, shard)


def decode_close(body: memoryview) -> tuple[int, int]:
    """(term, shard)"""
    term, shard = _unpack(_PAIR, body, "CLOSE")
    return term, shard


def encode_subscribe(term: int, next_entry: int) -> bytes:
    return _SUBSCRIBE.pack(term, next_entry)


def decode_subscribe(body: memoryview) -> Subscribe:
    return Subscribe(*_unpack(_SUBSCRIBE, body, "SUBSCRIBE"))


def encode_subscribed(first: int, acked_end: int) -> bytes:
    return _SUBSCRIBED.pack(first, acked_end)


def decode_subscribed(body: memoryview) -> Subscribed:
    return Subscribed(*_unpack(_SUBSCRIBED, body, "the answer to SUBSCRIBE"))


def encode_entry(term: int, first: int, payload: bytes) -> bytes:
    """The body of ENTRIES with one entry, in one piece."""
    return _ONE_ENTRY.pack(term, 1, first, len(payload)) + payload


def encode_entries(term: int, first: int, payloads: Sequence[bytes]) -> list[Buffer]:
    """The body of ENTRIES, as buffers; the entries are not copied."""
    buffers: list[Buffer] = [_ENTRIES.pack(term, len(payloads), first)]
    for payload in payloads:
        buffers += (_LENGTH.pack(len(payload)), payload)
    return buffers


def decode_entries(body: memoryview) -> Entries:
    size = len(body)
    if size < _ENTRIES.size:
        raise ProtocolError(f"expected ENTRIES of at least {_ENTRIES.size} bytes, found {size}")
    term, count, first = _ENTRIES.unpack_from(body)
    if _ENTRIES.size + count * _LENGTH.size > size:
        raise ProtocolError(f"a message of {size} bytes cannot hold {count} metalog entries")
    payloads: list[memoryview] = []
    offset = _ENTRIES.size
    for _ in range(count):
        length = _LENGTH.unpack_from(body, offset)[0] if offset + _LENGTH.size <= size else size
        offset += _LENGTH.size
        if offset + length > size:
            raise ProtocolError(f"metalog entry {first + len(payloads)} ends after its message of {size} bytes")
        payloads.append(body[offset : offset + length])
        offset += length
    if offset != size:
        raise ProtocolError(f"a message of {count} metalog entries has {size - offset} bytes after its end")
    return _make_entries((term, first, payloads))


def encode_term(term: int) -> bytes:
    """The body of BARRIER, LAGGED and TERM_OVER."""
    return _SHARD.pack(term)


def decode_term(body: memoryview) -> int:
    (term,) = _unpack(_SHARD, body, "a term")
    return int(term)


def encode_order(term: int, command: Order) -> bytes:
    """Raises InvalidArgument when the command could not be stored."""
    check_command(command)
    return _SHARD.pack(term) + encode_command(command)


def decode_order(body: memoryview) -> tuple[int, Order]:
    """(term, command). Raises ProtocolError; VersionMismatch when this version does not know the command."""
    if len(body) < _SHARD.size:
        raise ProtocolError(f"expected ORDER of at least {_SHARD.size} bytes, found {len(body)}")
    (term,) = _SHARD.unpack_from(body)
    command = decode_command(body[_SHARD.size :])
    if isinstance(command, (Open, Close)):
        raise ProtocolError(f"expected a TRIM, EXPIRE or LOST to order, found {command}")
    return term, command


def encode_position(position: Position) -> bytes:
    """The answer to BARRIER and ORDER."""
    return _POSITION.pack(*position)


def decode_position(body: memoryview) -> Position:
    return Position(*_unpack(_POSITION, body, "a metalog position"))


def _unpack(layout: Struct, body: memoryview, what: str) -> tuple[Any, ...]:
    if len(body) != layout.size:
        raise ProtocolError(f"expected {layout.size} bytes for {what}, found {len(body)}", found=len(body))
    return layout.unpack(body)


def _decode(body: memoryview, kind: type[T], what: str) -> T:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except DECODE_FAULTS as error:
        raise ProtocolError(f"{what} cannot be read: {error}") from error


def _incarnation_bytes(incarnation: str) -> bytes:
    try:
        decoded = bytes.fromhex(incarnation)
    except ValueError as error:
        raise InvalidArgument(f"an incarnation is 32 hexadecimal digits, not {incarnation!r}") from error
    if len(decoded) != 16 or decoded.hex() != incarnation:
        raise InvalidArgument(f"an incarnation is 32 lower-case hexadecimal digits, not {incarnation!r}")
    return decoded
