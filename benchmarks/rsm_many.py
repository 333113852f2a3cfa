"""Many machines: a host that dies with 100,000 of them, and a million that do nothing.

Hosts are processes of their own here, so that one can be killed, and that its memory is its own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import boki
import bokirsm
from benchmarks import machine, rsm_child
from benchmarks.bench import Bench
from benchmarks.rsm_compared import together, two_hosts
from benchmarks.rsm_programs import BOOK, MACHINES, Add, Counter, Make, Maker
from benchmarks.store_growth import CARRIED_A_SECOND, CARRY_EVERY_S, SETTINGS, TERM_S, Samples, draw
from bokilib import Carrier, Log
from bokilib.records import tags
from bokirsm import Rsm
from bokirsm.machine.refs import keyed

if TYPE_CHECKING:
    from benchmarks.rsm import Scaled

MANY: Final = 100_000
WITH_INPUT: Final = 1_000
LEASE_S: Final = 15.0
QUICK_LEASE_S: Final = 3.0
IDLE: Final = 1_000_000
FEW: Final = 1_000
AT_ONCE: Final = 1_000
"""Machines that one handler creates."""
MAKERS: Final = 16
WATCH_S: Final = 10.0
COPIES: Final = 3
ENTRY_LOG_BYTES: Final = int(SETTINGS["BOKI_BOOKIE_ENTRY_LOG_BYTES"])
"""The size of the file that a bookie writes to, which is not compacted."""
QUIET_EVERY_S: Final = 2.0
QUIET_SHARE: Final = 0.1
TERMS: Final = 3
PROGRAMS: Final = "benchmarks.rsm_programs"


async def make_many(rsm: Rsm, count: int) -> None:
    """Have so many machines created by handlers."""
    makers = [await rsm.create(Maker, key=f"maker{number}") for number in range(MAKERS)]
    calls = [
        partial(rsm.ask, Make(min(AT_ONCE, count - at)).to(makers[number % MAKERS]), timeout_s=300.0)
        for number, at in enumerate(range(0, count, AT_ONCE))
    ]
    await together(calls)


# -- kill


async def part_kill(bench: Scaled) -> None:
    """Kill -9 of one of two hosts, then input to its machines: until the other host has handled all of it."""
    lease_s, count = (QUICK_LEASE_S if bench.quick else LEASE_S), max(3 * WITH_INPUT, round(MANY * bench.scale))
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster("kill"))
        client = await stack.enter_async_context(boki.connect(cluster.url, timeout=120.0))
        rsm = await stack.enter_async_context(Rsm(MACHINES, client.book(BOOK)))
        (victim, heir), _ = await two_hosts(stack, cluster.url, lease_s)
        dying = set(await victim.ask("partitions"))
        keys = (f"c{number}" for number in itertools.count())
        mine = itertools.islice((key for key in keys if tags.partition_of(key) in dying), WITH_INPUT)
        counters = await together([partial(rsm.create, Counter, key=key) for key in mine])
        await together([partial(rsm.ask, Add(1).to(counter)) for counter in counters])
        await make_many(rsm, count - WITH_INPUT)
        for host in (victim, heir):
            await until_quiet(host)  # the machines that were created have begun
        assert set(await victim.ask("partitions")) == dying, "partitions stay where they are"
        victim.kill()
        began = perf_counter()
        answers = await asyncio.gather(*(rsm.ask(Add(1).to(counter), timeout_s=120.0) for counter in counters))
        took_s = perf_counter() - began
        assert answers == [2] * WITH_INPUT, "each machine has the state of before, and handled its input once"
        assert len(await heir.ask("partitions")) == tags.PARTITIONS
    bench.facts["kill"] = (
        f"of {count:,} machines of two hosts one host died with {len(dying)} of {tags.PARTITIONS} partitions: {WITH_INPUT:,} of them "
        f"answered {took_s:.1f} s after kill -9, lease {lease_s:g} s"
    )
    bench.ratio("kill_beyond_lease_s", took_s - lease_s, "<=", 2.0)


# -- idle


class Usage(NamedTuple):
    """Memory of a host and its share of a processor. `spent_s`: processor time for the creations."""

    bytes: int
    cpu_share: float
    spent_s: float


async def part_idle(bench: Scaled) -> None:
    """Machines that do nothing: what many of them take of their host beside a few, and of the disk over terms."""
    count = max(2 * FEW, round(IDLE * bench.scale))
    few = await idle(bench, "idle-few", FEW)
    many = await idle(bench, "idle-many", count, terms=TERMS)
    for usage, number in ((few, FEW), (many, count)):
        bench.facts[f"{number:,} idle"] = (
            f"{usage.bytes / 1e6:,.0f} MB and {usage.cpu_share * 100:.1f} % of a processor in their host, "
            f"{usage.spent_s:.1f} s to create them"
        )
    bench.facts["each idle machine"] = f"{(many.bytes - few.bytes) / (count - FEW):,.0f} B"
    bench.ratio("idle_memory_beyond_that_of_few_mb", (many.bytes - few.bytes) / 1e6, "<=", 32.0)
    bench.ratio("idle_processor_percent_beyond_that_of_few", (many.cpu_share - few.cpu_share) * 100, "<=", 1.0)


async def idle(bench: Bench, name: str, count: int, *, terms: int = 0) -> Usage:
    """Create machines, and watch their host; with `terms` also the disk, while so many terms pass."""
    term_s = max(TERM_S, count / CARRIED_A_SECOND)
    settings = {**SETTINGS, "BOKI_SEQUENCER_TERM_AGE_S": str(term_s)}
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster(name, settings=settings, sequencers=2))
        client = await stack.enter_async_context(boki.connect(cluster.url, timeout=120.0))
        log = Log(client.book(BOOK))
        rsm = await stack.enter_async_context(Rsm(MACHINES, log))
        host = await stack.enter_async_context(
            rsm_child.running(PROGRAMS, cluster.url, BOOK, "host", str(LEASE_S), str(term_s))
        )
        await make_many(rsm, count)
        spent_s = await until_quiet(host)
        used_s, rss = machine.cpu_seconds([host.pid]), host.resident_bytes
        await asyncio.sleep(WATCH_S)
        share = (machine.cpu_seconds([host.pid]) - used_s) / WATCH_S
        if terms:
            await over_terms(bench, cluster, log, count, terms, term_s)
            rss = max(rss, host.resident_bytes)
            for maker in range(MAKERS):
                assert await rsm.ask(Make(0).to(keyed(MACHINES.name, f"maker{maker}", None)), timeout_s=300.0) == 0
    return Usage(rss, share, spent_s)


async def until_quiet(host: rsm_child.Child) -> float:
    """Wait until a host computes next to nothing; return the processor time that it took so far."""
    while True:
        before = machine.cpu_seconds([host.pid])
        await asyncio.sleep(QUIET_EVERY_S)
        if (spent_s := machine.cpu_seconds([host.pid])) - before < QUIET_SHARE * QUIET_EVERY_S:
            return spent_s


async def over_terms(bench: Bench, cluster: Any, log: Log, count: int, terms: int, term_s: float) -> None:
    """Rewrite the machines from term to term, and compare the disk with what lives."""
    samples = Samples(cluster)
    carrier = Carrier(log, [bokirsm.carried(log)], who="idle", every_s=CARRY_EVERY_S, carry_ms=round(term_s * 1_000))
    async with samples.taken(), carrier:
        await asyncio.sleep((terms + 1) * term_s)
    columns = samples.columns
    lives = 0
    async for item in log.book.read(start=1, stop=await log.book.now(consistency="linearizable") + 1):
        lives += 0 if isinstance(item, boki.Gap) else len(item.data)
    second = columns["disk"][len(columns["disk"]) // 2 :]
    bench.series["idle"] = {"count": count, "lives": lives, **columns}
    bench.facts["idle, disk"] = (
        f"{columns['term'][-1] - columns['term'][0]:.0f} terms of {term_s:.0f} s, {lives / 1e6:,.1f} MB of records live, in three copies; "
        f"disk {max(columns['disk']) / 1e6:,.0f} MB at most, {max(second) / 1e6:,.0f} in the second half, {second[-1] / 1e6:,.0f} then"
    )
    most = COPIES * (lives * (1 + terms) + ENTRY_LOG_BYTES)
    bench.ratio("idle_disk_over_that_of_what_lives_and_of_three_terms", max(second) / most, "<=", 1.0)


def plot(directory: Path, series: Mapping[str, Any]) -> None:
    """Draw what was kept of idle machines."""
    if "idle" in series:
        columns: Any = series["idle"]
        draw(directory, "rsm-idle.png", f"{columns['count']:,} machines that do nothing", columns, "machines created")
