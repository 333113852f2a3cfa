"""For tests: a gateway on a cluster in memory, and a client that asks it over HTTP as any program would.

async with running_gateway(cluster, streams=1) as requester:
    reply = await requester.get("/v1/books/b/records/tail")
    assert reply.status == 200
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any, Final, NamedTuple

import aiohttp
import msgspec
from multidict import CIMultiDictProxy

from boki import Client
from boki.testing import MemoryCluster
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import BokiError
from boki_common.metrics import Metrics
from boki_common.net.connection import Address
from boki_gateway.calls.cluster_state import (
    BookieState,
    ClusterState,
    ControllerState,
    EngineLog,
    EngineState,
    LogState,
    SequencerState,
    SlotRange,
)
from boki_gateway.pages.pages import Page
from boki_gateway.server import Gateway
from boki_gateway.settings import GatewaySettings

ANY_PORT: Final = Address("127.0.0.1", 0)


class Facts:
    """A cluster that is what a test says.

    Attributes:
        state: what is answered. error: raised instead, when there is one. asked: how often it was asked.
    """

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.error: BokiError | None = None
        self.asked = 0

    async def collect(self) -> ClusterState:
        self.asked += 1
        if self.error is not None:
            raise self.error
        self.state.engines[0].records += 1_000
        if counts := self.state.engines[0].ack_counts:
            counts[4] += 10
        return copy.deepcopy(self.state)


def cluster_state() -> ClusterState:
    """Two logs, two engines of which one lags, a standby, a bookie that is down."""
    return ClusterState(
        engines=[
            EngineState(
                name="e1" * 16, address="127.0.0.1:7040", up=True, ready=True, logs=[
                    EngineLog(log=0, term=7, position=51_200, seqnum="240518219776", lag_entries=0),
                    EngineLog(log=1, term=6, position=9_000, seqnum="206158439208", lag_entries=0),
                ],
                records=1_204_331, books=812, lag_entries=0, index_bytes=48_000_000, cache_bytes=212_000_000, connections=9,
                ack_counts=[0] * 17,
            ),
            EngineState(
                name="e2" * 16, address="127.0.0.1:7140", up=True, ready=True, logs=[
                    EngineLog(log=0, term=7, position=50_900, seqnum="240518219476", lag_entries=14),
                    EngineLog(log=1, term=6, position=9_000, seqnum="206158439208", lag_entries=0),
                ],
                records=1_203_990, books=812, lag_entries=14, index_bytes=47_000_000, cache_bytes=98_000_000, connections=2,
            ),
        ],
        sequencers=[
            SequencerState(
                name="51" * 16, address="127.0.0.1:7041", up=True, log=0, term=7, entries=4_410, end_position=51_200,
                shards=2, subscribers=2,
            ),
            SequencerState(
                name="52" * 16, address="127.0.0.1:7141", up=True, log=1, term=6, entries=900, end_position=9_000,
                shards=2, subscribers=2,
            ),
            SequencerState(name="53" * 16, address="127.0.0.1:7241", up=True),
        ],
        bookies=[
            BookieState(
                name="b1" * 16, address="127.0.0.1:3181", up=True, free_bytes=412_000_000_000, total_bytes=960_000_000_000,
            ),
            BookieState(name="b2" * 16, address="127.0.0.1:3182", up=True, read_only=True),
            BookieState(
                name="b3" * 16, address="127.0.0.1:3183", up=False, problem="cannot connect to 127.0.0.1:3183: refused; is it up?"
            ),
        ],
        controllers=[ControllerState(name="c1" * 16, address="127.0.0.1:7042", up=True, leader=True)],
        logs=[
            LogState(log=0, slots=704, term=7, metalog_ledger=31, sequencer="51" * 16),
            LogState(log=1, slots=320, term=6, metalog_ledger=28, sequencer="52" * 16),
        ],
        slots=[SlotRange(0, 511, 0), SlotRange(512, 831, 1), SlotRange(832, 1023, 0)],
        faults=["bookie 127.0.0.1:3182 is read-only", "shard 4 of log 0: 2 of 3 copies", "bookie 127.0.0.1:3183 is down: refused"],
    )  # fmt: skip


class Reply(NamedTuple):
    """An answer of the gateway."""

    status: int
    body: Any
    headers: CIMultiDictProxy[str]


class Requester:
    """Asks one gateway; JSON in and out. `session` is kept when `remember` is set.

    Attributes:
        url, http: for what needs more. gateway, facts, client, metrics, cluster: what is behind it.
    """

    def __init__(self, gateway: Gateway, http: aiohttp.ClientSession, client: Client, facts: Facts, metrics: Metrics):
        self.gateway, self.http, self.client, self.facts, self.metrics = gateway, http, client, facts, metrics
        self.url = f"http://{gateway.address}"

    async def ask(
        self, method: str, path: str, body: object = None, *, data: bytes | None = None, **options: Any
    ) -> Reply:
        headers = dict(options.pop("headers", {}))
        if body is not None:
            data = msgspec.json.encode(body)
            headers.setdefault("Content-Type", "application/json")
        async with self.http.request(
            method, self.url + path, data=None if data is None else BytesIO(data), headers=headers, **options
        ) as answer:
            content = await answer.read()
            is_json = answer.content_type == "application/json"
            return Reply(answer.status, msgspec.json.decode(content) if is_json else content, answer.headers)

    async def get(self, path: str, **params: str) -> Reply:
        return await self.ask("GET", path, params=params)

    async def append(self, book: str, text: str, *tags: str, **more: Any) -> str:
        reply = await self.ask("POST", f"/v1/books/{book}/records", {"text": text, "tags": tags, **more})
        assert reply.status == 201, reply
        seqnum: str = reply.body["seqnum"]
        return seqnum


@asynccontextmanager
async def running_gateway(
    cluster: MemoryCluster,
    address: Address = ANY_PORT,
    allowed_hosts: Sequence[str] = (),
    token: ClusterToken = NO_TOKEN,
    pages: Sequence[Page] = (),
    **settings: Any,
) -> AsyncIterator[Requester]:
    usual: dict[str, Any] = {"status_every_s": 0.05, "call_timeout_s": 5.0}
    chosen = GatewaySettings(**usual | settings)
    client = await cluster.connect(timeout=chosen.call_timeout_s)
    facts, metrics = Facts(cluster_state()), Metrics()
    gateway = Gateway(
        client, facts, chosen, metrics, address=address, allowed_hosts=allowed_hosts, token=token, pages=pages
    )
    await gateway.listen()
    async with aiohttp.ClientSession() as http:
        try:
            yield Requester(gateway, http, client, facts, metrics)
        finally:
            await gateway.close()
            await gateway.close()
