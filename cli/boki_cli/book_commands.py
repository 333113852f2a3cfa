"""`boki append`, `boki read`, `boki tail`, `boki trim`: the records of one book.

Only the SDK is used, as any program would. Records go in and out as they are, one a line; with `--json` each is an object
with its seqnum, time and tags. Where records are missing, because they were trimmed or lost, a gap is told on standard error,
or is an object of its own.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from boki_cli import exit_codes, input_chunks, record_lines
from boki_cli.ingest import BATCH_DATA_BYTES, BATCH_RECORDS, Ingest, latency_ms
from boki_cli.options import CommandGroup, Invocation, command, flush, write_line
from boki_cli.record_lines import RecordLines
from boki_cli.stopwatch import seconds_now
from boki_common.errors import BokiError
from boki_common.runtime import process

if TYPE_CHECKING:
    from boki import Book, Gap, Record
    from boki._arguments import ConsistencyName

_BOOK = click.option("--book", required=True, metavar="B", help="Name of the book.")
_TAG = click.option("--tag", metavar="T", help="Only records that carry this tag.")
_SEQNUM = click.IntRange(0, 2**63 - 1)
_CONSISTENCY = click.option(
    "--consistency",
    type=click.Choice(["session", "linearizable", "any"]),
    default="session",
    show_default=True,
    help="linearizable: sees all that any call had returned before; any: what the engine knows now.",
)


def register(group: CommandGroup) -> None:
    """Adds the commands of this module."""
    for add in (_register_append, _register_read, _register_tail, _register_trim):
        add(group)


def _register_append(group: CommandGroup) -> None:
    @command(group, "append", writes=True, client=True, short_help="Append the lines of a file to a book.")
    @click.argument("file", metavar="FILE")
    @_BOOK
    @click.option(
        "--tag-field", "tag_fields", multiple=True, metavar="F", help="Tag each record with F/value; may be repeated."
    )
    @click.option(
        "--format",
        "format_",
        type=click.Choice(record_lines.FORMATS),
        default="auto",
        show_default=True,
        help="auto: by the file's suffix, else by its first line.",
    )
    @click.option("--skip", type=click.IntRange(0), default=0, metavar="N", help="Leave out the first N records.")
    def append(
        invocation: Invocation, file: str, book: str, tag_fields: tuple[str, ...], format_: str, skip: int
    ) -> int:
        """Append the lines of FILE ("-" is standard input) to a book, one record a line, in order.

        FILE is JSON lines or CSV. Each line is stored byte for byte, without its line ending; the first row of a CSV
        file names the columns and is no record. --tag-field carrier tags each record by the value of that field, for
        example carrier/UA; a list gives one tag per element, an absent or empty value gives none.

        Ctrl-C stops after what is in flight and says how much is committed; --skip continues from there.

        \b
            boki append flights.csv --book flights --tag-field carrier --tag-field origin
            tail -f app.jsonl | boki append - --book app --tag-field user
        """
        lines = RecordLines(source=file, format=format_, tag_fields=tag_fields)
        descriptor = input_chunks.open_input(file)
        return process.run(lambda stop: _append(invocation, book, lines, descriptor, skip, stop))


async def _append(
    invocation: Invocation, book_name: str, lines: RecordLines, descriptor: int, skip: int, stop: asyncio.Event
) -> int:
    import boki

    async with boki.connect(invocation.url, timeout=invocation.timeout_s) as client:
        with _progress(invocation, input_chunks.size_of(descriptor)) as bar:
            ingest = Ingest(client.book(book_name), progress=bar)
            started = seconds_now()
            try:
                await _append_all(ingest, lines, descriptor, skip, stop)
            except BokiError as error:
                error.add_note(_committed_so_far(ingest, skip))
                raise
            seconds = seconds_now() - started
    complete = not stop.is_set()
    _report_append(invocation, book_name, ingest, seconds, complete=complete)
    for field, count in lines.field_counts.items():
        if not count and lines.records:
            invocation.say(f"Note: none of the {lines.records:,} records has a value in the field {field!r}.")
    if not complete:
        invocation.say(_committed_so_far(ingest, skip))
    return exit_codes.OK if complete else exit_codes.INTERRUPTED


async def _append_all(ingest: Ingest, lines: RecordLines, descriptor: int, skip: int, stop: asyncio.Event) -> None:
    """Appends until the end of the input, or until told to stop; then everything handed over has an answer."""

    async def append(found: Any) -> None:
        before = lines.records
        fresh = islice(found, max(0, skip - before), None)
        for batch in record_lines.batches(fresh, records=BATCH_RECORDS, data_bytes=BATCH_DATA_BYTES):
            await ingest.add(batch)
            if stop.is_set():
                return

    try:
        async for chunk in input_chunks.chunks(descriptor, stop):
            await append(lines.feed(chunk))
        if not stop.is_set():
            await append(lines.finish())
    finally:
        await ingest.finish()


def _committed_so_far(ingest: Ingest, skip: int) -> str:
    done = skip + ingest.committed
    if not ingest.committed:
        return "No record is known to be committed."
    return (
        f"{ingest.committed:,} records are committed, the last with seqnum {ingest.last_seqnum}. "
        f"To continue after them: --skip {done}"
    )


def _report_append(invocation: Invocation, book_name: str, ingest: Ingest, seconds: float, *, complete: bool) -> None:
    rate = ingest.committed / seconds if seconds else 0.0
    if invocation.json:
        invocation.emit(
            {
                "book": book_name,
                "complete": complete,
                "records": ingest.committed,
                "bytes": ingest.committed_bytes,
                "seconds": round(seconds, 3),
                "records_per_s": round(rate, 1),
                "batch_p50_ms": round(latency_ms(ingest.batch_times, 0.5), 3),
                "batch_p99_ms": round(latency_ms(ingest.batch_times, 0.99), 3),
                "first_seqnum": ingest.seqnums[0] if ingest.committed else None,
                "last_seqnum": ingest.last_seqnum,
            }
        )
        return
    where = f", seqnums {ingest.seqnums[0]} to {ingest.last_seqnum}" if ingest.committed else ""
    click.echo(
        f"{ingest.committed:,} records ({size_text(ingest.committed_bytes)}) committed to {book_name} "
        f"in {seconds:.2f} s: {rate:,.0f} records/s{where}"
    )


def size_text(size: int) -> str:
    """Bytes for a person: 999 B, 1.2 MB."""
    if size < 1000:
        return f"{size} B"
    steps = next((steps for steps in (1, 2) if size < 1000 ** (steps + 1)), 3)
    return f"{size / 1000**steps:.1f} {('kB', 'MB', 'GB')[steps - 1]}"


class _Bar:
    """A progress bar on standard error, told how much is committed."""

    def __init__(self, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[records]:,} records, {task.fields[rate]:,.0f}/s"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("appending", total=total, records=0, rate=0.0)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, records: int, data_bytes: int) -> None:
        elapsed = self._progress.tasks[0].elapsed or 0.0
        rate = records / elapsed if elapsed else 0.0
        self._progress.update(self._task, completed=data_bytes + records, records=records, rate=rate)


def _progress(invocation: Invocation, total: int | None) -> AbstractContextManager[_Bar | None]:
    if invocation.json or not sys.stderr.isatty():
        return nullcontext()
    return _Bar(total)


def _register_read(group: CommandGroup) -> None:
    @command(group, "read", writes=False, client=True, short_help="Print the records of a book.")
    @_BOOK
    @_TAG
    @click.option("--from", "start", type=_SEQNUM, metavar="SEQ", help="First seqnum, inclusive.")
    @click.option("--to", "stop", type=_SEQNUM, metavar="SEQ", help="Last seqnum, exclusive.")
    @click.option("--limit", type=click.IntRange(1), metavar="N", help="At most N records.")
    @click.option("--prev", is_flag=True, help="Newest first.")
    @_CONSISTENCY
    def read(
        invocation: Invocation,
        book: str,
        tag: str | None,
        start: int | None,
        stop: int | None,
        limit: int | None,
        prev: bool,
        consistency: ConsistencyName,
    ) -> int:
        """Print the records of a book in order, one a line, as they were appended.

        With --json each line is an object with seqnum, time_ms, tags and data (data_base64 where it is not UTF-8), or
        {"gap": "trimmed" | "lost", "first", "last"} where records are missing.

        \b
            boki read --book flights --tag carrier/UA --limit 10
            boki read --book flights --prev --limit 1 --json
        """
        return process.run_command(lambda: _read(invocation, book, tag, start, stop, limit, consistency, prev=prev))


async def _read(
    invocation: Invocation,
    book_name: str,
    tag: str | None,
    start: int | None,
    stop: int | None,
    limit: int | None,
    consistency: ConsistencyName,
    *,
    prev: bool,
) -> int:
    import boki

    async with boki.connect(invocation.url, timeout=invocation.timeout_s) as client:
        book = client.book(book_name)
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
    flush()
    return exit_codes.OK


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

    at_most = None if stop is None else stop - 1
    while at_most is None or at_most > 0:
        try:
            record = await book.read_prev(tag=tag, at_most=at_most, consistency=consistency)
        except Trimmed as trimmed:
            if start is not None or (stop is not None and at_most == stop - 1):
                yield Gap(GapKind.TRIMMED, start or 0, trimmed.mark - 1, book.name)
            return
        if record is None or (start is not None and record.seqnum < start):
            return
        yield record
        at_most = record.seqnum - 1


def _register_tail(group: CommandGroup) -> None:
    @command(group, "tail", writes=False, client=True, short_help="Print the newest records, and follow new ones.")
    @_BOOK
    @_TAG
    @click.option("-n", "count", type=click.IntRange(0), default=10, show_default=True, help="Begin with the newest N.")
    @click.option("-f", "--follow", is_flag=True, help="Go on with what is appended, until Ctrl-C.")
    def tail(invocation: Invocation, book: str, tag: str | None, count: int, follow: bool) -> int:
        """Print the newest records of a book in order, one a line.

        \b
            boki tail -f --book app --tag user/17
        """
        return process.run(lambda stop: _tail(invocation, book, tag, count, stop, follow=follow))


async def _tail(
    invocation: Invocation, book_name: str, tag: str | None, count: int, stop: asyncio.Event, *, follow: bool
) -> int:
    import boki

    async def print_all() -> None:
        async with boki.connect(invocation.url, timeout=invocation.timeout_s) as client:
            book = client.book(book_name)
            newest = await book.check_tail()
            records: list[Record | Gap] = []
            if count:
                async for record in newest_first(book, tag, stop=None if newest is None else newest.seqnum + 1):
                    records.append(record)
                    if len(records) == count:
                        break
            for record in reversed(records):
                show(invocation, record)
            flush()
            if follow:
                async for item in book.read(tag=tag, start=None if newest is None else newest.seqnum + 1, follow=True):
                    show(invocation, item)
                    flush()

    await until_stopped(print_all(), stop)
    return exit_codes.OK


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


def _register_trim(group: CommandGroup) -> None:
    @command(group, "trim", writes=True, client=True, short_help="Drop the oldest records of a book or of a tag.")
    @_BOOK
    @click.option("--tag", metavar="T", help="Only this tag lets go of them; a record goes when all its tags have.")
    @click.option("--before", type=click.IntRange(1, 2**63 - 1), metavar="SEQ", help="First seqnum to keep.")
    @click.option("--all", "everything", is_flag=True, help="All that is there now.")
    @click.option("--forget", is_flag=True, help="Also forget empty streams whose newest record is over an hour old.")
    def trim(
        invocation: Invocation, book: str, tag: str | None, before: int | None, everything: bool, forget: bool
    ) -> int:
        """Drop the records of a book below a seqnum, for everybody and for ever. What is appended later is never touched.

        \b
            boki trim --book flights --before 34359738371
            boki trim --book flights --tag carrier/UA --all
        """
        if (before is None) != everything:
            raise click.UsageError("expected --before SEQ or --all, one of the two")
        return process.run_command(lambda: _trim(invocation, book, tag, before or 2**63 - 1, forget=forget))


async def _trim(invocation: Invocation, book_name: str, tag: str | None, before: int, *, forget: bool) -> int:
    import boki

    async with boki.connect(invocation.url, timeout=invocation.timeout_s) as client:
        book = client.book(book_name)
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
    """A record as JSON has it."""
    shown: dict[str, object] = {"seqnum": record.seqnum, "time_ms": record.time_ms, "tags": list(record.tags)}
    try:
        shown["data"] = record.data.decode()
    except UnicodeDecodeError:
        shown["data_base64"] = base64.b64encode(record.data).decode()
    return shown
