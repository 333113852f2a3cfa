"""Large states in parts: the rows of a state are cut into parts, and a part that did not change is referred to. Pure.

    composed = compose(header, rows, kept, now_ms, rewrite_ms)
    # append composed.parts that are new, then a head with composed.data and the references to all parts

- A *head* is the event whose record makes the state complete. It has the header, and all rows of a small state. A larger one has its rows
  in parts, which are in the log before their head.
- The boundaries of parts depend on the rows near them, so a change of one row changes one part or two.
- A part is known by its bytes. Parts that the newest head refers to are *kept*: the stream is trimmed below the oldest of them.
- A part older than `GENERATIONS` heads is written again, the oldest ones first, and as many bytes as the heads write anyway: so the
  retained stream is a small multiple of the state, and a large state is not written again and again. A part that is larger than what one
  head may write again waits until several heads have saved up for it. A part that is as old as `rewrite_ms` is always written again, so
  that its term can be reclaimed.

The bytes of a state are a msgpack array of rows, of which the first is the header: those of the head, then those of its parts. The key of a
header of a state in parts is a msgpack array too: the bytes that are saved up, then how many heads ago each part was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
import xxhash

from boki_common.limits import MIB
from bokirsm.model.events import PartRef

PART_BYTES: Final = MIB // 4
LEAST_BYTES: Final = PART_BYTES // 4
"""Bytes of a part before a row may begin the next one."""
BOUNDARY: Final = 16
"""One of so many rows may begin a part."""
GENERATIONS: Final = 8
_ARRAY: Final = b"\xdd"


class Row(msgspec.Struct, array_like=True, frozen=True):
    """A row of a state.

    Attributes:
        kind: of the row.
        name: of a register, table, timer or machine.
        key: of a table, or of a message.
        value: the encoded value.
    """

    kind: str
    name: str = ""
    key: bytes = b""
    value: bytes = b""


class KeptPart(NamedTuple):
    """A part in the log.

    Attributes:
        ref: its place.
        size: its bytes.
        time_ms: about when it was written, by the clock of the log.
        generation: the number of the head with which it was written.
    """

    ref: PartRef
    size: int
    time_ms: int
    generation: int


class KeptParts:
    """The parts of the newest head, by the hash of their bytes.

    Attributes:
        parts: those parts.
        generation: the number of the next head.
        saved: bytes that heads since the last one without an old part might have written again, and did not.
    """

    __slots__ = ("generation", "parts", "saved")

    def __init__(self, parts: dict[bytes, KeptPart] | None = None, generation: int = 0, saved: int = 0) -> None:
        self.parts: Final = parts or {}
        self.generation: Final = generation
        self.saved: Final = saved

    @property
    def first(self) -> int:
        """The lowest seqnum of a part; 0 if there is none."""
        return min((one.ref.seqnum for one in self.parts.values()), default=0)


class Part(NamedTuple):
    """A part of a composed state: in the log, or to be written (`kept` is None)."""

    digest: bytes
    data: bytes
    kept: KeptPart | None


class Composed(NamedTuple):
    """A state that is ready to be written.

    Attributes:
        data: of the head.
        parts: all parts, in order.
        generation: the number of the head.
        saved: as of `KeptParts`, after this head.
    """

    data: bytes
    parts: list[Part]
    generation: int
    saved: int = 0

    @property
    def new(self) -> list[Part]:
        """The parts that are to be written."""
        return [one for one in self.parts if one.kept is None]

    def written(self, refs: Sequence[PartRef], now_ms: int) -> tuple[tuple[PartRef, ...], KeptParts]:
        """Return the references of the head, and the parts that are kept from then on. `refs`: the places of the new parts."""
        places = iter(refs)
        kept: dict[bytes, KeptPart] = {}
        found = []
        for one in self.parts:
            place = one.kept or KeptPart(next(places), len(one.data), now_ms, self.generation)
            kept[one.digest] = place
            found.append(place.ref)
        return tuple(found), KeptParts(kept, self.generation + 1, self.saved)


_encoder: Final = msgspec.msgpack.Encoder()
_row: Final = msgspec.msgpack.Decoder(Row)
_numbers: Final = msgspec.msgpack.Decoder(list[int])
_rows: Final = msgspec.msgpack.Decoder(list[Row])


def compose(header: Row, rows: Iterable[Row], kept: KeptParts, now_ms: int, rewrite_ms: int) -> Composed:
    """Return a state to write.

    Args:
        header: its first row.
        rows: the others, in order.
        kept: the parts of the newest head.
        now_ms: by the clock of the log.
        rewrite_ms: the age at which a part is written again.
    """
    encoded = [(row, _encoder.encode(row)) for row in rows]
    data = _beginning(header, len(encoded))
    if sum(len(one) for _, one in encoded) <= PART_BYTES:
        return Composed(data + b"".join(one for _, one in encoded), [], kept.generation)
    parts = []
    for cut in _cut(encoded):
        digest = xxhash.xxh3_128_digest(cut)
        known = kept.parts.get(digest)
        old = known is not None and now_ms - known.time_ms >= rewrite_ms
        parts.append(Part(digest, cut, None if old else known))
    written, saved = _rewritten(parts, kept.generation, len(data) + kept.saved)
    ages = [0 if one.kept is None else kept.generation - one.kept.generation for one in written]
    header = msgspec.structs.replace(header, key=_encoder.encode([saved, *ages]))
    return Composed(_beginning(header, len(encoded)), written, kept.generation, saved)


def _beginning(header: Row, count: int) -> bytes:
    """Return the bytes of a state before its other rows, of which there are so many."""
    return _ARRAY + (count + 1).to_bytes(4, "big") + _encoder.encode(header)


def _cut(encoded: Iterable[tuple[Row, bytes]]) -> list[bytes]:
    """Cut rows into parts."""
    found: list[bytes] = []
    run: list[bytes] = []
    size = 0
    for row, data in encoded:
        may_begin = size >= LEAST_BYTES and xxhash.xxh3_64_intdigest(row.name.encode() + row.key) % BOUNDARY == 0
        if run and (may_begin or size + len(data) > PART_BYTES):
            found.append(b"".join(run))
            run, size = [], 0
        run.append(data)
        size += len(data)
    return [*found, b"".join(run)]


def _rewritten(parts: list[Part], generation: int, size: int) -> tuple[list[Part], int]:
    """Return the parts with those of the oldest generations written again, and the bytes that are saved up for the next one.

    Args:
        parts: of the state.
        generation: the number of the head.
        size: the bytes of the head, and those that heads before saved.
    """
    budget = size + sum(len(one.data) for one in parts if one.kept is None)
    old = [one.kept for one in parts if one.kept is not None and generation - one.kept.generation >= GENERATIONS]
    again = set()
    for kept in sorted(old, key=lambda one: one.ref.seqnum):
        if kept.size > budget:
            break
        budget -= kept.size
        again.add(kept.ref)
    left = [one._replace(kept=None) if one.kept is not None and one.kept.ref in again else one for one in parts]
    return left, budget if len(again) < len(old) else 0


def whole(composed: Composed) -> bytes:
    """Return the bytes of a state."""
    return composed.data + b"".join(part.data for part in composed.parts)


def rows_of(data: bytes) -> list[Row]:
    """Return the rows of the bytes of a state, the header first."""
    return _rows.decode(data)


def kept_of(parts: Sequence[tuple[PartRef, bytes, int]], data: bytes) -> KeptParts:
    """Return the parts of a head that was read.

    Args:
        parts: the place, the bytes and the time of each part.
        data: of the head. One that an older program wrote does not say how old its parts are.
    """
    key = _row.decode(data[len(_ARRAY) + 4 :]).key if parts else b""
    saved, *ages = _numbers.decode(key) if key else [0] * (len(parts) + 1)
    kept = {
        xxhash.xxh3_128_digest(data): KeptPart(ref, len(data), ms, -age)
        for (ref, data, ms), age in zip(parts, ages, strict=True)
    }
    return KeptParts(kept, 1, saved)
