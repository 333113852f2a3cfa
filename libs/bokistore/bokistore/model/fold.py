"""Views of objects: their fold from records, and their two stored forms. Pure.

    view   exists, value, expires_ms   as of `seen`: all records of the object at or below it are applied
           records, size               above its last checkpoint: they decide when the next one is due

Two views of one object with the same `seen` are equal, whichever process folded them and from whichever start.

    checkpoint   msgpack array [exists, value, expires_ms]
    aux data     crc u32 | body       beside a record; little endian, crc32c of (seqnum u64 | body)
      body       msgpack array [version, views]         views of objects that the record at seqnum changes, by name
      view       msgpack array [name, exists, value, expires_ms, records, size]

Aux data is a cache: data that fails a check is ignored. A record of a transaction changes several objects, so a view is added to those
that are there; if all of them are too large, only the added one is stored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

import crc32c as _crc32c
import msgspec

from boki_common.errors import CorruptData
from boki_common.limits import AUX_BYTES
from bokilib.records.codec import Json, JsonObject
from bokistore.model.events import AnyEvent, Commit, Deleted, Expires, Ops, size_of
from bokistore.model.operations import MISSING, AnyOperation, Missing, Result, apply, same


class View(msgspec.Struct, frozen=True):
    """State of an object as of a place of the log; see the module."""

    name: str
    seen: int = 0
    exists: bool = False
    value: JsonObject = {}
    expires_ms: int | None = None
    records: int = 0
    size: int = 0

    @property
    def content(self) -> JsonObject | Missing:
        """The value, or MISSING."""
        return self.value if self.exists else MISSING


_encoder: Final = msgspec.msgpack.Encoder()


def apply_all(view: View, operations: Iterable[AnyOperation]) -> tuple[View, list[Result]]:
    """Return a view after operations, and their results. Operations that are not possible change nothing."""
    content = view.content
    results = []
    for operation in operations:
        content, result = apply(content, operation)
        results.append(result)
    if isinstance(content, Missing):
        return view, results
    return msgspec.structs.replace(view, exists=True, value=content), results


def after_event(view: View, event: AnyEvent) -> View:
    """Return a view after one event, which may be of another object."""
    if isinstance(event, (Ops, Commit)):
        return apply_all(view, event.operations)[0] if event.name == view.name else view
    if isinstance(event, Deleted) and event.name == view.name:
        return msgspec.structs.replace(view, exists=False, value={}, expires_ms=None)
    if isinstance(event, Expires) and event.name == view.name and view.exists:
        return msgspec.structs.replace(view, expires_ms=event.at_ms)
    return view


def after_record(view: View, seqnum: int, events: Iterable[AnyEvent]) -> View:
    """Return a view after the next record of the object's stream."""
    assert seqnum > view.seen, "records are folded in order, once"
    size = view.size
    for event in events:
        if isinstance(event, (Ops, Commit, Deleted, Expires)) and event.name == view.name:
            size += size_of(event)
            view = after_event(view, event)
    return msgspec.structs.replace(view, seen=seqnum, records=view.records + 1, size=size)


def checkpoint_data(view: View) -> bytes:
    """Encode the state of a view, for a checkpoint."""
    return _encoder.encode((view.exists, view.value, view.expires_ms))


def from_checkpoint(name: str, covers: int, data: bytes) -> View:
    """Return the view that a checkpoint contains. Raises CorruptData."""
    try:
        exists, value, *rest = msgspec.msgpack.decode(data, type=tuple[bool, dict[str, object], int | None])
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise CorruptData(f"a checkpoint of {name!r} is damaged: {fault}", covers=covers) from fault
    content: JsonObject = {key: _json(item) for key, item in value.items()}
    return View(name, covers, exists, content, rest[0])


def _json(value: object) -> Json:
    """Narrow a value that msgpack decoded from JSON."""
    assert value is None or isinstance(value, (dict, list, str, int, float, bool))
    return value


def gone(name: str, seen: int) -> View:
    """Return the view of an object that does not exist as of a place; 0: at an unknown place, or nothing was read yet."""
    return View(name, seen)


def unchanged(before: View, after: View) -> bool:
    """Return whether an object is the same at two places.

    Views of one state may differ in `seen`: that of a checkpoint has seen the place of the checkpoint, and an object that does not exist
    has no record.
    """
    if before.seen == after.seen or not (before.exists or after.exists):
        return True
    return before.expires_ms == after.expires_ms and same(before.content, after.content)


# -- aux data

AUX_VERSION: Final = 1
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
    return body.views if body.version == AUX_VERSION else []


def from_aux_data(name: str, seqnum: int, aux: bytes | None) -> View | None:
    """Return the view of an object as of a record, or None if its aux data has none."""
    for row in _rows(seqnum, aux):
        if row.name == name:
            return View(name, seqnum, row.exists, row.value, row.expires_ms, row.records, row.size)
    return None


def aux_data(view: View, aux: bytes | None) -> bytes | None:
    """Return aux data for the record at `view.seen`, with this view; None if it is too large."""
    rows = [row for row in _rows(view.seen, aux) if row.name != view.name]
    row = _StoredView(view.name, view.exists, dict(view.value), view.expires_ms, view.records, view.size)
    for kept in ([*rows, row], [row]):
        body = _encoder.encode(_Body(AUX_VERSION, kept))
        if len(body) + _CRC.size <= AUX_BYTES:
            return _crc(view.seen, body) + body
    return None
