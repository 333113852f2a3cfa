"""What a client is answered by a store in limbo, in both protocols: bodies that are held, else UNKNOWN_LEDGER_STATE, never a no."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.serve.requester import Requester, serving

from boki_bookie.storage.limbo import Limbo
from boki_common.bookkeeper import v2
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v3_messages import AddRequest, ListEntriesRequest, ReadLacRequest, ReadRequest
from boki_common.runtime.memory_disk import MemoryDisk

OK, UNKNOWN = V2Status.OK, V2Status.UNKNOWN_LEDGER_STATE
SALVAGED, LOST = 1, 2


@pytest.fixture(params=["in memory", "stored"])
async def client(world: Any, disk: MemoryDisk, request: pytest.FixtureRequest) -> AsyncIterator[Requester]:
    """Of a bookie that holds entries 0 and 2 of one ledger and nothing of another, both listed."""
    await world.format(disk)
    limbo = await Limbo.begin(disk, world.raw_id, {SALVAGED: True, LOST: True})
    storage = await world.open(disk, limbo=limbo)
    await world.put(storage, *(world.add(SALVAGED, entry, recovery=True) for entry in (0, 2)))
    if request.param == "stored":
        await storage.checkpoint()
    async with serving(storage, world, disk) as served:
        yield await served.connect()


@pytest.mark.parametrize("fencing", [False, True])
async def test_v2_reads(client: Requester, world: Any, fencing: bool) -> None:
    key = world.key if fencing else None
    found = await client.ask(v2.encode_read(SALVAGED, 2, fence_key=key))
    assert (found.status, found.body) == (OK, world.body(SALVAGED, 2))
    for ledger_id, entry_id in ((SALVAGED, 1), (SALVAGED, 3), (SALVAGED, -1), (LOST, 0), (LOST, -1), (77, 0)):
        assert (await client.ask(v2.encode_read(ledger_id, entry_id, fence_key=key))).status is UNKNOWN


async def test_a_batch_read_ends_before_what_is_unknown(client: Requester, world: Any) -> None:
    def ask(entry_id: int) -> bytes:
        return v2.encode_batch_read(SALVAGED, entry_id, request_id=1, max_count=10, max_bytes=100_000)

    found = await client.ask(ask(0))
    assert (found.status, list(found.bodies)) == (OK, [world.body(SALVAGED, 0)])
    assert (await client.ask(ask(1))).status is UNKNOWN


@pytest.mark.parametrize("fencing", [False, True])
async def test_v3_reads(client: Requester, world: Any, fencing: bool) -> None:
    key = world.key if fencing else None

    def read(ledger_id: int, entry_id: int) -> ReadRequest:
        return ReadRequest(1, None, ledger_id, entry_id, key, False, -1, 0)

    found = await client.ask_v3(read(SALVAGED, 2))
    assert (found.status, bytes(found.body), found.lac) == (OK, bytes(world.body(SALVAGED, 2)), None)
    for ledger_id, entry_id in ((SALVAGED, 1), (SALVAGED, 3), (SALVAGED, -1), (LOST, 0), (LOST, -1), (77, 0)):
        assert (await client.ask_v3(read(ledger_id, entry_id))).status is UNKNOWN


async def test_the_lac_the_list_of_entries_and_a_long_poll_are_unknown(client: Requester) -> None:
    for ledger_id in (SALVAGED, LOST, 77):
        assert (await client.ask_v3(ReadLacRequest(1, None, ledger_id))).status is UNKNOWN
        assert (await client.ask_v3(ListEntriesRequest(2, None, ledger_id))).status is UNKNOWN
        poll = ReadRequest(3, None, ledger_id, -1, None, True, 0, 60_000)
        assert (await client.ask_v3(poll)).status is UNKNOWN


async def test_normal_adds_are_fenced_and_recovery_adds_taken(client: Requester, world: Any) -> None:
    for ledger_id in (SALVAGED, LOST):
        for recovery, expected in ((False, V2Status.FENCED), (True, OK)):
            body = world.body(ledger_id, 4)
            add = AddRequest(1, None, ledger_id, 4, world.key, body, recovery, False)
            assert (await client.ask_v3(add)).status is expected
