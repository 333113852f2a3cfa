"""What our client does over v3 besides adds and reads, on our bookies and on Apache's, and what Java makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import pytest
import pytest_asyncio

from itests.bookkeeper.both_kinds import BothKinds
from itests.bookkeeper.clients import JavaClient, OurClient, Placement
from itests.bookkeeper.java_service import JavaService

pytestmark = [
    pytest.mark.bookkeeper,
    pytest.mark.processes,
    pytest.mark.zookeeper,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(60),
]

ENTRIES: Final = [f"entry {number}" for number in range(10)]
LAST: Final = len(ENTRIES) - 1
PATIENCE_S: Final = 20.0

T = TypeVar("T")


async def until(ask: Callable[[], Awaitable[T]], wanted: Callable[[T], bool]) -> T:
    """Asks until the answer is as wanted: what is awaited happens by itself, and nobody tells when."""
    async with asyncio.timeout(PATIENCE_S):
        while not wanted(found := await ask()):
            pass
    return found


@pytest.fixture(params=["ours", "Apache's", "both kinds"])
def placement(request: pytest.FixtureRequest, both_kinds: BothKinds) -> Placement:
    ours, theirs = both_kinds.ours, both_kinds.theirs
    ensembles = {"ours": ours, "Apache's": theirs, "both kinds": [ours[1], theirs[1], theirs[2]]}
    return Placement(tuple(ensembles[request.param]), ours[2])


@pytest_asyncio.fixture(loop_scope="session", params=["v2", "v3"])
async def ours(request: pytest.FixtureRequest, both_kinds: BothKinds) -> AsyncIterator[OurClient]:
    """With v2 only what v2 has not goes over v3."""
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
    await writer.append(ENTRIES)
    reader = await ours.open(writer.ledger_id, "CRC32C", recover=False)
    await until(reader.read_lac, lambda lac: lac == LAST)
    assert await reader.read(0, LAST) == ENTRIES
    await writer.close()
