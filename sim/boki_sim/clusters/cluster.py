"""A cluster of unmodified roles in simulated processes: bookies, sequencers, engines; each on a machine of its own.

A node is a machine and the role on it. Its process is started again, some seconds later, whenever it ends: by a fault, by an
error of its own, or because its `failed` is done. A role that ends with anything but a `BokiError` is a violation.

This is what `boki_cli.roles` is for real processes: the same constructors, with simulated ports.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - the type; the generators come from the seed
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final

import boki
from boki_bookie.bookie import Bookie
from boki_common.bookkeeper.layout import init_cluster
from boki_common.errors import BokiError
from boki_common.metadata.memory import MemoryStore
from boki_common.net.connection import Address
from boki_common.runtime.memory_disk import MemoryDisk
from boki_ledger.client import LedgerClient
from boki_ledger.repair.settings import Mode, RepairLimits
from boki_logbook.engine import Engine
from boki_logbook.index.index_files import IndexFiles
from boki_metalog.control.controller import Controller, Duty
from boki_metalog.control.log_changes import ensure_logs
from boki_metalog.control.policies import RollWritten, default_policies
from boki_metalog.sequencer.sequencer import Sequencer
from boki_metalog.settings import ControllerSettings
from boki_sim.clusters.cluster_tokens import NO_PLAN, TokenFiles, TokenPlan, client_of
from boki_sim.clusters.invariants import Invariants
from boki_sim.clusters.shape import Shape, names
from boki_sim.outcome import Outcome
from boki_sim.world.disk import DiskPlan
from boki_sim.world.errors import SimulationError
from boki_sim.world.guard import EPOCH_S
from boki_sim.world.loop import START_S, SimLoop
from boki_sim.world.metadata import ObservedTree, SimStore
from boki_sim.world.network import Network
from boki_sim.world.process import SimProcess
from boki_sim.world.randomness import SimRandom, stream
from boki_sim.world.steps import Steps
from boki_sim.world.trace import Trace

ENGINE_PORT: Final = 7040
QUICK_REPAIR: Final = RepairLimits(grace_s=1.0, bytes_per_s=0, round_s=0.3, scan_s=3.0)
"""Copies are made anew within a run."""
PORTS: Final = {"bookie": 3181, "sequencer": 7041, "engine": ENGINE_PORT, "controller": 7042}
"""Where roles of each kind listen."""
INDEX_FILE_ROWS: Final = 32
"""Of an index in files, a run of so many rows goes to one."""
UP_S: Final = 60
RETIRED_TEXTS: Final = ("was drained and is retired", "it was retired, or is foreign")
"""In what a bookie ends with that is not needed any more."""
RESTART_S: Final = (0.2, 2.0)
"""A role that ended by itself is started again after a pause between these."""


Role = Bookie | Sequencer | Engine | Controller


def new_disk(name: str) -> MemoryDisk:
    """An empty one of a machine: what a flush fails to write is lost, as with Linux."""
    disk = MemoryDisk(f"/{name}")
    disk.forgets_failed = True
    return disk


class SimClock:
    """The port `MachineClock` of one process; `skew_ms` is how wrong it is, `rate` how fast all clocks are beside virtual time."""

    def __init__(self, loop: SimLoop, rate: float = 1.0) -> None:
        self.skew_ms = 0
        self._loop = loop
        self._rate = rate

    def now_ms(self) -> int:
        return int((EPOCH_S + self._rate * self._loop.now) * 1000) + self.skew_ms

    def elapsed_s(self) -> float:
        return self._rate * self._loop.now


class Node:
    """A machine and its role.

    Attributes:
        process: the newest incarnation, perhaps dead.
        held: faults that keep it from being started again.
        role: the running role, None while it is down.
        ledgers: its ledger client, for sequencers and engines.
        plan: what becomes of its disk operations.
        ends: why it ended by itself, newest last.
    """

    def __init__(self, name: str, host: str, clock: SimClock, numbers: random.Random, *, has_disk: bool) -> None:
        self.name = name
        self.kind = name.partition("-")[0]
        self.host = host
        self.clock = clock
        self.numbers = numbers
        self.incarnation = 0
        self.incarnation_name = name
        self.process: SimProcess | None = None
        self.store: SimStore | None = None
        self.disk: MemoryDisk | None = new_disk(name) if has_disk else None
        self.plan: DiskPlan | None = None
        self.ledgers: LedgerClient | None = None
        self.main: asyncio.Task[None] | None = None
        self.role: Role | None = None
        self.held = 0
        self.ends: list[str] = []

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive


class Cluster:
    """See the module. `start` before anything else."""

    def __init__(
        self,
        loop: SimLoop,
        seed: int,
        shape: Shape,
        network: Network,
        trace: Trace,
        invariants: Invariants,
        token: TokenPlan = NO_PLAN,
    ) -> None:
        self.loop = loop
        self.seed = seed
        self.shape = shape
        self.network = network
        self.trace = trace
        self.invariants = invariants
        self.tree = ObservedTree(invariants.metadata_changed)
        self.steps = network.steps = Steps(loop)
        network.roles = {PORTS[kind]: kind for kind in ("bookie", "sequencer", "engine")}
        self.tokens = TokenFiles(loop, token, stream(seed, "token files"), trace)
        self.strangers_refused: Counter[str] = Counter()
        """What strangers sent and how they were refused → how often."""
        self._past_work = 0
        self._running: dict[SimProcess, Node] = {}
        self.nodes: dict[str, Node] = {}
        self._places = iter(range(1, 200))
        counts = (shape.bookies, shape.sequencers, shape.engines, shape.controllers)
        for role, count in zip(PORTS, counts, strict=True):
            for name in names(role, count):
                clock = SimClock(loop, shape.clock_rate)
                has_disk = role == "bookie" or (role == "engine" and shape.index_files)
                numbers = stream(seed, "node", name)
                self.nodes[name] = Node(name, self.machine(), clock, numbers, has_disk=has_disk)

    def machine(self) -> str:
        """The address of one more machine."""
        return f"10.0.0.{next(self._places)}"

    @property
    def url(self) -> str:
        """For `boki.connect`."""
        return ",".join(f"boki://{node.host}:{ENGINE_PORT}" for node in self.of("engine"))

    def client(self, url: str = "", *, timeout: float | None = None) -> boki.Client:
        """As `boki.connect`, with the token of the caller's machine."""
        return client_of(url or self.url, self.tokens, timeout=timeout)

    async def connected(self) -> boki.Client:
        """A client of the caller, as soon as an engine takes one."""
        while True:
            try:
                return await self.client()
            except BokiError:
                await asyncio.sleep(0.5)

    def store_of(self, process: SimProcess) -> SimStore:
        """A session of the metadata store, of a process."""
        numbers = stream(self.seed, "metadata", process.name)
        return SimStore(self.loop, self.tree, process, numbers, self.trace, self.shape.metadata_s, self.steps)

    def of(self, kind: str) -> list[Node]:
        return [node for node in self.nodes.values() if node.kind == kind]

    async def start(self) -> None:
        """Lays out the metadata, then starts every role."""
        store = MemoryStore(self.tree)
        await store.start()
        await init_cluster(store)
        await ensure_logs(store, self.shape.logs)
        await store.close()
        for node in self.nodes.values():
            self.start_node(node)

    async def up(self) -> None:
        """Waits until every role serves: nothing keeps them from it before faults begin."""
        for _ in range(UP_S):
            if all(node.role is not None for node in self.nodes.values()):
                return
            await asyncio.sleep(1)
        raise SimulationError(f"not all roles came up within {UP_S} s, without any fault")

    # -- life of a node

    def start_node(self, node: Node) -> None:
        if node.running:
            raise SimulationError(f"{node.name} runs already")
        node.incarnation += 1
        self._past_work += _work(node)
        node.incarnation_name = f"{node.name}#{node.incarnation}"
        process = self.loop.process(node.incarnation_name, node.host)
        node.process = process
        self._running[process] = node
        process.on_death.append(partial(self._down, node, process))
        self.network.power_on(node.host)
        node.store = self.store_of(process)
        if node.disk is not None:
            node.disk = node.disk.reopen()
            plan = DiskPlan(
                self.loop, process, stream(self.seed, "disk", process.name), self.trace,
                flush_s=self.shape.flush_s, other_s=self.shape.flush_s / 20, steps=self.steps,
            )  # fmt: skip
            slowness = 1.0 if node.plan is None else node.plan.slowness
            node.disk.plan = node.plan = plan
            node.disk.wait = plan.wait
            self.slow_disk(node, slowness)
        self.trace.add(process.name, "starts", "")
        mains = {"bookie": self._bookie, "sequencer": self._sequencer, "engine": self._engine}
        main = mains.get(node.kind, self._controller)
        node.main = process.start(self._run(node, process, main), name=node.name)

    def slow_disk(self, node: Node, slowness: float) -> None:
        """Its operations take so many times as long; 1.0: as the shape has it."""
        assert node.plan is not None
        assert node.disk is not None
        node.plan.slowness = slowness
        node.disk.quick = self.shape.quick_disks and slowness == 1.0

    def end_node(self, node: Node, *, power: bool = False) -> None:
        """Kills the process; with `power` the machine too: what was not flushed is gone or torn, and peers are not notified."""
        process = node.process
        if process is None:
            return
        if power:
            self.network.power_off(node.host)
        process.kill()
        self.gone(node, process)
        if node.disk is not None and power:
            node.disk = node.disk.crash(SimRandom(node.numbers))

    def gone(self, node: Node, process: SimProcess) -> None:
        """What is left to do when a node's process has died; it is started again unless a fault holds it."""
        self.trace.add(process.name, "ended", "")
        node.role = None
        node.ledgers = None
        if node.disk is not None:
            node.disk._holders.clear()  # the lock of a dead process
        if not node.held:
            self.restart_later(node, node.numbers.uniform(*RESTART_S))

    def _down(self, node: Node, process: SimProcess) -> None:
        del self._running[process]
        self.invariants.engine_gone(node.name)

    async def _run(self, node: Node, process: SimProcess, main: Callable[[Node], Awaitable[None]]) -> None:
        reason = ""
        try:
            await main(node)
        except BokiError as error:
            reason = f"{type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect of the role
            reason = f"{type(error).__name__}: {error}"
            self.invariants.violated("crash", f"{process.name} ended with {''.join(traceback.format_exception(error))}")
        self.loop.call_soon(self._ended, node, process, reason, context=self.loop.outside.context)

    def _ended(self, node: Node, process: SimProcess, reason: str) -> None:
        """The role ended by itself: the process exits and a supervisor starts it again."""
        if node.process is not process or not process.alive:
            return
        self.trace.add(process.name, "exits", reason)
        node.ends.append(reason)
        if any(text in reason for text in RETIRED_TEXTS):
            self._format_anew(node)
        process.kill()
        self.gone(node, process)

    def _format_anew(self, node: Node) -> None:
        """A person does what a retired bookie says: its disk becomes that of a new one. A drain left nothing on it."""
        if isinstance(node.role, Bookie):
            held = [
                ledger_id
                for ledger_id in node.role.storage.ledger_ids
                if node.role.storage.of(ledger_id).entry_ids(ledger_id)
            ]
            if held and node.role._drain.mark.empty:
                self.invariants.violated("1 drained", f"{node.name} was retired with entries of ledgers {held[:10]}")
        node.disk = new_disk(node.name)
        self.invariants.forget_disk(node.host)

    def restart_later(self, node: Node, seconds: float) -> None:
        def again() -> None:
            if not node.running and not node.held:
                self.start_node(node)

        self.loop.call_later(seconds, again, context=self.loop.outside.context)

    async def stop_node(self, node: Node) -> None:
        """Ends the role cleanly, in its own process."""
        process, role = node.process, node.role
        if process is None or not process.alive:
            return
        if role is not None:
            closing = process.start(self._close(role), name="clean stop")
            await asyncio.wait([closing], timeout=10)
        if process.alive and node.process is process:
            process.kill()
            self.gone(node, process)

    @staticmethod
    async def _close(role: Role) -> None:
        try:
            await role.close()
        except BokiError:
            pass  # it was ending anyway; the process is killed next

    # -- roles

    async def _bookie(self, node: Node) -> None:
        assert node.disk is not None and node.store is not None
        await node.store.start()
        node.role = bookie = await Bookie.start(
            disk=node.disk,
            metadata=node.store,
            address=Address(node.host, PORTS["bookie"]),
            clock=node.clock,
            rng=SimRandom(node.numbers),
            settings=self.shape.bookie,
            token=self.tokens.of(node.host),
        )
        raise await bookie.failed

    async def _ledger_client(self, node: Node) -> LedgerClient:
        assert node.store is not None
        await node.store.start()
        client = LedgerClient(
            metadata=node.store,
            rng=SimRandom(node.numbers),
            settings=self.shape.ledger,
            token=self.tokens.of(node.host),
        )
        await client.start()
        node.ledgers = client
        return client

    async def _sequencer(self, node: Node) -> None:
        ledgers = await self._ledger_client(node)
        assert node.store is not None
        node.role = sequencer = await Sequencer(
            metadata=node.store,
            ledgers=ledgers,
            clock=node.clock,
            rng=SimRandom(node.numbers),
            settings=self.shape.sequencer,
            token=self.tokens.of(node.host),
        ).start(Address(node.host, PORTS["sequencer"]))
        await sequencer.failed

    async def _engine(self, node: Node) -> None:
        ledgers = await self._ledger_client(node)
        assert node.store is not None
        node.role = engine = await Engine.start(
            metadata=node.store,
            ledgers=ledgers,
            addresses=[Address(node.host, ENGINE_PORT)],
            rng=SimRandom(node.numbers),
            settings=self.shape.engine_settings(int(node.name.rpartition("-")[2])),
            clock=node.clock,
            token=self.tokens.of(node.host),
        )
        if node.disk is not None:
            files = IndexFiles(node.disk, lambda: engine.core.state.index, least_rows=INDEX_FILE_ROWS)
            await files.start()
        await engine.failed

    async def _controller(self, node: Node) -> None:
        ledgers = await self._ledger_client(node)
        assert node.store is not None
        auditor = ledgers.auditor(QUICK_REPAIR)
        duties = [Duty("repair", lambda: auditor.run(Mode.OURS), auditor.status)] if self.shape.repairs else []
        node.role = controller = await Controller(
            metadata=node.store,
            ledgers=ledgers,
            rng=SimRandom(node.numbers),
            settings=ControllerSettings(repair_roll_s=2.0),
            policies=[*default_policies(), RollWritten(auditor.written)],
            duties=duties,
            token=self.tokens.of(node.host),
        ).start(Address(node.host, PORTS["controller"]))
        await controller.failed

    # -- for checks

    def report(self, outcome: Outcome, happened: Mapping[tuple[str, str], int]) -> None:
        """Fills in what is known of a run here. `happened`: (kind of fault, step that it met) → how often."""
        outcome.digest = self.trace.digest()
        outcome.happened = {f"{kind} × {doing}": count for (kind, doing), count in sorted(happened.items())}
        outcome.steps = dict(self.steps.counts)
        outcome.messages = self.network.frames + self._past_work + sum(map(_work, self.nodes.values()))
        outcome.callbacks = self.loop.callbacks
        outcome.looks = self.invariants.looks
        outcome.terms = len(self.invariants.terms) + 1
        outcome.virtual_s = self.loop.now - START_S
        outcome.trace = self.trace.lines()

    def look(self, moved: Iterable[SimProcess] | None = None) -> None:
        """Holds those that `moved` since the last look, or all, against the invariants."""
        self.trace.digest_pending()
        running = self._running
        nodes = [*running.values()] if moved is None else [running[process] for process in moved if process in running]
        if nodes:
            self.invariants.look(nodes, self.bookies, thorough=moved is None)

    def disks_at_hand(self) -> None:
        """From now on what is on a disk can be looked at without waiting."""
        for node in self.nodes.values():
            if node.disk is not None:
                node.disk.cached = True

    def bookies(self) -> dict[str, Bookie]:
        """Running ones, by machine."""
        return {node.host: node.role for node in self.of("bookie") if type(node.role) is Bookie and node.running}

    def engines(self) -> dict[str, Engine]:
        return {node.name: node.role for node in self.of("engine") if node.running and isinstance(node.role, Engine)}


def _work(node: Node) -> int:
    """What disk and metadata store did for the newest incarnation of a node."""
    return (0 if node.plan is None else node.plan.operations) + (0 if node.store is None else node.store.answers)
