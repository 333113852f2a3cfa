"""What a backup of aux data is: its chunks, the node that names all of them, and who may throw away which. Pure.

`/boki/aux` names the ledgers, as JSON, changed by compare-and-swap only. A row is of one ledger of one engine:

    writing    the engine writes it; nobody reads it. Of an engine that is gone it is nothing
    written    closed and whole: the engine's backup. An engine that starts reads all of these
    retired    of no use; whoever sees the row deletes the ledger, then the row

So no ledger is ever without a row, however its engine ended, but for one without entries: made, and not named yet. A backup of
an engine that is gone is retired by one that has read it, when its own has been written since.

One entry of such a ledger is a chunk, little endian:

    version u8 = 1 | pad 3 | count u32 | (seqnum u64 | length u32 | reserved u32)* | aux data, one after another
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from struct import Struct
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from boki_common import limits
from boki_common.errors import CorruptData, VersionMismatch
from boki_metalog.terms.view import decode_versioned

AUX_PATH: Final = "/boki/aux"
VERSION: Final = 1
CHUNK_BYTES: Final = 256 * limits.KIB
"""A chunk is closed at this size; an item of aux data is at most 1 MiB, so no chunk exceeds an entry."""

_HEAD: Final = Struct("<B3xI")
_ROW: Final = Struct("<QII")

State: TypeAlias = Literal["writing", "written", "retired"]


class BackupRow(NamedTuple):
    """One ledger of one engine."""

    incarnation: str
    ledger_id: int
    state: State


class AuxNode(msgspec.Struct, frozen=True):
    """All ledgers with aux data, oldest first."""

    version: int = VERSION
    ledgers: tuple[BackupRow, ...] = ()

    def of_state(self, state: State) -> list[BackupRow]:
        return [row for row in self.ledgers if row.state == state]

    def with_ledgers(self, rows: Iterable[BackupRow]) -> AuxNode:
        return AuxNode(VERSION, tuple(rows))


def encode_node(node: AuxNode) -> bytes:
    return msgspec.json.encode(node)


def decode_node(value: bytes) -> AuxNode:
    """Raises CorruptData, VersionMismatch."""
    return decode_versioned(value, AuxNode, path=AUX_PATH, version=VERSION)


# -- who may throw away what


def begun(node: AuxNode, incarnation: str, ledger_id: int) -> AuxNode:
    """The engine made a ledger and is about to write it."""
    return node.with_ledgers([*node.ledgers, BackupRow(incarnation, ledger_id, "writing")])


def finished(node: AuxNode, incarnation: str, ledger_id: int) -> AuxNode | None:
    """The engine closed it: the one before is of no use any more. None: it was taken for gone, and its ledger with it."""
    row = BackupRow(incarnation, ledger_id, "writing")
    if row not in node.ledgers:
        return None
    others = [
        one._replace(state="retired") if one.incarnation == incarnation else one for one in node.ledgers if one != row
    ]
    return node.with_ledgers([*others, row._replace(state="written")])


def tidied(node: AuxNode, alive: Collection[str], read: Collection[int]) -> AuxNode:
    """What engines left behind that are gone is retired: what they had begun, and what is in our backup too. `read`: ledgers
    whose items are in a backup of ours."""
    return node.with_ledgers(
        row._replace(state="retired")
        if row.incarnation not in alive and (row.state == "writing" or row.ledger_id in read)
        else row
        for row in node.ledgers
    )


def without(node: AuxNode, deleted: Collection[int]) -> AuxNode:
    """These ledgers are deleted."""
    return node.with_ledgers(row for row in node.ledgers if row.ledger_id not in deleted)


# -- chunks


def encode_chunks(items: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    """Items are (seqnum, aux data)."""
    rows: list[bytes] = []
    data: list[bytes] = []
    size = 0
    for seqnum, one in items:
        rows.append(_ROW.pack(seqnum, len(one), 0))
        data.append(one)
        size += _ROW.size + len(one)
        if size >= CHUNK_BYTES:
            yield b"".join([_HEAD.pack(VERSION, len(rows)), *rows, *data])
            rows, data, size = [], [], 0
    if rows:
        yield b"".join([_HEAD.pack(VERSION, len(rows)), *rows, *data])


def decode_chunk(chunk: memoryview) -> list[tuple[int, bytes]]:
    """Raises CorruptData, VersionMismatch."""
    if len(chunk) < _HEAD.size:
        raise CorruptData(f"expected a chunk of aux data of at least {_HEAD.size} bytes, found {len(chunk)}")
    version, count = _HEAD.unpack_from(chunk)
    if version != VERSION:
        raise VersionMismatch(
            f"expected aux data of version {VERSION}, found {version}", expected=VERSION, found=version
        )
    start = _HEAD.size + count * _ROW.size
    if start > len(chunk):
        raise CorruptData(f"{count} items of aux data need {start} bytes, found {len(chunk)}", expected=start)
    rows = list(_ROW.iter_unpack(chunk[_HEAD.size : start]))
    size = start + sum(length for _, length, _ in rows)
    if size != len(chunk):
        raise CorruptData(f"a chunk of aux data says {size} bytes, and has {len(chunk)}", expected=size)
    items = []
    for seqnum, length, _ in rows:
        items.append((seqnum, bytes(chunk[start : start + length])))
        start += length
    return items
