"""Whether the payloads of a record batch can be opened: the names of tags that each begins with. Pure.

    payload  names bytes u16 | names | the record's data          as in `record_batch`
    names    (tag index u8 | length u8 | utf-8)*

`RecordBatch.parse` looks at columns and at no payload: engines order records and never open them. Who reads one does. So an engine
looks at what an SDK sends before it is stored for ever (`check_payloads`): by columns, each record's first bytes at once, then
each first name, each second one; no record has an object of its own. A few records are looked at one by one, which costs less.

What is stored already may be otherwise: its bytes are what their digest says, so no other copy is better, and nobody can read
them (`unreadable_payloads`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from boki_common import limits
from boki_common.errors import CorruptData, ProtocolError
from boki_common.records.numpy_pays import FEW_RECORDS
from boki_common.records.record_batch import RecordBatch
from boki_common.records.tag_names import split_payload

KNOWN_NAMES: Final = 4_096
KNOWN_BYTES: Final = 256
_COPIED_BYTES: Final = 64 * limits.KIB
_TAGS_MAX: Final = 256
"""More than any record has."""
_known: Final[dict[bytes, int]] = {}
"""How payloads open that were found to be right → the number of tags that they need; up to `KNOWN_NAMES` of up to `KNOWN_BYTES`
each. Programs use few combinations of tags."""


def check_payloads(batch: RecordBatch) -> None:
    """Checks a batch that has its data.

    Raises:
        CorruptData: the data cannot be decompressed.
        ProtocolError: the names in a payload do not fit into it, or its tags, or are not utf-8.
    """
    data, count = batch.data, batch.record_count
    if count == 1:
        if data[0] or data[1]:
            _check(0, data, batch.tag_count)
    elif count <= FEW_RECORDS:
        _check_few(batch, bytes(data) if len(data) <= _COPIED_BYTES else data)
    else:
        _check_columns(batch, data)


def _check_few(batch: RecordBatch, data: bytes | memoryview) -> None:
    start, known = 0, _known
    for record, (length, tags) in enumerate(
        zip(batch.payload_lengths.tolist(), batch.tag_counts_of(0, batch.record_count), strict=True)
    ):
        size = data[start] | data[start + 1] << 8
        if size and (size + 2 > length or known.get(bytes(data[start : start + 2 + size]), _TAGS_MAX) > tags):
            _check(record, memoryview(data)[start : start + length], tags)
        start += length


def unreadable_payloads(batch: RecordBatch) -> list[tuple[int, str]]:
    """The records of a batch that cannot be opened, and why; all of them, where the data as a whole cannot. For who looks at what
    is stored, and not in a hurry."""
    try:
        data = batch.data
    except CorruptData as error:
        return [(record, str(error)) for record in range(batch.record_count)]
    try:
        check_payloads(batch)
    except ProtocolError:
        pass
    else:
        return []
    found: list[tuple[int, str]] = []
    start, tag_counts = 0, batch.tag_counts_of(0, batch.record_count)
    for record, length in enumerate(batch.payload_lengths.tolist()):
        try:
            _check(record, data[start : start + length], tag_counts[record])
        except ProtocolError as error:
            found.append((record, str(error)))
        start += length
    return found


def _check(record: int, payload: memoryview, tag_count: int) -> None:
    size = 2 + payload[0] + 256 * payload[1]
    opening = bytes(payload[:size])
    needed = _known.get(opening)
    if needed is None:
        try:
            names, _ = split_payload(payload)
        except CorruptData as error:
            raise ProtocolError(f"in a record batch, record {record}: {error}") from error
        needed = max((index for index, _ in names), default=-1) + 1
        if size <= KNOWN_BYTES:
            if len(_known) >= KNOWN_NAMES:
                _known.clear()
            _known[opening] = needed
    if needed > tag_count:
        raise ProtocolError(
            f"in a record batch, record {record} has {tag_count} tags and a name for tag {needed - 1}",
            expected=tag_count,
            found=needed,
        )


def _check_columns(batch: RecordBatch, view: memoryview) -> None:
    data = np.frombuffer(view, np.uint8)
    payload_ends = batch.payload_ends
    starts = payload_ends - batch.payload_lengths
    sizes = data[starts] + data[starts + 1].astype(np.int64) * 256
    named = np.flatnonzero(sizes)
    if not len(named):
        return
    at, sizes = starts[named] + 2, sizes[named]
    ends, counts = at + sizes, batch.tag_counts[named]
    if (ends > payload_ends[named]).any() or _beyond_ascii(data, at, sizes) or not _names_fit(data, at, ends, counts):
        _check_some(batch, view, named)


def _names_fit(
    data: NDArray[np.uint8], at: NDArray[np.int64], ends: NDArray[np.int64], counts: NDArray[np.uint8]
) -> bool:
    """Looks at the first name of each payload, then at each second one …"""
    while len(at):
        if (at + 2 > ends).any():
            return False
        following = at + 2 + data[at + 1]
        if ((data[at] >= counts) | (following > ends)).any():
            return False
        left = following < ends
        at, ends, counts = following[left], ends[left], counts[left]
    return True


def _beyond_ascii(data: NDArray[np.uint8], at: NDArray[np.int64], sizes: NDArray[np.int64]) -> bool:
    """Whether a byte of the names is none of ASCII, or a length or an index that looks like it."""
    total = int(sizes.sum())
    before = np.cumsum(sizes) - sizes
    places = np.repeat(at - before, sizes) + np.arange(total)
    return bool((data[places] >= 0x80).any())


def _check_some(batch: RecordBatch, view: memoryview, records: NDArray[np.int64]) -> None:
    """One by one: names with other than ASCII letters, or with a fault, which is told of its record."""
    ends, tag_counts = batch.payload_ends, batch.tag_counts
    for record in records.tolist():
        start = ends.item(record - 1) if record else 0
        _check(record, view[start : ends.item(record)], tag_counts.item(record))
