"""One chaos run: a cluster of real roles on ZooKeeper, programs of all libraries, strikes for so long, and then the reckoning.

    found = await trial(directory, seconds=60, seed=7, say=print)
    found.faults                                    # sentences; none

A witness, which nothing strikes, follows all books from their beginning, so it sees each record before anything is trimmed. When the
strikes are over, everything runs; sellers and tellers end, all that was begun is brought to its end, and `checks` compares.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import boki
from boki_cli.demo.local_cluster import LocalCluster
from boki_common.errors import BokiError
from boki_common.net.lasting_ports import lasting_port
from bokiflow import Flow
from bokilib import Log
from bokirsm import Rsm
from bokirsm.model.events import PICKER
from examples.banking.app import BANK
from examples.supervisor import Supervisor, module_command
from itests.chaos import bank
from itests.chaos.app import BOOK, RAW, Shop, answered
from itests.chaos.checks import Last, Logged, Told, check
from itests.chaos.strikes import Strikes
from itests.support.processes import BOKI
from itests.support.zookeeper import ZookeeperServer

PROGRAMS: Final = {"work": 3, "sell": 2, "teller": 2, "web": 1, "bank": 3, "pay": 2}
LAST: Final = ("work", "gateway", "bank")
"""Programs that run until all that was begun has ended."""
TIMEOUT_S: Final = 10.0
BEGIN_S: Final = 120.0
SETTLE_S: Final = 180.0
"""Everything that was begun ends so long after the last strike."""
LOOK_EVERY_S: Final = 0.2
SAY_EVERY_S: Final = 2.0


class TrialResult(NamedTuple):
    """The result of a run.

    Attributes:
        did: how much of what callers were told. struck: by kind. faults: sentences; none.
    """

    did: dict[str, int]
    struck: Counter[str]
    faults: list[str]
    seconds: float


class Witness:
    """Reads all books as they grow."""

    def __init__(self, client: boki.Client) -> None:
        self.logged: Final = Logged()
        self.web: Final[list[tuple[int, str]]] = []
        self.bank: Final = bank.BankLogged()
        self.seen: Final[dict[str, int]] = {BOOK: 0, RAW: 0, bank.BOOK: 0}
        self.gaps: Final[list[str]] = []
        self._client = client
        self._following: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Witness:
        self._following = [asyncio.create_task(self.follow(name)) for name in self.seen]
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)

    async def follow(self, name: str) -> None:
        """Read one book, without end."""
        book = self._client.book(name)
        log = Log(book)
        while True:
            try:
                async for item in book.read(start=self.seen[name] + 1, follow=True):
                    if isinstance(item, boki.Gap):
                        self.gaps.append(f"the witness read a gap of {name}: {item}")
                        continue
                    if name == BOOK:
                        self.logged.take(item.seqnum, await log.open(item))
                    elif name == bank.BOOK:
                        self.bank.take(item.seqnum, list(PICKER.of(item.seqnum, await log.open(item))))
                    else:
                        self.web.append((item.seqnum, bytes(item.data).decode()))
                    self.seen[name] = item.seqnum
            except BokiError as error:
                if not error.retryable:
                    raise

    async def caught_up(self) -> None:
        """Wait until it has what is in the books now."""
        for name in self.seen:
            newest = await answered(partial(self._newest, name))
            while newest > self.seen[name]:
                for task in self._following:
                    if task.done():
                        task.result()
                await asyncio.sleep(LOOK_EVERY_S)

    async def _newest(self, name: str) -> int:
        book = self._client.book(name)
        await book.now(consistency="linearizable")
        record = await book.read_prev()
        return record.seqnum if record is not None else 0


async def trial(
    directory: Path, *, seconds: float = 60.0, seed: int = 1, say: Callable[[str], None] = lambda _: None
) -> TrialResult:
    """Run one; see the module. Raises ServerMissing: there is no ZooKeeper here."""
    began = perf_counter()
    zookeeper = await asyncio.to_thread(ZookeeperServer.start, directory / "zookeeper")
    programs = Supervisor(directory / "programs.log")
    try:
        async with (
            LocalCluster(
                directory, f"zk://{zookeeper.hosts}/boki", bookies=4, sequencers=3, engines=2, controllers=2
            ) as cluster,
            boki.connect(cluster.url, timeout=TIMEOUT_S) as client,
            Witness(client) as witness,
            Rsm(BANK, client.book(bank.BOOK)) as rsm,
        ):
            shop = await Shop.open(client.book(BOOK))
            await shop.fill()
            await bank.open_accounts(rsm)
            await _start(programs, cluster, directory)
            await _begun(directory)
            strikes = Strikes(cluster, programs, zookeeper, seed=seed, say=say)
            await strikes.run(seconds)
            say("the strikes are over: everything that was begun has to end")
            await programs.end(*(slot for slot in programs.slots if not slot.startswith(LAST)))
            told = _told(directory)
            last = await _settled(shop, witness, told, say)
            balances = await bank.balances(rsm)
            await witness.caught_up()
            await programs.end()
    finally:
        await programs.clear()
        zookeeper.stop()
    found = [*programs.faults, *witness.gaps, *check(told, witness.logged, witness.web, last)]
    found += bank.check(witness.bank, told.asked["pay"], told.outcomes, balances)
    did = {f"{what} acknowledged": len(ids) for what, ids in sorted(told.acknowledged.items())}
    did |= {"transfers": len(witness.bank.done)}
    did |= {"results told": len(told.results), "workflows": len(witness.logged.ends), "records": witness.logged.records}
    return TrialResult(did, strikes.count, found, perf_counter() - began)


async def _start(programs: Supervisor, cluster: LocalCluster, directory: Path) -> None:
    gateway = f"127.0.0.1:{lasting_port()}"
    port = gateway.rpartition(":")[2]
    served = [*BOKI, "gateway", "--url", cluster.url, "--metadata", cluster.metadata_uri, "--port", port]
    await programs.start("gateway-1", lambda _: [*served, "--stop-with-stdin"])
    for role, count in PROGRAMS.items():
        options = ["--role", role, "--notes", str(directory / "notes"), "--gateway", f"http://{gateway}"]
        for number in range(1, count + 1):
            await programs.start(f"{role}-{number}", module_command("itests.chaos.app", cluster.url, *options))


async def _begun(directory: Path) -> None:
    """Wait until each kind of caller was told something: a busy machine takes its time to start so many processes."""
    async with asyncio.timeout(BEGIN_S):
        while not {"push", "move", "web", "start", "pay"} <= _told(directory).acknowledged.keys():
            await asyncio.sleep(LOOK_EVERY_S)


def _told(directory: Path) -> Told:
    """What all processes wrote down; the last line of one that was killed may be cut short."""
    told = Told()
    for file in sorted(directory.glob("notes.*")):
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                told.take(line.rstrip("\n"))
    return told


async def _settled(shop: Shop, witness: Witness, told: Told, say: Callable[[str], None]) -> Last:
    """Bring to its end what was begun: send the signals of sellers that died, and wait; then read everything as a new program."""
    flow = Flow(shop.app, shop.log)
    deadline = perf_counter() + SETTLE_S
    for id in sorted({*told.asked["start"]} - {*told.acknowledged["signal"]}):
        if await answered(partial(flow.known, id)) is not None:
            value = f"address of {id.removeprefix('deliver/')}"
            await answered(partial(flow.handle(id).signal, "address", value))
    while True:
        waiting = (await answered(shop.orders.stats)).depth
        await witness.caught_up()
        logged = witness.logged
        running = logged.running()
        events = len(witness.bank.waiting)
        if (not waiting and not running and not events) or perf_counter() > deadline:
            break
        say(f"{waiting} orders wait, {len(running)} workflows run, {events} events of the bank wait")
        await asyncio.sleep(SAY_EVERY_S)
    names = sorted(logged.views)
    objects: dict[str, object] = {}
    for start in range(0, len(names), 256):
        some = names[start : start + 256]
        values = await answered(partial(shop.store.values, some, consistency="linearizable"))
        objects |= dict(zip(some, values, strict=True))
    await witness.caught_up()
    return Last(objects, waiting, running)
