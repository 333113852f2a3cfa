"""The LogBook API over HTTP: one handler for each call, thin over the SDK.

Each takes a `Call`, whose parameters and body are parsed already, and returns a body of `bodies`. What the SDK raises goes
through: the server makes it an answer. A handler knows nothing of headers, statuses or bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from boki import Book, Gap, Record
from boki_gateway.calls import bodies
from boki_gateway.calls.call import Call, Created
from boki_gateway.calls.names import name_text
from boki_gateway.errors import NoSuchRecord


async def append(call: Call) -> Created:
    request: bodies.AppendRequest = call.body
    writer = bodies.writer_of(request)
    data, tags, expect = bodies.data_of(request), bodies.tags_of(request), bodies.expectations_of(request)
    if writer is None:
        book = call.book
        seqnum = await book.append(data, tags=tags, expect=expect)
    else:
        with _own_session(call) as book:
            seqnum = await book.append(data, tags=tags, expect=expect, writer=writer)
    location = f"/v1/books/{quote(name_text(book.name), safe='~')}/records/{seqnum}"
    return Created(bodies.AppendAnswer(str(seqnum), position_of(book)), location)


@contextmanager
def _own_session(call: Call) -> Iterator[Book]:
    """The book in a session of this request alone: a session keeps every named writer it met, and this one may live long.

    What it sees is handed back to the session of the request, whatever happens.
    """
    own = call.parts.client.session(call.session.session_token())
    try:
        yield own.book(call.asked.book)
    finally:
        call.session.merge(own.session_token())


async def read_writer(call: Call) -> bodies.WriterAnswer:
    with _own_session(call) as book:
        writer = await book.writer(call.asked.writer)
        return bodies.WriterAnswer(writer.name, writer.last)


async def trim(call: Call) -> bodies.TrimAnswer:
    request: bodies.TrimRequest = call.body
    book = call.book
    await book.trim(bodies.trims_of(request), forget=request.forget)
    return bodies.TrimAnswer(position_of(book))


async def set_aux(call: Call) -> bodies.AuxAnswer:
    request: bodies.AuxRequest = call.body
    return bodies.AuxAnswer(await call.book.set_aux_data(call.asked.seqnum, bodies.data_of(request)))


async def seek(call: Call) -> bodies.SeekAnswer:
    asked, book = call.asked, call.book
    seqnum = await book.seek(asked.time_ms, consistency=asked.consistency)
    return bodies.SeekAnswer(str(seqnum), position_of(book))


async def append_batch(call: Call) -> bodies.BatchAnswer:
    request: bodies.BatchRequest = call.body
    book = call.book
    seqnums = await book.append_many(bodies.batch_of(request))
    return bodies.BatchAnswer([str(seqnum) for seqnum in seqnums], position_of(book))


async def read_range(call: Call) -> bodies.RecordsAnswer:
    """Waits for the first record if asked to; then takes what one page of the SDK holds, up to `limit`."""
    asked, book = call.asked, call.book
    start = asked.start
    if asked.wait:
        first = await book.read_next(asked.tag, at_least=start, wait=asked.wait, consistency=asked.consistency)
        if first is None or (asked.stop is not None and first.seqnum >= asked.stop):
            return bodies.RecordsAnswer([], [], str(start or 0), False, position_of(book))
        start = first.seqnum
    wanted = asked.limit + 1  # one more shows whether there are more
    pages = book.read(asked.tag, start=start, stop=asked.stop, limit=wanted, consistency=asked.consistency)
    found = await pages.next_batch()
    taken = found[: asked.limit]
    more = len(found) > len(taken) or bool(await pages.next_batch())
    return bodies.RecordsAnswer(
        [_body(call, item) for item in taken if isinstance(item, Record)],
        [bodies.gap_body(item) for item in taken if isinstance(item, Gap)],
        str(end_of(taken[-1]) + 1 if taken else start or 0),
        more,
        position_of(book),
    )


async def read_next(call: Call) -> bodies.RecordAnswer:
    asked, book = call.asked, call.book
    record = await book.read_next(asked.tag, at_least=asked.at_least, wait=asked.wait, consistency=asked.consistency)
    return _one(call, book, record)


async def read_prev(call: Call) -> bodies.RecordAnswer:
    asked, book = call.asked, call.book
    record = await book.read_prev(asked.tag, at_most=asked.at_most, consistency=asked.consistency)
    return _one(call, book, record)


async def read_tail(call: Call) -> bodies.RecordAnswer:
    asked, book = call.asked, call.book
    return _one(call, book, await book.check_tail(asked.tag, consistency=asked.consistency))


async def read_at(call: Call) -> bodies.RecordAnswer:
    asked, book = call.asked, call.book
    record = await book.read_at(asked.seqnum, consistency=asked.consistency)
    if record is None:
        raise NoSuchRecord(
            f"expected the seqnum of a record of the book {name_text(book.name)!r}, found {asked.seqnum}; "
            "records/next finds the next one",
            seqnum=asked.seqnum,
        )
    return _one(call, book, record)


async def read_prev_many(call: Call) -> bodies.PrevManyAnswer:
    request: bodies.PrevManyRequest = call.body
    asked, book = call.asked, call.book
    records = await book.read_prev_many(bodies.queries_of(request), consistency=asked.consistency)
    return bodies.PrevManyAnswer(
        [None if record is None else _body(call, record) for record in records], position_of(book)
    )


def end_of(item: Record | Gap) -> int:
    """The last seqnum that an item of a range stands for."""
    return item.last if isinstance(item, Gap) else item.seqnum


def position_of(book: Book) -> str | None:
    """The position of a book in its session, as answers carry it."""
    return None if book.position is None else str(book.position)


def _one(call: Call, book: Book, record: Record | None) -> bodies.RecordAnswer:
    return bodies.RecordAnswer(None if record is None else _body(call, record), position_of(book))


def _body(call: Call, record: Record) -> bodies.RecordBody:
    return bodies.record_body(record, call.asked.encoding)
