"""What Apache's client does over v3 alone: explicit LAC, long polls, force, lists of held entries, bookie info.

Each on our bookies and on Apache's, with the same expectations: ours answer as the real ones do.
"""

from __future__ import annotations

import asyncio
from typing import Final

from itests.bookkeeper.both_kinds import BothKinds
from itests.bookkeeper.clients import TIMEOUT_S, JavaClient, JavaReader, JavaWriter, OurClient, Placement, until
from itests.bookkeeper.java_service import JavaError, JavaService
from itests.bookkeeper.marks import SHARED

pytestmark = SHARED

ENTRIES: Final = [f"entry {number}" for number in range(10)]
LAST: Final = len(ENTRIES) - 1
POLL_MS: Final = 200


async def followed(
    java: JavaService, placement: Placement, entries: list[str], protocol: str = "v3"
) -> tuple[JavaWriter, JavaReader]:
    """A ledger that is being written and has these entries, and who reads it meanwhile."""
    client = JavaClient(java, protocol)
    writer = await client.create(placement, "CRC32C")
    await writer.append(entries)
    return writer, await client.open(writer.ledger_id, "CRC32C", recover=False)


async def test_an_idle_writer_sends_its_lac(java: JavaService, placement: Placement) -> None:
    writer, reader = await followed(java, placement, ENTRIES, "v3 with explicit LAC")
    assert reader.last < LAST, "the LAC in the entries lags behind, or nothing is shown"
    await until(lambda: java("read explicit lac", handle=reader.handle), lambda lac: lac == LAST)
    assert await reader.read(0, LAST) == ENTRIES
    await writer.close()


async def test_a_long_poll_is_answered_by_the_entry_it_waits_for(java: JavaService, placement: Placement) -> None:
    # A bookie that does not know the ledger answers at once that it did not.
    writer, reader = await followed(java, placement, ["zero"])
    poll = asyncio.create_task(java("poll", handle=reader.handle, entry=1, wait_ms=30_000))
    await writer.append(["one"])
    await writer.append(["two, with the LAC of one"])
    async with asyncio.timeout(TIMEOUT_S):
        found = await poll
    assert found["lac"] >= 1
    assert found["entry"] == "one"
    await writer.close()


async def test_a_long_poll_of_an_idle_ledger_ends_at_its_time_out(java: JavaService, placement: Placement) -> None:
    writer, reader = await followed(java, placement, ["one"])
    started = asyncio.get_running_loop().time()
    found = await java("poll", handle=reader.handle, entry=0, wait_ms=POLL_MS)
    assert asyncio.get_running_loop().time() - started > POLL_MS / 2_000
    assert found == {"lac": -1, "entry": None}
    await writer.close()


async def test_a_writer_with_deferred_sync_forces_and_closes(
    java: JavaService, both_kinds: BothKinds, placement: Placement
) -> None:
    client = JavaClient(java, "v3")
    writer = await client.create(placement, "CRC32C", deferred=True)
    await writer.append(ENTRIES)
    await java("force", ledger=writer.ledger_id)
    await writer.append(["not forced"])
    async with OurClient(both_kinds.store, "v2") as ours:
        tail = await ours.open(writer.ledger_id, "CRC32C", recover=False)
        assert await tail.read_lac() >= LAST
        await java("force", ledger=writer.ledger_id)
        await writer.close()
        reader = await ours.open(writer.ledger_id, "CRC32C", recover=False)
        assert await reader.read(0, reader.last) == [*ENTRIES, "not forced"]


async def test_every_bookie_lists_the_entries_it_holds(java: JavaService, placement: Placement) -> None:
    """Two of three are enough for an acknowledgement: the third may lack entries when the writer has closed."""
    writer = await JavaClient(java, "v3").create(placement, "CRC32C")
    await writer.append(ENTRIES)
    await writer.close()

    async def held(bookie: str) -> list[int]:
        try:
            found: list[int] = await java("held", protocol="v3", ledger=writer.ledger_id, bookie=bookie)
        except JavaError as error:
            if error.kind != "BKNoSuchLedgerExistsException":
                raise
            return []
        return found

    lists = [await held(bookie) for bookie in placement.ensemble]
    assert sorted(lists, key=len)[1:] == [list(range(len(ENTRIES)))] * 2
    assert all(entries == sorted(set(entries)) and set(entries) <= set(range(len(ENTRIES))) for entries in lists)


async def test_unconfirmed_entries_are_read(java: JavaService, placement: Placement) -> None:
    writer, reader = await followed(java, placement, ENTRIES)
    found = await java("read unconfirmed", handle=reader.handle, first=0, last=LAST)
    assert found == ENTRIES
    await writer.close()


async def test_every_bookie_reports_its_free_space(java: JavaService, both_kinds: BothKinds) -> None:
    found = await java("bookie info", protocol="v3")
    assert set(found) == {*both_kinds.ours, *both_kinds.theirs}
    assert all(0 < free <= total for free, total in found.values())
