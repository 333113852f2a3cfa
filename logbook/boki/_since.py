"""What streams have that their reader has not seen: `book.read_since({tag: seen, …})`. One round trip, and what is not new is not sent.

It is a read of several tags that waits for nothing: the engine looks up each tag behind what was seen of it. Its first page says as
of when the answer is; what does not fit into that is read on to the same place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from boki import _arguments as arguments
from boki._arguments import Tag
from boki._followed import Answer
from boki._reader import BEFORE_ALL, Reader, later, next_query
from boki._record import Gap, Record, decode_gaps
from boki_common import limits
from boki_common.engine.engine_protocol import Consistency, Query
from boki_common.engine.tag_reads import FROM_BEGINNING, TagRow
from boki_common.errors import InvalidArgument
from boki_common.ids import ALL_RECORDS, SEQNUM_MAX

NOTHING_SEEN: Final = 0


class Since(NamedTuple):
    """What `book.read_since` returns.

    Attributes:
        position: a snapshot: `records` are all of the streams that are newer than what was seen of each and at or below it. It is
            valid in `expect=`.
        records: in order, each once however many of the tags it has.
    """

    position: int
    records: list[Record]


class SeenTag(NamedTuple):
    """One tag: everything of it at or below `seen` is known."""

    tag: Tag
    number: int
    seen: int


def check_seen(seen: Mapping[Tag, int]) -> list[SeenTag]:
    """Raises InvalidArgument, InvalidTag."""
    if not isinstance(seen, Mapping):
        raise InvalidArgument(f"expected {{tag: seqnum seen, …}}, found {type(seen).__name__}")
    if len(seen) > limits.READ_TAGS:
        raise InvalidArgument(f"expected at most {limits.READ_TAGS} tags to read, found {len(seen)}", found=len(seen))
    found: dict[int, SeenTag] = {}
    for tag, seqnum in seen.items():
        number = arguments.tag_number(tag)
        if number in found:
            raise InvalidArgument(f"a tag is read once, by its name or its number: {tag!r} is given twice", found=tag)
        found[number] = SeenTag(tag, number, arguments.check_bound(seqnum, "what was seen", NOTHING_SEEN))
    return list(found.values())


async def read_since(
    reader: Reader, seen: Sequence[SeenTag], at_most: int | None, consistency: Consistency, *, timeout_s: float
) -> Since:
    """See `Book.read_since`."""
    stop = arguments.check_bound(at_most, "at_most", SEQNUM_MAX) + 1
    if not seen:
        return Since(min(await reader.now(consistency, timeout_s), stop - 1), [])
    chosen = arguments.at_snapshot(consistency, stop - 1, reader.view.position)
    query = next_query(reader.view.book, ALL_RECORDS, 0, stop, chosen, max_records=limits.READ_RECORDS)
    found = await _read_all(reader, query, seen, timeout_s=timeout_s)
    if at_most is not None:
        arguments.check_reached(at_most, reader.view.position)
    reader.view.reached(BEFORE_ALL)
    return found


async def _read_all(reader: Reader, query: Query, seen: Sequence[SeenTag], *, timeout_s: float) -> Since:
    """All records above what was seen, below the stop of the query; `seen` names one tag at least.

    Raises:
        Trimmed, Lost: some of them may be gone; `error.tag` says of which tag. Else as `Reader.tag_page`.
    """
    rows = [TagRow(one.number, one.seen + 1, 0 if one.seen else FROM_BEGINNING) for one in seen]
    query = query._replace(start=min(row.start for row in rows))
    names = {one.tag: one.seen for one in seen}
    numbers = {one.number: one.seen for one in seen if isinstance(one.tag, int)}
    records: list[Record] = []
    position = 0
    while True:
        body = await reader.tag_page(query, 0, rows, timeout_s=timeout_s)
        if not records and (nowhere := reader.nothing(body)) is not None:  # the common case
            return Since(min(max(nowhere, position, 1), query.stop - 1), records)
        answer = reader.open_tag_page(body)
        _check_whole(reader, seen, answer)
        if not position:
            position = max(answer.position, 1)
            query = query._replace(stop=min(query.stop, position + 1), consistency=later(query.consistency))
        records += [record for record in answer.records if _is_new(record, names, numbers)]
        query = query._replace(start=answer.last + 1)
        if not answer.more or not answer.last or query.start >= query.stop:
            return Since(min(position, query.stop - 1), records)


def _check_whole(reader: Reader, seen: Sequence[SeenTag], answer: Answer) -> None:
    gaps: list[Gap] = [*answer.unreadable]
    if answer.gaps:
        decoded = decode_gaps(tuple(answer.gaps), reader.book)
        gaps += [
            Gap(gap.kind, gap.first, gap.last, gap.book, tag=seen[row.tag - 1].tag if row.tag else None)
            for gap, row in zip(decoded, answer.gaps, strict=True)
        ]
    if gaps:
        raise gaps[0].error()


def _is_new(record: Record, names: Mapping[Tag, int], numbers: Mapping[int, int]) -> bool:
    """Whether a record is newer than what was seen of one of its tags: by its name, where a name was asked for."""
    seqnum = record.seqnum
    return any(seqnum > names.get(tag, SEQNUM_MAX) for tag in record.tags) or (
        bool(numbers) and any(seqnum > numbers.get(arguments.tag_number(tag), SEQNUM_MAX) for tag in record.tags)
    )
