"""Three bookies whose disks are all full: a trim is ordered, its term is reclaimed, and appends go on, whoever is restarted meanwhile."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace
from typing import Final

import pytest

import boki
from boki_bookie.bookie import Bookie
from boki_common import logs
from boki_common.limits import KIB
from boki_sim.clusters.cluster import Cluster
from boki_sim.clusters.invariants import Invariants
from boki_sim.clusters.shape import Shape, draw_shape
from boki_sim.world.ending import uncollected
from boki_sim.world.guard import guarded
from boki_sim.world.loop import SimLoop
from boki_sim.world.network import Network
from boki_sim.world.randomness import stream
from boki_sim.world.trace import Trace

pytestmark = pytest.mark.blocking_allowed  # the simulator's guard stands in for it

DISK_BYTES: Final = 4_000 * KIB
DATA: Final = bytes(20 * KIB)


def small_disks(seed: int) -> Shape:
    """Three bookies, of which two have to acknowledge, that see within seconds what the defaults see within minutes."""
    drawn = draw_shape(stream(seed, "shape"))
    bookie = replace(
        drawn.bookie,
        journal_segment_bytes=256 * KIB,
        disk_reserve_bytes=256 * KIB,
        journal_live_segments=2,
        journal_spare_segments=1,
        write_cache_bytes=256 * KIB,
        entry_log_bytes=256 * KIB,
        read_only_below_bytes=800 * KIB,
        writable_above_bytes=1_200 * KIB,
        disk_check_interval_s=1.0,
        gc_grace_s=1.0,
        gc_interval_s=2.0,
    )
    engine = replace(drawn.engine, housekeeping_s=0.5, reclaim_grace_s=1.0, index_slots="all", compress=False)
    return replace(
        drawn, bookies=3, sequencers=2, engines=1, logs=1, controllers=1, index_slots=(), bookie=bookie, engine=engine
    )


async def fill(book: boki.Book) -> tuple[list[int], list[boki.Ticket]]:
    """Appends until the disks are full: the seqnums of what was acknowledged, and what has a number and waits."""
    tickets: list[boki.Ticket] = []
    while True:
        try:
            tickets.append(book.submit(DATA))
        except boki.DiskFull:
            break
        await asyncio.wait([asyncio.ensure_future(tickets[-1].outcome())], timeout=2.0)
    return [ticket.result() for ticket in tickets if ticket.done()], [one for one in tickets if not one.done()]


async def append_when_taken(book: boki.Book) -> int:
    """A restart makes a little room, which does not last."""
    while True:
        try:
            return await book.append(DATA, timeout=120)
        except boki.DiskFull:
            await asyncio.sleep(0.5)


async def scenario(cluster: Cluster, *, killed: str) -> tuple[int, int]:
    await cluster.start()
    await cluster.up()
    for node in cluster.of("bookie"):
        assert node.disk is not None
        node.disk.capacity_bytes = DISK_BYTES
    client = await cluster.connected()
    book = client.book("b")
    before, waiting = await fill(book)
    roles = [node.role for node in cluster.of("bookie")]
    assert sum(isinstance(role, Bookie) and role.read_only for role in roles) >= 2
    for node in cluster.of(killed):
        cluster.end_node(node)
    last = max(before)
    tail = await book.check_tail(consistency="linearizable", timeout=120)
    assert tail is not None and tail.seqnum >= last, "what is acknowledged is read"
    await book.trim(before=last + 1, timeout=120)
    after = [await append_when_taken(book) for _ in range(30)]
    found = [record.seqnum async for record in book.read()]
    assert found == [*[await ticket for ticket in waiting], *after], (
        "what had a number was decided, and nothing else is left"
    )
    await client.close()
    return len(before), len(after)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("killed", ["sequencer", "bookie"])
def test_a_trim_makes_room_on_three_full_disks(killed: str) -> None:
    seed = 1
    with uncollected():
        loop, shape = SimLoop(seed), small_disks(seed)
        trace = Trace(loop, keep=False)
        network = Network(loop, seed, trace, shape.weather)
        invariants = Invariants(loop.time, lambda _: None)
        cluster = Cluster(loop, seed, shape, network, trace, invariants)
        with logs.configured(level="error", stream=io.StringIO()), guarded(loop, seed):
            appended, again = loop.run_until_complete(asyncio.wait_for(scenario(cluster, killed=killed), 1_200))
            loop.end()
        assert appended > 30 and again == 30
        assert invariants.violations == []
