"""The life of a connection to a bookie: how often it is made again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from boki_common.bookkeeper import layout
from boki_common.errors import BokiError
from boki_common.ids import BookieId
from boki_common.metadata.memory import MemoryStore
from boki_common.net.connection import FrameConnection
from boki_ledger.bookie_directory import BookieDirectory
from boki_ledger.link_life import LinkLife
from boki_ledger.testing.ledgers import QUICK, CountingRandom

BOOKIE = BookieId("proxied")
LEAST_S, MOST_S = 0.01, 0.08


class Stubborn:
    """A user that never gives up."""

    connection: FrameConnection | None = None
    idle = False

    def outstanding(self) -> bool:
        return False

    def link_up(self) -> None:
        pass

    def link_down(self, error: BokiError, *, known: bool) -> None:
        pass

    def take(self, frames: list[memoryview]) -> None:
        pass


async def test_a_proxy_that_accepts_and_hangs_up_is_tried_after_growing_pauses() -> None:
    loop = asyncio.get_running_loop()
    accepted: list[float] = []
    enough = asyncio.Event()

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(loop.time())
        writer.transport.abort()
        if len(accepted) == 6:
            enough.set()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    store = MemoryStore()
    await store.start()
    await layout.init_cluster(store, rng=CountingRandom())
    value = layout.encode_bookie_service(layout.BookieService("127.0.0.1", server.sockets[0].getsockname()[1]))
    await store.create(layout.bookie_path(BOOKIE), value, ephemeral=True)
    directory = BookieDirectory(store, retry_s=0.001)
    await directory.start()
    life = LinkLife(BOOKIE, Stubborn(), directory, replace(QUICK, retry_least_s=LEAST_S, retry_most_s=MOST_S))
    life.want()
    await enough.wait()
    assert accepted[-1] - accepted[-2] >= MOST_S, accepted
    await life.close(BokiError("the test is over"))
    await directory.close()
    server.close()
