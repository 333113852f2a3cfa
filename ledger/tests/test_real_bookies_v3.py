"""What goes over v3 against real bookies on loopback sockets: tails, deferred sync, everything in v3."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.real_bookies import Cluster

from boki_common.bookkeeper import availability
from boki_common.bookkeeper.digests import CRC32C, master_key
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import LedgerError, LedgerFenced
from boki_common.testing.machine import CountingRandom
from boki_ledger.rules.lac_body import encode_lac
from boki_ledger.settings import WIRE_V2, WIRE_V3
from boki_ledger.testing.ledgers import QUICK, until

LONG_RETRIES = replace(QUICK, retry_for_s=10.0, answer_timeout_s=10.0, explicit_lac_ms=2.0)


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    cluster.settings = LONG_RETRIES
    return cluster


@pytest.mark.parametrize("protocol", [WIRE_V2, WIRE_V3])
async def test_a_tail_sees_every_entry_as_it_is_acknowledged_and_ends_with_the_close(
    cluster: Cluster, protocol: str
) -> None:
    settings = replace(LONG_RETRIES, wire_protocol=protocol)
    writer = await (await cluster.client(settings)).create()
    reader = await (await cluster.client(settings)).open(writer.ledger_id, recover=False)
    got: list[bytes] = []

    async def follow() -> None:
        async for entry_id, payload in reader.follow(0, wait_s=10.0):
            assert entry_id == len(got)
            got.append(bytes(payload))

    task = asyncio.ensure_future(follow())
    for number in range(5):
        await writer.append(b"%d" % number)
        await until(lambda wanted=number + 1: len(got) == wanted or task.done())  # type: ignore[misc]
    await asyncio.gather(*(writer.append(b"%d" % number) for number in range(5, 500)))
    await writer.close()
    await task
    assert got == [b"%d" % number for number in range(500)]


async def test_a_tail_survives_the_recovery_by_another_and_a_bookie_that_stops(cluster: Cluster) -> None:
    writer = await (await cluster.client()).create()
    reader = await (await cluster.client()).open(writer.ledger_id, recover=False)
    got: list[bytes] = []

    async def follow() -> None:
        async for _, payload in reader.follow(0, wait_s=10.0):
            got.append(bytes(payload))

    task = asyncio.ensure_future(follow())
    await writer.append(b"0")
    await until(lambda: len(got) == 1 or task.done())
    await cluster.processes[0].stop()
    await writer.append(b"1")
    await until(lambda: len(got) == 2 or task.done())
    await (await cluster.client()).open(writer.ledger_id, recover=True)
    await task
    assert got == [b"0", b"1"]


async def test_everything_works_in_v3_alone(cluster: Cluster) -> None:
    client = await cluster.client(replace(LONG_RETRIES, wire_protocol=WIRE_V3))
    writer = await client.create(password=b"secret", digest="HMAC")
    await asyncio.gather(*(writer.append(b"%d" % number) for number in range(300)))
    reader = await (await cluster.client()).open(writer.ledger_id, recover=True, password=b"secret", floor=300)
    assert reader.last_entry == 299
    with pytest.raises(LedgerFenced):
        await writer.append(b"late")
    other = await client.open(writer.ledger_id, recover=False, password=b"secret")
    assert [bytes(one) for one in await other.read(0, 299)] == [b"%d" % number for number in range(300)]
    recovered = await client.create()
    await recovered.append(b"x")
    assert (await client.open(recovered.ledger_id, recover=True)).last_entry == 0


async def test_deferred_sync_is_acknowledged_before_the_disk_and_forced_by_all(cluster: Cluster) -> None:
    writer = await (await cluster.client()).create(deferred_sync=True)
    await writer.append(b"first, for which bookies look at the metadata")
    await writer.force()
    for process in cluster.processes:
        process.disk.hold("sync")
    await asyncio.gather(*(writer.append(b"%d" % number) for number in range(1, 20)))
    assert (writer.last_acked, writer.lac) == (19, 0)
    force = asyncio.ensure_future(writer.force())
    for process in cluster.processes[:2]:
        process.disk.release("sync")
    await asyncio.sleep(0)
    await asyncio.wait([force], timeout=0.05)
    assert not force.done(), "one bookie did not force"
    cluster.processes[2].disk.release("sync")
    assert await force == 19 == writer.lac
    await writer.append(b"cut off")
    assert await writer.close() == 19


async def test_deferred_entries_may_be_lost_with_their_bookies_forced_ones_never(
    cluster: Cluster,
) -> None:
    writer = await (await cluster.client()).create(deferred_sync=True)
    await writer.append(b"forced")
    assert await writer.force() == 0
    for process in cluster.processes:
        process.disk.hold("sync")
    await writer.append(b"not forced")
    disks = [process.disk.crash(CountingRandom()) for process in cluster.processes]
    for process in cluster.processes:
        await process.stop()
    with pytest.raises(LedgerError):
        await writer.force()
    for process, disk in zip(cluster.processes, disks, strict=True):
        process.disk = disk
        await process.start()
    reader = await (await cluster.client()).open(writer.ledger_id, recover=True)
    assert reader.last_entry == 0
    assert [bytes(one) for one in await reader.read(0, 0)] == [b"forced"]


async def test_bookies_list_what_they_hold_and_report_their_free_space(cluster: Cluster) -> None:
    client = await cluster.client()
    writer = await client.create()
    for _ in range(5):
        await writer.append(b"x")
    transport = client._connected()
    bookie = writer._adds.ensemble[0]
    await until(lambda: writer._adds.acks.in_flight == 0)
    listed = await transport.list_entries(bookie, writer.ledger_id)
    held = [entry_id for run in availability.decode(listed.availability or b"") for entry_id in run]
    assert held == list(range(len(held))) and len(held) >= 4
    assert (await transport.list_entries(bookie, 10_000)).status is V2Status.NO_LEDGER
    space = await transport.bookie_info(bookie)
    assert space.status is V2Status.OK and 0 < (space.free_bytes or 0) <= (space.total_bytes or 0)
    body = encode_lac(writer.ledger_id, 4, CRC32C)
    assert (await transport.write_lac(bookie, writer.ledger_id, master_key(b"wrong"), body)).status is (
        V2Status.UNAUTHORIZED
    )
