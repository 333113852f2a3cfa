"""Format of views in aux data: states stored beside records, from which a fold can begin. Pure.

    aux     crc u32 | body                        little endian; crc32c of (seqnum u64 | body)
    body    msgpack array [version, views]        views of objects that the record at seqnum changes, by name
    view    msgpack array [name, exists, value, expires_ms, records, size]

It is a cache: data that fails a check is ignored. A record of a transaction changes several objects, so a view is added to those that
are there; if all of them are too large, only the added one is stored.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import crc32c as _crc32c
import msgspec

from boki_common.limits import AUX_BYTES
from bokistore.model.fold import View

VERSION: Final = 1
_CRC: Final = struct.Struct("<I")
_SEQNUM: Final = struct.Struct("<Q")


class _StoredView(msgspec.Struct, array_like=True):
    name: str
    exists: bool
    value: dict[str, Any]  # JSON: msgspec knows no recursive aliases
    expires_ms: int | None
    records: int
    size: int


class _Body(msgspec.Struct, array_like=True):
    version: int
    views: list[_StoredView]


_encoder: Final = msgspec.msgpack.Encoder()
_bodies: Final = msgspec.msgpack.Decoder(_Body)


def _crc(seqnum: int, body: bytes) -> bytes:
    return _CRC.pack(_crc32c.crc32c(body, _crc32c.crc32c(_SEQNUM.pack(seqnum))))


def _rows(seqnum: int, aux: bytes | None) -> list[_StoredView]:
    """Return the views in aux data; none if it fails a check."""
    if not aux or aux[: _CRC.size] != _crc(seqnum, aux[_CRC.size :]):
        return []
    try:
        body = _bodies.decode(aux[_CRC.size :])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
    return body.views if body.version == VERSION else []


def view_of(name: str, seqnum: int, aux: bytes | None) -> View | None:
    """Return the view of an object as of a record, or None if its aux data has none."""
    for row in _rows(seqnum, aux):
        if row.name == name:
            return View(name, seqnum, row.exists, row.value, row.expires_ms, row.records, row.size)
    return None


def with_view(view: View, aux: bytes | None) -> bytes | None:
    """Return aux data for the record at `view.seen`, with this view; None if it is too large."""
    rows = [row for row in _rows(view.seen, aux) if row.name != view.name]
    row = _StoredView(view.name, view.exists, dict(view.value), view.expires_ms, view.records, view.size)
    for kept in ([*rows, row], [row]):
        body = _encoder.encode(_Body(VERSION, kept))
        if len(body) + _CRC.size <= AUX_BYTES:
            return _crc(view.seen, body) + body
    return None
