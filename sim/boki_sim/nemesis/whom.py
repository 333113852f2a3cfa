"""Whom a fault meets: names of scripts as machines, processes and hosts; and who of those in a step is met."""

from __future__ import annotations

import random  # noqa: TID251 - the type; the generators come from the seed
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from boki_sim.faults.faults import ADMINISTRATION, DAMAGE, DISKS, DRAINS, METADATA, Fault
from boki_sim.faults.host_faults import host_of
from boki_sim.world.errors import SimulationError
from boki_sim.world.process import SimProcess
from boki_sim.world.steps import ENTRY_CARRIED, Met

if TYPE_CHECKING:
    from boki_sim.clusters.cluster import Cluster, Node, SimClock
    from boki_sim.clusters.hosts import Host, Hosts

NEEDS_NODE: Final = frozenset(("kill", "power", "stop", *METADATA))
"""Kinds that meet a role, not a client."""


def names_of(met: Met) -> list[str]:
    """Who takes part in a step."""
    return [one.name.partition("#")[0] for one in (met.actor, met.peer) if one is not None]


class Whom:
    """See the module."""

    def __init__(
        self,
        cluster: Cluster,
        clients: Mapping[str, tuple[SimProcess, SimClock]],
        hosts: Hosts | None,
        numbers: random.Random,
    ) -> None:
        self._cluster = cluster
        self._clients = clients
        self._hosts = hosts
        self._numbers = numbers

    def node(self, name: str) -> Node | None:
        return self._cluster.nodes.get(name)

    def process(self, name: str) -> SimProcess | None:
        first = name.split(",")[0].split(">")[0]
        node = self.node(first)
        if node is not None:
            return node.process
        host = None if self._hosts is None else self._hosts.get(first)
        if host is not None:
            return host.process
        return self._clients[first][0] if first in self._clients else None

    def address(self, name: str) -> str:
        host = None if self._hosts is None else self._hosts.get(name)
        if host is not None:
            return host.process.host
        node = self.node(name)
        if node is None and name not in self._clients:
            known = ", ".join([*self._cluster.nodes, *self._clients])
            raise SimulationError(f"expected a target of {known}, found {name!r}")
        return node.host if node is not None else self._clients[name][0].host

    def everybody(self) -> list[str]:
        hosts = [host.process.host for host in self._hosts or ()]
        return [
            *(n.host for n in self._cluster.nodes.values()),
            *(one.host for one, _ in self._clients.values()),
            *hosts,
        ]

    def host_of(self, fault: Fault) -> Host | None:
        return None if self._hosts is None else self._hosts.get(host_of(fault))

    def _can_meet(self, kind: str, name: str) -> bool:
        if kind == "crash":
            return name in self._clients
        if kind in DISKS:
            return name.startswith("bookie-")
        if kind == "deaf":
            return name.startswith("engine-")
        return kind not in NEEDS_NODE or name in self._cluster.nodes

    def aim(self, fault: Fault, met: Met) -> str:
        """Whom it meets: one who takes part in the step, if the kind can meet him."""
        there = [name for name in names_of(met) if name in self._cluster.nodes or name in self._clients]
        self._numbers.shuffle(there)
        if fault.step == ENTRY_CARRIED:
            there.sort(key=lambda name: name.partition("-")[0] != fault.target.partition("-")[0])
        kind = fault.kind
        if kind == "fence-race":
            return f"{met.actor.host} {met.path}"
        if kind in (*DAMAGE, *ADMINISTRATION, *DRAINS) or kind == "metadata-down":
            return fault.target
        if kind in ("clog", "reset"):
            names = [*there, *(name for name in fault.target.split(">") if name not in there)]
            return ">".join(names[:2])
        there = [name for name in there if self._can_meet(kind, name)]
        if kind == "partition":
            return ",".join([*there[:1], *(name for name in fault.target.split(",") if name not in there)])
        return there[0] if there else fault.target
