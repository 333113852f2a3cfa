"""Either client does its part on ledgers of the other, on bookies of either kind and of both, over both protocols, all digests.

Writer × bookies × protocol × digest, the whole product. In each cell one client writes and the other does what it would do as
somebody else's peer: tails the open ledger, reads the closed one, recovers one whose writer is alive, reads one that lost
a bookie to the other kind, deletes them all. A cell takes a third of a second, as bookies and Java are started once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import pytest

from boki_common.bookkeeper.ledger_metadata import LedgerState
from itests.bookkeeper.both_kinds import BothKinds
from itests.bookkeeper.clients import Client, Deleted, Fenced, JavaClient, OurClient, Placement, Writer
from itests.bookkeeper.java_service import JavaService
from itests.bookkeeper.marks import SHARED

pytestmark = SHARED

WRITERS: Final = ("our client", "Java client")
BOOKIES: Final = ("ours", "Apache's", "two of ours", "two of Apache's")
PROTOCOLS: Final = ("v2", "v3")
DIGESTS: Final = ("CRC32C", "CRC32", "HMAC", "DUMMY")
ENTRIES: Final = 100
CELL_TIMEOUT_S: Final = 60.0


class Cell(NamedTuple):
    """Who writes and who is the other, and on what."""

    writer: Client
    other: Client
    placement: Placement
    digest: str
    ours: OurClient
    """Whichever it is, to look at metadata with."""

    async def create(self) -> Writer:
        return await self.writer.create(self.placement, self.digest)


def placed(bookies: str, cluster: BothKinds) -> Placement:
    """The first of the ensemble is behind a door; the spare is of the other kind, or of the one there is less of."""
    ours, theirs = cluster.ours, cluster.theirs
    return {
        "ours": Placement(tuple(ours), theirs[1]),
        "Apache's": Placement(tuple(theirs), ours[1]),
        "two of ours": Placement((ours[0], ours[1], theirs[1]), theirs[2]),
        "two of Apache's": Placement((theirs[0], theirs[1], ours[1]), ours[2]),
    }[bookies]


def texts(count: int, start: int = 0) -> list[str]:
    return [f"entry {number} " + "." * (number % 40) for number in range(start, start + count)]


@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("bookies", BOOKIES)
@pytest.mark.parametrize("writer", WRITERS)
async def test_each_client_does_its_part_on_ledgers_of_the_other(
    both_kinds: BothKinds, java: JavaService, writer: str, bookies: str, protocol: str, digest: str
) -> None:
    async with asyncio.timeout(CELL_TIMEOUT_S), OurClient(both_kinds.store, protocol) as ours:
        clients: tuple[Client, Client] = (ours, JavaClient(java, protocol))
        if writer == "Java client":
            clients = (clients[1], clients[0])
        cell = Cell(*clients, placed(bookies, both_kinds), digest, ours)
        try:
            ledgers = [
                await is_tailed_closed_and_read(cell),
                await is_recovered_under_its_writer(cell),
                await loses_a_bookie_to_the_other_kind(cell, both_kinds.shut_doors),
            ]
        finally:
            await both_kinds.open_doors()
        for ledger_id in ledgers:
            await cell.other.delete(ledger_id)
            with pytest.raises(Deleted):
                await cell.writer.open(ledger_id, digest, recover=False)


async def is_tailed_closed_and_read(cell: Cell) -> int:
    writer = await cell.create()
    metadata = await cell.ours.ledgers.metadata_of(writer.ledger_id)
    assert (metadata.ensembles, metadata.digest_type) == (((0, cell.placement.ensemble),), cell.digest)
    entries = texts(ENTRIES)
    await writer.append(entries)
    await writer.append(texts(1, ENTRIES))  # brings the LAC of all before
    tail = await cell.other.open(writer.ledger_id, cell.digest, recover=False)
    assert not tail.closed
    assert await tail.read_lac() >= ENTRIES - 1
    assert await tail.read(0, ENTRIES - 1) == entries
    await writer.append(texts(ENTRIES, ENTRIES + 1))
    await writer.append(texts(1, 2 * ENTRIES + 1))
    assert await tail.read_lac() >= 2 * ENTRIES
    assert await tail.read(ENTRIES, 2 * ENTRIES) == texts(ENTRIES + 1, ENTRIES)
    await writer.close()
    reader = await cell.other.open(writer.ledger_id, cell.digest, recover=False)
    assert (reader.closed, reader.last) == (True, 2 * ENTRIES + 1)
    assert await reader.read(0, reader.last) == texts(2 * ENTRIES + 2)
    return writer.ledger_id


async def is_recovered_under_its_writer(cell: Cell) -> int:
    writer = await cell.create()
    await writer.append(texts(ENTRIES))
    reader = await cell.other.open(writer.ledger_id, cell.digest, recover=True)
    assert (reader.closed, reader.last) == (True, ENTRIES - 1)
    assert await reader.read(0, reader.last) == texts(ENTRIES)
    with pytest.raises(Fenced):
        await writer.append(["late"])
    metadata = await cell.ours.ledgers.metadata_of(writer.ledger_id)
    assert (metadata.state, metadata.last_entry) == (LedgerState.CLOSED, ENTRIES - 1)
    assert metadata.length == sum(map(len, texts(ENTRIES)))
    return writer.ledger_id


async def loses_a_bookie_to_the_other_kind(cell: Cell, shut_doors: Callable[[], None]) -> int:
    writer = await cell.create()
    await writer.append(texts(ENTRIES))
    shut_doors()
    count = ENTRIES
    while len(ensembles := (await cell.ours.ledgers.metadata_of(writer.ledger_id)).ensembles) == 1:
        await writer.append(texts(1, count))
        count += 1
    await writer.append(texts(ENTRIES, count))
    await writer.close()
    lost, *kept = cell.placement.ensemble
    assert lost not in ensembles[-1][1]
    assert ensembles[-1][1] == (cell.placement.spare, *kept)
    reader = await cell.other.open(writer.ledger_id, cell.digest, recover=False)
    assert (reader.closed, reader.last) == (True, count + ENTRIES - 1)
    assert await reader.read(0, reader.last) == texts(count + ENTRIES)
    return writer.ledger_id
