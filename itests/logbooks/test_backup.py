"""A cluster is copied while it runs, as docs/operating.md says, and the copy is started beside it: real processes, appends all the time.

- Every append that was acknowledged before the copying began is in the copy, once; nothing is in it that was not sent.
- The copy takes new appends. The original goes on in the term it had: nothing of the copy reached its ledgers.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import boki
from boki_bookie.settings import BookieSettings
from boki_cli.demo.local_cluster import LocalCluster
from boki_cli.facts.backup import adopt_backup, check_backup
from boki_common.bookkeeper.layout import instance_id, list_ledgers
from boki_common.metadata.open import open_store
from boki_common.runtime.process import SystemRandom
from boki_metalog.terms.metadata_tree import read_view

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

BOOK = "orders"


class Appender:
    """Appends numbers one after another, and keeps what was sent and what was acknowledged."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.sent = 0
        self.acknowledged = 0
        self._waiting: list[tuple[int, asyncio.Event]] = []

    async def run(self) -> None:
        async with boki.connect(self._url) as client:
            book = client.book(BOOK)
            while True:
                self.sent += 1
                await book.append(b"%d" % self.sent, tags=[f"t/{self.sent % 3}"])
                self.acknowledged = self.sent
                for aim, reached in self._waiting:
                    if aim <= self.acknowledged:
                        reached.set()

    async def more(self, count: int = 20) -> None:
        """Waits until so many more are acknowledged."""
        reached = asyncio.Event()
        self._waiting.append((self.acknowledged + count, reached))
        await reached.wait()


@asynccontextmanager
async def appending(url: str) -> AsyncIterator[Appender]:
    appender = Appender(url)
    task = asyncio.ensure_future(appender.run())
    try:
        yield appender
    finally:
        task.cancel()
        await asyncio.wait([task])


async def numbers(url: str) -> list[int]:
    async with boki.connect(url) as client:
        return [int(item.data) async for item in client.book(BOOK).read() if isinstance(item, boki.Record)]


async def facts(cluster: LocalCluster) -> tuple[str, int, set[int]]:
    """Cluster id, term of log 0, ledgers."""
    store = open_store(cluster.metadata_uri, create=False)
    await store.start()
    try:
        view = (await read_view(store)).view
        return await instance_id(store), view.term_of(0), set(map(int, await list_ledgers(store)))
    finally:
        await store.close()


def copy_metadata(directory: Path, to: Path) -> None:
    to.mkdir()
    for path in directory.glob("metadata.db*"):
        shutil.copy(path, to)


async def copy(cluster: LocalCluster, to: Path) -> None:
    """The order of docs/operating.md."""
    cluster.pause(*cluster.roles_of("sequencer"))
    bookies = cluster.roles_of("bookie")
    others = [name for name in cluster.roles if name not in (*cluster.roles_of("sequencer"), *bookies)]
    cluster.pause(*others, *bookies)  # a file of SQLite is copied as of one moment, too
    await asyncio.to_thread(copy_metadata, cluster.directory, to)
    cluster.resume(*others, *bookies)
    for name in bookies:
        cluster.pause(name)
        await asyncio.to_thread(shutil.copytree, cluster.directory / name, to / name)
        cluster.resume(name)
    cluster.resume(*cluster.roles_of("sequencer"))


async def test_a_copy_of_a_running_cluster_has_all_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    to = tmp_path / "copy"
    async with AsyncExitStack() as stack:
        original = await stack.enter_async_context(LocalCluster(tmp_path / "original"))
        appender = await stack.enter_async_context(appending(original.url))
        await appender.more(200)
        before = appender.acknowledged
        await copy(original, to)
        after = appender.sent
        await appender.more()
        rng, settings = SystemRandom(), BookieSettings()
        report = await check_backup(to, None, rng=rng, settings=settings)
        assert report.faults == [] and len(report.bookies) == 3 and report.sessions > 0, report
        adopted = await adopt_backup(to, None, rng=rng, settings=settings)
        assert adopted.faults == [] and adopted.sessions == 0 and adopted.cluster != report.cluster
        assert (await adopt_backup(to, None, rng=rng, settings=settings)).faults == [], "it may be run again"
        cluster, term, ledgers = await facts(original)
        restored = await stack.enter_async_context(LocalCluster(to))
        found = await numbers(restored.url)
        assert found[:before] == list(range(1, before + 1)) and found == sorted(set(found))
        assert found[-1] <= after, "nothing was invented"
        async with boki.connect(restored.url) as client:
            await client.book(BOOK).append_many([(b"%d" % (10**6 + at), []) for at in range(50)])
        assert await numbers(restored.url) == [*found, *range(10**6, 10**6 + 50)]
        await appender.more()
        assert (await facts(original))[:2] == (cluster, term), "nobody ended its term"
        other, _, made = await facts(restored)
        assert other != cluster and not (made - ledgers) & (await facts(original))[2] - ledgers
        seen = await numbers(original.url)
        assert seen[: appender.acknowledged] == list(range(1, len(seen) + 1))[: appender.acknowledged]
