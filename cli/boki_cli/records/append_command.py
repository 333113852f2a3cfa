"""`boki append`: the lines of a file, or of standard input, become the records of a book.

Only the SDK is used, as any program would. Records are committed in the order of the file, so what is committed is always a
beginning of it; whatever ends the command, it says how much that is, and how to continue behind it.

| input | its records are numbered by | how it is continued |
|---|---|---|
| any, with `--writer NAME` | that writer, from 1 on | the same command: what has a number in the log is left out |
| a file | a writer that this machine remembers (`append_runs`) | the same command; after a run that was complete it appends once more |
| standard input | nobody who is remembered | `--skip N`, where it is known how much is committed |

A number is applied once, whoever sends it and however often: so a lost answer, of the server or of this command, costs nothing.
Before it goes on, the newest of what is committed is compared with the input: another input is refused.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from boki_cli import exit_codes
from boki_cli.clients import connected
from boki_cli.number_types import Whole
from boki_cli.options import BOOK, Invocation, command
from boki_cli.records import input_chunks, record_lines
from boki_cli.records.append_runs import AppendRun, state_folder
from boki_cli.records.ingest import BATCH_DATA_BYTES, BATCH_RECORDS, AppendsMany, Batch, Ingest, latency_ms
from boki_cli.records.record_lines import Line, RecordLines
from boki_cli.stopwatch import seconds_now
from boki_cli.wording import counted, size_text
from boki_common.errors import BokiError, InvalidArgument, NumberReused
from boki_common.runtime import process

if TYPE_CHECKING:
    import boki

COMPARED: Final = 16
"""Records of an earlier run that are compared with the input; the log keeps the answers of 1,024."""


@command(None, "append", writes=True, client=True, short_help="Append the lines of a file to a book.")
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
@click.option(
    "--writer",
    metavar="NAME",
    help="Number the records under this name: the same input under it is never appended twice. For standard input, or to "
    "continue on another machine.",
)
def append(
    invocation: Invocation,
    file: str,
    book: str,
    tags: tuple[str, ...],
    tag_fields: tuple[str, ...],
    format_: str,
    skip: int,
    writer: str | None,
) -> int:
    """Append the lines of FILE ("-" is standard input) to a book, one record a line, in order.

    FILE is JSON lines, CSV, or lines of any text. Each line is stored byte for byte, without its line ending, blank
    ones are skipped; the first row of a CSV file names the columns and is no record. --tag-field carrier tags each
    record by the value of that field, for example carrier/UA; a list gives one tag per element, an absent or empty
    value gives none.

    Whatever ends it (Ctrl-C, a wrong line, a server that is killed), the same command continues behind what is committed;
    standard input needs --writer NAME for that. A file that was appended whole is appended once more.

    \b
        boki append flights.csv --book flights --tag-field carrier --tag-field origin
        tail -f app.jsonl | boki append - --book app --tag-field user
        journalctl -f | boki append - --book system --format text --tag host/$HOSTNAME
    """
    source = Source(invocation, book, file, skip=skip, writer=writer)
    lines = RecordLines(source=file, format=format_, tags=tags, tag_fields=tag_fields)
    descriptor = input_chunks.open_input(file)
    return process.run(lambda stop: _append(source, lines, descriptor, stop))


class Source:
    """What is appended where, and how its records are numbered: see the module. `done`: records, behind those that are skipped,
    that a run before this one has committed."""

    def __init__(self, invocation: Invocation, book: str, file: str, *, skip: int, writer: str | None) -> None:
        self.invocation = invocation
        self.book = book
        self.file = file
        self.skip = skip
        self.done = 0
        self._writer_name = writer
        self._run: AppendRun | None = None
        self._writer: boki.Writer | None = None
        self._base = 0

    async def open(self, book: boki.Book, *, cluster: str, regular: bool) -> AppendsMany:
        """Finds out how far this input is. Returns what its next batches are given to. Raises RunUnderWay, CorruptData, and
        what asking the log for a writer raises."""
        name = self._writer_name
        if name is None and regular:
            try:
                self._run = await asyncio.to_thread(AppendRun.of_file, cluster, self.book, self.file, skip=self.skip)
                name = self._run.writer
            except OSError as error:
                self.invocation.say(
                    f"Note: {state_folder()} cannot be used ({error.strerror}), so this run cannot be continued by the same "
                    "command; --writer NAME can."
                )
        if name is None:
            return book
        self._writer = await book.writer(name)
        if self._run is not None:
            self.done = await asyncio.to_thread(self._run.begin, self._writer.last)
            self._base = self._run.base
        else:
            self.done = self._writer.last
        if self.done:
            self.invocation.say(
                f"{counted(self.done, 'record is', 'records are')} committed already, by an earlier run: continuing behind them. "
                "To append all once more: --writer NAME, with a new name."
            )
        return Numbered(self._writer, self._base + self.done + 1)

    async def check(self, newest: Sequence[Line]) -> None:
        """Compares the newest records that an earlier run committed with those that the input has in their place. Raises
        InputChanged: it is another input; AppendsError: as appending does."""
        assert self._writer is not None
        first = self._base + self.done - len(newest) + 1
        try:
            await asyncio.gather(
                *(self._writer.append_at(first + at, line.data, tags=line.tags) for at, line in enumerate(newest))
            )
        except NumberReused as error:
            raise InputChanged(
                f"{self.file} has another record {error.number - self._base + self.skip} now than the one that an earlier run "
                "committed (its data, or its tags): nothing was appended. Put it back to continue, or append all of it under a "
                "new name: --writer NAME"
            ) from error

    async def over(self) -> None:
        """All of the input is committed."""
        if self._run is not None:
            await asyncio.to_thread(self._run.over)

    def close(self) -> None:
        if self._run is not None:
            self._run.close()

    def how_to_continue(self, ingest: Ingest) -> str:
        """Says what is committed, for a run that does not go to the end of its input."""
        known = "No record is known to be committed."
        if ingest.committed:
            known = f"{counted(ingest.committed, 'record is', 'records are')} committed, the last with seqnum {ingest.last_seqnum}."
        if self._writer is not None:
            return f"{known} The same command continues exactly behind what is committed."
        if ingest.failed:
            return (
                f"{known} Whether more are is not known: read the book. With --writer NAME the same command can be repeated until "
                "all are, and none is appended twice."
            )
        return f"{known} To continue after them: --skip {self.skip + ingest.committed}" if ingest.committed else known


class InputChanged(InvalidArgument):
    """The input is not the one that an earlier run began with."""


class Numbered:
    """Batches under the numbers of a named writer, one behind the other. See `ingest.AppendsMany`."""

    def __init__(self, writer: boki.Writer, number: int) -> None:
        self._writer = writer
        self._next = number

    async def append_many(self, records: Batch) -> Sequence[int]:
        first, self._next = self._next, self._next + len(records)
        return await self._writer.append_many(records, first=first)


async def _append(source: Source, lines: RecordLines, descriptor: int, stop: asyncio.Event) -> int:
    invocation = source.invocation
    async with connected(invocation, stop) as client:
        size = input_chunks.size_of(descriptor)
        if client.refusal is not None:  # the number of the next record could not be asked for either
            raise client.refusal
        try:
            target = await source.open(
                client.book(source.book), cluster=client.cluster or invocation.url, regular=size is not None
            )
            with _progress(invocation, size) as bar:
                ingest = Ingest(target, progress=bar)
                started = seconds_now()
                try:
                    await _append_all(source, ingest, lines, descriptor, stop)
                except BokiError as error:
                    error.add_note(source.how_to_continue(ingest))
                    raise
                seconds = seconds_now() - started
            complete = not stop.is_set()
            if complete:
                await source.over()
        finally:
            source.close()
    _report_append(invocation, source, ingest, seconds, complete=complete)
    for field, count in lines.field_counts.items():
        if not count and lines.records:
            invocation.say(f"Note: no record has a value in the field {field!r}.")
    if not complete:
        invocation.say(source.how_to_continue(ingest))
    return exit_codes.OK if complete else exit_codes.INTERRUPTED


async def _append_all(source: Source, ingest: Ingest, lines: RecordLines, descriptor: int, stop: asyncio.Event) -> None:
    """Appends until the end of the input, or until stopped; then everything handed over has an answer."""
    begin = source.skip + source.done
    newest: deque[Line] = deque(maxlen=min(source.done, COMPARED))

    async def append(found: Iterator[Line]) -> None:
        if lines.records < begin:
            for line in found:
                newest.append(line)
                if lines.records == begin:
                    break
            if lines.records < begin:
                return
            if newest:
                await source.check(newest)
        for batch in record_lines.batches(found, records=BATCH_RECORDS, data_bytes=BATCH_DATA_BYTES):
            await ingest.add(batch)
            if stop.is_set():
                return

    try:
        async for chunk in input_chunks.chunks(descriptor, stop):
            await append(lines.feed(chunk))
        if not stop.is_set():
            await append(lines.finish())
            if lines.records < begin:
                found = counted(lines.records, "record")
                what = f"--skip {source.skip}" if not source.done else "an earlier run"
                kind = InvalidArgument if not source.done else InputChanged
                raise kind(f"{what}: expected at least {begin} records in {lines.source}, found {found}")
    finally:
        await ingest.finish()


def _report_append(invocation: Invocation, source: Source, ingest: Ingest, seconds: float, *, complete: bool) -> None:
    rate = ingest.committed / seconds if seconds else 0.0
    if invocation.json:
        invocation.emit(
            {
                "book": source.book,
                "complete": complete,
                "committed_before": source.done,
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
        f"{counted(ingest.committed, 'record')} ({size_text(ingest.committed_bytes)}) committed to {source.book} "
        f"in {seconds:.2f} s: {rate:,.0f} records/s{where}"
    )


@contextmanager
def _progress(invocation: Invocation, total: int | None) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar of committed bytes on standard error, if that is a terminal."""
    if invocation.json or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    with Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[records]:,} records, {task.fields[rate]:,.0f}/s"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("appending", total=total, records=0, rate=0.0)

        def show(records: int, data_bytes: int) -> None:
            elapsed = bar.tasks[0].elapsed
            rate = records / elapsed if elapsed else 0.0
            bar.update(task, completed=data_bytes + records, records=records, rate=rate)

        yield show
