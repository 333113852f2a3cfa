"""Real bookies on loopback sockets lose one of theirs for good: closed ledgers get all their copies back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

import pytest
from tests.real_bookies import SMALL, Cluster

from boki_common.bookkeeper import layout
from boki_common.bookkeeper.bookie_mark import RETIRED
from boki_common.bookkeeper.bookie_marks import read_mark
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import WrongDirectory
from boki_common.ids import BookieId
from boki_ledger.client import LedgerClient
from boki_ledger.repair.settings import Mode, RepairLimits

LEDGERS: Final = 12
LIMITS: Final = RepairLimits(grace_s=0.0, bytes_per_s=0)


async def written(cluster: Cluster, client: LedgerClient) -> dict[int, list[bytes]]:
    """Closed ledgers of some entries, small and large, and one without any."""
    found = {}
    for number in range(LEDGERS):
        payloads = [bytes([number, entry]) * (1 + 5_000 * (entry % 3)) for entry in range(number)]
        writer = await client.create()
        for payload in payloads:
            await writer.append(payload)
        await writer.close()
        found[writer.ledger_id] = payloads
    return found


async def naming(client: LedgerClient, ledgers: dict[int, list[bytes]], bookie: BookieId) -> dict[int, list[bytes]]:
    """Those that a bookie has a place in."""
    return {
        ledger_id: payloads
        for ledger_id, payloads in ledgers.items()
        if bookie in (await client.metadata_of(ledger_id)).ensembles[0][1]
    }


async def check_copies(cluster: Cluster, client: LedgerClient, ledgers: dict[int, list[bytes]]) -> None:
    """Every copy that the metadata names is there, whole, on each bookie by itself."""
    living = {process.bookie.bookie_id: process.bookie for process in cluster.processes if process.bookie is not None}
    for ledger_id, payloads in ledgers.items():
        metadata = await client.metadata_of(ledger_id)
        assert set(metadata.ensembles[0][1]) <= living.keys()
        for bookie in metadata.ensembles[0][1]:
            copies = client.copies(ledger_id, metadata, bookie)
            done = await copies.make_whole(range(len(payloads)))
            assert (done.held, done.copied) == (len(payloads), 0), (ledger_id, bookie)
        reader = await client.open(ledger_id, recover=False)
        if payloads:
            assert [bytes(one) for one in await reader.read(0, len(payloads) - 1)] == payloads
        await reader.close()


async def lose(cluster: Cluster, number: int) -> BookieId:
    """For good: the process and its disk."""
    process = cluster.processes[number]
    assert process.bookie is not None
    lost = BookieId(process.bookie.bookie_id)
    await process.stop()
    store = await cluster.store()
    path = layout.cookie_path(lost)
    await store.delete(path, version=(await store.get(path)).version)
    return lost


async def test_a_drained_bookie_ends_with_an_empty_store_and_nothing_names_it() -> None:
    """Beside a writer that goes on, and a restart in the middle."""
    cluster = Cluster(
        replace(SMALL, gc_grace_s=0.0, gc_interval_s=0.05, gc_reads_per_s=10**9, disk_check_interval_s=0.05)
    )
    try:
        await cluster.start(*[NO_TOKEN] * 5)
        client = await cluster.client()
        ledgers = await written(cluster, client)
        writer = await client.create()
        payloads = [b"%d" % number for number in range(60)]
        for payload in payloads[:20]:
            await writer.append(payload)
        members = (await client.metadata_of(writer.ledger_id)).ensembles[-1][1]
        drained = members[0]
        process = next(one for one in cluster.processes if one.bookie is not None and one.bookie.bookie_id == drained)
        bookie = process.bookie
        assert bookie is not None
        assert await client.check_drain(drained) == []
        await client.begin_drain(drained)
        auditor = client.auditor(LIMITS)
        store = await cluster.store()
        while not (await read_mark(store, drained)).mark.refuses:
            await asyncio.sleep(0)
        for payload in payloads[20:40]:
            await writer.append(payload)
        await auditor.round(Mode.OURS)
        await process.stop()
        await process.start()
        bookie = process.bookie
        assert bookie is not None
        for payload in payloads[40:]:
            await writer.append(payload)
        async with asyncio.timeout(60):
            while (await read_mark(store, drained)).mark.left != (writer.ledger_id,):
                await auditor.round(Mode.OURS)
                await asyncio.sleep(0)
            await writer.close()  # of what is written nothing is dropped
            while (await read_mark(store, drained)).mark.state != RETIRED:
                await auditor.round(Mode.OURS)
                await asyncio.sleep(0)
            assert isinstance(await bookie.failed, WrongDirectory)
        storage = bookie.storage.of(0)
        assert all(not storage.entry_ids(ledger_id) for ledger_id in storage.ledger_ids)
        ledgers[writer.ledger_id] = payloads
        assert not await naming(client, ledgers, drained)
        await auditor._scan()  # as each hour: what was closed since is scrubbed as well
        await auditor.round(Mode.OURS)
        await check_copies(cluster, client, {one: ledgers[one] for one in ledgers if one != writer.ledger_id})
        reader = await client.open(writer.ledger_id, recover=False)
        assert [bytes(one) for one in await reader.read(0, len(payloads) - 1)] == payloads
        await reader.close()
        assert drained not in await layout.bookie_cookies(store)
    finally:
        await cluster.close()


@pytest.mark.parametrize(
    "token", [NO_TOKEN, ClusterToken(["a-token-of-this-test-alone-0123456789"])], ids=["open", "token"]
)
async def test_all_closed_ledgers_get_their_copies_back(token: ClusterToken) -> None:
    cluster = Cluster()
    try:
        await cluster.start(*[token] * 4)
        client = await cluster.client(token=token)
        ledgers = await written(cluster, client)
        lost = await lose(cluster, 0)
        assert await naming(client, ledgers, lost)
        auditor = client.auditor(LIMITS)
        await auditor.round(Mode.OURS)
        status = auditor.status()
        assert status["audit"]["missing_ledgers"] == 0, status
        assert status["blocked"] == []
        for ledger_id in ledgers:
            assert all(lost not in bookies for _, bookies in (await client.metadata_of(ledger_id)).ensembles)
        await check_copies(cluster, client, ledgers)
        for process in cluster.processes[1:]:
            await process.stop()
            await process.start()
        await check_copies(cluster, await cluster.client(token=token), ledgers)
    finally:
        await cluster.close()


async def test_two_workers_and_a_second_loss_leave_every_copy_in_place() -> None:
    cluster = Cluster()
    try:
        await cluster.start(*[NO_TOKEN] * 5)
        client, other = await cluster.client(), await cluster.client()
        ledgers = await written(cluster, client)
        repaired = await naming(client, ledgers, await lose(cluster, 0))
        for number, one in enumerate((client, other)):
            auditor, rival = one.auditor(LIMITS), other.auditor(LIMITS)
            await asyncio.gather(auditor.round(Mode.OURS), rival.round(Mode.OURS))
            if number == 0:
                repaired |= await naming(client, ledgers, await lose(cluster, 1))
        await check_copies(cluster, client, repaired)
    finally:
        await cluster.close()
