"""`boki read`, `boki tail`, `boki trim`: the records of one book.

Only the SDK is used, as any program would. Records come out as they went in, one a line; with `--json` each is an object
with its seqnum, time and tags. Where records are missing, because they were trimmed or lost, a gap is reported on standard error,
or is an object of its own.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from boki_cli import exit_codes, standard_streams
from boki_cli.clients import connected
from boki_cli.number_types import Whole
from boki_cli.options import (
    BOOK,
    CHECK,
    CONSISTENCY,
    YES,
    Invocation,
    as_moment,
    command,
    end_of_list,
    flush,
    write_line,
)
from boki_cli.wording import counted
from boki_common.runtime import process

if TYPE_CHECKING:
    from boki import Book, Gap, Record
    from boki._arguments import ConsistencyName

_TAG = click.option("--tag", metavar="T", help="Only records that carry this tag.")
_SINCE = click.option(
    "--since",
    "since_ms",
    callback=as_moment,
    metavar="T",
    help="Only what was ordered from then on: 2026-11-22, 2026-11-22T06:00 (UTC), or 90s, 15m, 2h, 7d ago.",
)
NEWEST: Final = 10
"""Records that `tail` begins with by default."""
COUNTED: Final = 1000
"""Records that `trim` counts before it asks; of more it says that these are not all. They hold up to `COUNTED_BYTES`."""
COUNTED_BYTES: Final = 16 << 20
_SEQNUM = Whole(0, 2**63 - 1)


class Range(NamedTuple):
    """Which records to read: by seqnums, by when they were ordered, or both. The second of each pair is exclusive."""

    start: int | None = None
    stop: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    async def seqnums(self, book: Book, consistency: ConsistencyName) -> tuple[int | None, int | None]:
        """The same in seqnums only."""
        start, stop = self.start, self.stop
        if self.since_ms is not None:
            start = max(start or 0, await book.seek(self.since_ms, consistency=consistency))
        if self.until_ms is not None:
            until = await book.seek(self.until_ms, consistency=consistency)
            stop = until if stop is None else min(stop, until)
        return start, stop


EVERYWHERE: Final = Range()


@command(None, "read", writes=False, client=True, short_help="Print the records of a book.")
@BOOK
@_TAG
@click.option("--from", "start", type=_SEQNUM, metavar="SEQ", help="First seqnum, inclusive.")
@click.option("--to", "stop", type=_SEQNUM, metavar="SEQ", help="Last seqnum, exclusive.")
@_SINCE
@click.option("--until", "until_ms", callback=as_moment, metavar="T", help="Only what was ordered before.")
@click.option("--limit", type=Whole(1), metavar="N", help="At most N records.")
@click.option("--prev", is_flag=True, help="Newest first.")
@CHECK
@CONSISTENCY
def read(
    invocation: Invocation,
    book: str,
    tag: str | None,
    start: int | None,
    stop: int | None,
    since_ms: int | None,
    until_ms: int | None,
    limit: int | None,
    prev: bool,
    check: bool,
    consistency: ConsistencyName,
) -> int:
    """Print the records of a book in order, one a line, as they were appended.

    With --json each line is an object with seqnum, time_ms, tags and data (data_base64 where it is not UTF-8), or
    {"gap": "trimmed" | "lost", "first", "last"} where records are missing.

    \b
        boki read --book flights --tag carrier/UA --limit 10
        boki read --book flights --prev --limit 1 --json
        boki read --book flights --since 2026-11-22T06:00 --until 10m
    """
    if start is not None and stop is not None and start > stop:
        raise click.UsageError(f"expected --from up to --to, found {start} and {stop}")
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        raise click.UsageError("expected --since to be before --until, found it behind")
    chosen = Range(start, stop, since_ms, until_ms)
    return process.run_command(lambda: _read(invocation, book, tag, chosen, limit, consistency, prev=prev, check=check))


async def _read(
    invocation: Invocation,
    book_name: str,
    tag: str | None,
    chosen: Range,
    limit: int | None,
    consistency: ConsistencyName,
    *,
    prev: bool,
    check: bool,
) -> int:
    async with connected(invocation) as client:
        book = client.book(book_name)
        start, stop = await chosen.seqnums(book, consistency)
        items: AsyncIterator[Record | Gap]
        if prev:
            items = newest_first(book, tag, start=start, stop=stop, consistency=consistency)
        else:
            items = book.read(tag=tag, start=start, stop=stop, consistency=consistency)
        count = 0
        async for item in items:
            if not show(invocation, item):
                continue
            count += 1
            if count == limit:
                break
    return end_of_list(invocation, count, _nothing(book_name, tag, chosen), check=check)


def _nothing(book: str, tag: str | None, chosen: Range = EVERYWHERE) -> str:
    """Say that a book has no records, or none with a tag or in a range."""
    which = "" if tag is None else f" with the tag {tag!r}"
    where = "" if chosen == EVERYWHERE else " in that range"
    return f"There are no records{which} in the book {book!r}{where}."


async def newest_first(
    book: Book,
    tag: str | None,
    *,
    start: int | None = None,
    stop: int | None = None,
    consistency: ConsistencyName = "session",
) -> AsyncIterator[Record | Gap]:
    """The records of a book from the newest below `stop` down to `start`, or to what is trimmed."""
    from boki import Gap, GapKind, Trimmed

    at_most = None if stop is None else min(stop - 1, await book.now(consistency=consistency))
    first = at_most
    while at_most is None or at_most > 0:
        try:
            record = await book.read_prev(tag=tag, at_most=at_most, consistency=consistency)
        except Trimmed as trimmed:
            if start is not None or (stop is not None and at_most == first):
                yield Gap(GapKind.TRIMMED, start or 0, trimmed.mark - 1, book.name)
            return
        if record is None or (start is not None and record.seqnum < start):
            return
        yield record
        at_most = record.seqnum - 1


@command(None, "tail", writes=False, client=True, short_help="Print the newest records, and follow new ones.")
@BOOK
@_TAG
@click.option("-n", "count", type=Whole(0), metavar="N", help=f"Begin with the newest N.  [default: {NEWEST}]")
@_SINCE
@click.option("-f", "--follow", is_flag=True, help="Go on with what is appended, until Ctrl-C.")
@CHECK
def tail(
    invocation: Invocation,
    book: str,
    tag: str | None,
    count: int | None,
    since_ms: int | None,
    follow: bool,
    check: bool,
) -> int:
    """Print the newest records of a book in order, one a line.

    \b
        boki tail -f --book app --tag user/17
        boki tail -f --book app --since 15m
    """
    if since_ms is not None and count is not None:
        raise click.UsageError("expected -n or --since, found both")
    if check and (follow or count == 0):
        raise click.UsageError("--check asks whether there are records now: expected it without -f and -n 0")
    begin: int | Range = NEWEST if count is None else count
    if since_ms is not None:
        begin = Range(since_ms=since_ms)
    return process.run(lambda stop: _tail(invocation, book, tag, begin, stop, follow=follow, check=check))


async def _tail(
    invocation: Invocation,
    book_name: str,
    tag: str | None,
    begin: int | Range,
    stop: asyncio.Event,
    *,
    follow: bool,
    check: bool,
) -> int:
    """`begin`: with how many of the newest records, or with which."""
    count = 0

    async def print_all() -> None:
        nonlocal count
        async with connected(invocation) as client:
            book = client.book(book_name)
            if isinstance(begin, Range):
                start, _ = await begin.seqnums(book, "session")
            else:
                start, count = await _print_newest(invocation, book, tag, begin)
            if follow or isinstance(begin, Range):
                async for item in book.read(tag=tag, start=start, follow=follow):
                    count += show(invocation, item)
                    flush()

    with standard_streams.reader_watched(stop.set):
        await until_stopped(print_all(), stop)
    if follow or begin == 0 or stop.is_set():
        return exit_codes.OK
    nothing = _nothing(book_name, tag, begin if isinstance(begin, Range) else EVERYWHERE)
    return end_of_list(invocation, count, nothing, check=check)


async def _print_newest(invocation: Invocation, book: Book, tag: str | None, count: int) -> tuple[int | None, int]:
    """Print up to `count` of the newest records, in order. Return where what is newer begins, and how many were printed."""
    newest = await book.check_tail()
    behind = None if newest is None else newest.seqnum + 1
    records: list[Record | Gap] = []
    if count:
        async for record in newest_first(book, tag, stop=behind):
            records.append(record)
            if len(records) == count:
                break
    printed = sum(show(invocation, record) for record in reversed(records))
    flush()
    return behind, printed


async def until_stopped(work: Any, stop: asyncio.Event) -> None:
    """Runs `work` to its end, or until `stop` is set, which cancels it. Raises what `work` raises."""
    task = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    if not task.cancelled():
        task.result()


def show(invocation: Invocation, item: Record | Gap) -> bool:
    """Prints one record, or says that some are missing. Whether it was a record."""
    from boki import Gap

    if isinstance(item, Gap):
        kind = item.kind.name.lower()
        if invocation.json:
            invocation.emit({"gap": kind, "first": item.first, "last": item.last})
        else:
            invocation.say(f"Note: records from seqnum {item.first} to {item.last} may be missing: {kind}.")
        return False
    if invocation.json:
        invocation.emit(record_object(item))
    else:
        write_line(item.data)
    return True


@command(None, "trim", writes=True, client=True, short_help="Drop the oldest records of a book or of a tag.")
@BOOK
@click.option("--tag", metavar="T", help="Only this tag lets go of them; a record goes when all its tags have.")
@click.option("--before", type=Whole(1, 2**63 - 1), metavar="SEQ", help="First seqnum to keep.")
@click.option(
    "--older-than", "older_ms", callback=as_moment, metavar="T", help="What was ordered before: 7d ago, 2026-11-22."
)
@click.option("--all", "everything", is_flag=True, help="All that is there now.")
@click.option("--forget", is_flag=True, help="Also forget empty streams whose newest record is over an hour old.")
@YES
def trim(
    invocation: Invocation,
    book: str,
    tag: str | None,
    before: int | None,
    older_ms: int | None,
    everything: bool,
    forget: bool,
    yes: bool,
) -> int:
    """Drop the oldest records of a book, for everybody and for ever. What is appended later is never touched.

    Where nothing would be left of the book, or of the tag, the command asks on a terminal; elsewhere --yes is needed. It does not
    ask of records that are as old as --older-than says.

    Not for books of stores, queues and workflows: what they are is in old records, and they trim by themselves.

    \b
        boki trim --book flights --before 34359738371
        boki trim --book flights --tag carrier/UA --all
        boki trim --book app --older-than 7d
    """
    if sum((before is not None, older_ms is not None, everything)) != 1:
        raise click.UsageError("expected one of --before SEQ, --older-than T, --all")
    kept = Range(before, since_ms=older_ms)
    by_age = older_ms is not None and older_ms <= process.SystemClock().now_ms()
    if not yes and not by_age:
        found: list[Doomed] = []

        async def look() -> int:
            found.append(await _doomed(invocation, book, tag, kept))
            return exit_codes.OK

        code = process.run_command(look)
        if code != exit_codes.OK:
            return code
        kept = Range(found[0].before)
        if found[0].everything and not _confirmed(invocation, book, tag, found[0]):
            invocation.say("Nothing was dropped.")
            return exit_codes.REFUSED
    return process.run_command(lambda: _trim(invocation, book, tag, kept, forget=forget))


class Doomed(NamedTuple):
    """The records that a trim would drop: those below `before`.

    Attributes:
        everything: there are records, and the trim would leave none.
        words: how many they are, if they are everything.
    """

    before: int
    everything: bool = False
    words: str = ""


async def _doomed(invocation: Invocation, book_name: str, tag: str | None, kept: Range) -> Doomed:
    """Return the records that a trim would drop now. Those that are appended while the command asks are kept."""
    from boki import Record

    async with connected(invocation) as client:
        book = client.book(book_name)
        now = await book.now(consistency="linearizable")
        before, _ = await kept.seqnums(book, "session")
        before = now + 1 if before is None else min(before, now + 1)
        async for item in book.read(tag, start=before, limit=1):
            if isinstance(item, Record):
                return Doomed(before)
        records = size = 0
        async for item in book.read(tag, stop=before):
            if isinstance(item, Record):
                records += 1
                size += len(item.data)
                if records > COUNTED or size > COUNTED_BYTES:
                    break
        else:
            return Doomed(
                before, records > 0, f"all {counted(records, 'record')}" if records > 1 else "the only record"
            )
        return Doomed(before, True, f"all records (more than {records - 1:,})")


def _confirmed(invocation: Invocation, book: str, tag: str | None, doomed: Doomed) -> bool:
    of = f"the book {book!r}" if tag is None else f"the tag {tag!r} in the book {book!r}"
    return invocation.confirm(f"Drop {doomed.words} of {of}?", lost=f"records of {of} cannot be restored")


async def _trim(invocation: Invocation, book_name: str, tag: str | None, kept: Range, *, forget: bool) -> int:
    async with connected(invocation) as client:
        book = client.book(book_name)
        before, _ = await kept.seqnums(book, "session")
        if before is None:
            before = 2**63 - 1
        await book.trim(before=before, tag=tag, forget=forget)
        first = await book.read_next(tag)
    seqnum = None if first is None else first.seqnum
    if invocation.json:
        invocation.emit({"book": book_name, "tag": tag, "first_seqnum": seqnum})
    else:
        of = book_name if tag is None else f"{book_name}, tag {tag}"
        click.echo(f"{of}: nothing is left" if seqnum is None else f"{of}: begins at seqnum {seqnum} now")
    return exit_codes.OK


def record_object(record: Record) -> dict[str, object]:
    shown: dict[str, object] = {"seqnum": record.seqnum, "time_ms": record.time_ms, "tags": list(record.tags)}
    try:
        shown["data"] = record.data.decode()
    except UnicodeDecodeError:
        shown["data_base64"] = base64.b64encode(record.data).decode()
    return shown
