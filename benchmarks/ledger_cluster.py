"""Everything that `benchmarks.ledger` measures, as processes: one ZooKeeper, bookies of ours, bookies of Apache's, a Java client.

    async with started(directory) as cluster:
        cluster.run_only("ours")                # the processes of all other sides are stopped (SIGSTOP)
        cluster.sides["ours"].bookies           # their process ids

A *side* is three bookies on a tree of their own: "ours" with the settings they are shipped with; "eager" and "default", Apache's
with and without `journalFlushWhenQueueEmpty`, otherwise alike. Only one side runs at a time, so that two cores are not shared with
what the others still have to flush. ZooKeeper keeps the sessions of the stopped: it grants 15 minutes.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from boki_cli.demo.local_cluster import LocalCluster
from boki_common.metadata.open import open_store
from boki_common.metadata.store import MetadataStore
from itests.bookkeeper.java_service import JavaService
from itests.support.apache_bookkeeper import ApacheBookkeeper, Tuning
from itests.support.java_server import find_java
from itests.support.zookeeper import ZookeeperServer, find_jars

SOURCE: Final = Path(__file__).parent / "java" / "LedgerBench.java"
OUR_SETTINGS: Final = {"BOKI_KEEP_CORES_AWAKE": "never"}
"""Of our bookies: a wish of theirs would hold for Apache's as well."""
BOOKIES: Final = 3
SESSION_MS: Final = 900_000
SETTLE_LOOK_S: Final = 0.2
SETTLE_LOOKS: Final = 10
SETTLED_SHARE: Final = 0.1
"""Of one processor, for the three bookies of a side together."""

BOOKIE_FLAGS: Final = (
    "-Xms256m",
    "-Xmx512m",
    "-XX:MaxDirectMemorySize=512m",
    "-XX:+UseG1GC",
    "-Dio.netty.leakDetectionLevel=disabled",
)
CLIENT_FLAGS: Final = ("-Xms512m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-Dio.netty.leakDetectionLevel=disabled")
BOOKIE_SETTINGS: Final = f"""\
ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage
dbStorage_writeCacheMaxSizeMb=128
dbStorage_readAheadCacheMaxSizeMb=64
dbStorage_rocksDB_blockCacheSize=33554432
journalMaxMemorySizeMb=64
journalMaxSizeMB=512
journalMaxBackups=1
logSizeLimit=268435456
gcWaitTime=30000
zkTimeout={SESSION_MS}
"""
"""As for a bookie of 1 GiB; log files, and so the disk that is used, as small as ours."""


@dataclass(slots=True)
class Side:
    """Three bookies on a tree of their own."""

    boki_uri: str
    apache_uri: str
    bookies: list[int]
    store: MetadataStore


class Processor(NamedTuple):
    """Seconds of processor time so far."""

    client_user: float
    client_system: float
    bookies_user: float
    bookies_system: float


@dataclass(slots=True)
class LedgerCluster:
    """See the module. Use `started`."""

    sides: dict[str, Side] = field(default_factory=dict)
    java: JavaService | None = None

    def run_only(self, side: str, *, java: bool) -> None:
        """Stops the processes of the other sides, and the Java client when it is not used."""
        wanted = set(self.sides[side].bookies)
        for pid in [one for other in self.sides.values() for one in other.bookies]:
            psutil.Process(pid).send_signal(signal.SIGCONT if pid in wanted else signal.SIGSTOP)
        if self.java is not None:
            psutil.Process(self.java.pid).send_signal(signal.SIGCONT if java else signal.SIGSTOP)

    async def settle(self, side: str) -> None:
        """Waits, not for ever, until the bookies of a side are done with what the last measurement left them to do."""
        used = processor(self.sides[side].bookies)
        for _ in range(SETTLE_LOOKS):
            await asyncio.sleep(SETTLE_LOOK_S)
            before, used = used, processor(self.sides[side].bookies)
            busy = used.bookies_user + used.bookies_system - before.bookies_user - before.bookies_system
            if busy <= SETTLED_SHARE * SETTLE_LOOK_S:
                return

    def run_all(self) -> None:
        for pid in [one for side in self.sides.values() for one in side.bookies]:
            psutil.Process(pid).send_signal(signal.SIGCONT)
        if self.java is not None:
            psutil.Process(self.java.pid).send_signal(signal.SIGCONT)

    def resident_mb(self, side: str) -> float:
        """Of one bookie, on average."""
        resident = [float(psutil.Process(pid).memory_info().rss) for pid in self.sides[side].bookies]
        return sum(resident) / len(resident) / 1e6


def processor(bookies: list[int]) -> Processor:
    """Of this process, and of these bookies together."""
    here = psutil.Process().cpu_times()
    there = [psutil.Process(pid).cpu_times() for pid in bookies]
    return Processor(here.user, here.system, sum(one.user for one in there), sum(one.system for one in there))


@asynccontextmanager
async def started(directory: Path) -> AsyncIterator[LedgerCluster]:
    """Starts everything. Raises ServerMissing, RoleFailed."""
    zookeeper = await asyncio.to_thread(_start_zookeeper, directory / "zookeeper")
    apaches: list[ApacheBookkeeper] = []
    cluster = LedgerCluster()
    stores: list[MetadataStore] = []
    try:
        ours = _apache(apaches, zookeeper, "ours", directory, Tuning(CLIENT_FLAGS, ""))
        async with LocalCluster(
            directory / "ours", ours.boki_uri, bookies=BOOKIES, sequencers=0, engines=0, settings=OUR_SETTINGS
        ) as local_cluster:
            cluster.sides["ours"] = await _side(ours, list(local_cluster.pids.values()), stores)
            for name, eager in (("eager", "true"), ("default", "false")):
                tuning = Tuning(BOOKIE_FLAGS, f"{BOOKIE_SETTINGS}journalFlushWhenQueueEmpty={eager}\n")
                apache = _apache(apaches, zookeeper, name, directory, tuning)
                await asyncio.to_thread(apache.format)
                bookies = await asyncio.to_thread(apache.start_bookies, BOOKIES)
                cluster.sides[name] = await _side(apache, [bookie.pid for bookie in bookies], stores)
            cluster.java = await JavaService.start(ours, SOURCE)
            try:
                yield cluster
            finally:
                cluster.run_all()  # what is stopped cannot end
                await cluster.java.close()
                for store in stores:
                    await store.close()
    finally:
        for apache in apaches:
            apache.close()
        zookeeper.kill()


def _start_zookeeper(folder: Path) -> ZookeeperServer:
    server = ZookeeperServer(find_java(), find_jars(), folder, "127.0.0.1")
    folder.mkdir(parents=True)
    (folder / "zoo.cfg").write_text(
        f"tickTime=2000\ndataDir={folder / 'data'}\nclientPort={server.port}\nclientPortAddress=127.0.0.1\n"
        f"minSessionTimeout={SESSION_MS}\nmaxSessionTimeout={SESSION_MS}\n"
        "admin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr\n"
    )
    server.restart()
    return server


def _apache(
    made: list[ApacheBookkeeper], zookeeper: ZookeeperServer, name: str, directory: Path, tuning: Tuning
) -> ApacheBookkeeper:
    one = ApacheBookkeeper.prepare(zookeeper.hosts, f"/{name}", directory / f"apache-{name}", tuning)
    made.append(one)
    return one


async def _side(apache: ApacheBookkeeper, bookies: list[int], stores: list[MetadataStore]) -> Side:
    store = open_store(apache.boki_uri)
    await store.start()
    stores.append(store)
    return Side(apache.boki_uri, apache.apache_uri, bookies, store)
