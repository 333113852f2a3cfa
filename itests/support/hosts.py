"""Machines for a test: network namespaces on one switch, where packets can be dropped between any two.

    async with Hosts(["bookie-1", "engine-1"]) as hosts:
        hosts["bookie-1"].address                   # 10.213.x.y; this process is `hosts.here`
        hosts["bookie-1"].command(["prog", "arg"])  # the command that runs there
        await hosts.cut("bookie-1", "engine-1")     # neither receives from the other
        await hosts.cut("engine-1", receives=False) # it receives nothing, but sends
        await hosts.lose("bookie-1", 0.3)           # 30 % of the packets that reach it are lost
        await hosts.heal()

Packets are dropped silently, so peers learn of it by time-outs alone, as from a broken switch. Rules lie in the namespaces;
of the machine itself only an interface with an address is added, and removed at the end, whatever happened. The switch has a
namespace too: a Docker engine on the machine filters what passes the machine's own bridges.

Needs root, `ip` (iproute2) and `nft` (nftables); `HostsMissing` says which is not there.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

_RULES: Final = """
table inet faults {
    chain input { type filter hook input priority 0; }
    chain output { type filter hook output priority 0; }
}
"""


_INSTANCES: Final = itertools.count(1)


class HostsMissing(Exception):
    """What namespaces need is not on this machine."""


@dataclass(frozen=True)
class Host:
    """One machine of the test."""

    name: str
    address: str
    namespace: str

    def command(self, arguments: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self.namespace, *arguments]


class Hosts:
    """See the module. Use as an async context manager."""

    def __init__(self, names: Iterable[str]) -> None:
        # The kernel lets names and addresses of removed interfaces linger for a moment: none is used twice.
        instance = next(_INSTANCES)
        tag = f"{os.getpid() % 100_000}i{instance}"
        self._port = f"bk{tag}"
        self._switch = f"boki-{tag}"
        self._net = f"10.213.{(os.getpid() + instance) % 250}"
        self.here = f"{self._net}.1"
        self._hosts = {
            name: Host(name, f"{self._net}.{number}", f"boki-{tag}-{name}") for number, name in enumerate(names, 2)
        }
        self._made: list[list[str]] = []

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    async def __aenter__(self) -> Self:
        missing = [tool for tool in ("ip", "nft") if shutil.which(tool) is None]
        if missing or os.geteuid() != 0:
            raise HostsMissing(f"network namespaces need root, ip and nft; missing: {', '.join(missing) or 'root'}")
        try:
            await self._make()
        except BaseException:
            await self._remove()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._remove()

    # -- faults

    async def cut(self, name: str, *others: str, receives: bool = True, sends: bool = True) -> None:
        """Drops what passes between a host and others, or everybody. `receives=False` alone: it sends, and receives nothing."""
        both = receives and sends
        addresses = [self._hosts[other].address for other in others]
        peers = f"{{ {', '.join(addresses)} }}" if addresses else f"{self._net}.0/24"
        if both or not receives:
            await self._rule(name, f"add rule inet faults input ip saddr {peers} drop")
        if both or not sends:
            await self._rule(name, f"add rule inet faults output ip daddr {peers} drop")

    async def lose(self, name: str, share: float) -> None:
        """Loses a share of the packets that reach a host."""
        await self._rule(name, f"add rule inet faults input numgen random mod 1000 < {round(share * 1000)} drop")

    async def heal(self, *names: str) -> None:
        """Ends the faults of these hosts, or of all."""
        for name in names or self._hosts:
            await self._rule(name, "flush table inet faults")

    async def _rule(self, name: str, rule: str) -> None:
        await _run(*self._hosts[name].command(["nft", rule]))

    # -- making

    async def _make(self) -> None:
        try:
            await _run("ip", "netns", "add", self._switch)
            self._made.append(["ip", "netns", "del", self._switch])
            await _run(*self._on_switch("link", "add", "switch", "type", "bridge"))
        except RuntimeError as error:
            raise HostsMissing(f"this machine makes no namespace with a bridge: {error}") from error
        await _run(*self._on_switch("link", "set", "switch", "up"))
        await _run("ip", "link", "add", self._port, "type", "veth", "peer", "name", "port1", "netns", self._switch)
        self._made.append(["ip", "link", "del", self._port])  # at once; with a namespace it would linger
        await _run(*self._on_switch("link", "set", "port1", "master", "switch", "up"))
        await _run("ip", "addr", "add", f"{self.here}/24", "dev", self._port)
        await _run("ip", "link", "set", self._port, "up")
        for number, host in enumerate(self._hosts.values(), 2):
            port = f"port{number}"
            await _run("ip", "netns", "add", host.namespace)
            self._made.append(["ip", "netns", "del", host.namespace])
            await _run(
                *self._on_switch("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
            )
            self._made.append(self._on_switch("link", "del", port))
            await _run(*self._on_switch("link", "set", port, "master", "switch", "up"))
            await _run(*host.command(["ip", "addr", "add", f"{host.address}/24", "dev", "eth0"]))
            await _run(*host.command(["ip", "link", "set", "eth0", "up"]))
            await _run(*host.command(["ip", "link", "set", "lo", "up"]))
            await _run(*host.command(["nft", "-f", "-"]), text=_RULES)

    def _on_switch(self, *command: str) -> list[str]:
        return ["ip", "-n", self._switch, *command]

    async def _remove(self) -> None:
        faults = []
        while self._made:
            try:
                await _run(*self._made.pop())
            except RuntimeError as error:
                faults.append(error)
        if faults:
            raise ExceptionGroup("left on this machine", faults)


async def _run(*command: str, text: str = "") -> None:
    """Runs a command. Raises RuntimeError with what it said when it fails."""
    done = await asyncio.to_thread(subprocess.run, command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {(done.stdout + done.stderr).strip()}")
