"""The token between a ledger client and bookies: every pair of what is shown and what is asked for, in both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.real_bookies import Cluster

from boki_common.bookkeeper import layout
from boki_common.cluster_token import NO_TOKEN, ClusterToken, parse
from boki_common.errors import Unauthenticated
from boki_common.ids import BookieId
from boki_common.net.connection import Address, FrameServer
from boki_ledger.settings import WIRE_V2, WIRE_V3, LedgerSettings

OLD, NEW = "a-token-of-the-cluster-01", "a-token-of-another-one-02"


UNHURRIED = LedgerSettings(retry_for_s=5.0)


def held(*tokens: str) -> ClusterToken:
    return parse("\n".join(tokens), "test") if tokens else NO_TOKEN


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Without bookies."""
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
async def test_who_is_admitted_writes_and_reads_and_who_is_not_is_refused_at_once(
    cluster: Cluster, protocol: str, asked: tuple[str, ...], shown: tuple[str, ...], open_bookies: bool, refusal: str
) -> None:
    await cluster.start(held(*asked), held(*asked), held(*asked))
    client = await cluster.client(
        LedgerSettings(retry_for_s=5.0, wire_protocol=protocol, bookies_without_token=open_bookies), held(*shown)
    )
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
    await (await cluster.client(UNHURRIED, held(OLD))).check_admitted()


async def test_bookies_that_do_not_answer_say_nothing(cluster: Cluster) -> None:
    await cluster.start()
    store = cluster.stores[0]
    service = layout.encode_bookie_service(Address("127.0.0.1", 1))
    away = layout.bookie_path(BookieId("00000000-0000-4000-8000-000000000001"))
    await store.create(away, service, ephemeral=True)
    await (await cluster.client(UNHURRIED, held(OLD))).check_admitted()


class _Silent:
    def __init__(self, _: object) -> None:
        self.frames: list[bytes] = []

    def frames_received(self, frames: list[memoryview]) -> None:
        self.frames += map(bytes, frames)

    def connection_lost(self, error: object) -> None: ...


@pytest.mark.parametrize("allowed", [False, True])
async def test_where_there_is_a_token_apaches_bookie_is_used_without_it_only_if_set(
    cluster: Cluster, allowed: bool
) -> None:
    """Its id is its address; it knows no tokens."""
    await cluster.start()
    handlers: list[_Silent] = []

    def taking(connection: object) -> _Silent:
        handlers.append(_Silent(connection))
        return handlers[-1]

    server = await FrameServer.start(Address("127.0.0.1", 0), taking)
    service = layout.encode_bookie_service(Address("127.0.0.1", server.address.port))
    apache = layout.bookie_path(BookieId(f"127.0.0.1:{server.address.port}"))
    await cluster.stores[0].create(apache, service, ephemeral=True)
    client = await cluster.client(replace(UNHURRIED, bookies_without_token=allowed), held(OLD))
    if allowed:
        await client.check_admitted()
        assert [handler.frames for handler in handlers] == [[]]
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
    client = await cluster.client(UNHURRIED, mine)
    writer = await client.create()
    for step in ((OLD, NEW), (NEW, OLD), (NEW,)):
        for token in (*bookies[:2], mine, bookies[2]):
            token.renew(held(*step))
            fresh = await cluster.client(UNHURRIED, mine)
            await fresh.check_admitted()
            async with asyncio.timeout(30):
                await writer.append(b"x")
                assert await (await fresh.create()).append(b"y") == 0
    with pytest.raises(Unauthenticated):
        await (await cluster.client(UNHURRIED, held(OLD))).check_admitted()
