"""Apache's shell on a cluster that ours laid out, with ledgers of our client on our bookies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest_asyncio

from itests.bookkeeper.both_kinds import BothKinds
from itests.bookkeeper.clients import OurClient, Placement, until
from itests.bookkeeper.marks import SHARED

pytestmark = SHARED

ENTRIES: Final = 10


async def shell(cluster: BothKinds, *arguments: str) -> str:
    return await asyncio.to_thread(cluster.apache.shell, *arguments)


async def of_one_bookie(cluster: BothKinds, ledger: str) -> str:
    which = ("-bookie", cluster.ours[1], "-firstentryid", "0", "-lastentryid", str(ENTRIES))  # without the last
    return await shell(cluster, "readledger", "-ledgerid", ledger, *which, "-msg")


def has_all(read: str) -> bool:
    return all(f"ours {number}." in read for number in range(ENTRIES))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ledger(both_kinds: BothKinds) -> AsyncIterator[str]:
    """A closed ledger of ten entries, without a password, as the shell opens it."""
    async with OurClient(both_kinds.store, "v2") as ours:
        placement = Placement(tuple(both_kinds.ours), both_kinds.theirs[1])
        writer = await ours.create(placement, "CRC32C", password="", custom={"made-by": b"boki"})
        await writer.append([f"ours {number}." for number in range(ENTRIES)])
        # Two of three acknowledged it; a close does not wait for the third.
        await until(lambda: of_one_bookie(both_kinds, str(writer.ledger_id)), has_all)
        await writer.close()
        yield str(writer.ledger_id)


async def test_it_lists_our_ledgers(both_kinds: BothKinds, ledger: str) -> None:
    listed = await shell(both_kinds, "listledgers", "-m")
    assert f"ledgerId={ledger}," in listed


async def test_it_shows_the_metadata(both_kinds: BothKinds, ledger: str) -> None:
    shown = await shell(both_kinds, "ledgermetadata", "-ledgerid", ledger)
    for fact in ("state=CLOSED", "lastEntryId=9", "ensembleSize=3", "ackQuorumSize=2", "digestType=CRC32C", "made-by"):
        assert fact in shown
    assert all(bookie in shown for bookie in both_kinds.ours)


async def test_it_reads_the_entries(both_kinds: BothKinds, ledger: str) -> None:
    assert has_all(await shell(both_kinds, "readledger", "-ledgerid", ledger, "-msg"))


async def test_it_reads_the_entries_of_one_bookie_of_ours(both_kinds: BothKinds, ledger: str) -> None:
    assert has_all(await of_one_bookie(both_kinds, ledger))


async def test_it_lists_bookies_of_both_kinds(both_kinds: BothKinds) -> None:
    listed = await shell(both_kinds, "listbookies", "-rw", "-h")
    assert all(bookie in listed for bookie in (*both_kinds.ours, *both_kinds.theirs))


async def test_it_asks_every_bookie_for_its_disk(both_kinds: BothKinds) -> None:
    found = await shell(both_kinds, "bookieinfo")
    assert all(bookie in found for bookie in both_kinds.ours)


async def test_its_simple_test_passes(both_kinds: BothKinds) -> None:
    found = await shell(
        both_kinds, "simpletest", "-ensemble", "6", "-writeQuorum", "3", "-ackQuorum", "2", "-numEntries", "100"
    )
    assert "100 entries written" in found
