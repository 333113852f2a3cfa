"""`boki append`: the lines of a file, or of standard input, become the records of a book.

Only the SDK is used, as any program would. Records are committed in the order of the file, so what is committed is always a
beginning of it; whatever ends the command, it says how much that is, and `--skip` continues behind it.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

import click

from boki_cli import exit_codes, input_chunks, record_lines
from boki_cli.ingest import BATCH_DATA_BYTES, BATCH_RECORDS, Ingest, latency_ms
from boki_cli.number_types import Whole
from boki_cli.options import BOOK, CommandGroup, Invocation, command
from boki_cli.record_lines import RecordLines
from boki_cli.stopwatch import seconds_now
from boki_cli.wording import counted, size_text
from boki_common.errors import BokiError, InvalidArgument
from boki_common.runtime import process


def register(group: CommandGroup) -> None:
    """Adds the command of this module."""

    @command(group, "append", writes=True, client=True, short_help="Append the lines of a file to a book.")
    @click.argument("file", metavar="FILE")
    @BOOK
    @click.option("--tag", "tags", multiple=True, metavar="T", help="Tag all records with T; may be repeated.")
    @click.option(
        "--tag-field", "tag_fields", multiple=True, metavar="F", help="Tag each record with F/value; may be repeated."
    )
    @click.option(
        "--format",
        "format_",
        type=click.Choice(record_lines.FORMATS),
        default="auto",
        show_default=True,
        help="auto: by the file's suffix, else by its first line; text: any lines.",
    )
    @click.option("--skip", type=Whole(0), default=0, metavar="N", help="Leave out the first N records.")
    def append(
        invocation: Invocation,
        file: str,
        book: str,
        tags: tuple[str, ...],
        tag_fields: tuple[str, ...],
        format_: str,
        skip: int,
    ) -> int:
        """Append the lines of FILE ("-" is standard input) to a book, one record a line, in order.

        FILE is JSON lines, CSV, or lines of any text. Each line is stored byte for byte, without its line ending, blank
        ones are skipped; the first row of a CSV file names the columns and is no record. --tag-field carrier tags each
        record by the value of that field, for example carrier/UA; a list gives one tag per element, an absent or empty
        value gives none.

        Ctrl-C stops after what is in flight and says how much is committed; --skip continues from there.

        \b
            boki append flights.csv --book flights --tag-field carrier --tag-field origin
            tail -f app.jsonl | boki append - --book app --tag-field user
            journalctl -f | boki append - --book system --format text --tag host/$HOSTNAME
        """
        lines = RecordLines(source=file, format=format_, tags=tags, tag_fields=tag_fields)
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
            invocation.say(f"Note: no record has a value in the field {field!r}.")
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
            if lines.records < skip:
                found = counted(lines.records, "record")
                raise InvalidArgument(
                    f"--skip {skip}: expected at least so many records in {lines.source}, found {found}"
                )
    finally:
        await ingest.finish()


def _committed_so_far(ingest: Ingest, skip: int) -> str:
    done = skip + ingest.committed
    if not ingest.committed:
        return "No record is known to be committed."
    return (
        f"{counted(ingest.committed, 'record is', 'records are')} committed, the last with seqnum {ingest.last_seqnum}. "
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
        f"{counted(ingest.committed, 'record')} ({size_text(ingest.committed_bytes)}) committed to {book_name} "
        f"in {seconds:.2f} s: {rate:,.0f} records/s{where}"
    )


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
