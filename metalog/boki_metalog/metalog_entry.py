"""One entry of a metalog: how far every open shard is ordered, and commands (DESIGN §6.4).

Little endian. The entry's checksum is the digest of the ledger that stores it, or of the message that carries it.

    offset  size  field
    0       1     version, 1
    1       7     reserved, 0
    8       4     shard_count
    12      4     command_count
    16      8     start_pos      position of the first record that this entry orders
    24      8     end_pos        start_pos + the records it orders
    32      8     time_ms        of those records; never below that of the entry before
    40      24×n  shards, ascending: shard u32 | reserved u32 | records_end u64 | entries_end u64
    …             commands: kind u8 | reserved 3 | body_bytes u32 | body, a multiple of 8 bytes
    kind 1  OPEN    shard u32 | reserved u32 | ledger_id u64 | engine incarnation 16 B
    kind 2  CLOSE   shard u32 | reserved u32
    kind 3-5        TRIM, EXPIRE, LOST: reserved; this version refuses an entry that has one, as it would have to obey

Rules:
- `records_end` and `entries_end` are absolute within the shard (exclusive), so whoever knows one entry knows the state.
- OPENs take effect before the entry's cut, all other commands after it, in order. `shards` lists the shards open in the
  cut: those open before, those opened here, and those closed here, with their final ends.
- Records are ordered by (shard, place in the shard).

Pure. Knows nothing of the entry before it: `progress.deltas` checks one against the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from boki_common import limits
from boki_common.errors import ProtocolError, VersionMismatch
from boki_common.runtime.ports import Buffer

VERSION: Final = 1
OPEN: Final = 1
CLOSE: Final = 2
RESERVED_KINDS: Final = {3: "TRIM", 4: "EXPIRE", 5: "LOST"}

_HEAD: Final = Struct("<B7xIIQQQ")
_SHARD: Final = Struct("<I4xQQ")
_COMMAND: Final = Struct("<B3xI")
_OPEN: Final = Struct("<I4xQ16s")
_CLOSE: Final = Struct("<I4x")
_OPEN_HEAD: Final = _COMMAND.pack(OPEN, _OPEN.size)
_CLOSE_HEAD: Final = _COMMAND.pack(CLOSE, _CLOSE.size)
_I63_MAX: Final = 2**63 - 1


class ShardEnd(NamedTuple):
    """How far a shard is ordered: its first `records_end` records, which are its first `entries_end` entries."""

    shard: int
    records_end: int
    entries_end: int


class Open(NamedTuple):
    """The shard exists from here on; `incarnation` (32 hexadecimal digits) writes it to `ledger_id`."""

    shard: int
    incarnation: str
    ledger_id: int


class Close(NamedTuple):
    """The shard ends where this entry's cut says; what lies beyond is never ordered."""

    shard: int


Command = Open | Close


@dataclass(frozen=True, slots=True)
class MetalogEntry:
    """See the module. `shards` and `commands` are tuples; numbers are checked by `encode` and `decode`."""

    start_pos: int
    end_pos: int
    time_ms: int
    shards: tuple[ShardEnd, ...]
    commands: tuple[Command, ...] = ()


def encode(entry: MetalogEntry) -> bytes:
    """The bytes of an entry. Out of range is our own mistake: AssertionError."""
    assert len(entry.shards) <= limits.TERM_SHARDS and len(entry.commands) <= limits.METALOG_COMMANDS
    assert 0 <= entry.start_pos <= entry.end_pos <= limits.POSITION_MAX, (entry.start_pos, entry.end_pos)
    parts = [
        _HEAD.pack(
            VERSION, len(entry.shards), len(entry.commands), entry.start_pos, entry.end_pos, max(entry.time_ms, 0)
        )
    ]
    parts += [_SHARD.pack(*end) for end in entry.shards]
    for command in entry.commands:
        if isinstance(command, Open):
            incarnation = bytes.fromhex(command.incarnation)
            assert len(incarnation) == 16, f"an incarnation is 32 hexadecimal digits, not {command.incarnation!r}"
            parts += (_OPEN_HEAD, _OPEN.pack(command.shard, command.ledger_id, incarnation))
        else:
            parts += (_CLOSE_HEAD, _CLOSE.pack(command.shard))
    return b"".join(parts)


def decode(data: Buffer) -> MetalogEntry:
    """Reads an entry; every count and length is checked before anything is made of it.

    Raises:
        VersionMismatch: another format version, or a command kind this version does not know.
        ProtocolError: lengths, counts or numbers cannot be right.
    """
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise ProtocolError(f"expected a metalog entry of at least {_HEAD.size} bytes, found {len(view)}")
    version, shard_count, command_count, start_pos, end_pos, time_ms = _HEAD.unpack_from(view)
    if version != VERSION:
        raise VersionMismatch(
            f"expected a metalog entry of version {VERSION}, found {version}: upgrade this program",
            expected=VERSION,
            found=version,
        )
    if shard_count > limits.TERM_SHARDS or command_count > limits.METALOG_COMMANDS:
        raise ProtocolError(
            f"expected at most {limits.TERM_SHARDS} shards and {limits.METALOG_COMMANDS} commands in a metalog entry, "
            f"found {shard_count} and {command_count}"
        )
    shards_end = _HEAD.size + shard_count * _SHARD.size
    if shards_end + command_count * (_COMMAND.size + _CLOSE.size) > len(view):
        raise ProtocolError(
            f"a metalog entry of {len(view)} bytes cannot hold {shard_count} shards and {command_count} commands"
        )
    if not start_pos <= end_pos <= limits.POSITION_MAX or time_ms > _I63_MAX:
        raise ProtocolError(
            f"expected positions in order up to {limits.POSITION_MAX}, found {start_pos} … {end_pos}, time {time_ms}"
        )
    shards = tuple(map(ShardEnd._make, _SHARD.iter_unpack(view[_HEAD.size : shards_end])))
    _check_shards(shards)
    commands = _decode_commands(view, shards_end, command_count) if command_count else ()
    if not command_count and shards_end != len(view):
        raise ProtocolError(f"a metalog entry has {len(view) - shards_end} bytes after its end")
    return MetalogEntry(start_pos, end_pos, time_ms, shards, commands)


def _check_shards(shards: Sequence[ShardEnd]) -> None:
    before = -1
    for shard, records_end, entries_end in shards:
        if shard <= before:
            raise ProtocolError(f"expected ascending shards in a metalog entry, found {shard} after {before}")
        if max(records_end, entries_end) > limits.POSITION_MAX or (records_end and not entries_end):
            raise ProtocolError(f"shard {shard} cannot end at {records_end} records in {entries_end} entries")
        before = shard


def _decode_commands(view: memoryview, offset: int, count: int) -> tuple[Command, ...]:
    commands: list[Command] = []
    for _ in range(count):
        if offset + _COMMAND.size > len(view):
            raise ProtocolError(f"a metalog entry ends at byte {len(view)}, inside command {len(commands)} of {count}")
        kind, body_bytes = _COMMAND.unpack_from(view, offset)
        offset += _COMMAND.size
        if kind not in (OPEN, CLOSE):
            raise VersionMismatch(
                f"a metalog entry has a command of kind {kind} ({RESERVED_KINDS.get(kind, 'unknown')}), "
                "which this version does not know: upgrade this program",
                found=kind,
            )
        body = view[offset : offset + body_bytes]
        expected = _OPEN.size if kind == OPEN else _CLOSE.size
        if body_bytes != expected or len(body) != expected:
            raise ProtocolError(
                f"expected {expected} bytes in a metalog command of kind {kind}, found {body_bytes} announced and "
                f"{len(body)} there"
            )
        offset += body_bytes
        if kind == OPEN:
            shard, ledger_id, incarnation = _OPEN.unpack(body)
            if ledger_id > _I63_MAX:
                raise ProtocolError(f"expected a ledger id up to 2**63-1, found {ledger_id}")
            commands.append(Open(shard, incarnation.hex(), ledger_id))
        else:
            commands.append(Close(*_CLOSE.unpack(body)))
    if offset != len(view):
        raise ProtocolError(f"a metalog entry has {len(view) - offset} bytes after its end")
    return tuple(commands)
