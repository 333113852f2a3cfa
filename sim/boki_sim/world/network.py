"""The network between simulated machines: connections with latency, and everything that happens to them.

A link is one direction between two machines: latency (a base, a tail, now and then a spike), bytes per second, and
whether it is blocked. TCP hides loss, so what is lost here is time: what is sent into a blocked link arrives when it opens.

Faults: `block` and `unblock` a link (a partition is a set of links, in one direction or both), `slow`, `reset` of every
connection between two machines, `power_off` of a machine (its connections stay half open), duplicate connects (the server
sees a connection on which nothing ever comes), and pieces cut anywhere.

It knows bytes only, not what they mean. `took` writes to the trace, and counts the frames for `steps`, if
there are any: of the ports that `roles` names, no others.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import log
from typing import Any, Final

from crc32c import crc32c

from boki_sim.world.frames_seen import FramesSeen
from boki_sim.world.handles import SimHandle
from boki_sim.world.links import Link, Pipe
from boki_sim.world.loop import SimLoop
from boki_sim.world.process import CURRENT, SimProcess
from boki_sim.world.randomness import stream
from boki_sim.world.steps import Steps, StepsOfHeads, of_bookie, of_engine, of_sequencer
from boki_sim.world.trace import Trace
from boki_sim.world.transport import FIN, RST, SimServer, SimTransport

FIRST_FREE_PORT: Final = 40_000
LEAST_HEAD_BYTES: Final = 4
LONGEST_S: Final = 4.0
"""No latency is longer, however slow a link: what was sent before the last fault ended has arrived so long after it. Trials judge what is
in the log then, and so have no need to guess when the last append of unknown outcome is taken. What is blocked waits longer."""
ANY_HOST: Final = ("0.0.0.0", "::", "")


@dataclass(slots=True)
class Weather:
    """How the links of a run behave; a seed draws its own."""

    base_s: float = 0.000_3
    tail_s: float = 0.000_2
    """Mean of the exponential part of a latency."""
    spike_chance: float = 0.0
    spike_s: float = 0.05
    bytes_per_s: float = 1e9
    cut_chance: float = 0.02
    """That a piece arrives in two reads."""
    duplicate_connect_chance: float = 0.0


class Network:
    """See the module. One for each loop."""

    def __init__(self, loop: SimLoop, seed: int, trace: Trace, weather: Weather | None = None) -> None:
        self.loop = loop
        self.weather = weather or Weather()
        self.frames = 0
        """Whole frames in them; a piece to an unknown port is one."""
        self.steps: Steps | None = None
        self.roles: Mapping[int, str] = {}
        """Port → the role that listens there."""
        self._seed = seed
        self._trace = trace
        self._note = trace.note
        self._numbers = stream(seed, "network")
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[tuple[str, int | str], _Listener] = {}
        self._transports: dict[SimTransport, None] = {}
        self._down: dict[str, None] = {}
        self._next_port = FIRST_FREE_PORT
        loop.network = self

    # -- faults

    def link(self, source: str, target: str) -> Link:
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link(stream(self._seed, "link", source, target))
        return found

    def block(self, links: Iterable[tuple[str, str]]) -> None:
        """Nothing passes these links until as many `unblock`."""
        for source, target in links:
            self.link(source, target).blocks += 1

    def unblock(self, links: Iterable[tuple[str, str]]) -> None:
        for source, target in links:
            link = self.link(source, target)
            link.blocks -= 1
            if not link.blocks:
                held, link.held = link.held, []
                for go_on in held:
                    go_on()

    def slow(self, source: str, target: str, times: float) -> None:
        """Latency of a link times so much; 1 is normal."""
        self.link(source, target).slowness = times

    def reset(self, one: str, other: str) -> int:
        """Breaks every connection between two machines, at both ends; returns how many."""
        broken = 0
        for transport in list(self._transports):
            if transport.process.host == one and transport.peer.process.host == other and not transport.dead:
                broken += 1
                for end in (transport, transport.peer):
                    end.process.call_soon(end._take, RST)
        return broken

    def power_off(self, host: str) -> None:
        """The machine is gone without a word. Its processes must be killed after this call, not before."""
        self._down[host] = None

    def power_on(self, host: str) -> None:
        self._down.pop(host, None)

    # -- asyncio's calls, made by the loop

    def listen(self, factory: Callable[[], Any], host: str, port: int, path: str = "") -> SimServer:
        process = CURRENT.get(None) or self.loop.outside
        if host in ANY_HOST:
            host = process.host
        if host != process.host:
            raise OSError(errno.EADDRNOTAVAIL, f"{host} is not an address of {process.host}")
        if not port and not path:
            port = self._free_port()
        key = (host, path or port)
        if key in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{host}:{path or port} is in use")
        self._listeners[key] = _Listener(process, factory)
        process.on_death.append(lambda: self._unlisten(key, process))
        return SimServer((host, port), lambda: self._unlisten(key, process))

    async def connect(
        self, factory: Callable[[], Any], address: str, host: str, path: str = ""
    ) -> tuple[SimTransport, Any]:
        """Raises OSError: refused. Waits for ever when nobody answers."""
        process = CURRENT.get(None) or self.loop.outside
        port: int | str = path or int(address.rpartition(":")[2])
        local = (process.host, self._free_port())
        out, back = Pipe(self.link(process.host, host)), Pipe(self.link(host, process.host))
        client = SimTransport(self, process, out, local, (host, port if isinstance(port, int) else 0), path)
        answered: asyncio.Future[None] = self.loop.create_future()
        outside = self.loop.outside
        self._pass(out, outside, lambda: self._knock(client, host, port, back, answered))
        try:
            await answered
        except asyncio.CancelledError:
            if self._transports.pop(client, 1) is None:
                client.dead = True
                client._end_output(RST)
            raise
        protocol = factory()
        client.begin(protocol)
        return client, protocol

    def _knock(
        self, client: SimTransport, host: str, port: int | str, back: Pipe, answered: asyncio.Future[None]
    ) -> None:
        """A connect reached the machine."""
        if host in self._down or answered.done():
            return
        listener = self._listeners.get((host, port))
        if listener is None:
            refusal = ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed ({host!r}, {port})")
            self._pass(back, client.process, lambda: _resolve(answered, refusal))
            return
        path = port if isinstance(port, str) else ""
        local = (host, 0 if path else int(port))
        server = SimTransport(self, listener.process, back, local, client.get_extra_info("sockname"), path)
        client.peer, server.peer = server, client
        for end in (client, server):
            self._transports[end] = None
            self._watch(end.process)
            if self.steps is not None and port in self.roles:
                end.seen = FramesSeen()
                end.step_of = _steps_of(self.roles[int(port)], end is client, client.process)
        if self.steps is not None:
            self.steps.met("connects", listener.process, client.process)
        self._trace.add(client.process.name, "connects", f"{listener.process.name} {port}")
        listener.process.call_soon(lambda: server.begin(listener.factory()))
        self._pass(back, client.process, lambda: _resolve(answered, None))
        if self._numbers.random() < self.weather.duplicate_connect_chance:
            self._ghost(listener, host)

    def _ghost(self, listener: _Listener, host: str) -> None:
        """A connect that arrived twice: nobody is behind it, and after a while the server is notified."""
        source = "10.255.0.1"
        out, back = Pipe(self.link(source, host)), Pipe(self.link(host, source))
        ghost = SimTransport(self, self.loop.outside, out, (source, 0), (host, 0), "")
        server = SimTransport(self, listener.process, back, (host, 0), (source, 0), "")
        ghost.peer, server.peer = server, ghost
        ghost.dead = True
        self._transports[server] = None
        self._watch(listener.process)
        listener.process.call_soon(lambda: server.begin(listener.factory()))
        self.loop.call_later(self._numbers.random() * 5, ghost._end_output, RST)

    # -- what transports call

    def send(self, transport: SimTransport, piece: bytes) -> None:
        """Puts a piece on its way to the peer."""
        cut_chance, size = self.weather.cut_chance, len(piece)
        pipe = transport.out
        if cut_chance and size > 1 and piece is not FIN and piece is not RST:
            link = pipe.link
            if link.random() < cut_chance:
                at = link.numbers.randrange(1, size)
                pipe.flight.append(piece[:at])
                self._let_through(transport, at)
                piece = piece[at:]
                size -= at
        pipe.flight.append(piece)
        peer = transport.peer
        if pipe.link.blocks or not peer.process.alive:
            self._let_through(transport, size)
        else:
            self._deliver(pipe, size, peer.process, peer.arrival)

    def _let_through(self, transport: SimTransport, size: int) -> None:
        """The next piece arrives after a while, once its link is open."""
        pipe, peer = transport.out, transport.peer
        if pipe.link.blocks:
            pipe.link.held.append(partial(self._let_through, transport, size))
            return
        process, handle = peer.process, peer.arrival
        if not process.alive:  # the kernel of its machine answers for it
            process = self.loop.outside
            handle = SimHandle(peer.arrived, (), process.context)
        self._deliver(pipe, size, process, handle)

    def _pass(self, pipe: Pipe, process: SimProcess, callback: Callable[[], object]) -> None:
        """Calls back in the process when the link lets it through."""
        if pipe.link.blocks:
            pipe.link.held.append(partial(self._pass, pipe, process, callback))
        else:
            self._deliver(pipe, 0, process, SimHandle(callback, (), process.context))

    def _deliver(self, pipe: Pipe, size: int, process: SimProcess, handle: SimHandle) -> None:
        """What is sent now arrives after its latency, behind what was sent before."""
        link, weather = pipe.link, self.weather
        random = link.random
        latency = weather.base_s - log(1.0 - random()) * weather.tail_s + size / weather.bytes_per_s
        if weather.spike_chance and random() < weather.spike_chance:
            latency += random() * weather.spike_s
        at = self.loop.now + min(latency * link.slowness, LONGEST_S)
        if at < pipe.last_at:
            at = pipe.last_at
        pipe.last_at = at
        self.loop.deliver_at(at, process, handle)

    def took(self, transport: SimTransport, piece: bytes) -> None:
        """A protocol is given a piece."""
        seen, process = transport.seen, transport.process
        if seen is None:
            self.frames += 1
        else:
            heads = seen.take(piece)
            self.frames += len(heads)
            for head in heads:
                if len(head) >= LEAST_HEAD_BYTES and (step := transport.step_of(head)) and self.steps is not None:
                    self.steps.met(step, process, transport.peer.process)
        self._note((self.loop.now, process.name, "receives", transport.name, len(piece), crc32c(piece)))

    def refuse(self, transport: SimTransport) -> None:
        """Something arrived at an end that is gone: a machine that is up resets the connection."""
        if transport.process.host not in self._down and not transport.out.ended:
            transport._end_output(RST)

    def ending(self) -> bytes:
        """How an abrupt end looks from the other side."""
        return RST if self._numbers.random() < 0.5 else FIN

    def forget(self, transport: SimTransport) -> None:
        self._transports.pop(transport, None)

    # -- ends of processes

    def _watch(self, process: SimProcess) -> None:
        if process is not self.loop.outside and self._hang_up not in process.on_death:
            process.on_death.append(self._hang_up)

    def _hang_up(self) -> None:
        """The kernel's part of a death: connections of dead processes end, unless their machine is off."""
        for transport in list(self._transports):
            if not transport.process.alive and not transport.dead:
                transport.dead = True
                self._transports.pop(transport, None)
                if transport.process.host not in self._down:
                    transport.drop(self.ending())

    def _unlisten(self, key: tuple[str, int | str], process: SimProcess) -> None:
        found = self._listeners.get(key)
        if found is not None and found.process is process:
            del self._listeners[key]

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port


@dataclass(frozen=True, slots=True)
class _Listener:
    process: SimProcess
    factory: Callable[[], Any]


def _steps_of(role: str, answers: bool, client: SimProcess) -> Callable[[bytes], str]:
    """Finds the step of a frame by its head, at one end of a connection to a role."""
    if role == "bookie":
        kind = client.name.partition("-")[0]
        return StepsOfHeads(lambda head: of_bookie(head, answers, kind)).__getitem__
    if role == "engine":
        return lambda head: of_engine(head, answers)
    return lambda head: of_sequencer(head, answers)


def _resolve(future: asyncio.Future[None], error: Exception | None) -> None:
    if not future.done():
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
