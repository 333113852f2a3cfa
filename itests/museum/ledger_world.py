"""One seed of a cluster that has bookies and ledger clients only: what the protocol of ledgers promises, under faults.

The whole cluster of `boki_sim.run` spends most of its time above ledgers. Here nothing is above them, so that a second of
real time sees hundreds of recoveries that race a writer. The bookies, their disks, the network, the faults and the
invariants are the simulator's; only who uses the ledgers is ours:

- a *writer* (in the place of an engine) makes ledgers one after another, of several quorums, and appends bursts until it is
  fenced, fails, or closes the ledger itself;
- a *recoverer* (in the place of a sequencer) opens ledgers, most of them with recovery and while they are written, reads
  them, and notes where they end.

What is demanded, beside the simulator's invariants: a ledger has one end, for everybody and for ever; what a writer was told
is acknowledged lies below it and reads as it was written; nothing that was read vanishes; in the end every ledger can be
recovered and read.
"""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from boki_common import logs
from boki_common.errors import BokiError, Overloaded
from boki_common.limits import KIB
from boki_common.metadata.memory import MemoryStore
from boki_ledger.client import LedgerClient
from boki_ledger.read.reader import LedgerReader
from boki_ledger.write.writer import LedgerWriter
from boki_sim.clusters.cluster import Cluster, Node, SimClock
from boki_sim.clusters.invariants import Invariants, Violation
from boki_sim.clusters.shape import Shape, draw_shape
from boki_sim.faults.faults import Fault, Targets, draw
from boki_sim.nemesis.nemesis import Nemesis
from boki_sim.world.ending import uncollected
from boki_sim.world.errors import SimulationError
from boki_sim.world.guard import guarded
from boki_sim.world.loop import SimLoop
from boki_sim.world.network import Network, Weather
from boki_sim.world.randomness import SimRandom, stream
from boki_sim.world.trace import Trace

WORK_S: Final = 3.0
LOOK_EVERY_S: Final = 0.05
TIMEOUT_S: Final = 150.0
"""After healing, every ledger must be recovered and read within this."""
QUORUMS: Final = ((3, 2), (3, 2), (3, 2), (4, 2), (4, 3), (5, 3))
"""(copies, acks). Two acks at least and one copy more, as one disk may be damaged."""
RACES: Final = "races"
"""The profile of our own: many short faults, most of them between a client of ledgers and a bookie."""
AIMED: Final = "fencing"
"""The profile of `fence_race`, which brings its faults itself."""
_RACE_WEIGHTS: Final = {
    "reset": 8.0,
    "clog": 4.0,
    "isolate": 2.0,
    "pause": 3.0,
    "slow-link": 1.0,
    "slow-disk": 1.0,
    "kill": 1.0,
    "power": 1.0,
    "disk-error": 0.3,
    "flip-bits": 0.3,
    "lost-answer": 1.0,
    "delayed-write": 1.0,
    "cut-off": 0.5,
    "expire": 0.5,
}


@dataclass(slots=True)
class LedgerFacts:
    """The facts of one ledger that its users have seen."""

    acked: int = -1
    """What its writer was told."""
    read: int = -1
    """The newest entry that anybody read."""
    ends: dict[int, str] = field(default_factory=dict)
    """Where it ended → who was told so first."""


class LedgerCluster(Cluster):
    """See the module."""

    known: dict[int, LedgerFacts]
    writing: bool

    def begin(self) -> None:
        """Before `start`."""
        self.known = {}
        self.writing = True

    # -- writers

    async def _engine(self, node: Node) -> None:
        client = await self._ledger_client(node)
        numbers = stream(self.seed, "writer", node.name, node.incarnation)
        while self.writing:
            try:
                await self._write_one(node, client, numbers)
            except BokiError:
                await asyncio.sleep(numbers.uniform(0.02, 0.3))
        await asyncio.get_running_loop().create_future()

    async def _write_one(self, node: Node, client: LedgerClient, numbers: random.Random) -> None:
        copies, acks = numbers.choice(QUORUMS)
        writer = await client.create(replicas=copies, acks=min(acks, self.shape.bookies - 1))
        ledger_id = writer.ledger_id
        known = self.known.setdefault(ledger_id, LedgerFacts())
        failed = self.listen(writer, known)
        pause_s = numbers.choice((0.0, 0.002, 0.02))
        burst = numbers.choice((1, 4, 12))
        for _ in range(numbers.choice((2, 8, 25))):
            for _ in range(numbers.randrange(1, burst + 1)):
                try:
                    writer.submit(payload(ledger_id, writer.last_submitted + 1))
                except Overloaded:
                    break
            await asyncio.wait([failed], timeout=numbers.expovariate(1 / pause_s) if pause_s else 0.0005)
            if failed.done() or not self.writing:
                break
        if numbers.random() < 0.5:
            async with asyncio.timeout(20):
                self.ended(ledger_id, await writer.close(), f"{node.name}, which wrote it")
        else:
            writer.abandon()

    def listen(self, writer: LedgerWriter, known: LedgerFacts) -> asyncio.Future[None]:
        """Notes what a writer is told; the future is done when it failed."""
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        writer.listen(
            partial(self._acked, writer.ledger_id, known), lambda _: None if failed.done() else failed.set_result(None)
        )
        return failed

    def _acked(self, ledger_id: int, known: LedgerFacts, last_acked: int) -> None:
        known.acked = max(known.acked, last_acked)
        for end, who in known.ends.items():
            if last_acked > end:
                self.invariants.violated(
                    "1 acked",
                    f"entry {last_acked} of ledger {ledger_id} is acknowledged after {who} was told that it ends at {end}",
                )

    def ended(self, ledger_id: int, end: int, who: str) -> None:
        """Somebody was told where a ledger ends."""
        known = self.known[ledger_id]
        for other, first in known.ends.items():
            if other != end:
                self.invariants.violated(
                    "2 closed", f"ledger {ledger_id} ends at {other} for {first}, at {end} for {who}"
                )
        known.ends.setdefault(end, who)
        if known.acked > end:
            self.invariants.violated(
                "1 acked", f"{who} is told that ledger {ledger_id} ends at {end}, but {known.acked} was acknowledged"
            )
        if known.read > end:
            self.invariants.violated(
                "2 closed", f"{who} is told that ledger {ledger_id} ends at {end}, but {known.read} was read"
            )

    # -- recoverers

    async def _sequencer(self, node: Node) -> None:
        client = await self._ledger_client(node)
        numbers = stream(self.seed, "recoverer", node.name, node.incarnation)
        pause_s = numbers.choice((0.02, 0.1, 0.4))
        while True:
            await asyncio.sleep(numbers.expovariate(1 / pause_s))
            if not self.known or not self.writing:
                continue
            newest = sorted(self.known)[-4:]
            ledger_id = numbers.choice(newest)
            try:
                await self.read_ledger(client, ledger_id, node.name, recover=numbers.random() < 0.6)
            except BokiError:
                pass  # faults are at work; in the end it must succeed

    async def read_ledger(self, client: LedgerClient, ledger_id: int, who: str, *, recover: bool) -> None:
        """Opens it and reads what may be read."""
        reader = await client.open(ledger_id, recover=recover)
        try:
            if reader.closed:
                self.ended(ledger_id, reader.last_entry, who)
            elif not recover:
                await reader.read_lac()
            await self._read(reader, ledger_id, who)
        finally:
            await reader.close()

    async def _read(self, reader: LedgerReader, ledger_id: int, who: str) -> None:
        known = self.known[ledger_id]
        for first in range(0, reader.last_entry + 1, 64):
            last = min(first + 63, reader.last_entry)
            bodies = await reader.read(first, last)
            for entry, body in enumerate(bodies, first):
                if bytes(body) != payload(ledger_id, entry):
                    self.invariants.violated(
                        "1 content", f"{who} reads entry {entry} of ledger {ledger_id} as {bytes(body)[:40]!r}"
                    )
            known.read = max(known.read, last)
            for end, first_informed in known.ends.items():
                if last > end:
                    self.invariants.violated(
                        "2 closed",
                        f"{who} reads entry {last} of ledger {ledger_id}; {first_informed} was told that it ends at {end}",
                    )


def payload(ledger_id: int, entry: int) -> bytes:
    """What its writer writes there."""
    return f"{ledger_id}/{entry}/".encode().ljust(24 + entry % 7 * 40, b".")


def race_script(numbers: random.Random, targets: Targets, *, seconds: float) -> list[Fault]:
    """Faults of the profile `races`: each seed has its own mix and pace."""
    kinds = [kind for kind in _RACE_WEIGHTS if numbers.random() < 0.6] or ["reset"]
    weights = [_RACE_WEIGHTS[kind] * (0.2 + numbers.random()) for kind in kinds]
    gap_s = numbers.choice((0.03, 0.1, 0.3, 1.0))
    script: list[Fault] = []
    at = numbers.expovariate(1 / gap_s)
    while at < seconds:
        kind = numbers.choices(kinds, weights)[0]
        script.append(_race(numbers, at, kind, targets))
        at += numbers.expovariate(1 / gap_s)
    return script


def _race(numbers: random.Random, at: float, kind: str, targets: Targets) -> Fault:
    bookie = numbers.choice(targets.bookies)
    client = numbers.choice(targets.engines + targets.sequencers)
    seconds, amount, target = round(numbers.expovariate(1 / 0.3), 3), 0.0, bookie
    if kind in ("reset", "clog"):
        target = f"{client}>{bookie}" if kind == "reset" or numbers.random() < 0.5 else f"{bookie}>{client}"
    elif kind == "isolate":
        amount = float(numbers.randrange(3))
    elif kind == "pause":
        target = numbers.choice((bookie, client))
    elif kind in ("slow-link", "slow-disk"):
        amount = round(numbers.uniform(2, 50), 1)
    elif kind == "kill":
        target, amount = numbers.choice((bookie, bookie, client)), float(numbers.randrange(100))
    elif kind == "disk-error":
        amount = float(numbers.randrange(2))
    elif kind == "flip-bits":
        target, amount = targets.lossy, float(numbers.randrange(1, 20))
    elif kind in ("lost-answer", "delayed-write", "cut-off", "expire"):
        target, amount = client, float(numbers.randrange(1, 3))
    return Fault(round(at, 4), kind, target, seconds, amount)


def ledger_shape(seed: int) -> Shape:
    """Few, small and slow: what is in flight is much, what is stored is little."""
    numbers = stream(seed, "ledgers")
    pick = numbers.choice
    drawn = draw_shape(stream(seed, "shape"))
    return replace(
        drawn,
        bookies=pick((3, 3, 4, 5)),
        sequencers=2,
        engines=pick((1, 2)),
        controllers=0,
        logs=1,
        clients=1,
        bookie=replace(
            drawn.bookie,
            journal_segment_bytes=pick((16, 64)) * KIB,
            journal_spare_segments=1,
            write_cache_bytes=pick((64, 512)) * KIB,
            checkpoint_interval_s=pick((0.1, 0.5, 3.0)),
            disk_reserve_bytes=64 * KIB,
        ),
        weather=Weather(
            base_s=pick((0.000_3, 0.003)),
            tail_s=pick((0.001, 0.01, 0.03)),
            spike_chance=pick((0.0, 0.02, 0.1)),
            spike_s=pick((0.05, 0.3)),
        ),
        flush_s=pick((0.000_2, 0.002, 0.01)),
    )


@dataclass(slots=True)
class LedgerOutcome:
    """What became of one seed. It follows from seed, profile and script."""

    seed: int
    violations: list[str] = field(default_factory=list)
    script: list[Fault] = field(default_factory=list)
    ledgers: int = 0
    entries: int = 0
    digest: str = ""


def run_ledgers(
    seed: int,
    profile: str = RACES,
    *,
    script: Sequence[Fault] | None = None,
    work_s: float = WORK_S,
    kind: type[LedgerRun] | None = None,
) -> LedgerOutcome:
    """Runs one seed; `kind` is what is done, by default what this module says.

    Raises:
        SimulationError: an unknown profile.
    """
    outcome = LedgerOutcome(seed)
    with logs.configured(level="error", stream=io.StringIO()), uncollected():
        _go((LedgerRun if kind is None else kind)(seed, profile, script, work_s), outcome)
    return outcome


def _go(run: LedgerRun, outcome: LedgerOutcome) -> None:
    with guarded(run.loop, outcome.seed) as guard:
        try:
            run.loop.run_until_complete(run.scenario())
        except SimulationError as error:
            run.invariants.violated("simulation", f"{type(error).__name__}: {error}")
        finally:
            for fault in run.loop.faults:
                run.invariants.violated("crash", f"{fault.get('process')}: {fault.get('exception')!r}")
            for line in guard.refused:
                run.invariants.violated("machine", line)
            outcome.violations = [str(one) for one in run.invariants.violations]
            outcome.script = run.script
            outcome.ledgers = len(run.cluster.known)
            outcome.entries = sum(known.acked + 1 for known in run.cluster.known.values())
            outcome.digest = run.trace.digest()
            run.loop.end()


def _script(seed: int, profile: str, targets: Targets, seconds: float) -> list[Fault]:
    if profile == AIMED:
        return []
    numbers = stream(seed, "faults", profile)
    if profile == RACES:
        return race_script(numbers, targets, seconds=seconds)
    return draw(numbers, profile, targets, seconds=seconds)


class LedgerRun:
    """A cluster, and what is done to it. `scenario` is the whole run."""

    def __init__(self, seed: int, profile: str, script: Sequence[Fault] | None, work_s: float) -> None:
        shape = ledger_shape(seed)
        targets = shape.targets(stream(seed, "targets"))
        self.script = list(script) if script is not None else _script(seed, profile, targets, work_s)
        self.lossy = targets.lossy
        self.work_s = work_s
        self.seed = seed
        self.loop = SimLoop(seed)
        self.trace = Trace(self.loop, keep=False)
        network = Network(self.loop, seed, self.trace, shape.weather)
        self.invariants = Invariants(self.loop.time, self._found)
        self.cluster = LedgerCluster(self.loop, seed, shape, network, self.trace, self.invariants)
        self.cluster.begin()
        idle = self.loop.process("client-1", self.cluster.machine())
        self.nemesis = Nemesis(self.cluster, {idle.name: (idle, SimClock(self.loop))}, stream(seed, "nemesis"))

    def _found(self, violation: Violation) -> None:
        self.trace.add("check", "VIOLATION", str(violation))

    async def scenario(self) -> None:
        cluster = self.cluster
        await cluster.start()
        for _ in range(60):
            if len(cluster.bookies()) == cluster.shape.bookies:
                break
            await asyncio.sleep(0.1)
        watching = asyncio.ensure_future(self._watch())
        until = self.loop.time() + self.work_s
        await self.nemesis.run(self.script)
        await asyncio.sleep(max(0.0, until - self.loop.time()))
        self.nemesis.heal()
        cluster.writing = False
        watching.cancel()
        await self.verify()

    async def verify(self) -> None:
        """Recovers and reads every ledger, and counts copies."""
        cluster = self.cluster
        verifier = self.loop.process("verifier", cluster.machine())
        await verifier.start(self._recover_everything())
        cluster.look()
        for _ in range(int(TIMEOUT_S)):
            if len(cluster.bookies()) == cluster.shape.bookies:
                break
            await asyncio.sleep(1)
        lossy = cluster.nodes[self.lossy].host
        self.invariants.check_copies(cluster.bookies(), lossy if lossy in self.nemesis.damaged else "", {})

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.cluster.look()

    async def _recover_everything(self) -> None:
        cluster = self.cluster
        store = MemoryStore(cluster.tree)
        await store.start()
        client = LedgerClient(
            metadata=store, rng=SimRandom(stream(self.seed, "verifier")), settings=cluster.shape.ledger
        )
        await client.start()
        for ledger_id in sorted(cluster.known):
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._recover(client, ledger_id)
            except TimeoutError:
                self.invariants.violated(
                    "liveness", f"all faults are over, but ledger {ledger_id} is not recovered in {TIMEOUT_S} s"
                )
                break
        await client.close()
        await store.close()

    async def _recover(self, client: LedgerClient, ledger_id: int) -> None:
        while True:
            try:
                await self.cluster.read_ledger(client, ledger_id, "the verifier", recover=True)
                return
            except BokiError as error:
                if not error.retryable:
                    self.invariants.violated("liveness", f"ledger {ledger_id} cannot be recovered and read: {error!r}")
                    return
                await asyncio.sleep(1)
