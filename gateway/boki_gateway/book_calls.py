"""The LogBook API over HTTP: one handler for each call, thin over the SDK.

Each takes a `Call`, whose parameters and body are parsed already, and returns a body of `bodies`. What the SDK raises goes
through: the server makes it an answer. A handler knows nothing of headers, statuses or bytes.
"""

from __future__ import annotations

from urllib.parse import quote

from boki import Book, Record
from boki_gateway import bodies
from boki_gateway.bodies import (
    AppendAnswer,
    AppendRequest,
    BatchAnswer,
    BatchRequest,
    PrevManyAnswer,
    PrevManyRequest,
    RecordAnswer,
    RecordsAnswer,
)
from boki_gateway.call import Call, Created
from boki_gateway.errors import NoSuchRecord
from boki_gateway.names import name_text


async def append(call: Call) -> Created:
    request: AppendRequest = call.body
    book = call.book
    seqnum = await book.append(
        bodies.data_of(request), tags=bodies.tags_of(request), expect=bodies.expectations_of(request)
    )
    location = f"/v1/books/{quote(name_text(book.name), safe='~')}/records/{seqnum}"
    return Created(AppendAnswer(str(seqnum), position_of(book)), location)


async def append_batch(call: Call) -> BatchAnswer:
    request: BatchRequest = call.body
    book = call.book
    seqnums = await book.append_many(bodies.batch_of(request))
    return BatchAnswer([str(seqnum) for seqnum in seqnums], position_of(book))


async def read_range(call: Call) -> RecordsAnswer:
    """Waits for the first record if it is told to; then takes what one page of the SDK holds, up to `limit`."""
    asked, book = call.asked, call.book
    start = asked.start
    if asked.wait:
        first = await book.read_next(asked.tag, at_least=start, wait=asked.wait, consistency=asked.consistency)
        if first is None or (asked.stop is not None and first.seqnum >= asked.stop):
            return RecordsAnswer([], str(start or 0), False, position_of(book))
        start = first.seqnum
    pages = book.read(asked.tag, start=start, stop=asked.stop, consistency=asked.consistency)
    found = [item for item in await pages.next_batch() if isinstance(item, Record)]
    taken = found[: asked.limit]
    following = taken[-1].seqnum + 1 if taken else start or 0
    more = len(found) > len(taken) or bool(await pages.next_batch())
    return RecordsAnswer([_body(call, record) for record in taken], str(following), more, position_of(book))


async def read_next(call: Call) -> RecordAnswer:
    asked, book = call.asked, call.book
    record = await book.read_next(asked.tag, at_least=asked.at_least, wait=asked.wait, consistency=asked.consistency)
    return _one(call, book, record)


async def read_prev(call: Call) -> RecordAnswer:
    asked, book = call.asked, call.book
    record = await book.read_prev(asked.tag, at_most=asked.at_most, consistency=asked.consistency)
    return _one(call, book, record)


async def read_tail(call: Call) -> RecordAnswer:
    asked, book = call.asked, call.book
    return _one(call, book, await book.check_tail(asked.tag, consistency=asked.consistency))


async def read_at(call: Call) -> RecordAnswer:
    asked, book = call.asked, call.book
    record = await book.read_at(asked.seqnum, consistency=asked.consistency)
    if record is None:
        raise NoSuchRecord(
            f"expected the seqnum of a record of the book {name_text(book.name)!r}, found {asked.seqnum}; "
            "records/next finds the next one",
            seqnum=asked.seqnum,
        )
    return _one(call, book, record)


async def read_prev_many(call: Call) -> PrevManyAnswer:
    request: PrevManyRequest = call.body
    asked, book = call.asked, call.book
    records = await book.read_prev_many(bodies.queries_of(request), consistency=asked.consistency)
    return PrevManyAnswer([None if record is None else _body(call, record) for record in records], position_of(book))


def position_of(book: Book) -> str | None:
    """The position of a book in its session, as answers carry it."""
    return None if book.position is None else str(book.position)


def _one(call: Call, book: Book, record: Record | None) -> RecordAnswer:
    return RecordAnswer(None if record is None else _body(call, record), position_of(book))


def _body(call: Call, record: Record) -> bodies.RecordBody:
    return bodies.record_body(record, call.asked.encoding)
