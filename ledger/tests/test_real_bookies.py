"""The client against real bookies on loopback sockets and disks in memory: writer and bookie agree on the protocol."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.real_bookies import LONG_RETRIES, Cluster, Process

from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.errors import BokiError, EntryUnknown, LedgerFenced, RecoveryFailed, Unauthorized
from boki_ledger.client import LedgerClient
from boki_ledger.read.batch_reads import BatchReads
from boki_ledger.settings import WIRE_V2, WIRE_V3
from boki_ledger.testing.ledgers import until
from boki_ledger.write.writer import LedgerWriter

SHORT_RETRIES = replace(LONG_RETRIES, retry_for_s=0.02)


@pytest.fixture
async def client(cluster: Cluster) -> LedgerClient:
    """The first one, which knows all three bookies."""
    client = cluster.clients[0]
    await until(lambda: len(client._chooser.writable()) == 3)
    return client


async def test_pipelined_appends_read_back_after_recovery(cluster: Cluster, client: LedgerClient) -> None:
    writer = await client.create(custom={"role": b"test"})
    wanted = [b"%d " % number * (number % 50) for number in range(500)]
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def acked(lac: int) -> None:
        if lac == 499:
            done.set_result(None)

    writer.listen(acked, done.set_exception)
    for payload in wanted:
        writer.submit(payload)
    await done
    other = await cluster.client()
    reader = await other.open(writer.ledger_id, recover=True, floor=500)
    assert [bytes(one) for one in await reader.read(0, 499)] == wanted
    metadata = await other.metadata_of(writer.ledger_id)
    assert (metadata.state, metadata.last_entry) == (LedgerState.CLOSED, 499)
    assert metadata.length == sum(map(len, wanted))
    with pytest.raises(LedgerFenced):
        await writer.append(b"late")


async def test_batch_reads_are_served(client: LedgerClient) -> None:
    writer = await client.create()
    await asyncio.gather(*(writer.append(b"%d" % number) for number in range(300)))
    await writer.close()
    reader = await client.open(writer.ledger_id, recover=False)
    batches = BatchReads(writer.ledger_id, reader._reads._take_run, client._connected(), LONG_RETRIES, client._metrics)
    found = await batches.read(0, 299, reader.metadata)
    assert [bytes(found[number]) for number in range(300)] == [b"%d" % number for number in range(300)]


async def test_a_bookie_that_restarts_is_sent_what_it_missed_and_keeps_fences(
    cluster: Cluster, client: LedgerClient
) -> None:
    writer = await client.create()
    for _ in range(5):
        await writer.append(b"before")
    await cluster.processes[0].stop()
    await cluster.processes[1].stop()
    writer.submit(b"during")
    await cluster.processes[1].start()
    await until(lambda: writer.last_acked == 5)
    await cluster.processes[0].start()
    other = await cluster.client()
    reader = await other.open(writer.ledger_id, recover=True)
    assert reader.last_entry == 5
    for process in cluster.processes:
        await process.stop()
        await process.start()
    with pytest.raises(LedgerFenced):
        await writer.append(b"after")
    assert [bytes(one) for one in await reader.read(4, 5)] == [b"before", b"during"]


async def test_a_spare_bookie_takes_the_place_of_a_stopped_one(cluster: Cluster, client: LedgerClient) -> None:
    writer = await client.create()
    await writer.append(b"0")
    await cluster.add_bookie()
    await cluster.processes[1].stop()
    for number in range(1, 20):
        await writer.append(b"%d" % number)
    await until(lambda: writer._ports.metrics.ensemble_changes.value == 1)
    assert await writer.close() == 19
    await cluster.processes[0].stop()
    reader = await (await cluster.client()).open(writer.ledger_id, recover=False)
    assert [bytes(one) for one in await reader.read(0, 19)] == [b"%d" % number for number in range(20)]


async def test_an_entry_is_read_by_a_tailing_reader_once_lac_covers_it(cluster: Cluster, client: LedgerClient) -> None:
    writer = await client.create()
    await writer.append(b"0")
    await writer.append(b"1")
    hurried = await cluster.client(SHORT_RETRIES)
    reader = await hurried.open(writer.ledger_id, recover=False)
    assert await reader.read_lac() == 0
    with pytest.raises(EntryUnknown):
        await reader.read(1, 1)
    await writer.append(b"2")
    assert bytes((await reader.read(1, 1))[0]) == b"1"
    await writer.close()
    await until(lambda: reader.closed)
    assert len(await reader.read(0, 2)) == 3
    await reader.close()


async def test_recovery_without_enough_bookies_fails_and_succeeds_later(cluster: Cluster, client: LedgerClient) -> None:
    writer = await client.create()
    await writer.append(b"0")
    await cluster.processes[0].stop()
    await cluster.processes[2].stop()
    hurried = await cluster.client(SHORT_RETRIES)
    with pytest.raises(RecoveryFailed):
        await hurried.open(writer.ledger_id, recover=True)
    await cluster.processes[2].start()
    reader = await (await cluster.client()).open(writer.ledger_id, recover=True)
    assert reader.last_entry == 0


async def test_many_opens_at_once_agree(cluster: Cluster, client: LedgerClient) -> None:
    writer = await client.create(password=b"secret", digest="HMAC")
    for number in range(30):
        await writer.append(b"%d" % number)
    with pytest.raises(Unauthorized):
        await client.open(writer.ledger_id, recover=True)
    others = [await cluster.client() for _ in range(3)]
    readers = await asyncio.gather(
        *(other.open(writer.ledger_id, recover=True, password=b"secret") for other in others for _ in range(3))
    )
    assert {reader.last_entry for reader in readers} == {29}
    assert bytes((await readers[-1].read(29, 29))[0]) == b"29"


def storage_of(process: Process) -> Storage:
    assert process.bookie is not None
    storage = process.bookie.storage
    assert isinstance(storage, Storage), "of one directory"
    return storage


async def asked_unfenced(writer: LedgerWriter) -> bool:
    """Whether it is proven that nobody fenced the ledger; raises what ends the writer."""
    answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def answered(proven: bool) -> None:
        assert not answer.done(), "each is answered once, and none after the end of the writer"
        answer.set_result(proven)

    def ended(error: BokiError) -> None:
        if not answer.done():
            answer.set_exception(error)

    writer.when_ended(ended)
    assert writer.ask_unfenced(answered)
    return await answer


@pytest.mark.parametrize("wire_protocol", [WIRE_V2, WIRE_V3])
@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("stored", [False, True])
async def test_a_repeat_proves_that_nobody_fenced_and_is_neither_written_nor_flushed(
    cluster: Cluster, stored: bool, wire_protocol: str
) -> None:
    """Also when the entry left the write cache for the entry log."""
    client = await cluster.client(replace(LONG_RETRIES, wire_protocol=wire_protocol))
    await until(lambda: len(client._chooser.writable()) == 3)
    writer = await client.create()
    await asyncio.gather(*(writer.append(b"%d" % number) for number in range(20)))
    storages = [storage_of(process) for process in cluster.processes]
    await until(lambda: all(storage.entry_ids(writer.ledger_id) == list(range(20)) for storage in storages))
    if stored:
        for storage in storages:
            await storage.checkpoint()
    for storage in storages:
        ledger = storage.ledger(writer.ledger_id)
        assert ledger is not None and (ledger.cached(19) is None) == stored
    for storage in storages:
        await storage.journal.flushed()
    written = [(storage.journal.position, storage.journal.groups_written) for storage in storages]
    assert await asyncio.gather(*(asked_unfenced(writer) for _ in range(30))) == [True] * 30
    assert [(storage.journal.position, storage.journal.groups_written) for storage in storages] == written
    assert await writer.append(b"20") == 20
    assert await asked_unfenced(writer)
    assert await writer.close() == 20


@pytest.mark.parametrize("wire_protocol", [WIRE_V2, WIRE_V3])
@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("stored", [False, True])
async def test_a_repeat_to_a_ledger_that_another_client_recovered_fails_the_writer(
    cluster: Cluster, stored: bool, wire_protocol: str
) -> None:
    client = await cluster.client(replace(LONG_RETRIES, wire_protocol=wire_protocol))
    await until(lambda: len(client._chooser.writable()) == 3)
    writer = await client.create()
    await writer.append(b"0")
    assert await asked_unfenced(writer)
    reader = await (await cluster.client()).open(writer.ledger_id, recover=True)
    assert reader.last_entry == 0
    if stored:
        for process in cluster.processes:
            await storage_of(process).checkpoint()
    with pytest.raises(LedgerFenced):
        await asked_unfenced(writer)
    assert isinstance(writer.failed, LedgerFenced)
    assert not writer.ask_unfenced(lambda _: None)


@pytest.mark.usefixtures("unhurried")
async def test_a_restarted_bookie_answers_repeats_of_what_it_replayed_and_keeps_fences(
    cluster: Cluster, client: LedgerClient
) -> None:
    writer = await client.create()
    await asyncio.gather(*(writer.append(b"%d" % number) for number in range(5)))
    for process in cluster.processes[:2]:
        await process.stop()
        await until(lambda: len(writer.failing_bookies) == 1)
        await process.start()
        await until(lambda: not writer.failing_bookies)
    await cluster.processes[2].stop()
    await until(lambda: len(writer.failing_bookies) == 1)
    assert await asked_unfenced(writer), "both came back with entry 4"
    await (await cluster.client()).open(writer.ledger_id, recover=True)
    for process in cluster.processes[:2]:
        await process.stop()
        await until(lambda: len(writer.failing_bookies) == 2)
        await process.start()
        await until(lambda: len(writer.failing_bookies) == 1)
    with pytest.raises(LedgerFenced):
        await asked_unfenced(writer)
