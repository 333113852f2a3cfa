"""One object with a million updates beside 100,000 that nobody changes: what is kept of them over time.

A store appends for ever; what it keeps has to follow what lives, not what happened. Ages that are days in use are seconds here (terms,
graces, garbage collection), so that all of it happens within the run: checkpoints of the hot object and trims, the idle objects carried
out of old terms, terms reclaimed, ledgers deleted, entry logs compacted. `--scale 0.01` is a hundredth of it.

A term lasts as long as one carrier needs to carry all that is idle, since all of it lives on in the next one; and the updates are
spread over several terms: how fast one object changes is not what this is about.

Sampled: updates so far, disk of the bookies without their journals (three copies), the engine's index, and the resident memory of each
kind of process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import psutil

import boki
from benchmarks.bench import Bench
from benchmarks.retwis_load import fill
from boki_bookie.space.disk_reserve import NAME as RESERVE
from boki_cli.facts.gateway_facts import AskedCluster
from boki_cli.roles import process_settings
from bokistore import BokiStore, Inc, JsonObject, StoreSettings

UPDATES: Final = 1_000_000
IDLE: Final = 100_000
OUTSTANDING: Final = 64
SAMPLES: Final = 60
SAMPLE_S: Final = 1.0
QUIET_S: Final = 30.0
"""After the last update: what nobody writes any more is given back too."""
TERM_S: Final = 15.0
CARRIED_A_SECOND: Final = 2_000
"""Idle objects, beside the updates; a term of so many is longer than `TERM_S`."""
TERMS: Final = 12
"""Over so many terms the updates are spread, from a tenth of the scale on."""
SETTINGS: Final[Mapping[str, str]] = {
    "BOKI_SEQUENCER_TERM_AGE_S": str(TERM_S),
    "BOKI_ENGINE_HOUSEKEEPING_S": "0.5",
    "BOKI_ENGINE_SNAPSHOT_RECORDS": "20000",
    "BOKI_ENGINE_RECLAIM_GRACE_S": "2",
    "BOKI_BOOKIE_GC_INTERVAL_S": "5",
    "BOKI_BOOKIE_GC_GRACE_S": "5",
    "BOKI_BOOKIE_CHECKPOINT_INTERVAL_S": "2",
    "BOKI_BOOKIE_ENTRY_LOG_BYTES": str(8 * 2**20),
}
STORE: Final = StoreSettings(grace_ms=2_000, cached_views=2_000)
CARRIED_TERMS: Final = 4
CARRY_EVERY_S: Final = 3.0
VALUE: Final[JsonObject] = {"name": "an object that nobody changes", "tags": ["a", "b", "c"], "n": 7}


class Samples:
    """What was seen over time, as columns. `appended`: counts what was done so far, where nobody sets it."""

    def __init__(self, cluster: Any, appended: Callable[[], int] | None = None) -> None:
        self.columns: dict[str, list[float]] = {}
        self.appended = 0
        self._count = appended
        self._cluster = cluster
        self._facts = AskedCluster(cluster.url, process_settings(None, {"metadata": cluster.metadata_uri}))
        self._began = perf_counter()

    async def take(self) -> None:
        """One row."""
        state = await self._facts.collect()
        self.appended = self._count() if self._count else self.appended
        row: dict[str, float] = {"seconds": perf_counter() - self._began, "updates": float(self.appended)}
        row["index"] = sum(one.index_bytes for one in state.engines if one.up)
        row["term"] = max((one.term or 0 for one in state.logs), default=0)
        row["disk"] = await asyncio.to_thread(_disk, self._cluster.directory)
        for name, pid in self._cluster.pids.items():
            kind = f"memory of {name.partition('-')[0]}s"
            row[kind] = row.get(kind, 0) + psutil.Process(pid).memory_info().rss
        row["memory of the program"] = psutil.Process().memory_info().rss
        for name, value in row.items():
            self.columns.setdefault(name, []).append(float(value))

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """A row every `SAMPLE_S`, and one at the end."""

        async def run() -> None:
            while True:
                await self.take()
                await asyncio.sleep(SAMPLE_S)

        watching = asyncio.create_task(run())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        await self.take()
        await self._facts.close()


def _disk(directory: Path) -> int:
    """Bytes of the bookies that are neither journal nor reserve: these have a size of their own, whatever is stored."""
    found = 0
    for file in directory.glob("bookie-*/**/*"):
        try:
            if file.is_file() and file.name != RESERVE and "journal" not in file.relative_to(directory).as_posix():
                found += file.stat().st_blocks * 512
        except FileNotFoundError:
            continue  # it was deleted meanwhile: that is what it is about
    return found


async def part_growth(bench: Bench, scale: float) -> None:
    """The run; its curve is in the series `growth`."""
    updates, idle = max(1, round(UPDATES * scale)), max(1, round(IDLE * scale))
    term_s = max(TERM_S, idle / CARRIED_A_SECOND)
    lasting_s = TERMS * term_s * min(1.0, 10 * scale)
    cluster = bench.cluster("growth", settings={**SETTINGS, "BOKI_SEQUENCER_TERM_AGE_S": str(term_s)}, sequencers=2)
    async with cluster, boki.connect(cluster.url, timeout=120.0) as client:
        store = BokiStore(client.book("growth"), settings=STORE)
        samples = Samples(cluster)
        async with samples.taken():
            await fill(store, [(f"idle/{number}", dict(VALUE)) for number in range(idle)])
            async with store.carrier("growth", every_s=CARRY_EVERY_S, carry_ms=round(term_s * 1000)):
                await _update(store, updates, updates / lasting_s, samples)
                await asyncio.sleep(QUIET_S)
            assert await store.object("hot").get("n", consistency="linearizable") == updates
            last = await store.object(f"idle/{idle - 1}").value(consistency="linearizable")
            assert last == VALUE, f"what nobody changed is {last}"
        await store.close()
    bench.series["growth"] = {"idle": idle, **samples.columns}
    terms = samples.columns["term"]
    carried = (
        terms[len(terms) // 4] >= CARRIED_TERMS
    )  # by then the idle objects were carried; in a run of few terms they were not
    judge(bench, samples.columns, f"{updates:,} updates beside {idle:,} idle objects", settled=carried)


async def _update(store: BokiStore, updates: int, most_a_second: float, samples: Samples) -> None:
    numbers = iter(range(updates))
    began = perf_counter()

    async def some() -> None:
        for number in numbers:
            await asyncio.sleep(max(0.0, began + number / most_a_second - perf_counter()))
            await store.object("hot").apply(Inc("n", 1))
            samples.appended += 1

    await asyncio.gather(*(some() for _ in range(OUTSTANDING)))


def judge(bench: Bench, columns: Mapping[str, Sequence[float]], what: str, *, settled: bool) -> None:
    """What is kept comes and goes with terms: its peak in the last quarter should be what it was in the second, when `settled`."""
    quarter = max(1, len(columns["seconds"]) // 4)
    for name in ("disk", "index") if settled else ():
        before, after = max(columns[name][quarter : 2 * quarter]), max(columns[name][-quarter:])
        bench.ratio(f"growth_{name}_last_quarter_over_second", after / max(before, 1), "<=", 1.5)
    bench.facts["growth"] = f"{what}, {columns['seconds'][-1]:.0f} s, {columns['term'][-1]:.0f} terms"
    peak = {name: max(values) / 1e6 for name, values in columns.items() if name not in ("seconds", "updates", "term")}
    bench.facts["growth, peaks"] = ", ".join(f"{name} {value:,.0f} MB" for name, value in peak.items())


def plot(directory: Path, series: Mapping[str, Any]) -> None:
    """The curve."""
    title = f"One object with {series['updates'][-1]:,.0f} updates beside {series['idle']:,} that nobody changes"
    draw(directory, "store-growth.png", title, series, "updates so far")


def draw(directory: Path, name: str, title: str, series: Mapping[str, Any], done: str) -> None:
    """What was sampled: what was done, disk, index and memory, over time."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    directory.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    (log, disk), (index, memory) = figure.subplots(2, 2)
    seconds = series["seconds"]
    terms = [at for at, (one, other) in enumerate(zip(series["term"], series["term"][1:], strict=False)) if other > one]
    for axes in (log, disk, index, memory):
        axes.set(xlabel="seconds")
        for at in terms:
            axes.axvline(seconds[at], color="#cccccc", linewidth=0.6, zorder=0)
    log.plot(seconds, [value / 1000 for value in series["updates"]], color="#4c78a8")
    log.set(ylabel=f"log: thousand {done}", ylim=(0, None))
    disk.plot(seconds, [value / 1e6 for value in series["disk"]], color="#e15759")
    disk.set(ylabel="disk of three bookies, MB", ylim=(0, None))
    index.plot(seconds, [value / 1e6 for value in series["index"]], color="#59a14f")
    index.set(ylabel="index of the engine, MB", ylim=(0, None))
    for kind in sorted(kind for kind in series if kind.startswith("memory")):
        memory.plot(seconds, [value / 1e6 for value in series[kind]], label=kind.removeprefix("memory of "))
    memory.set(ylabel="resident memory, MB", ylim=(0, None))
    memory.legend(fontsize=8)
    log.text(0.02, 0.95, "grey: a term begins", transform=log.transAxes, va="top", fontsize=8, color="#777777")
    figure.savefig(directory / name, dpi=120)
