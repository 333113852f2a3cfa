"""The way of one append with nothing in it: the same processes, hops and flushes as Boki's, bare uvloop, no Boki code.

    client -> engine -> three bookies -> engine -> sequencer -> three bookies -> sequencer -> engine -> client

A bookie writes what comes, padded to 4 KiB, to a file that was written before, flushes it, and answers 20 bytes; two of three
answers make a quorum; whoever waits goes on. Nothing is parsed, checked, indexed or kept. So this is what the shape alone
costs on this machine, in Python: no program of that shape is faster than it, and the distance to it is ours.

`python -m benchmarks.bare_shape ROLE DIRECTORY` is one of its processes; `measure` starts them and appends from this one.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

from benchmarks import child, machine

BOOKIES: Final = 3
QUORUM: Final = 2
FILE_BYTES: Final = 8 * 1024 * 1024
BLOCK_BYTES: Final = 4096
ANSWER: Final = bytes(20)
PROGRESS: Final = bytes(60)
METALOG_ENTRY: Final = bytes(200)
CUT: Final = bytes(100)
RECORD_BYTES: Final = 1100


class Bare(NamedTuple):
    """Medians of one measurement."""

    append_ms: float
    ledger_append_ms: float
    """Client, three bookies, and back."""
    append_cpu_us: float
    """Of all six processes."""

    @property
    def over_ledger(self) -> float:
        return self.append_ms / self.ledger_append_ms


class _Peer(asyncio.Protocol):
    """Calls back with whatever comes."""

    transport: asyncio.Transport

    def __init__(self, received: Callable[[_Peer, bytes], None]) -> None:
        self._received = received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._received(self, data)


class _Quorum:
    """Sends to all bookies; `reached` is called once two of them have answered as often as was sent."""

    def __init__(self, reached: Callable[[], None]) -> None:
        self._reached = reached
        self._answered = [0] * BOOKIES
        self._done = 0
        self._peers: list[_Peer] = []

    async def connect(self, directory: Path) -> None:
        for number in range(BOOKIES):
            self._peers.append(await _connect(directory / f"bookie-{number}", self._receiver(number)))

    def _receiver(self, number: int) -> Callable[[_Peer, bytes], None]:
        def arrived(_: _Peer, data: bytes) -> None:
            self._answered[number] += len(data) // len(ANSWER)
            done = sorted(self._answered, reverse=True)[QUORUM - 1]
            if done > self._done:
                self._done = done
                self._reached()

        return arrived

    def send(self, data: bytes) -> None:
        for peer in self._peers:
            peer.transport.write(data)


async def _connect(socket: Path, received: Callable[[_Peer, bytes], None]) -> _Peer:
    _, peer = await asyncio.get_running_loop().create_unix_connection(lambda: _Peer(received), str(socket))
    return peer


async def _bookie(directory: Path) -> Callable[[_Peer, bytes], None]:
    descriptor = os.open(f"{directory}.journal", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"\1" * FILE_BYTES)
    os.fsync(descriptor)
    offset = 0

    def received(peer: _Peer, data: bytes) -> None:
        nonlocal offset
        block = data + bytes(-len(data) % BLOCK_BYTES)
        if offset + len(block) > FILE_BYTES:
            offset = 0
        os.pwrite(descriptor, block, offset)
        os.fdatasync(descriptor)
        offset += len(block)
        peer.transport.write(ANSWER)

    return received


async def _sequencer(directory: Path) -> Callable[[_Peer, bytes], None]:
    requester: list[_Peer] = []
    quorum = _Quorum(lambda: requester[0].transport.write(CUT))
    await quorum.connect(directory.parent)

    def received(peer: _Peer, data: bytes) -> None:
        requester[:] = [peer]
        quorum.send(METALOG_ENTRY)

    return received


async def _engine(directory: Path) -> Callable[[_Peer, bytes], None]:
    requester: list[_Peer] = []
    sequencer = await _connect(directory.parent / "sequencer", lambda _, data: requester[0].transport.write(data))
    quorum = _Quorum(lambda: sequencer.transport.write(PROGRESS))
    await quorum.connect(directory.parent)

    def received(peer: _Peer, data: bytes) -> None:
        requester[:] = [peer]
        quorum.send(data)

    return received


async def _serve(role: str, directory: Path) -> None:
    make = {"bookie": _bookie, "sequencer": _sequencer, "engine": _engine}[role.partition("-")[0]]
    received = await make(directory / role)
    await child.serve(lambda: _Peer(received), directory / role)


async def _each(count: int, send: Callable[[], None], arrived: asyncio.Queue[Any]) -> float:
    """Median time in ms of sending one after another."""
    taken = []
    for _ in range(count):
        started = perf_counter()
        send()
        await arrived.get()
        taken.append(perf_counter() - started)
    return statistics.median(taken) * 1e3


async def measure(directory: Path, *, count: int = 1000) -> Bare:
    """Appends one after another, from this process; `directory` is made."""
    directory.mkdir()
    arrived: asyncio.Queue[None] = asyncio.Queue()
    record = os.urandom(RECORD_BYTES)
    roles = (*(f"bookie-{number}" for number in range(BOOKIES)), "sequencer", "engine")
    with ExitStack() as stack:
        pids = [stack.enter_context(child.running("benchmarks.bare_shape", role, str(directory))) for role in roles]
        quorum = _Quorum(lambda: arrived.put_nowait(None))
        await quorum.connect(directory)
        engine = await _connect(directory / "engine", lambda *_: arrived.put_nowait(None))
        await _each(count // 4, lambda: engine.transport.write(record), arrived)
        used = machine.cpu_seconds([*pids, os.getpid()])
        append_ms = await _each(count, lambda: engine.transport.write(record), arrived)
        used = machine.cpu_seconds([*pids, os.getpid()]) - used
        ledger_ms = await _each(count, lambda: quorum.send(record), arrived)
    return Bare(append_ms, ledger_ms, used / count * 1e6)


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve(sys.argv[1], Path(sys.argv[2])))
