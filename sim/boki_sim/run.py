"""One seed from beginning to end: a cluster, a workload, faults, healing, and the verdict.

    outcome = run_seed(7, "harsh")
    outcome.violations                          [] or what is wrong
    run_seed(7, "harsh", script=[...])          the same seed under another script

A run is: roles start, clients work while the script's faults happen, everything is healed, a last client must get through
within `TIMEOUT_S` (else it is a liveness violation), reads all books, and every answer is compared with them.
"""

from __future__ import annotations

import asyncio
import io
import time  # noqa: TID251 - how long the machine took for a run
from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, Final

import boki
from boki_common import logs
from boki_common.errors import BokiError
from boki_sim.checkers.check import check
from boki_sim.checkers.findings import name_of
from boki_sim.checkers.history import Operation
from boki_sim.clusters.cluster import Cluster, SimClock
from boki_sim.clusters.cluster_tokens import NO_PLAN, TokenPlan, draw_tokens
from boki_sim.clusters.invariants import Invariants, Violation
from boki_sim.clusters.shape import Shape, draw_shape, repairing
from boki_sim.faults.faults import Fault, asleep, at_barriers, drains, draw
from boki_sim.faults.full_disks import while_full
from boki_sim.nemesis.nemesis import Nemesis
from boki_sim.nemesis.poison import draw_poison
from boki_sim.nemesis.strangers import draw_strangers
from boki_sim.outcome import WORK_S, Outcome
from boki_sim.verdicts import verdict_on_history
from boki_sim.verdicts.verdict_on_history import FORGET_AFTER_S, Entry
from boki_sim.work import named_numbers
from boki_sim.work.call_mix import draw_call_mix
from boki_sim.work.late_writers import LateWriters
from boki_sim.work.operations import APPEND, BOOKS, LINEARIZABLE, OK, READ, UNKNOWN, History, data_of
from boki_sim.work.workload import SimClient
from boki_sim.world.ending import uncollected
from boki_sim.world.errors import SimulationError
from boki_sim.world.guard import guarded
from boki_sim.world.loop import SimLoop
from boki_sim.world.network import Network
from boki_sim.world.process import SimProcess
from boki_sim.world.randomness import stream
from boki_sim.world.trace import Trace

LOOK_EVERY_S: Final = 0.1
TIMEOUT_S: Final = 120.0
"""After healing, an append must get through within this."""
ROOM_S: Final = 30
"""After healing, bookies have room for an append within this."""
BARRIER_TRIES: Final = 5
SETTLE_S: Final = 90.0
"""Clients have so long after the end of the work to get the last verdicts."""


def run_seed(
    seed: int,
    profile: str = "harsh",
    *,
    script: Sequence[Fault] | None = None,
    work_s: float = WORK_S,
    keep_trace: bool = False,
) -> Outcome:
    """Runs one seed. Raises SimulationError for an unknown profile; what the cluster does wrong is in the outcome."""
    begun = time.process_time()
    shape = draw_shape(stream(seed, "shape"))
    repairs = stream(seed, "repairs", profile)
    if profile == "harsh" and repairs.random() < 0.5:
        shape = repairing(repairs, shape)
    targets = shape.targets(stream(seed, "targets"))
    poisons = draw_poison(stream(seed, "poisons", profile), profile, targets.sequencers, seconds=work_s)
    token = draw_tokens(stream(seed, "token", profile), profile, seconds=work_s)
    if poisons or any(fault.kind == "poison" for fault in script or ()):
        token = NO_PLAN  # who poisons has none
    if script is not None:
        faults = list(script)
    else:
        numbers = stream(seed, "faults", profile)
        faults = draw(numbers, profile, targets, seconds=work_s, turn=seed, carrying=shape.carrying)
        faults += at_barriers(stream(seed, "barriers", profile), profile, targets, seconds=work_s)
        faults += poisons
        faults += while_full(stream(seed, "full disks", profile), profile, targets, seconds=work_s)
        faults += asleep(stream(seed, "asleep", profile), profile, targets, seconds=work_s)
        if shape.repairs:
            faults += drains(stream(seed, "drains", profile), profile, seconds=work_s)
        if token.tokens:
            faults += draw_strangers(stream(seed, "strangers", profile), profile, seconds=work_s)
        faults.sort(key=lambda fault: fault.at)
    outcome = Outcome(seed, profile, faults, work_s)
    with uncollected():
        _Run(seed, shape, token, faults, work_s, keep_trace).go(outcome)
    outcome.cpu_s = time.process_time() - begun
    return outcome


class _Run:
    def __init__(
        self, seed: int, shape: Shape, token: TokenPlan, script: list[Fault], work_s: float, keep_trace: bool
    ) -> None:
        self.seed = seed
        self.script = script
        self.work_s = work_s
        self.loop = SimLoop(seed)
        self.trace = Trace(self.loop, keep=keep_trace)
        self.network = Network(self.loop, seed, self.trace, shape.weather)
        self.invariants = Invariants(self.loop.time, self._found)
        self.cluster = Cluster(self.loop, seed, shape, self.network, self.trace, self.invariants, token)
        self.history = History()
        self._read_from = 0.0
        self.clients: dict[str, tuple[SimProcess, SimClock]] = {}
        for number in range(1, shape.clients + 1):
            process = self.loop.process(f"client-{number}", self.cluster.machine())
            process.clock = SimClock(self.loop)
            self.clients[process.name] = (process, process.clock)
        self.working: dict[str, asyncio.Task[None]] = {}
        self.until = 0.0
        self.nemesis = Nemesis(self.cluster, self.clients, stream(seed, "nemesis"), self._begin_again)

    def go(self, outcome: Outcome) -> None:
        with logs.configured(level="error", stream=io.StringIO()), guarded(self.loop, self.seed) as guard:
            try:
                self.loop.run_until_complete(self._scenario())
            except SimulationError as error:
                self.invariants.violated("simulation", f"{type(error).__name__}: {error}")
            finally:
                for text in (*map(_describe, self.loop.faults), *self.history.defects):
                    self.invariants.violated("crash", text)
                for line in guard.refused:
                    self.invariants.violated("machine", line)
                self._report(outcome)
                self.loop.end()

    def _found(self, violation: Violation) -> None:
        self.trace.add("check", "VIOLATION", str(violation))

    # -- the scenario, outside of all processes

    async def _scenario(self) -> None:
        await self.cluster.start()
        watching = asyncio.ensure_future(self._watch())
        self.loop.watch = self.cluster.look
        self.until = self.loop.time() + self.work_s
        self.cluster.tokens.begin()
        for name in self.clients:
            self._start_client(name)
        await self.nemesis.run(self.script)
        await asyncio.sleep(max(0.0, self.until - self.loop.time()))
        self.nemesis.heal()
        if self.cluster.shape.forgets_after_s:
            await LateWriters(self.cluster, self.history, self.seed).run(self.working.values())
        verifier = self.loop.process("verifier", self.cluster.machine())
        books = await verifier.start(self._read_everything())
        await self._ledgers_closed()
        await self._bookies_up()  # the last to wait for: from here on nobody goes down before copies are looked at
        watching.cancel()
        self.cluster.look()
        self.invariants.compare_verdicts(self.cluster.engines())
        self.invariants.compare_engines(self.cluster.engines())
        if books is not None:
            self._judge(books)
        self._check_copies()

    def _start_client(self, name: str) -> None:
        """A client begins to work, as a session of its own; which engine it tries first is its own matter."""
        process = self.clients[name][0]
        engines = self.cluster.url.split(",")
        stream(self.seed, "engines", process.name).shuffle(engines)
        client = SimClient(
            self.loop,
            process,
            ",".join(engines),
            stream(self.seed, "client", process.name),
            draw_call_mix(stream(self.seed, "habits", name), crowded=self.cluster.shape.crowded),
            self.history,
            self.cluster.client,
        )
        self.working[name] = process.start(client.run(self.until))

    def _begin_again(self, name: str) -> None:
        """A client that crashed: its calls never return; the next one is another session on the same machine."""
        before, clock = self.clients[name]
        first, _, number = before.name.partition("#")
        process = self.loop.process(f"{first}#{int(number or 1) + 1}", before.host)
        process.clock = clock
        self.clients[name] = (process, clock)
        self._start_client(name)

    async def _watch(self) -> None:
        while True:
            await self.loop.settled_after(self.loop.outside, LOOK_EVERY_S)
            engines = self.cluster.engines()
            self.invariants.compare_verdicts(engines)
            self.invariants.check_cuts(engines)

    async def _bookies_up(self) -> None:
        """Waits for all of them, but not for ever: the damaged one may need a person."""
        for _ in range(int(TIMEOUT_S)):
            if len(self.cluster.bookies()) == self.cluster.shape.bookies:
                return
            await asyncio.sleep(1)
        for node in self.cluster.of("bookie"):
            if node.role is None and node.host not in self.nemesis.damaged:
                self.invariants.violated("liveness", f"{node.name} does not come back: {node.ends[-1:]}")

    async def _ledgers_closed(self) -> None:
        """Waits until the data ledgers of all ended shards are closed; what was damaged may hold that up."""
        waiting: list[int] = []
        for _ in range(int(TIMEOUT_S)):
            waiting = self.invariants.unclosed(self.cluster.engines())
            if not waiting or self.nemesis.damaged:
                return
            await asyncio.sleep(1)
        self.invariants.violated("liveness", f"all faults are over, but nobody closes the data ledgers {waiting[:10]}")

    async def _read_everything(self) -> dict[str, list[Entry]] | None:
        """The final log, read through the SDK after an append of its own; None when nobody gets through."""
        stage = "connect"
        try:
            async with asyncio.timeout(TIMEOUT_S + SETTLE_S):
                client = await self.cluster.connected()
                stage = "append"
                await self._append_to_all(client, "barrier-1")
                stage = "get the last verdicts of the clients"
                await asyncio.wait(self.working.values())
                stage = "append and read"
                await self._append_to_all(client, "barrier-2")
                self._read_from = self.loop.time()
                books = {}
                for name in BOOKS:
                    book = client.book(name)
                    books[name] = [
                        Entry(
                            record.seqnum,
                            data_of(bytes(record.data)),
                            tuple(str(tag) for tag in record.tags),
                            record.time_ms,
                        )
                        async for record in book.read()
                        if isinstance(record, boki.Record)
                    ]
                stage = "close"
                await client.close()
                return books
        except TimeoutError:
            states = ", ".join(
                f"{node.name} {'up' if node.running else 'down'} {node.ends[-1:]}"
                for node in self.cluster.nodes.values()
            )
            self.invariants.violated(
                "liveness", f"all faults are over, but nobody could {stage} for {TIMEOUT_S} s: {states}"
            )
            return None
        except BokiError as error:
            self.invariants.violated("liveness", f"all faults are over, but to {stage} fails: {error!r}")
            return None

    async def _append_to_all(self, client: boki.Client, payload: str) -> None:
        """To every book; these records are part of the history. A log that forgets writers within seconds may forget that of a record
        that is sent again: then another record is tried."""
        for name in BOOKS:
            for attempt in range(BARRIER_TRIES):
                text = f"{payload}/{name}" if not attempt else f"{payload}/{name}/{attempt}"
                operation = Operation("verifier", APPEND, name, self.loop.time(), data=text)
                self.history.operations.append(operation)
                try:
                    operation.seqnum = await _append_when_taken(client.book(name), text.encode())
                except boki.WriterForgotten as error:
                    if attempt + 1 == BARRIER_TRIES:
                        raise
                    operation.outcome, operation.error, operation.end = UNKNOWN, repr(error), self.loop.time()
                else:
                    operation.outcome, operation.end = OK, self.loop.time()
                    break

    # -- what came of it

    def _judge(self, books: dict[str, list[Entry]]) -> None:
        """First call by call, which says best what is wrong; then all calls together."""
        operations, faults = named_numbers.merge(
            self.history.operations, kept_s=self.cluster.shape.forgets_after_s or inf
        )
        judged = verdict_on_history.judge(
            operations, books, read_from=self._read_from, forget_after_s=self._forget_after_s()
        )
        for text in (*faults, *judged):
            self.invariants.violated("history", text)
        for finding in check([*operations, *self._last_reads(books)], forget_after_s=self._forget_after_s()):
            calls = "; ".join(name_of(call) for call in finding.calls[:4])
            self.invariants.violated(finding.anomaly, f"book {finding.book}: {finding.text}: {calls}")

    def _last_reads(self, books: dict[str, list[Entry]]) -> Iterator[Operation]:
        """A read of each whole book, after an append of the same session: it must see all that was acknowledged."""
        for name in sorted(books):
            read = Operation("verifier", READ, name, self._read_from, self.loop.time(), OK, consistency=LINEARIZABLE)
            read.rows = tuple((entry.seqnum, entry.data) for entry in books[name])
            yield read

    def _forget_after_s(self) -> float:
        """Virtual time in which no stream gets old enough to be forgotten, whatever clocks say."""
        return FORGET_AFTER_S / self.cluster.shape.clock_rate

    def _check_copies(self) -> None:
        lossy = next(iter(self.nemesis.damaged), "")  # at most one machine's, drawn or named by a script
        self.cluster.disks_at_hand()
        engines = self.cluster.engines()
        self.invariants.check_cuts(engines)
        if self.cluster.shape.carrying:
            self.invariants.check_carried(self.cluster.bookies())
        self.invariants.check_copies(self.cluster.bookies(), lossy, engines)

    def _report(self, outcome: Outcome) -> None:
        outcome.violations = [str(violation) for violation in self.invariants.violations]
        self.cluster.report(outcome, self.nemesis.happened)
        outcome.operations = len(self.history.operations)
        outcome.outcomes = Counter("pending" if one.end is None else one.outcome for one in self.history.operations)


def _describe(fault: dict[str, Any]) -> str:
    error = fault.get("exception")
    return f"{fault.get('process')}: {fault.get('message')}: {error!r}" if error else str(fault.get("message"))


async def _append_when_taken(book: boki.Book, payload: bytes) -> int:
    """While the disks of bookies are full appends are refused at once, and were never sent: whoever waits for room asks again.
    When faults are over there is room soon; the last refusal is raised."""
    for _ in range(ROOM_S):
        try:
            return await book.append(payload)
        except boki.DiskFull:
            await asyncio.sleep(1.0)
    return await book.append(payload)
