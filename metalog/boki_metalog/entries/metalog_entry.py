"""One entry of a metalog: how far every open shard is ordered, entries that ride in it, and commands (DESIGN §6.4).

Little endian. The entry's checksum is the digest of the ledger that stores it, or of the message that carries it.

    offset  size  field
    0       1     version: 2, or 1 where nothing is carried, so that readers of version 1 alone go on until something is
    1       3     reserved, 0
    4       4     carried_count  ignored in version 1
    8       4     shard_count
    12      4     command_count
    16      8     start_pos      position of the first record that this entry orders
    24      8     end_pos        start_pos + the records it orders
    32      8     time_ms        of those records; never below that of the entry before
    40      24×n  shards, ascending: shard u32 | reserved u32 | records_end u64 | entries_end u64
    …             carried: shard u32 | body_bytes u32 | body, then zeros up to a multiple of 8
    …             commands: kind u8 | reserved 3 | body_bytes u32 | body, a multiple of 8 bytes
    kind 1  OPEN    shard u32 | reserved u32 | ledger_id u64 | engine incarnation 16 B
    kind 2  CLOSE   shard u32 | reserved u32
    kind 3  TRIM    book u64 | pair_count u32 | flags u32: 1 = forget, of earlier versions | n × (tag u64 | before u64)
    kind 4  EXPIRE  book u64 | last u64 | writer 16 B            of earlier versions: the writer may begin anew
    kind 5  LOST    term u32 | shard u32 | first_entry u64 | stop_entry u64 | evidence_bytes u32 | flags u32: 1 = indexed
                    | evidence, then zeros up to a multiple of 8
    kind 6  EXPIRE  as kind 4, for good (ADR 23)
    kind 7  TRIM    book u64 | pair_count u32 | flags u32: 0 | forget_before_ms u64 | n × (tag u64 | before u64)

Rules:
- `records_end` and `entries_end` are absolute within the shard (exclusive), so one entry gives the whole state.
- OPENs take effect before the entry's cut, all other commands after it, in order. `shards` lists the shards open in the
  cut: those open before, those opened here, and those closed here, with their final ends.
- Records are ordered by (shard, place in the shard).
- What a cut names is durable in its data ledger, but for the last entry of a shard that is *carried*: its bytes are here, so
  it is durable with the cut, and its engine, or whoever recovers the data ledger, writes it there later (ADR 21).
- An entry without commands that cuts nothing is a *barrier*: it proves that its sequencer was not fenced when it began.
- A kind that is not known here is refused, as it would have to be obeyed. So are bytes that no `encode` makes of a command.

Pure. Knows nothing of the entry before it: `progress.deltas` checks one against the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import starmap
from struct import Struct
from typing import Final, NamedTuple, cast

import msgspec

from boki_common import limits
from boki_common.errors import InvalidArgument, ProtocolError, VersionMismatch
from boki_common.ids import INVALID_TAG, U64_MAX
from boki_common.runtime.ports import Buffer

VERSION: Final = 2
_VERSION_1: Final = 1
"""The version of an entry that carries nothing."""
OPEN: Final = 1
CLOSE: Final = 2
TRIM: Final = 3
EXPIRE: Final = 4
LOST: Final = 5
EXPIRE_FOR_GOOD: Final = 6
TRIM_AND_FORGET: Final = 7

_HEAD: Final = Struct("<B3xIIIQQQ")
_SHARD: Final = Struct("<I4xQQ")
_CARRIED: Final = Struct("<II")
_COMMAND: Final = Struct("<B3xI")
_OPEN: Final = Struct("<I4xQ16s")
_CLOSE: Final = Struct("<I4x")
_TRIM: Final = Struct("<QII")
_TRIM_AND_FORGET: Final = Struct("<QIIQ")
_TRIM_PAIR: Final = Struct("<QQ")
_EXPIRE: Final = Struct("<QQ16s")
_LOST: Final = Struct("<IIQQII")
_FORGET: Final = 1
_INDEXED: Final = 1
_U32_MAX: Final = 2**32 - 1
_I63_MAX: Final = 2**63 - 1


class ShardEnd(NamedTuple):
    """How far a shard is ordered: its first `records_end` records, which are its first `entries_end` entries."""

    shard: int
    records_end: int
    entries_end: int


make_end: Final = cast(Callable[[Iterable[int]], ShardEnd], partial(tuple.__new__, ShardEnd))
"""`ShardEnd._make` without a frame of Python: every process makes one of each shard for each cut."""


class Carried(NamedTuple):
    """The last entry that a cut names of a shard, as its data ledger will hold it: `body` is the payload."""

    shard: int
    body: bytes


class Open(NamedTuple):
    """The shard exists from here on; `incarnation` (32 hexadecimal digits) writes it to `ledger_id`."""

    shard: int
    incarnation: str
    ledger_id: int


class Close(NamedTuple):
    """The shard ends where this entry's cut says; what lies beyond is never ordered."""

    shard: int


class Trim(NamedTuple):
    """Of the records of `book` that are ordered before this, those below a mark go (DESIGN §7).

    `pairs`: (tag, before), `before` exclusive; tag 0 moves the mark of the whole book. `forget`: streams that are emptied by it,
    and have no record from `forget_before_ms` on, are forgotten altogether. None: of earlier versions, an hour of cut time.
    """

    book: int
    pairs: tuple[tuple[int, int], ...]
    forget: bool
    forget_before_ms: int | None = None


class Expire(NamedTuple):
    """The book forgets `writer` (16 bytes), unless its last number is not `last` any more: then nothing happens.

    `for_good`: a session writer that is not younger than this one does not begin any more (ADR 23).
    """

    book: int
    writer: bytes
    last: int
    for_good: bool = True


class Lost(NamedTuple):
    """Entries `first_entry` to below `stop_entry` of a shard are given up. `evidence`: UTF-8 JSON, for people.

    `indexed`: the index snapshot that is named has them, so their rows and verdicts stand and only their data is lost. Else
    their records join nothing, on every engine.
    """

    term: int
    shard: int
    first_entry: int
    stop_entry: int
    evidence: bytes
    indexed: bool = False


Command = Open | Close | Trim | Expire | Lost


class MetalogEntry(msgspec.Struct, frozen=True):
    """See the module. The sequences are tuples; numbers are checked by `encode` and `decode`."""

    start_pos: int
    end_pos: int
    time_ms: int
    shards: tuple[ShardEnd, ...]
    commands: tuple[Command, ...] = ()
    carried: tuple[Carried, ...] = ()


class EntryHead(NamedTuple):
    """What the head of an entry says, whatever follows it."""

    start_pos: int
    end_pos: int
    time_ms: int


def encode(entry: MetalogEntry) -> bytes:
    """The bytes of an entry. Out of range is our own mistake: AssertionError."""
    shards, commands, carried = entry.shards, entry.commands, entry.carried
    start_pos, end_pos, time_ms = entry.start_pos, entry.end_pos, entry.time_ms
    assert len(shards) <= limits.TERM_SHARDS and len(commands) <= limits.METALOG_COMMANDS
    assert len(carried) <= limits.CARRIED_ENTRIES, len(carried)
    assert not commands or sum(map(command_bytes, commands)) <= limits.METALOG_COMMANDS_BYTES
    assert 0 <= start_pos <= end_pos <= limits.POSITION_MAX, (start_pos, end_pos)
    head = _HEAD.pack(
        VERSION if carried else _VERSION_1,
        len(carried),
        len(shards),
        len(commands),
        start_pos,
        end_pos,
        time_ms if time_ms > 0 else 0,
    )
    return b"".join(
        (head, *starmap(_SHARD.pack, shards), *map(_encode_carried, carried), *map(encode_command, commands))
    )


def decode(data: Buffer) -> MetalogEntry:
    """Reads an entry; every count and length is checked before anything is made of it. Raises VersionMismatch: another format
    version, or a kind of command that this version does not know; ProtocolError: lengths, counts or numbers cannot be right."""
    view = memoryview(data)
    size = len(view)
    if size < _HEAD.size:
        raise ProtocolError(f"expected a metalog entry of at least {_HEAD.size} bytes, found {size}")
    version, carried_count, shard_count, command_count, start_pos, end_pos, time_ms = _HEAD.unpack_from(view)
    if version not in (_VERSION_1, VERSION):
        _check_version(version)
    if version == _VERSION_1:
        carried_count = 0
    shards_end = _check_counts(size, carried_count, shard_count, command_count)
    if not start_pos <= end_pos <= limits.POSITION_MAX or time_ms > _I63_MAX:
        _check_numbers(start_pos, end_pos, time_ms)
    shards = tuple(map(make_end, _SHARD.iter_unpack(view[_HEAD.size : shards_end])))
    before = -1
    for shard, records_end, entries_end in shards:
        if shard <= before:
            raise ProtocolError(f"expected ascending shards in a metalog entry, found {shard} after {before}")
        if not (records_end <= limits.POSITION_MAX >= entries_end) or (records_end and not entries_end):
            raise ProtocolError(f"shard {shard} cannot end at {records_end} records in {entries_end} entries")
        before = shard
    carried: tuple[Carried, ...] = ()
    commands: tuple[Command, ...] = ()
    offset = shards_end
    if carried_count:
        carried, offset = _decode_carried(view, offset, carried_count)
    if command_count:
        commands = _decode_commands(view, offset, command_count)
    elif offset != size:
        raise ProtocolError(f"a metalog entry has {size - offset} bytes after its end")
    return MetalogEntry(start_pos, end_pos, time_ms, shards, commands, carried)


def decode_head(data: Buffer) -> EntryHead:
    """The head alone, which all versions that are known here have at the same place: also of an entry with commands that only
    later programs know. Raises as `decode`."""
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise ProtocolError(f"expected a metalog entry of at least {_HEAD.size} bytes, found {len(view)}")
    version, _, _, _, start_pos, end_pos, time_ms = _HEAD.unpack_from(view)
    _check_version(version)
    _check_numbers(start_pos, end_pos, time_ms)
    return EntryHead(start_pos, end_pos, time_ms)


def _check_version(version: int) -> None:
    if version not in (_VERSION_1, VERSION):
        raise VersionMismatch(
            f"expected a metalog entry of version {VERSION} or {VERSION - 1}, found {version}: upgrade this program",
            expected=VERSION,
            found=version,
        )


def _check_numbers(start_pos: int, end_pos: int, time_ms: int) -> None:
    if not start_pos <= end_pos <= limits.POSITION_MAX or time_ms > _I63_MAX:
        raise ProtocolError(
            f"expected positions in order up to {limits.POSITION_MAX}, found {start_pos} … {end_pos}, time {time_ms}"
        )


def _check_counts(size: int, carried_count: int, shard_count: int, command_count: int) -> int:
    """Where the shards end. Raises ProtocolError when an entry of that size cannot hold so much, or may not."""
    if (
        shard_count > limits.TERM_SHARDS
        or command_count > limits.METALOG_COMMANDS
        or carried_count > limits.CARRIED_ENTRIES
    ):
        raise ProtocolError(
            f"expected at most {limits.TERM_SHARDS} shards, {limits.CARRIED_ENTRIES} carried entries and "
            f"{limits.METALOG_COMMANDS} commands in a metalog entry, found {shard_count}, {carried_count} and {command_count}"
        )
    shards_end = _HEAD.size + shard_count * _SHARD.size
    if shards_end + carried_count * _CARRIED.size + command_count * (_COMMAND.size + _CLOSE.size) > size:
        raise ProtocolError(
            f"a metalog entry of {size} bytes cannot hold {shard_count} shards, {carried_count} carried entries and "
            f"{command_count} commands"
        )
    return shards_end


# -- entries that are carried


def _encode_carried(carried: Carried) -> bytes:
    shard, body = carried
    assert 0 < len(body) <= limits.CARRIED_ENTRY_BYTES, len(body)
    return _CARRIED.pack(shard, len(body)) + body + bytes(-len(body) % 8)


def _decode_carried(view: memoryview, offset: int, count: int) -> tuple[tuple[Carried, ...], int]:
    """What is carried, and where it ends."""
    found: list[Carried] = []
    before = -1
    for _ in range(count):
        shard, size = _CARRIED.unpack_from(view, offset) if offset + _CARRIED.size <= len(view) else (before + 1, 0)
        offset += _CARRIED.size
        end = offset + size + -size % 8
        if shard <= before or not 0 < size <= limits.CARRIED_ENTRY_BYTES or end > len(view):
            raise ProtocolError(
                f"expected carried entries of 1 to {limits.CARRIED_ENTRY_BYTES} bytes by ascending shards, found one of "
                f"{size} bytes of shard {shard} after shard {before}, with {len(view) - offset} bytes left"
            )
        if any(view[offset + size : end]):
            raise ProtocolError(f"expected zeros after the carried entry of shard {shard}")
        found.append(Carried(shard, bytes(view[offset : offset + size])))
        offset, before = end, shard
    return tuple(found), offset


# -- all commands


def _decode_commands(view: memoryview, offset: int, count: int) -> tuple[Command, ...]:
    if len(view) - offset > limits.METALOG_COMMANDS_BYTES:
        raise ProtocolError(
            f"expected at most {limits.METALOG_COMMANDS_BYTES} bytes of commands in a metalog entry, found "
            f"{len(view) - offset}"
        )
    commands: list[Command] = []
    for _ in range(count):
        command, offset = _decode_command(view, offset)
        commands.append(command)
    if offset != len(view):
        raise ProtocolError(f"a metalog entry has {len(view) - offset} bytes after its end")
    return tuple(commands)


# -- one command


def encode_command(command: Command) -> bytes:
    """The bytes of one command, as in an entry. Out of range is our own mistake: AssertionError (`check_command` before)."""
    fault = _fault(command)
    assert fault is None, fault
    match command:
        case Open(shard, incarnation, ledger_id):
            writes = bytes.fromhex(incarnation)
            assert len(writes) == 16, f"an incarnation is 32 hexadecimal digits, not {incarnation!r}"
            kind, body = OPEN, _OPEN.pack(shard, ledger_id, writes)
        case Close(shard):
            kind, body = CLOSE, _CLOSE.pack(shard)
        case Trim(book, pairs, forget, before_ms):
            rows = b"".join([_TRIM_PAIR.pack(*pair) for pair in pairs])
            if before_ms is None:
                kind, body = TRIM, _TRIM.pack(book, len(pairs), _FORGET if forget else 0) + rows
            else:
                kind, body = TRIM_AND_FORGET, _TRIM_AND_FORGET.pack(book, len(pairs), 0, before_ms) + rows
        case Expire(book, writer, last, for_good):
            kind, body = EXPIRE_FOR_GOOD if for_good else EXPIRE, _EXPIRE.pack(book, last, writer)
        case Lost(term, shard, first_entry, stop_entry, evidence, indexed):
            head = _LOST.pack(term, shard, first_entry, stop_entry, len(evidence), _INDEXED if indexed else 0)
            kind, body = LOST, head + evidence + bytes(-len(evidence) % 8)
    return _COMMAND.pack(kind, len(body)) + body


def command_bytes(command: Command) -> int:
    """The size that `encode_command` makes of it."""
    match command:
        case Open():
            body = _OPEN.size
        case Close():
            body = _CLOSE.size
        case Trim(_, pairs, _, before_ms):
            body = _TRIM.size if before_ms is None else _TRIM_AND_FORGET.size
            body += len(pairs) * _TRIM_PAIR.size
        case Expire():
            body = _EXPIRE.size
        case Lost(_, _, _, _, evidence):
            body = _LOST.size + len(evidence) + -len(evidence) % 8
    return _COMMAND.size + body


def decode_command(data: Buffer) -> Command:
    """Reads one command that stands alone. Raises VersionMismatch, ProtocolError."""
    view = memoryview(data)
    command, end = _decode_command(view, 0)
    if end != len(view):
        raise ProtocolError(f"a metalog command has {len(view) - end} bytes after its end")
    return command


def check_command(command: Command) -> None:
    """Raises InvalidArgument when a command's numbers are out of their ranges, so that it could not be stored."""
    fault = _fault(command)
    if fault is not None:
        raise InvalidArgument(fault)


def _decode_command(view: memoryview, offset: int) -> tuple[Command, int]:
    """The command at `offset`, and where it ends."""
    if offset + _COMMAND.size > len(view):
        raise ProtocolError(f"expected the head of a metalog command at byte {offset}, found the end at {len(view)}")
    kind, body_bytes = _COMMAND.unpack_from(view, offset)
    layout = _LAYOUTS.get(kind)
    if layout is None:
        raise VersionMismatch(
            f"a metalog entry has a command of kind {kind}, which this version does not know: upgrade this program",
            found=kind,
        )
    offset += _COMMAND.size
    body = view[offset : offset + body_bytes]
    if body_bytes != len(body) or body_bytes < layout.size:
        raise ProtocolError(
            f"expected at least {layout.size} bytes in a metalog command of kind {kind}, found {body_bytes} announced and "
            f"{len(body)} there"
        )
    command = _read_body(kind, body)
    expected, fault = command_bytes(command) - _COMMAND.size, _fault(command)
    if fault is None and expected != body_bytes:
        fault = f"expected {expected} bytes in a metalog command of kind {kind}, found {body_bytes}"
    if fault is not None:
        raise ProtocolError(fault)
    return command, offset + body_bytes


def _read_body(kind: int, body: memoryview) -> Command:
    """A command of a body that is long enough for its fixed part; nothing is made of more bytes than are there."""
    if kind == OPEN:
        shard, ledger_id, incarnation = _OPEN.unpack_from(body)
        return Open(shard, incarnation.hex(), ledger_id)
    if kind == CLOSE:
        return Close(*_CLOSE.unpack_from(body))
    if kind in (EXPIRE, EXPIRE_FOR_GOOD):
        book, last, writer = _EXPIRE.unpack_from(body)
        return Expire(book, writer, last, kind == EXPIRE_FOR_GOOD)
    if kind in (TRIM, TRIM_AND_FORGET):
        layout, known = (_TRIM, _FORGET) if kind == TRIM else (_TRIM_AND_FORGET, 0)
        book, pair_count, flags, *times_ms = layout.unpack_from(body)
        rows = body[layout.size :]
        if flags & ~known or pair_count * _TRIM_PAIR.size != len(rows):
            raise ProtocolError(
                f"a TRIM of {len(body)} bytes, kind {kind}, cannot hold {pair_count} pairs, flags {flags:#x}"
            )
        return Trim(book, tuple(_TRIM_PAIR.iter_unpack(rows)), kind == TRIM_AND_FORGET or bool(flags), *times_ms)
    term, shard, first_entry, stop_entry, evidence_bytes, flags = _LOST.unpack_from(body)
    evidence, padding = body[_LOST.size : _LOST.size + evidence_bytes], body[_LOST.size + evidence_bytes :]
    if flags & ~_INDEXED or len(evidence) != evidence_bytes or bytes(padding) != bytes(-evidence_bytes % 8):
        raise ProtocolError(
            f"a LOST of {len(body)} bytes cannot hold {evidence_bytes} bytes of evidence, flags {flags:#x}"
        )
    return Lost(term, shard, first_entry, stop_entry, bytes(evidence), bool(flags))


_LAYOUTS: Final = {
    OPEN: _OPEN,
    CLOSE: _CLOSE,
    TRIM: _TRIM,
    EXPIRE: _EXPIRE,
    LOST: _LOST,
    EXPIRE_FOR_GOOD: _EXPIRE,
    TRIM_AND_FORGET: _TRIM_AND_FORGET,
}
"""Kind → the fixed part of its body."""


def _fault(command: Command) -> str | None:
    """What is out of range; None for a command that can be stored."""
    match command:
        case Open(shard, _, ledger_id):
            if not (0 <= shard <= _U32_MAX and 0 <= ledger_id <= _I63_MAX):
                return f"expected a ledger id up to 2**63-1 for shard {shard}, found {ledger_id}"
        case Trim(book, pairs, forget, before_ms):
            if before_ms is not None and not (forget and 0 < before_ms <= _I63_MAX):
                return f"expected a time from 1 to 2**63-1 to forget what came before, found {before_ms} ({forget})"
            if not 0 < len(pairs) <= limits.TRIM_PAIRS or not 0 <= book <= U64_MAX:
                return f"expected 1 to {limits.TRIM_PAIRS} pairs to trim in a book, found {len(pairs)} in book {book}"
            for tag, before in pairs:
                if not 0 <= tag < INVALID_TAG or not 0 <= before <= _I63_MAX:
                    return f"expected a tag up to 2**64-2 and a seqnum up to 2**63-1 to trim, found {tag}, {before}"
        case Expire(book, writer, last):
            if len(writer) != 16 or not (0 <= book <= U64_MAX and 0 <= last <= _I63_MAX):
                return f"expected a writer of 16 bytes and numbers up to 2**63-1, found {len(writer)} bytes, {last}"
        case Lost(term, shard, first_entry, stop_entry, evidence):
            if not (0 < term <= limits.TERM_MAX and 0 <= shard <= _U32_MAX):
                return f"expected a shard of a term from 1 to {limits.TERM_MAX}, found shard {shard} of term {term}"
            if not 0 <= first_entry < stop_entry <= limits.POSITION_MAX:
                return f"expected a range of entries to give up, found {first_entry} to below {stop_entry}"
            if len(evidence) > limits.LOST_EVIDENCE_BYTES:
                return f"expected at most {limits.LOST_EVIDENCE_BYTES} bytes of evidence, found {len(evidence)}"
        case Close(shard):
            if not 0 <= shard <= _U32_MAX:
                return f"expected a shard number up to 2**32-1, found {shard}"
    return None
