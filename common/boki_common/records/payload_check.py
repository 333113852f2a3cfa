"""Whether the payloads of a record batch can be opened: the names of tags that each begins with. Pure.

    payload  names bytes u16 | names | the record's data          as in `record_batch`
    names    (tag index u8 | length u8 | utf-8)*

`RecordBatch.parse` looks at columns and at no payload: engines order records and never open them. Who reads one does. So an engine
looks at what an SDK sends before it is stored for ever (`check_payloads`): at the first bytes of each record, which gets no object
of its own. By columns it is slower for what is sent together as a rule: a dozen calls of numpy cost as much as 200 records here.

What is stored already may be otherwise: its bytes are what their digest says, so no other copy is better, and nobody can read
them (`unreadable_payloads`).
"""

from __future__ import annotations

from collections.abc import Iterator

from boki_common.errors import CorruptData, ProtocolError
from boki_common.records.record_batch import RecordBatch
from boki_common.records.tag_names import split_payload


def check_payloads(batch: RecordBatch) -> None:
    """Checks a batch that has its data. Raises CorruptData: the data cannot be decompressed; ProtocolError: the names in a
    payload do not fit into it, or its tags, or are not utf-8."""
    data = batch.data
    for record, payload, tags in _doubtful(batch, bytes(data)):
        _check(record, data[payload], tags)


def _doubtful(batch: RecordBatch, data: bytes) -> Iterator[tuple[int, slice, int]]:
    """The payloads that are to be looked at closely: (record, where it is in the data, its number of tags). Bytes, since they are
    looked at faster than a view is: that is more than the copy costs."""
    start, tag_counts = 0, batch.tag_counts_of(0, batch.record_count)
    for record, (length, tags) in enumerate(zip(batch.length_values, tag_counts, strict=True)):
        at = start + 2
        end = at + (data[start] | data[start + 1] << 8)
        stop = start + length
        while at + 1 < end <= stop and data[at] < tags:
            name, at = at + 2, at + 2 + data[at + 1]
            if not (data[name:at].isascii() or _is_utf8(data[name:at])):
                at = start
                break
        if at != end:
            yield record, slice(start, stop), tags
        start = stop


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def unreadable_payloads(batch: RecordBatch) -> list[tuple[int, str]]:
    """The records of a batch that cannot be opened, and why; all of them, where the data as a whole cannot."""
    try:
        data = batch.data
    except CorruptData as error:
        return [(record, str(error)) for record in range(batch.record_count)]
    found: list[tuple[int, str]] = []
    for record, payload, tags in _doubtful(batch, bytes(data)):
        try:
            _check(record, data[payload], tags)
        except ProtocolError as error:
            found.append((record, str(error)))
    return found


def _check(record: int, payload: memoryview, tag_count: int) -> None:
    try:
        names, _ = split_payload(payload)
    except CorruptData as error:
        raise ProtocolError(f"in a record batch, record {record}: {error}") from error
    needed = max((index for index, _ in names), default=-1) + 1
    if needed > tag_count:
        raise ProtocolError(
            f"in a record batch, record {record} has {tag_count} tags and a name for tag {needed - 1}",
            expected=tag_count,
            found=needed,
        )
