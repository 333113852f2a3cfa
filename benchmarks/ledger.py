"""Ledgers: our client on our bookies beside Apache's Java client on Apache's bookies, in one run on one disk.

    python -m benchmarks.ledger [--quick] [--json FILE] [--rounds N] [--seconds S]       (`make bench-ledger`)

Three bookie processes a side, every acknowledgement after a flush, three replicas of which two must answer, CRC32C, one ledger,
metadata in ZooKeeper, v2. Apache's side runs twice, as it comes and with `journalFlushWhenQueueEmpty` (eager); a ratio is taken
against the better of the two in that row. Ours on Apache's bookies and Java's on ours are shown too. Our bookies have the settings
they are shipped with; Apache's are set up as for 1 GiB each, their Java compiles hot code, and is warmed up first.

Rounds are interleaved: each measures every case on every side once. While a side is measured, all processes of the other sides
are stopped (SIGSTOP), so two cores are not shared with what they still have to flush; and each case waits, up to 2 s, until the
bookies have flushed what the case before left, so it does not pay for another. Figures are medians over rounds, ratios
are of medians. Processor time is per entry (or record), user and system, of the client and of its three bookies together.

A measurement that breaks off ends its pair's part of that round: what was measured stays, the other pairs go on, and the
output says what was left out and why. A ratio that lacks a figure is left out too.

The exit code is 0 whatever falls short, and 1 where Apache BookKeeper cannot be run.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

from benchmarks import command, ledger_disk, ledger_ours, machine, report, yardsticks
from benchmarks.ledger_cluster import LedgerCluster, started
from benchmarks.ledger_ours import Measured, Span, WrongFigure
from benchmarks.report import Ratio, Row
from boki_common.errors import BokiError
from boki_common.runtime.process import loop_factory
from itests.bookkeeper.java_service import JavaError
from itests.support.java_server import ServerMissing

KIB: Final = 1024
FILL_ENTRIES: Final = 50_000
RECOVERED_ENTRIES: Final = 10_000
RECOVERED_BYTES: Final = 100
READ_BATCH: Final = 100
WARM_S: Final = 0.5
HOT_S: Final = 8.0
"""How long each Java side adds, and reads, before anything counts."""

Line = tuple[str, str]
"""Pair of client and bookies, and case: one line of the table."""


class Pair(NamedTuple):
    """Who measures, on whose bookies."""

    name: str
    java: bool
    side: str
    whole: bool
    """All cases, or those that show how the parts compare."""


class Case(NamedTuple):
    """A closed loop. Adds of a size; or with `batch` reads of so many entries; or records in entries."""

    name: str
    outstanding: int
    size: int = KIB
    batch: int = 0
    records: bool = False
    always: bool = False
    warm_ups: int = 1
    """More where the caches of the bookies must turn over first: small entries in them are costly to store."""


OURS: Final = Pair("ours", java=False, side="ours", whole=True)
EAGER: Final = Pair("Java, eager", java=True, side="eager", whole=True)
DEFAULT: Final = Pair("Java, default", java=True, side="default", whole=True)
OURS_ON_APACHE: Final = Pair("ours on Apache's", java=False, side="eager", whole=False)
JAVA_ON_OURS: Final = Pair("Java on ours", java=True, side="ours", whole=False)
PAIRS: Final = (OURS, EAGER, DEFAULT, OURS_ON_APACHE, JAVA_ON_OURS)
JAVAS: Final = (EAGER, DEFAULT)

ADD_1: Final = Case("add 1 KB, 1 outstanding", 1, always=True)
ADD_64: Final = Case("add 1 KB, 64 outstanding", 64, always=True)
ADD_1024: Final = Case("add 1 KB, 1,024 outstanding", 1024, always=True)
SMALL_64: Final = Case("add 100 B, 64 outstanding", 64, 100)
SMALL_1024: Final = Case("add 100 B, 1,024 outstanding", 1024, 100)
LARGE_16: Final = Case("add 64 KB, 16 outstanding", 16, 64 * KIB, warm_ups=4)
RECORDS: Final = Case("1 KB records in entries, 1,024 out.", 1024, records=True)
SMALL_RECORDS: Final = Case("100 B records in entries, 1,024 out.", 1024, 100, records=True)
BATCH: Final = Case(f"read {READ_BATCH} by {READ_BATCH}, 1 outstanding", 1, batch=READ_BATCH, always=True)
LONG_RANGE: Final = Case("read 1,000 by 1,000, 1 outstanding", 1, batch=1000)
RANDOM: Final = Case("random read, 64 outstanding", 64, batch=1, always=True)
ADDS: Final = (ADD_1, ADD_64, ADD_1024, SMALL_64, SMALL_1024, LARGE_16, RECORDS, SMALL_RECORDS)
READS: Final = (BATCH, LONG_RANGE, RANDOM)
OURS_ONLY: Final = (RECORDS, SMALL_RECORDS, LONG_RANGE)


class NotMeasured(Exception):
    """A figure that is wanted was left out in every round."""


Goal = tuple[str, Callable[[], float], Literal["<=", ">="], float]
"""Of one ratio: its name, how it is computed, and what it is to reach."""


class Bench:
    """All rounds of one run, and what follows from them."""

    def __init__(self, cluster: LedgerCluster, span: Span) -> None:
        self.measured: dict[Line, list[Measured]] = {}
        self.recoveries: dict[str, list[float]] = {OURS.name: [], EAGER.name: []}
        self.resident_mb: dict[str, float] = {}
        self.disk_mb_per_s: list[float] = []
        """Of one bookie, by `ledger_disk`."""
        self.left_out: list[str] = []
        """What broke off, and why."""
        self._cluster = cluster
        self._span = span

    async def warm_up(self, seconds: float) -> None:
        """Lets the Java client and all bookies compile what is hot."""
        for pair in PAIRS:
            await self._part("warming up", pair, partial(self._warm_up, pair, seconds))

    async def measure_disk(self, directory: Path) -> None:
        """By itself: what runs is given time to end."""
        self._cluster.run_only(OURS.side, java=False)
        await self._cluster.settle(OURS.side)
        self.disk_mb_per_s.append(await ledger_disk.mb_per_s(directory, self._span.seconds))

    async def round(self, number: int) -> None:
        for pair in PAIRS:
            await self._part(f"round {number}", pair, partial(self._measure, pair))
        for name in self._cluster.sides:
            self.resident_mb[name] = self._cluster.resident_mb(name)

    async def _part(self, when: str, pair: Pair, work: Callable[[Callable[[str], None]], Awaitable[None]]) -> None:
        """What one pair has to do; `work` tells what it is about to do, and breaking off leaves out the rest of it."""
        doing = ""

        def begin(what: str) -> None:
            nonlocal doing
            doing = what

        self._cluster.run_only(pair.side, java=pair.java)
        try:
            await work(begin)
        except (BokiError, JavaError, WrongFigure, EOFError) as error:
            self.left_out.append(f'{when}, {pair.name}, from "{doing}" on: {error}')
            _say(f"left out: {self.left_out[-1]}")

    async def _warm_up(self, pair: Pair, seconds: float, begin: Callable[[str], None]) -> None:
        span = Span(0.0, seconds if pair.java else min(1.0, seconds))
        begin(ADD_64.name)
        await self._adds(pair, ADD_64, span)
        begin("fill a ledger")
        ledger = await self._fill(pair, FILL_ENTRIES // 2)
        for case in (BATCH, RANDOM):
            begin(case.name)
            await self._reads(pair, case, ledger, Span(0.0, span.seconds / 4))
        await self._delete(pair, ledger)

    async def _measure(self, pair: Pair, begin: Callable[[str], None]) -> None:
        for case in _chosen(ADDS, pair):
            begin(case.name)
            await self._cluster.settle(pair.side)
            span = Span(case.warm_ups * self._span.warm_s, self._span.seconds)
            self._keep(pair, case, await self._adds(pair, case, span))
        if pair is not DEFAULT:  # how a journal flushes says nothing about reads
            begin("fill a ledger")
            ledger = await self._fill(pair, FILL_ENTRIES)
            for case in _chosen(READS, pair):
                begin(case.name)
                await self._cluster.settle(pair.side)
                self._keep(pair, case, await self._reads(pair, case, ledger, self._span))
            await self._delete(pair, ledger)
        if pair.name in self.recoveries:
            begin("recovery")
            await self._cluster.settle(pair.side)
            self.recoveries[pair.name].append(await self._recover(pair))

    def _keep(self, pair: Pair, case: Case, found: Measured) -> None:
        self.measured.setdefault((pair.name, case.name), []).append(found)

    # -- either client

    async def _java(self, pair: Pair, do: str, **arguments: object) -> object:
        java, side = self._cluster.java, self._cluster.sides[pair.side]
        assert java is not None
        return await java(do, metadata=side.apache_uri, bookies=side.bookies, **arguments)

    async def _java_loop(self, pair: Pair, do: str, case: Case, span: Span, **arguments: object) -> Measured:
        found = await self._java(
            pair,
            do,
            size=case.size,
            outstanding=case.outstanding,
            warm_s=span.warm_s,
            seconds=span.seconds,
            **arguments,
        )
        assert isinstance(found, dict)
        return Measured(**found)

    async def _adds(self, pair: Pair, case: Case, span: Span) -> Measured:
        if pair.java:
            return await self._java_loop(pair, "adds", case, span)
        add = ledger_ours.batched_records if case.records else ledger_ours.adds
        return await add(self._cluster.sides[pair.side], case.size, case.outstanding, span)

    async def _fill(self, pair: Pair, entries: int) -> int:
        if pair.java:
            ledger = await self._java(pair, "fill", size=KIB, entries=entries)
            assert isinstance(ledger, int)
            return ledger
        return await ledger_ours.fill(self._cluster.sides[pair.side], KIB, entries)

    async def _reads(self, pair: Pair, case: Case, ledger: int, span: Span) -> Measured:
        if pair.java:
            return await self._java_loop(pair, "reads", case, span, ledger=ledger, batch=case.batch)
        return await ledger_ours.reads(self._cluster.sides[pair.side], ledger, case.batch, case.outstanding, span)

    async def _delete(self, pair: Pair, ledger: int) -> None:
        if pair.java:
            await self._java(pair, "delete", ledger=ledger)
        else:
            await ledger_ours.delete(self._cluster.sides[pair.side], ledger)

    async def _recover(self, pair: Pair) -> float:
        """Seconds. Our client leaves the ledger behind on either side, so that both recover the same."""
        side = self._cluster.sides[pair.side]
        ledger = await ledger_ours.leave_open(side, RECOVERED_BYTES, RECOVERED_ENTRIES)
        if not pair.java:
            return await ledger_ours.recover(side, ledger, RECOVERED_ENTRIES)
        found = await self._java(pair, "recover", ledger=ledger)
        assert isinstance(found, dict)
        if found["last"] != RECOVERED_ENTRIES - 1:
            raise WrongFigure(f"expected the recovered ledger to end at {RECOVERED_ENTRIES - 1}, found {found['last']}")
        await self._delete(pair, ledger)
        return float(found["seconds"])

    # -- what it comes to

    def row(self, pair: Pair, case: Case) -> Row:
        found = self.measured.get((pair.name, case.name))
        if not found:
            raise NotMeasured(f"{case.name}, {pair.name}")
        names = ("client user", "c. system", "bookies user", "b. system")
        return Row(
            f"{case.name:<36} {pair.name}",
            statistics.median(one.per_s for one in found),
            statistics.median(one.p50_ms for one in found),
            statistics.median(one.p99_ms for one in found),
            {name: statistics.median(one.cpu_us[at] for one in found) for at, name in enumerate(names)},
        )

    def rows(self) -> list[Row]:
        return [
            self.row(pair, case)
            for case in (*ADDS, *READS)
            for pair in PAIRS
            if (pair.name, case.name) in self.measured
        ]

    def ratios(self) -> tuple[list[Ratio], list[str]]:
        """Every ratio that can be computed; and those that cannot, and why."""
        found: list[Ratio] = []
        missing: list[str] = []
        for name, value, comparison, goal in (*self._goals_of_adds(), *self._other_goals()):
            try:
                found.append(Ratio(name, value(), comparison, goal))
            except NotMeasured as error:
                missing.append(f"ratio {name}: not measured: {error}")
        return found, missing

    def _goals_of_adds(self) -> Iterable[Goal]:
        names = {ADD_64: "64_1KB", SMALL_64: "64_100B", ADD_1024: "1024_1KB", SMALL_1024: "1024_100B"}
        for case, name in names.items():
            goal = 1.0 if case.outstanding == 64 else 0.8
            yield f"adds_per_s_{name}_over_java", partial(self._rate_over_java, case, case), ">=", goal
        for java, name in ((EAGER, "eager"), (DEFAULT, "default")):
            yield (
                f"add_p50_1_outstanding_over_java_{name}",
                partial(self._p50_over, java, ADD_1),
                "<=",
                1.0,
            )
        yield (
            "add_p99_64_outstanding_over_java",
            lambda: self.row(OURS, ADD_64).p99_ms / min(self.row(java, ADD_64).p99_ms for java in JAVAS),
            "<=",
            1.0,
        )
        yield "records_per_s_1024_1KB_over_java_adds", lambda: self._rate_over_java(RECORDS, ADD_1024), ">=", 5.0
        yield (
            "records_per_s_1024_100B_over_java_adds",
            lambda: self._rate_over_java(SMALL_RECORDS, SMALL_1024),
            ">=",
            5.0,
        )
        yield "mb_per_s_16_64KB_over_java", lambda: self._rate_over_java(LARGE_16, LARGE_16), ">=", 1.5

    def _other_goals(self) -> Iterable[Goal]:
        for case, name, goal in ((BATCH, "sequential_batch_read", 1.0), (RANDOM, "random_read_64", 1.5)):
            yield (
                f"{name}_over_java",
                partial(self._rate_over_eager, case),
                ">=",
                goal,
            )
        # both had the whole load, reads too
        yield (
            "bookie_resident_memory_over_java",
            lambda: self.resident_mb[OURS.side] / self.resident_mb[EAGER.side],
            "<=",
            0.25,
        )
        yield (
            "cpu_us_per_entry_1024_over_java",
            lambda: self._cpu_us(OURS, ADD_1024) / min(self._cpu_us(java, ADD_1024) for java in JAVAS),
            "<=",
            1.2,
        )
        yield (
            "recovery_10000_entries_times_faster_than_java",
            lambda: self._recovery_s(EAGER) / self._recovery_s(OURS),
            ">=",
            5.0,
        )

    def _rate_over_java(self, ours: Case, java: Case) -> float:
        return self.row(OURS, ours).per_s / self._java_best(java)

    def _rate_over_eager(self, case: Case) -> float:
        return self.row(OURS, case).per_s / self.row(EAGER, case).per_s

    def _p50_over(self, java: Pair, case: Case) -> float:
        return self.row(OURS, case).p50_ms / self.row(java, case).p50_ms

    def _java_best(self, case: Case) -> float:
        return max(self.row(java, case).per_s for java in JAVAS)

    def _cpu_us(self, pair: Pair, case: Case) -> float:
        return sum(self.row(pair, case).cpu_us.values())

    def _recovery_s(self, pair: Pair) -> float:
        if not self.recoveries[pair.name]:
            raise NotMeasured(f"recovery, {pair.name}")
        return statistics.median(self.recoveries[pair.name])

    def facts(self) -> dict[str, str]:
        resident = ", ".join(f"{name} {mb:.0f} MB" for name, mb in self.resident_mb.items())
        taken = {name: statistics.median(seconds) for name, seconds in self.recoveries.items() if seconds}
        facts = {
            "resident per bookie": resident,
            f"recovery of {RECOVERED_ENTRIES:,}": ", ".join(f"{name} {one:.3f} s" for name, one in taken.items()),
        }
        if self.disk_mb_per_s:
            mb = statistics.median(self.disk_mb_per_s)
            facts["disk alone"] = f"{mb:.0f} MB/s a bookie, written twice: {mb * 1e6 / KIB:,.0f} KB a second"
        try:
            ours, java = self.row(OURS, LARGE_16).per_s / 16, self._java_best(LARGE_16) / 16
        except NotMeasured:
            return facts
        return {"64 KB adds": f"ours {ours:.0f} MB/s, Java {java:.0f} MB/s", **facts}


def _chosen(cases: Iterable[Case], pair: Pair) -> list[Case]:
    return [case for case in cases if (pair is OURS or case not in OURS_ONLY) and (pair.whole or case.always)]


async def run(directory: Path, arguments: argparse.Namespace) -> tuple[Bench, list[float]]:
    """Starts everything, makes all rounds; and the median flush of the disk before each."""
    flushes = []
    async with started(directory) as cluster:
        bench = Bench(cluster, Span(arguments.warm, arguments.seconds))
        _say("warming up")
        await bench.warm_up(arguments.hot)
        for number in range(arguments.rounds):
            _say(f"round {number + 1} of {arguments.rounds}")
            flushes.append(yardsticks.fdatasync_us(directory))
            await bench.measure_disk(directory)
            await bench.round(number + 1)
    return bench, flushes


def _say(what: str) -> None:
    sys.stderr.write(what + "\n")


def write_json(path: Path, bench: Bench, whole: Mapping[str, object], ratios: list[Ratio]) -> None:
    samples = {" | ".join(line): [one._asdict() for one in found] for line, found in bench.measured.items()}
    extra = {
        "samples": samples,
        "recoveries_s": bench.recoveries,
        "resident_mb": bench.resident_mb,
        "disk_mb_per_s": bench.disk_mb_per_s,
        "left_out": bench.left_out,
    }
    report.write_json(path, {**whole, **extra}, bench.rows(), ratios)


def main() -> int:
    about = "Our ledger client and bookies beside Apache BookKeeper's."
    parser = command.options("ledger", about, quick="one short round", parts=(), seconds=1.5, each="case")
    arguments = parser.parse_args()
    arguments.warm, arguments.hot = WARM_S, HOT_S
    if arguments.quick:
        arguments.rounds, arguments.seconds, arguments.warm, arguments.hot = 1, 0.4, 0.2, 1.5
    with command.workplace(arguments) as directory:
        facts = machine.facts(directory)
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                bench, flushes = runner.run(run(directory, arguments))
        except ServerMissing as error:
            _say(f"cannot run: {error}")
            return 1
    title = f"Ledgers: ours and Apache BookKeeper's, medians of {arguments.rounds} rounds"
    shown = machine.shown(facts)
    shown["fdatasync 4 KiB p50"] = f"{statistics.median(flushes):.0f} µs"
    ratios, missing = bench.ratios()
    report.draw(title, {**shown, **bench.facts()}, bench.rows(), ratios)
    for line in (*bench.left_out, *missing):
        _say(f"left out: {line}")
    if arguments.json:
        whole = {"benchmark": "ledger", "machine": facts, "rounds": arguments.rounds, "seconds": arguments.seconds}
        write_json(arguments.json, bench, {**whole, "fdatasync_us": flushes}, ratios)
    return 0


if __name__ == "__main__":
    sys.exit(main())
