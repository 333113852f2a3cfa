"""Applies a script of faults to a cluster, and takes each back when its time is over.

Each fault that really happened is counted, by kind and by the step of a protocol that its target took part in at that moment
(`steps`): a fault that only ever meets idle processes tests nothing. A fault with a step of its own waits for it.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - the type; the generators come from the seed
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from boki_common.metadata.memory import Fault as StoreFault
from boki_common.runtime.memory_disk import UNLIMITED_BYTES, MemoryDisk
from boki_sim.clusters.cluster import Cluster, Node, SimClock, new_disk
from boki_sim.clusters.hosts import Host, Hosts
from boki_sim.faults.faults import FAILING, Fault
from boki_sim.nemesis.administrator import Administrator
from boki_sim.nemesis.fence_race import find_race, run_race
from boki_sim.nemesis.poison import LAST, PUSHES, Poisoner, poison_end, poison_pushes
from boki_sim.nemesis.strangers import Stranger
from boki_sim.nemesis.whom import Whom, names_of
from boki_sim.world.disk import flip_bits, misdirect
from boki_sim.world.metadata import SimStore
from boki_sim.world.process import SimProcess
from boki_sim.world.steps import Met

Links = list[tuple[str, str]]

_STORE_FAULTS = {
    "lost-answer": StoreFault.ANSWER_LOST,
    "lost-request": StoreFault.REQUEST_LOST,
    "delayed-write": StoreFault.DELAYED,
}


ENDS = ("kill", "power", "stop")
"""Kinds that end a host of a user."""
ADMINISTRATORS = 30
"""In one run: each is a machine of its own."""


class _Missed(Exception):
    """The fault meets nobody, or nothing, that it could happen to."""


class Nemesis:
    """See the module. `happened`: (kind, step) → how often. `damaged`: machines whose disk was damaged or lost."""

    def __init__(
        self,
        cluster: Cluster,
        clients: dict[str, tuple[SimProcess, SimClock]],
        numbers: random.Random,
        begin_again: Callable[[str], None] | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        self.happened: Counter[tuple[str, str]] = Counter()
        self.damaged: set[str] = set()
        self._cluster = cluster
        self._clients = clients
        self._begin_again = begin_again
        self._hosts = hosts
        self._whom = Whom(cluster, clients, hosts, numbers)
        self._numbers = numbers
        self._undo: dict[int, Callable[[], object]] = {}
        self._number = 0
        self._wiped = False
        self._tasks: list[asyncio.Task[None]] = []
        self._tasks_of_processes: list[asyncio.Task[None]] = []
        self._administrators = 0
        self._poisoners = 0
        self._strangers = 0

    async def run(self, script: Sequence[Fault], *, since: float | None = None) -> None:
        """Injects each fault at its time, counted from now or from another time."""
        loop = self._cluster.loop
        start = loop.time() if since is None else since
        for fault in script:
            await asyncio.sleep(max(0.0, start + fault.at - loop.time()))
            if fault.step:
                self._cluster.steps.wait(fault.step, fault.nth, partial(self._met, fault))
            else:
                self._inject(fault, self._cluster.steps.of(self._whom.process(fault.target)))

    def _met(self, fault: Fault, met: Met) -> None:
        """The step that a fault waits for happens: it strikes as soon as what runs now has returned."""
        if self._whom.host_of(fault) is not None:  # a host's own: not what somebody else does
            if fault.target not in names_of(met):
                self._cluster.steps.wait(fault.step, 1, partial(self._met, fault))
                return
            aimed = fault
        else:
            aimed = replace(fault, target=self._whom.aim(fault, met))
        if fault.kind == "fence-race" and find_race(self._cluster, met.path, met.actor.host) is None:
            self._cluster.steps.wait(fault.step, 1, partial(self._met, fault))  # not this ledger
            return
        loop = self._cluster.loop
        loop.call_soon(self._inject, aimed, fault.step, context=loop.outside.context)

    def _inject(self, fault: Fault, step: str) -> None:
        self._cluster.look()
        if self._apply(fault):
            self.happened[fault.kind, step] += 1
            self._cluster.trace.add("fault", fault.kind, f"{fault.target} {fault.seconds:g} {fault.amount:g} {step}")

    def heal(self) -> None:
        """Ends all faults that still last, and starts all processes that are down."""
        self._cluster.steps.forget_waiting()
        for number in list(self._undo):
            self._undo.pop(number)()
        cluster = self._cluster
        cluster.tree.deliver_delayed()
        for node in cluster.nodes.values():
            node.held = 0
            if node.process is not None:
                node.process.doomed = -1
            if not node.running:
                cluster.start_node(node)
        for process, _ in self._clients.values():
            process.doomed = -1
        for host in self._hosts or ():
            host.heal()

    # -- one fault

    def _apply(self, fault: Fault) -> bool:
        """Returns whether it happened: a dead process cannot be killed again."""
        host = self._whom.host_of(fault)
        if host is not None and fault.kind in ENDS:
            return self._end_host(host, fault)
        method: Callable[[Fault], None] = getattr(self, "_" + fault.kind.replace("-", "_"))
        try:
            method(fault)
        except _Missed:
            return False
        return True

    def _end_host(self, host: Host, fault: Fault) -> bool:
        """A host of a user ends, and stays down for so long."""
        if not host.running or host.process.doomed >= 0:
            return False
        host.keep_down()
        self._later(fault.seconds, host.release)
        if fault.kind == "stop":
            return host.ask_to_end()
        return host.kill(callbacks=int(fault.amount), power=fault.kind == "power")

    def _later(self, seconds: float, undo: Callable[[], object]) -> None:
        """Takes a fault back after a while, or at `heal`."""
        loop = self._cluster.loop
        loop.call_later(seconds, self._once(undo), context=loop.outside.context)

    def _once(self, undo: Callable[[], object]) -> Callable[[], None]:
        """Takes a fault back when it is called, unless `heal` has."""
        self._number += 1
        number = self._number
        self._undo[number] = undo

        def now() -> None:
            found = self._undo.pop(number, None)
            if found is not None:
                found()

        return now

    def _absent(self, _fault: Fault) -> None:
        """The code that starts hosts leaves it out."""
        raise _Missed

    # -- processes

    def _running(self, fault: Fault) -> Node:
        """The role that is meant. Raises _Missed: it does not run."""
        node = self._whom.node(fault.target)
        if node is None or not node.running:
            raise _Missed
        return node

    def _down_for(self, node: Node, seconds: float) -> None:
        node.held += 1

        def back() -> None:
            node.held = max(0, node.held - 1)
            if not node.held and not node.running:
                self._cluster.start_node(node)

        self._later(seconds, back)

    def _kill(self, fault: Fault) -> None:
        node = self._whom.node(fault.target)
        process = None if node is None else node.process
        if node is None or process is None or not process.alive or process.doomed >= 0:
            raise _Missed

        def died() -> None:
            self._down_for(node, fault.seconds)
            self._cluster.gone(node, process)

        process.on_death.append(died)
        process.kill_after(int(fault.amount))

    def _power(self, fault: Fault) -> None:
        node = self._running(fault)
        self._down_for(node, fault.seconds)
        self._cluster.end_node(node, power=True)

    def _stop(self, fault: Fault) -> None:
        node = self._running(fault)
        self._down_for(node, fault.seconds)
        self._tasks.append(asyncio.ensure_future(self._cluster.stop_node(node)))

    def _crash(self, fault: Fault) -> None:
        again = self._begin_again
        if again is None or fault.target not in self._clients:
            raise _Missed
        process = self._clients[fault.target][0]
        if not process.alive or process.doomed >= 0:
            raise _Missed

        process.on_death.append(lambda: self._later(fault.seconds, partial(again, fault.target)))
        process.kill_after(int(fault.amount))

    def _pause(self, fault: Fault) -> None:
        self._suspend(fault, SimProcess.pause)

    def _sleep(self, fault: Fault) -> None:
        self._suspend(fault, SimProcess.sleep)

    def _suspend(self, fault: Fault, suspend: Callable[[SimProcess], None]) -> None:
        process = self._whom.process(fault.target)
        if process is None or not process.running:
            raise _Missed
        suspend(process)
        node = self._whom.node(fault.target)
        if node is not None and node.store is not None:
            node.store.paused()
        self._later(fault.seconds, process.resume)

    # -- connections

    def _blocked(self, links: Links, seconds: float) -> None:
        self._cluster.network.block(links)
        self._later(seconds, partial(self._cluster.network.unblock, links))

    def _isolate(self, fault: Fault) -> None:
        self._separate([fault.target], fault)

    def _partition(self, fault: Fault) -> None:
        self._separate(fault.target.split(","), fault)

    def _separate(self, names: list[str], fault: Fault) -> None:
        inside = [self._whom.address(name) for name in names]
        outside = [host for host in self._whom.everybody() if host not in inside]
        links: Links = []
        if fault.amount != 1:
            links += [(one, other) for one in inside for other in outside]
        if fault.amount != 2:
            links += [(other, one) for one in inside for other in outside]
        self._blocked(links, fault.seconds)

    def _deaf(self, fault: Fault) -> None:
        """What it wrote before is acknowledged and ordered still; what others wrote is ordered, and not here, or not yet."""
        node = self._running(fault)
        kinds = ("engine",) if fault.amount == 1 else ("bookie", "engine")
        others = [other for kind in kinds for other in self._cluster.of(kind) if other is not node]
        self._blocked([(other.host, node.host) for other in others], fault.seconds)

    def _clog(self, fault: Fault) -> None:
        one, other = map(self._whom.address, fault.target.split(">"))
        self._blocked([(one, other)], fault.seconds)

    def _fence_race(self, fault: Fault) -> None:
        host, _, path = fault.target.partition(" ")
        race = find_race(self._cluster, path, host)
        if race is None:
            raise _Missed
        running = run_race(self._cluster, race, self._numbers, self._block)
        self._tasks.append(asyncio.ensure_future(running))

    def _block(self, links: Links) -> Callable[[], None]:
        """Blocks links until what it returns is called, or everything is healed."""
        self._cluster.network.block(links)
        return self._once(partial(self._cluster.network.unblock, links))

    def _slow_link(self, fault: Fault) -> None:
        host, network = self._whom.address(fault.target), self._cluster.network
        others = [other for other in self._whom.everybody() if other != host]

        def slow(times: float) -> None:
            for other in others:
                network.slow(host, other, times)
                network.slow(other, host, times)

        slow(fault.amount)
        self._later(fault.seconds, lambda: slow(1.0))

    def _reset(self, fault: Fault) -> None:
        one, other = map(self._whom.address, fault.target.split(">"))
        network = self._cluster.network
        if not network.reset(one, other) + network.reset(other, one):
            raise _Missed

    # -- disks

    def _disk_of(self, name: str) -> tuple[Node, MemoryDisk]:
        node = self._whom.node(name)
        if node is None or node.disk is None:
            raise _Missed
        return node, node.disk

    def _may_lose(self, name: str) -> tuple[Node, MemoryDisk]:
        """The disk, if replication covers its damage: one machine's, and nothing more once that was wiped. Else raises _Missed.

        The bookie on an empty disk is a new one, and both may be in one write set.
        """
        node, disk = self._disk_of(name)
        if self._wiped or not self.damaged <= {node.host}:
            raise _Missed
        return node, disk

    def _slow_disk(self, fault: Fault) -> None:
        node = self._whom.node(fault.target)
        if node is None or node.plan is None:
            raise _Missed
        self._cluster.slow_disk(node, fault.amount)
        self._later(fault.seconds, partial(self._cluster.slow_disk, node, 1.0))

    def _disk_error(self, fault: Fault) -> None:
        node = self._running(fault)
        if node.plan is None:
            raise _Missed
        kind = FAILING[int(fault.amount) % len(FAILING)]
        node.plan.failing[kind] = node.plan.failing.get(kind, 0) + 1

    def _disk_full(self, fault: Fault) -> None:
        node, disk = self._disk_of(fault.target)
        used = sum(len(disk.contents(name)) for name in disk.all_names())
        disk.capacity_bytes = used + int(fault.amount)

        def room() -> None:
            if node.disk is not None:
                node.disk.capacity_bytes = UNLIMITED_BYTES

        self._later(fault.seconds, room)

    def _flip_bits(self, fault: Fault) -> None:
        node, disk = self._may_lose(fault.target)
        self._damaged(node, flip_bits(disk, self._numbers, count=int(fault.amount)))

    def _misdirect(self, fault: Fault) -> None:
        node, disk = self._may_lose(fault.target)
        self._damaged(node, misdirect(disk, self._numbers))

    def _damaged(self, node: Node, places: list[str]) -> None:
        if not places:
            raise _Missed
        self.damaged.add(node.host)
        self._cluster.invariants.forget_disk(node.host)
        self._cluster.trace.add("fault", "damage", " ".join(places))

    def _wipe(self, fault: Fault) -> None:
        node, _ = self._may_lose(fault.target)
        self._wiped = True
        self._down_for(node, fault.seconds)
        if node.running:
            self._cluster.end_node(node, power=True)
        node.disk = new_disk(node.name)
        self.damaged.add(node.host)
        self._cluster.invariants.forget_disk(node.host)

    # -- administration

    def _administer(self, fault: Fault) -> None:
        if self._administrators >= ADMINISTRATORS:
            raise _Missed
        self._administrators += 1
        administrator = Administrator(self._cluster, self._administrators)
        self._tasks_of_processes.append(administrator.process.start(administrator.run(fault)))

    _roll = _move = _drain = _administer

    def _poison(self, fault: Fault) -> None:
        if int(fault.amount) == PUSHES:
            if not poison_pushes(self._running(fault), self._numbers):
                raise _Missed
            return
        ended: tuple[int, int] | None = (0, 0)
        if int(fault.amount) == LAST:
            ended = poison_end(self._running(fault), self._numbers)
        if ended is None:
            raise _Missed
        self._poisoners += 1
        poisoner = Poisoner(self._cluster, self._poisoners)
        self._tasks_of_processes.append(poisoner.process.start(poisoner.run(int(fault.amount), ended)))

    def _stranger(self, fault: Fault) -> None:
        if not self._cluster.tokens.asked:
            raise _Missed  # they would be let in
        self._strangers += 1
        stranger = Stranger(self._cluster, self._strangers, int(fault.amount))
        self._tasks_of_processes.append(stranger.process.start(stranger.run()))

    # -- metadata store and clocks

    def _store_of(self, fault: Fault) -> SimStore:
        store = self._running(fault).store
        if store is None:
            raise _Missed
        return store

    def _expire(self, fault: Fault) -> None:
        self._store_of(fault).expire()

    def _cut_off(self, fault: Fault) -> None:
        store = self._store_of(fault)
        store.cut_off()
        self._later(fault.seconds, store.rejoin)

    def _metadata_down(self, fault: Fault) -> None:
        stores = [node.store for node in self._cluster.nodes.values() if node.store is not None and node.running]
        for store in stores:
            store.cut_off()

        def back() -> None:
            for store in stores:
                store.rejoin()

        self._later(fault.seconds, back)

    def _store_fault(self, fault: Fault) -> None:
        self._store_of(fault).inner.fail_next_write(_STORE_FAULTS[fault.kind], count=int(fault.amount))

    _lost_answer = _lost_request = _store_fault

    def _delayed_write(self, fault: Fault) -> None:
        self._store_fault(fault)
        self._later(fault.seconds, self._cluster.tree.deliver_delayed)

    def _clock(self, fault: Fault) -> None:
        node, host = self._whom.node(fault.target), self._whom.host_of(fault)
        clock = node.clock if node is not None else host.clock if host is not None else self._clients[fault.target][1]
        clock.skew_ms += int(fault.amount)

    _step = _clock
