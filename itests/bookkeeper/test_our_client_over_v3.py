"""What our client does besides plain adds and reads, on our bookies and on Apache's, and what Java makes of it.

With v2 only what v2 has not goes over v3: LACs, long polls, force.

Java's writer may never send its last LAC by itself: what it notes as sent is read anew after what it sends, so the LAC of an entry
that is acknowledged between the two goes with the next entry only. No reader can know better, so only the LAC of a writer's
first entry is waited for while it is idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from itests.bookkeeper.both_kinds import BothKinds
from itests.bookkeeper.clients import PASSWORD as PASSWORD_TEXT
from itests.bookkeeper.clients import TIMEOUT_S, JavaClient, OurClient, Placement, until
from itests.bookkeeper.java_service import JavaService
from itests.bookkeeper.marks import SHARED

pytestmark = SHARED

PASSWORD: Final = PASSWORD_TEXT.encode()
ENTRIES: Final = [f"entry {number}" for number in range(10)]
LAST: Final = len(ENTRIES) - 1


@pytest_asyncio.fixture(loop_scope="session", params=["v2", "v3"])
async def ours(request: pytest.FixtureRequest, both_kinds: BothKinds) -> AsyncIterator[OurClient]:
    async with OurClient(both_kinds.store, request.param) as client:
        yield client


async def test_the_lac_of_our_idle_writer_is_read_by_java_and_by_ours(
    java: JavaService, ours: OurClient, placement: Placement
) -> None:
    writer = await ours.create(placement, "CRC32C")
    await writer.append(ENTRIES)
    reader = await JavaClient(java, "v3").open(writer.ledger_id, "CRC32C", recover=False)
    await until(lambda: java("read explicit lac", handle=reader.handle), lambda lac: lac == LAST)
    assert await reader.read(0, LAST) == ENTRIES
    tail = await ours.open(writer.ledger_id, "CRC32C", recover=False)
    assert await tail.read_lac() == LAST
    assert await tail.read(0, LAST) == ENTRIES
    await writer.close()


async def test_the_lac_of_an_idle_java_writer_is_read_by_ours(
    java: JavaService, ours: OurClient, placement: Placement
) -> None:
    writer = await JavaClient(java, "v3 with explicit LAC").create(placement, "CRC32C")
    await writer.append(ENTRIES[:1])
    reader = await ours.open(writer.ledger_id, "CRC32C", recover=False)
    await until(reader.read_lac, lambda lac: lac == 0)
    assert await reader.read(0, 0) == ENTRIES[:1]
    await writer.close()


async def test_entries_of_a_java_writer_are_followed_to_the_end(
    java: JavaService, ours: OurClient, placement: Placement
) -> None:
    writer = await JavaClient(java, "v3 with explicit LAC").create(placement, "CRC32C")
    await writer.append(ENTRIES[:1])
    reader = await ours.ledgers.open(writer.ledger_id, recover=False, password=PASSWORD)
    tail = reader.follow(0, wait_s=5.0)
    async with asyncio.timeout(TIMEOUT_S):
        found = [await anext(tail)]  # the first entry of an idle writer comes too
        await writer.append(ENTRIES[1:2])
        for entry in ENTRIES[2:]:
            await writer.append([entry])
            found.append(await anext(tail))  # its LAC covers the entry before it, at least
        await writer.close()
        found += [one async for one in tail]
    assert [(number, bytes(payload).decode()) for number, payload in found] == list(enumerate(ENTRIES))


async def test_java_polls_the_entries_of_our_writer(java: JavaService, ours: OurClient, placement: Placement) -> None:
    writer = await ours.create(placement, "CRC32C")
    await writer.append(["zero"])
    reader = await JavaClient(java, "v3").open(writer.ledger_id, "CRC32C", recover=False)
    poll = asyncio.create_task(java("poll", handle=reader.handle, entry=1, wait_ms=30_000))
    await writer.append(["one"])  # the explicit LAC of the writer, idle then, ends the poll
    async with asyncio.timeout(TIMEOUT_S):
        found = await poll
    assert found == {"lac": 1, "entry": "one"}
    await writer.close()


async def test_what_is_acknowledged_with_deferred_sync_is_confirmed_by_a_force(
    java: JavaService, ours: OurClient, placement: Placement
) -> None:
    ours.place(placement)
    writer = await ours.ledgers.create(password=PASSWORD, deferred_sync=True)
    for entry in ENTRIES:
        await writer.append(entry.encode())
    assert (writer.last_acked, writer.lac) == (LAST, -1)
    assert await writer.force() == LAST
    reader = await JavaClient(java, "v3").open(writer.ledger_id, "CRC32C", recover=False)
    await until(lambda: java("read explicit lac", handle=reader.handle), lambda lac: lac == LAST)
    assert await reader.read(0, LAST) == ENTRIES
    await writer.close()


async def test_ids_that_the_caller_names_are_read_by_the_other(
    java: JavaService, ours: OurClient, placement: Placement
) -> None:
    ours.place(placement)
    writer = await ours.ledgers.create(password=PASSWORD, entry_ids="caller")
    backwards = list(reversed(list(enumerate(ENTRIES))))
    await asyncio.gather(*(writer.append_at(number, entry.encode()) for number, entry in backwards))
    await writer.close()
    reader = await JavaClient(java, "v3").open(writer.ledger_id, "CRC32C", recover=False)
    assert await reader.read(0, reader.last) == ENTRIES
    theirs = await JavaClient(java, "v3").create(placement, "CRC32C", advanced=True)
    await java("append at", ledger=theirs.ledger_id, entries=backwards)
    await theirs.close()
    opened = await ours.open(theirs.ledger_id, "CRC32C", recover=False)
    assert await opened.read(0, opened.last) == ENTRIES


async def test_entries_beyond_the_lac_are_shown_to_who_asks_for_unconfirmed_ones(
    java: JavaService, ours: OurClient, placement: Placement
) -> None:
    writer = await JavaClient(java, "v3").create(placement, "CRC32C")
    await writer.append(ENTRIES)
    reader = await ours.ledgers.open(writer.ledger_id, recover=False, password=PASSWORD)
    assert await reader.read_lac() < LAST
    found = await reader.read_unconfirmed(0, LAST)
    assert [bytes(entry).decode() for entry in found] == ENTRIES
    await writer.close()
