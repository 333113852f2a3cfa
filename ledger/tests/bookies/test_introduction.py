"""The token between a ledger client and bookies: every pair of what is shown and what is asked for, in both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest

from boki_bookie.bookie import Bookie
from boki_bookie.settings import BookieSettings
from boki_common.bookkeeper import layout
from boki_common.cluster_token import NO_TOKEN, ClusterToken, parse
from boki_common.errors import Unauthenticated
from boki_common.ids import BookieId
from boki_common.limits import KIB, MIB
from boki_common.metadata.memory import MemoryStore, MemoryTree
from boki_common.net.connection import Address, FrameServer
from boki_common.runtime.memory_disk import MemoryDisk
from boki_common.runtime.process import SystemClock, SystemRandom
from boki_ledger.client import LedgerClient
from boki_ledger.settings import WIRE_V2, WIRE_V3, LedgerSettings

OLD, NEW = "a-token-of-the-cluster-01", "a-token-of-another-one-02"
SMALL: Final = BookieSettings(journal_segment_bytes=256 * KIB, entry_log_bytes=1 * MIB, write_cache_bytes=4 * MIB)


def held(*tokens: str) -> ClusterToken:
    return parse("\n".join(tokens), "test") if tokens else NO_TOKEN


class Cluster:
    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.stores: list[MemoryStore] = []
        self.bookies: list[Bookie] = []
        self.clients: list[LedgerClient] = []

    async def store(self) -> MemoryStore:
        store = MemoryStore(self.tree)
        await store.start()
        self.stores.append(store)
        return store

    async def start(self, *tokens: ClusterToken) -> None:
        """A bookie for each."""
        await layout.init_cluster(await self.store())
        for number, token in enumerate(tokens):
            bookie = await Bookie.start(
                disk=MemoryDisk(f"bookie {number}"),
                metadata=await self.store(),
                address=Address("127.0.0.1", 0),
                clock=SystemClock(),
                rng=SystemRandom(),
                settings=SMALL,
                token=token,
            )
            self.bookies.append(bookie)

    async def client(self, token: ClusterToken, **settings: object) -> LedgerClient:
        chosen = LedgerSettings(patience_s=5.0, **settings)  # type: ignore[arg-type]
        client = LedgerClient(metadata=await self.store(), rng=SystemRandom(), settings=chosen, token=token)
        await client.start()
        self.clients.append(client)
        return client

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        for bookie in self.bookies:
            await bookie.close()
        for store in self.stores:
            await store.close()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    yield made
    await made.close()


@pytest.mark.parametrize("protocol", [WIRE_V2, WIRE_V3])
@pytest.mark.parametrize(
    ("asked", "shown", "open_bookies", "refusal"),
    [
        ((), (), False, ""),
        ((), (OLD,), False, "to ask for the cluster token, found one, which answers as one without a token"),
        ((), (OLD,), True, ""),
        ((OLD,), (), False, "asks for a cluster token, and none was shown"),
        ((OLD,), (), True, "asks for a cluster token, and none was shown"),
        ((OLD,), (NEW,), False, "was shown one that is not valid there"),
        ((OLD,), (OLD,), False, ""),
        ((OLD, NEW), (NEW,), False, ""),
        ((OLD, NEW), (NEW, OLD), False, ""),
        ((OLD,), (NEW, OLD), False, "was shown one that is not valid there"),
    ],
)
async def test_who_is_let_in_writes_and_reads_and_who_is_not_is_told_at_once(
    cluster: Cluster, protocol: str, asked: tuple[str, ...], shown: tuple[str, ...], open_bookies: bool, refusal: str
) -> None:
    await cluster.start(held(*asked), held(*asked), held(*asked))
    client = await cluster.client(held(*shown), wire_protocol=protocol, bookies_without_token=open_bookies)
    if refusal:
        with pytest.raises(Unauthenticated, match=refusal) as no:
            await client.check_admitted()
        assert not no.value.retryable and OLD not in str(no.value) and NEW not in str(no.value)
        return
    await client.check_admitted()
    writer = await client.create()
    assert await writer.append(b"x") == 0
    await writer.close()
    reader = await client.open(writer.ledger_id, recover=True)
    assert [bytes(one) for one in await reader.read(0, 0)] == [b"x"]


async def test_one_bookie_that_lets_us_in_is_enough_to_begin(cluster: Cluster) -> None:
    await cluster.start(held(OLD), held(NEW), held(OLD))
    await (await cluster.client(held(OLD))).check_admitted()


async def test_bookies_that_do_not_answer_say_nothing(cluster: Cluster) -> None:
    await cluster.start()
    store = cluster.stores[0]
    service = layout.encode_bookie_service(layout.BookieService("127.0.0.1", 1))
    away = layout.bookie_path(BookieId("00000000-0000-4000-8000-000000000001"))
    await store.create(away, service, ephemeral=True)
    await (await cluster.client(held(OLD))).check_admitted()


class _Silent:
    def __init__(self, _: object) -> None:
        self.heard: list[bytes] = []

    def frames_received(self, frames: list[memoryview]) -> None:
        self.heard += map(bytes, frames)

    def connection_lost(self, error: object) -> None: ...


@pytest.mark.parametrize("allowed", [False, True])
async def test_where_there_is_a_token_apaches_bookie_is_used_only_if_told_so_without_it(
    cluster: Cluster, allowed: bool
) -> None:
    """Its id is its address; it knows no tokens."""
    await cluster.start()
    handlers: list[_Silent] = []

    def taking(connection: object) -> _Silent:
        handlers.append(_Silent(connection))
        return handlers[-1]

    server = await FrameServer.start(Address("127.0.0.1", 0), taking)
    service = layout.encode_bookie_service(layout.BookieService("127.0.0.1", server.address.port))
    apache = layout.bookie_path(BookieId(f"127.0.0.1:{server.address.port}"))
    await cluster.stores[0].create(apache, service, ephemeral=True)
    client = await cluster.client(held(OLD), bookies_without_token=allowed)
    if allowed:
        await client.check_admitted()
        assert [handler.heard for handler in handlers] == [[]]
    else:
        with pytest.raises(Unauthenticated, match=r"Apache's bookies have it: .*ledger\.bookies_without_token"):
            await client.check_admitted()
        assert not handlers
    await server.close()


async def test_tokens_are_exchanged_under_appends(cluster: Cluster) -> None:
    """Three steps, of bookies and client in any order within a step; connections are made anew after each."""
    bookies = [held(OLD) for _ in range(3)]
    mine = held(OLD)
    await cluster.start(*bookies)
    client = await cluster.client(mine)
    writer = await client.create()
    for step in ((OLD, NEW), (NEW, OLD), (NEW,)):
        for token in (*bookies[:2], mine, bookies[2]):
            token.renew(held(*step))
            fresh = await cluster.client(mine)
            await fresh.check_admitted()
            async with asyncio.timeout(30):
                await writer.append(b"x")
                assert await (await fresh.create()).append(b"y") == 0
    with pytest.raises(Unauthenticated):
        await (await cluster.client(held(OLD))).check_admitted()
