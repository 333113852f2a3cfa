"""The hosts of an app and the partitions they own, by their heartbeats and claims in the log; for people. Pure.

A host counts as silent after `SILENT_MS`, or after two of its leases if that is longer. Hosts judge each other by what they observe, and
take partitions over by that; here nothing is decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from boki_gateway.pages.texts import printable, span_text

SILENT_MS: Final = 60_000
"""Longer than the default lease of hosts."""
INCARNATION: Final = 8
"""Characters of a host's incarnation that are shown."""


def host_text(name: str) -> str:
    """Return a host's name with the beginning of its incarnation: host-7.4de45f74."""
    stem, dot, incarnation = name.rpartition(".")
    return printable(f"{stem}{dot}{incarnation[:INCARNATION]}")


class Seen(NamedTuple):
    """The newest heartbeat of a host: its time, by the clock of the log, and the lease that it names."""

    time_ms: int
    lease_ms: int


class Owner(NamedTuple):
    """The newest claim of a partition: its host, "" if the partition was released, and its time by the clock of the log."""

    host: str
    since_ms: int


class Hosts(NamedTuple):
    """The hosts of an app.

    Attributes:
        seen: the newest heartbeat of each host.
        now_ms: the time now, by the clock of this program.
        owners: the newest claim of each partition that was ever claimed.
        left: hosts that said that they end.
        problem: why this program cannot read some claims, "" if it reads all.
    """

    seen: Mapping[str, Seen]
    now_ms: int
    owners: Mapping[int, Owner] = MappingProxyType({})
    left: frozenset[str] = frozenset()
    problem: str = ""

    def is_alive(self, host: str) -> bool:
        """Return whether a host was seen lately and has not left."""
        seen = self.seen.get(host)
        return (
            seen is not None
            and host not in self.left
            and self.now_ms - seen.time_ms < max(SILENT_MS, 2 * seen.lease_ms)
        )

    @property
    def living(self) -> list[str]:
        """The living hosts, sorted."""
        return sorted(host for host in self.seen if self.is_alive(host))

    @property
    def alone(self) -> str:
        """The clause that the app has no living host, and which was seen last; "" if it has one."""
        if self.living:
            return ""
        last = max(self.seen, key=lambda host: self.seen[host].time_ms, default=None)
        return "no host of this app was seen" if last is None else f"no living host: {self._seen_text(last)}"

    def text(self, partition: int) -> str:
        """Return the clause that no living host owns a partition, and why; "" if one does."""
        owner = self.owners.get(partition)
        if owner is not None and self.is_alive(owner.host):
            return ""
        if self.alone:
            return self.alone
        if owner is None and self.problem:
            return f"its host is not known: {self.problem}"
        if owner is None or not owner.host:
            return "no host yet: a living host takes it"
        if owner.host not in self.seen:
            return f"its host {host_text(owner.host)} was not seen: another host takes it over"
        return f"its host {self._seen_text(owner.host)}: another host takes it over"

    def facts(self, partition: int) -> dict[str, Any]:
        """Return the owner of a partition as members for JSON. `host` is null without one."""
        owner = self.owners.get(partition)
        host = None if owner is None or not owner.host else owner.host
        seen = None if host is None else self.seen.get(host)
        return {
            "host": host,
            "since_ms": None if owner is None or host is None else owner.since_ms,
            "alive": host is not None and self.is_alive(host),
            "unseen_ms": None if seen is None else max(0, self.now_ms - seen.time_ms),
            "living_hosts": self.living,
        }

    def _seen_text(self, host: str) -> str:
        ago = span_text(max(0, self.now_ms - self.seen[host].time_ms))
        return f"{host_text(host)} was seen last, {ago} ago{', and has left' if host in self.left else ''}"
