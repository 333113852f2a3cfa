"""Our ledger client on Apache's bookies, and what Apache's shell makes of the ledgers."""

from __future__ import annotations

import asyncio

import pytest

from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.errors import BokiError, LedgerFenced, Unauthorized
from boki_ledger.write.writer import LedgerWriter
from itests.bookkeeper.conftest import MakeClient
from itests.bookkeeper.marks import APACHE
from itests.support.apache_bookkeeper import ApacheBookkeeper

pytestmark = [*APACHE, pytest.mark.nightly, pytest.mark.timeout(180)]

ENTRIES = 1_000


def payload_of(number: int) -> bytes:
    return b"entry %d " % number + b"." * (number % 300)


def listen(writer: LedgerWriter, last: int) -> asyncio.Future[None]:
    """Done when entry `last` is acknowledged."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def acked(lac: int) -> None:
        if lac >= last and not done.done():
            done.set_result(None)

    writer.listen(acked, done.set_exception)
    return done


async def append_all(writer: LedgerWriter, count: int) -> list[bytes]:
    payloads = [payload_of(number) for number in range(count)]
    done = listen(writer, count - 1)
    for payload in payloads:
        writer.submit(payload)
    await done
    return payloads


@pytest.mark.parametrize("digest", ["CRC32C", "CRC32", "HMAC", "DUMMY"])
async def test_a_thousand_entries_are_appended_closed_and_read_by_another_client(
    apache: ApacheBookkeeper, make_client: MakeClient, digest: str
) -> None:
    writer = await (await make_client(apache.boki_uri)).create(digest=digest, password=b"key")
    payloads = await append_all(writer, ENTRIES)
    assert await writer.close() == ENTRIES - 1
    other = await make_client(apache.boki_uri)
    assert writer.ledger_id in await other.list()
    reader = await other.open(writer.ledger_id, recover=False, password=b"key")
    assert (reader.closed, reader.last_entry) == (True, ENTRIES - 1)
    assert [bytes(entry) for entry in await reader.read(0, ENTRIES - 1)] == payloads


async def test_the_shell_of_apache_lists_shows_and_reads_a_ledger_of_ours(
    apache: ApacheBookkeeper, make_client: MakeClient
) -> None:
    writer = await (await make_client(apache.boki_uri)).create(custom={"made-by": b"boki"})
    await append_all(writer, 10)
    await writer.close()
    ledger = str(writer.ledger_id)
    listed = await asyncio.to_thread(apache.shell, "listledgers", "-m")
    assert f"ledgerId={ledger}," in listed
    shown = await asyncio.to_thread(apache.shell, "ledgermetadata", "-ledgerid", ledger)
    for fact in ("state=CLOSED", "lastEntryId=9", "ensembleSize=3", "ackQuorumSize=2", "digestType=CRC32C", "made-by"):
        assert fact in shown
    read = await asyncio.to_thread(apache.shell, "readledger", "-ledgerid", ledger, "-msg")
    assert all(f"entry {number} " in read for number in range(10))


async def test_recovery_fences_the_writer_and_keeps_what_was_acknowledged(
    apache: ApacheBookkeeper, make_client: MakeClient
) -> None:
    writer = await (await make_client(apache.boki_uri)).create()
    payloads = await append_all(writer, ENTRIES)
    other = await make_client(apache.boki_uri)
    reader = await other.open(writer.ledger_id, recover=True, floor=ENTRIES)
    assert (reader.closed, reader.last_entry) == (True, ENTRIES - 1)
    assert [bytes(entry) for entry in await reader.read(0, ENTRIES - 1)] == payloads
    metadata = await other.metadata_of(writer.ledger_id)
    assert (metadata.state, metadata.length) == (LedgerState.CLOSED, sum(map(len, payloads)))
    with pytest.raises(LedgerFenced):
        await writer.append(b"late")


async def test_a_killed_bookie_is_replaced_in_the_ensemble(apache: ApacheBookkeeper, make_client: MakeClient) -> None:
    client = await make_client(apache.boki_uri)
    writer = await client.create()
    first = await append_all(writer, 100)
    (_, ensemble), *_ = (await client.metadata_of(writer.ledger_id)).ensembles
    victim = next(bookie for bookie in apache.bookies if bookie.bookie_id == ensemble[0])
    await asyncio.to_thread(victim.kill)
    try:
        more = [payload_of(number) for number in range(100, 300)]
        done = listen(writer, 299)
        for payload in more:
            writer.submit(payload)
        await done
        assert await writer.close() == 299
        ensembles = (await client.metadata_of(writer.ledger_id)).ensembles
        assert len(ensembles) == 2
        assert victim.bookie_id not in ensembles[-1][1]
        assert ensembles[-1][0] <= 300
        reader = await (await make_client(apache.boki_uri)).open(writer.ledger_id, recover=False)
        assert [bytes(entry) for entry in await reader.read(0, 299)] == first + more
    finally:
        await asyncio.to_thread(apache.wait_until_unregistered, victim)
        victim.start()
        await asyncio.to_thread(apache.wait_until_registered, victim)


async def test_a_wrong_password_fences_nothing(apache: ApacheBookkeeper, make_client: MakeClient) -> None:
    client = await make_client(apache.boki_uri)
    writer = await client.create(password=b"right")
    await writer.append(b"one")
    with pytest.raises(Unauthorized):
        await client.open(writer.ledger_id, recover=True, password=b"wrong")
    assert await writer.append(b"two") == 1
    assert await writer.close() == 1


async def asked_unfenced(writer: LedgerWriter) -> bool:
    """Whether it is proven that nobody fenced the ledger; raises what ends the writer."""
    answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def ended(error: BokiError) -> None:
        if not answer.done():
            answer.set_exception(error)

    writer.when_ended(ended)
    assert writer.ask_unfenced(answer.set_result)
    return await answer


async def test_a_repeat_proves_that_nobody_fenced_until_another_client_recovers(
    apache: ApacheBookkeeper, make_client: MakeClient
) -> None:
    """Apache's bookies flush a repeat: on a slow disk some are late, which proves nothing. Late is not fenced."""
    writer = await (await make_client(apache.boki_uri)).create()
    payloads = await append_all(writer, 100)
    proven = 0
    for _ in range(50):
        proven += sum(await asyncio.gather(*(asked_unfenced(writer) for _ in range(10))))
        if proven >= 20:
            break
    assert proven >= 20
    payloads.append(b"one more")
    assert await writer.append(payloads[-1]) == 100
    other = await make_client(apache.boki_uri)
    reader = await other.open(writer.ledger_id, recover=True)
    assert (reader.closed, reader.last_entry) == (True, 100)
    assert [bytes(entry) for entry in await reader.read(0, 100)] == payloads
    with pytest.raises(LedgerFenced):
        assert not await asked_unfenced(writer), "no bookie of a quorum takes it any more"
        await writer.append(b"late")
    assert isinstance(writer.failed, LedgerFenced)
    assert not writer.ask_unfenced(lambda _: None)
