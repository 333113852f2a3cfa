"""The whole path on real input: three bookies, a sequencer and an engine as processes, killed on the way, nothing lost.

    python -m boki_cli.demo.demo [FILE]                  (`make run`, `make run INPUT=path`)

    1. start the processes on SQLite metadata in a temporary directory
    2. append a public data set of 336,776 flights, tagged by carrier, origin and tail number
    3. kill one bookie with SIGKILL in mid-stream, and go on
    4. kill everything with SIGKILL, start it again
    5. read all back in total order and by tag; compare with the input byte for byte
    6. append once more, report

The exit code is 1 when a check fails. Steps are here, the comparison is in `stream_check`, the processes in
`local_cluster`, the report in `demo_report`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from rich.console import Console

import boki
from boki_cli import exit_codes
from boki_cli.demo import dataset, demo_report, stream_check
from boki_cli.demo.local_cluster import LocalCluster
from boki_cli.demo.stream_check import CheckResult, StreamCheck
from boki_cli.options import CommandGroup, Invocation, command, run
from boki_cli.records import record_lines
from boki_cli.records.ingest import BATCH_DATA_BYTES, BATCH_RECORDS, Ingest, latency_ms
from boki_cli.records.record_lines import RecordLines
from boki_cli.stopwatch import seconds_now
from boki_common import limits
from boki_common.errors import InvalidArgument
from boki_common.runtime import process

BOOK: Final = "demo"
KILL_AT: Final = 0.4
"""Share of the records after which the bookie is killed."""
VICTIM: Final = "bookie-2"
BYTES_LIMIT: Final = 1024 * limits.MIB
"""The demo keeps its input in memory, to compare with it."""
ALL_TAGS_BELOW: Final = 50
TAG_SAMPLE: Final = 100


@dataclass(frozen=True, slots=True)
class DemoInput:
    """What is appended."""

    source: str
    licence: str
    records: list[bytes]
    tags: list[list[str]]

    @property
    def data_bytes(self) -> int:
        return sum(map(len, self.records))


def load_input(path: str | None, tag_fields: Sequence[str], format_: str, cache: Path) -> DemoInput:
    """The user's file, or else the public data set. Raises what reading and parsing them raises."""
    if path is None:
        content, name, source, licence = dataset.flights(cache), dataset.FILE_NAME, dataset.SOURCE, dataset.LICENCE
        tag_fields = tag_fields or dataset.TAG_FIELDS
    else:
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise InvalidArgument(f"cannot read {path}: {error.strerror}") from error
        name, source, licence = path, path, ""
    if len(content) > BYTES_LIMIT:
        raise InvalidArgument(
            f"expected at most {BYTES_LIMIT} bytes of input, found {len(content)} in {name}: the demo keeps it in memory. "
            "Use boki dev and boki append for larger files",
            found=len(content),
        )
    lines = RecordLines(source=name, format=format_, tag_fields=tag_fields)
    found = [*lines.feed(content), *lines.finish()]
    if not found:
        raise InvalidArgument(f"{name} has no records")
    return DemoInput(source, licence, [line.data for line in found], [line.tags for line in found])


class Demo:
    def __init__(self, given: DemoInput, cluster: LocalCluster, steps: demo_report.Steps) -> None:
        self.report = demo_report.DemoReport(given.source, given.licence, len(given.records), given.data_bytes)
        self._given = given
        self._cluster = cluster
        self._steps = steps
        self._seqnums: Sequence[int] = ()

    async def run(self) -> demo_report.DemoReport:
        """All steps. Raises what stops the demo; checks that fail are in the report."""
        started = seconds_now()
        async with contextlib.AsyncExitStack() as stack:
            async with self._steps.doing("start 3 bookies, a sequencer and an engine as processes"):
                await stack.enter_async_context(self._cluster)
            async with boki.connect(self._cluster.url) as client:
                await self._append(client.book(BOOK))
            await self._kill_and_restart_all()
            async with boki.connect(self._cluster.url) as client:
                await self._read_back(client.book(BOOK))
                await self._append_again(client.book(BOOK))
        self.report.total_s = seconds_now() - started
        return self.report

    async def _append(self, book: boki.Book) -> None:
        given, report = self._given, self.report
        async with self._steps.counting(f"append {report.records:,} records", report.records) as (bar, task):
            ingest = Ingest(book, progress=lambda records, _: bar.update(task, completed=records))
            kill_at = int(report.records * KILL_AT)
            started = seconds_now()
            lines = map(record_lines.Line, given.records, given.tags)
            killing: asyncio.Task[None] | None = None
            for batch in record_lines.batches(lines, records=BATCH_RECORDS, data_bytes=BATCH_DATA_BYTES):
                await ingest.add(batch)
                if killing is None and ingest.committed >= kill_at:
                    killing = asyncio.create_task(self._kill_one(ingest, started))
            if killing is None:  # a small input is on its way before much of it is committed
                killing = asyncio.create_task(self._kill_one(ingest, started))
            await ingest.finish()
            report.append_s = seconds_now() - started
            await killing
        report.records_per_s = ingest.committed / report.append_s
        report.batch_p50_ms = latency_ms(ingest.batch_times, 0.5)
        report.batch_p99_ms = latency_ms(ingest.batch_times, 0.99)
        self._seqnums = ingest.seqnums
        order = "" if ingest.in_order else "seqnums do not ascend in the order of the appends"
        report.checks.append(CheckResult("appended", ingest.committed, order, "each answered, in order"))

    async def _kill_one(self, ingest: Ingest, started: float) -> None:
        pid = self._cluster.pids[VICTIM]
        at = ingest.committed
        seconds = seconds_now() - started
        await self._cluster.kill(VICTIM)
        self._steps.note(f"killed {VICTIM} (pid {pid}) with SIGKILL after {at:,} records")
        self.report.killed.append(f"{VICTIM} at {seconds:.1f} s, after {at:,} records")

    async def _kill_and_restart_all(self) -> None:
        pids = self._cluster.pids
        async with self._steps.doing("kill -9 all that still run, start everything again"):
            await self._cluster.kill(*self._cluster.roles)
            self.report.killed.append(f"all {len(pids)} others at once, after the last append")
            started = seconds_now()
            await self._cluster.start()
            async with boki.connect(self._cluster.url) as client:
                await client.book(BOOK).check_tail()
            self.report.restart_s = seconds_now() - started

    async def _read_back(self, book: boki.Book) -> None:
        given = self._given
        places = stream_check.by_tag(given.tags)
        tags = stream_check.chosen_tags(places, all_below=ALL_TAGS_BELOW, sample=TAG_SAMPLE)
        total = len(given.records) + sum(len(places[tag]) for tag in tags)
        started = seconds_now()
        async with self._steps.counting(
            f"read back in order, then by {len(tags)} tags, and compare", total
        ) as counting:
            whole = await self._compare(book, "total order", None, range(len(given.records)), counting)
            by_tag = [await self._compare(book, tag, tag, places[tag], counting) for tag in tags]
        self.report.read_s = seconds_now() - started
        self.report.records_read = whole.records + sum(result.records for result in by_tag)
        self.report.checks.append(whole)
        self.report.checks += demo_report.joined_by_field(by_tag)

    async def _compare(
        self, book: boki.Book, name: str, tag: str | None, places: Sequence[int], counting: demo_report.Counting
    ) -> CheckResult:
        records, seqnums = self._given.records, self._seqnums
        check = StreamCheck(name, [records[at] for at in places], [seqnums[at] for at in places])
        count, (bar, task) = 0, counting
        async for record in book.read(tag=tag):
            check.found(record.seqnum, record.data)
            count += 1
            if count % 4096 == 0:
                bar.advance(task, 4096)
        bar.advance(task, count % 4096)
        return check.result()

    async def _append_again(self, book: boki.Book) -> None:
        """After everything was killed appends go on, behind all that was there; one at a time, they show the latency."""
        seconds = []
        seqnums = []
        async with self._steps.doing("append 200 more, one at a time"):
            for number in range(200):
                started = seconds_now()
                seqnums.append(await book.append(b"after the restart %d" % number))
                seconds.append(seconds_now() - started)
        seconds.sort()
        self.report.single_p50_ms = seconds[len(seconds) // 2] * 1000
        self.report.single_p99_ms = seconds[len(seconds) * 99 // 100] * 1000
        last = self._seqnums[-1]
        ascending = all(before < after for before, after in zip([last, *seqnums], seqnums, strict=False))
        difference = "" if ascending else f"expected seqnums above {last}, ascending; found {seqnums[:3]}…"
        self.report.checks.append(
            CheckResult("after the restart", len(seqnums), difference, "appended behind all others")
        )


demo_group = CommandGroup("demo")


@command(demo_group, "demo", writes=False)
@click.argument("path", metavar="[FILE]", required=False)
@click.option("--tag-field", "tag_fields", multiple=True, metavar="F", help="Field to tag by; may be repeated.")
@click.option("--format", "format_", type=click.Choice(record_lines.FORMATS), default="auto", show_default=True)
@click.option("--directory", type=click.Path(path_type=Path, file_okay=False), help="Keep data and logs here.")
@click.option("--cache", type=click.Path(path_type=Path, file_okay=False), default=Path(".cache"), show_default=True)
def demo(
    invocation: Invocation,
    path: str | None,
    tag_fields: tuple[str, ...],
    format_: str,
    directory: Path | None,
    cache: Path,
) -> int:
    """Append a real data set to real processes, kill them on the way, read everything back and compare.

    FILE is a JSON lines or CSV file of your own; without it the public flights data set is taken.
    """
    console = Console(stderr=invocation.json, highlight=False)
    steps = demo_report.Steps(console)
    with steps.waiting("get the input"):
        given = load_input(path, tag_fields, format_, cache)
    steps.note(f"input: {given.source}{f' ({given.licence})' if given.licence else ''}, {len(given.records):,} records")
    return process.run_command(lambda: _run(invocation, given, steps, directory))


async def _run(invocation: Invocation, given: DemoInput, steps: demo_report.Steps, directory: Path | None) -> int:
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="boki-demo-")))
        report = await Demo(given, LocalCluster(directory, bookies=3), steps).run()
    if invocation.json:
        invocation.emit(demo_report.as_object(report))
    else:
        demo_report.draw(report, steps.console)
    return exit_codes.OK if report.holds else exit_codes.CHECK_FAILED


if __name__ == "__main__":
    sys.exit(run(demo, sys.argv[1:], name="demo"))
