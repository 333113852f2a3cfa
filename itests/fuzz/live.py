"""Real servers, each a process of its own, are sent damaged conversations for a while, and have to serve everybody else meanwhile.

    .venv/bin/python -m itests.fuzz.live --seconds 60 --servers engine,bookie-v2 --seed 1

Many connections, each with many frames in one write: some before a HELLO, most after one, valid ones and damaged ones. What is
looked for, every second and at the end:

- the process lives, and answers a peer that says what it should;
- it has logged no error, no traceback, and no request that failed inside;
- its memory does not grow by more than `GROWTH_BYTES` after the first part of the time.

A finding names the seed; the last connections before it are kept in `.venv/fuzz/`. Not a test of pytest's, but `test_live` runs it for
some seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import msgspec

from boki_cli.demo.local_cluster import LocalCluster
from boki_common.bookkeeper import v2, v3
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v3_messages import ReadRequest
from boki_common.engine import engine_protocol
from boki_common.errors import BokiError
from boki_common.limits import MIB
from boki_common.net.connection import Address
from boki_common.net.messages import encode
from boki_metalog.entries import sequencer_protocol
from itests.fuzz import conversations
from itests.fuzz.conversations import Conversation
from itests.support.processes import running

PEERS: Final = 4
FRAMES_A_CONNECTION: Final = 300
DAMAGED_A_CONNECTION: Final = 30
"""After the others, as the first of these often ends it: what came in the same read is looked at all the same."""
BEFORE_HELLO: Final = 0.25
"""Of the connections. So few frames as arrive in one read, since the first ends it:"""
FRAMES_BEFORE_HELLO: Final = 40
POOL: Final = 512
KEPT: Final = 64
LOG_LINES: Final = 25
TIMEOUT_S: Final = 30.0
WARM_PART: Final = 0.3
GROWTH_BYTES: Final = 96 * MIB
"""What was taken of what was sent is kept (records, rows of an index), and what a cache may hold."""
FINDINGS: Final = Path(__file__).parents[2] / ".venv/fuzz"
_BAD_LINE: Final = re.compile(rb"Traceback|level=error|failed inside")
_REFUSED: Final = b"refused an add"
"""Logged as an error, since a client or the network damages entries: here that is us."""
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Finding(AssertionError):
    """A server did what it must not."""


class Server(NamedTuple):
    """What to send where, and how to ask whether it still serves."""

    role: str
    conversation: Callable[[], Conversation]
    probe: Callable[[Address], Awaitable[None]]


class Target(NamedTuple):
    """A server that runs."""

    name: str
    address: Address
    pid: int
    log: Path
    server: Server


class Counts:
    """Of one server."""

    def __init__(self) -> None:
        self.frames = 0
        self.before_hello = 0
        self.connections = 0
        self.answered_bytes = 0
        self.warm_bytes = 0
        self.last_bytes = 0

    def line(self, name: str) -> str:
        return (
            f"{name}: {self.frames:,} frames ({self.before_hello:,} before HELLO) in {self.connections:,} connections, "
            f"{self.answered_bytes // MIB:,} MiB of answers, memory {self.warm_bytes // MIB} → {self.last_bytes // MIB} MiB"
        )


ABSENT: Final = (V2Status.NO_LEDGER, V2Status.NO_ENTRY)


# -- whether a server still serves


async def _exchange(address: Address, *frames: bytes) -> list[bytes]:
    """Sends frames and returns as many."""
    reader, writer = await _open(address)
    try:
        answers = []
        for frame in frames:
            writer.write(frame)
            answers.append(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
        return answers
    finally:
        writer.close()


async def _open(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.path:
        return await asyncio.open_unix_connection(address.path)
    return await asyncio.open_connection(address.host, address.port)


def _asks_status(made: Callable[[], Conversation], opcode: int) -> Callable[[Address], Awaitable[None]]:
    async def ask(address: Address) -> None:
        status = b"".join(encode(opcode, 0, 1, ()))
        _, answer = await _exchange(address, made().hello, status)
        msgspec.json.decode(answer[12:])

    return ask


async def _reads_v2(address: Address) -> None:
    (answer,) = await _exchange(address, v2.encode_read(2**40, 0))
    status = v2.decode_response(memoryview(answer)).status
    assert status in ABSENT, status


async def _reads_v3(address: Address) -> None:
    request = ReadRequest(1, None, 2**40, 0, None, False, -1, 0)
    (answer,) = await _exchange(address, v3.encode_request(request))
    status = v3.decode_response(memoryview(answer)).status
    assert status in ABSENT, status


async def _gets_health(address: Address) -> None:
    """Its health is the engine's too, which may be busy for a moment: asked until both are well."""
    answer = b"HTTP/1.1 503"
    while answer.startswith(b"HTTP/1.1 503"):
        reader, writer = await _open(address)
        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer[-200:]


SERVERS: Final[Mapping[str, Server]] = {
    "engine": Server(
        "engine", conversations.to_engines, _asks_status(conversations.to_engines, engine_protocol.OP_STATUS)
    ),
    "sequencer": Server(
        "sequencer",
        conversations.to_sequencers,
        _asks_status(conversations.to_sequencers, sequencer_protocol.OP_STATUS),
    ),
    "controller": Server(
        "controller",
        conversations.to_controllers,
        _asks_status(conversations.to_controllers, sequencer_protocol.OP_STATUS),
    ),
    "bookie-v2": Server("bookie", lambda: conversations.to_bookies("v2"), _reads_v2),
    "bookie-v3": Server("bookie", lambda: conversations.to_bookies("v3"), _reads_v3),
    "gateway": Server("gateway", conversations.to_gateways, _gets_health),
}


# -- one server


class Fuzzed:
    """Sends to one server until the time is over. Invariant: `last` holds what was sent most recently, by connection."""

    def __init__(self, target: Target, numbers: Random) -> None:
        self.counts = Counts()
        self._target = target
        self._numbers = numbers
        self._conversation = target.server.conversation()
        self._last: deque[bytes] = deque(maxlen=KEPT)
        self._log_at = target.log.stat().st_size
        self._damaged: list[bytes] = [self._another() for _ in range(POOL)]

    async def run(self, seconds: float) -> None:
        begun = time.monotonic()
        ends, warm = begun + seconds, begun + WARM_PART * seconds
        peers = [asyncio.create_task(self._talk_until(ends)) for _ in range(PEERS)]
        try:
            while not all(peer.done() for peer in peers):
                await asyncio.wait(peers, timeout=1.0)
                await self._look()
                if time.monotonic() <= warm or not self.counts.warm_bytes:
                    self.counts.warm_bytes = self.counts.last_bytes
            for peer in peers:
                peer.result()
            grown = self.counts.last_bytes - self.counts.warm_bytes
            if grown > GROWTH_BYTES:
                raise self._finding(f"its memory grew by {grown:,} bytes, more than {GROWTH_BYTES:,}")
        finally:
            for peer in peers:
                peer.cancel()
            await asyncio.gather(*peers, return_exceptions=True)

    def _another(self) -> bytes:
        samples = self._conversation.samples
        return self._numbers.choice(samples).damaged(self._numbers, samples)

    def _stream(self) -> bytes:
        """What one connection says."""
        numbers, conversation = self._numbers, self._conversation
        for _ in range(8):
            self._damaged[numbers.randrange(POOL)] = self._another()
        early = bool(conversation.hello) and numbers.random() < BEFORE_HELLO
        damaged = numbers.choices(self._damaged, k=numbers.randrange(1, DAMAGED_A_CONNECTION))
        sound = numbers.randrange(FRAMES_BEFORE_HELLO if early else FRAMES_A_CONNECTION)
        frames = [*(one.whole for one in numbers.choices(conversation.harmless, k=sound)), *damaged]
        if early:
            numbers.shuffle(frames)
            self.counts.before_hello += len(frames)
        elif conversation.hello:
            frames.insert(0, conversation.hello)
        self.counts.frames += len(frames)
        self.counts.connections += 1
        return b"".join(frames)

    async def _talk_until(self, ends: float) -> None:
        while time.monotonic() < ends:
            stream = self._stream()
            self._last.append(stream)
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._talk(stream)
            except TimeoutError:  # an OSError too
                raise self._finding(f"a connection whose peer had said all was not ended in {TIMEOUT_S:g} s") from None
            except OSError:
                pass  # it may hang up

    async def _talk(self, stream: bytes) -> None:
        reader, writer = await _open(self._target.address)
        try:
            writer.write(stream)
            if self._numbers.random() < 0.05:
                return  # leaves in the middle
            writer.write_eof()
            while answers := await reader.read(1 << 18):
                self.counts.answered_bytes += len(answers)
        finally:
            writer.transport.abort()

    async def _look(self) -> None:
        target = self._target
        try:
            pages = Path(f"/proc/{target.pid}/statm").read_text().split()[1]
        except OSError:
            raise self._finding("its process is gone") from None
        self.counts.last_bytes = int(pages) * _PAGE_BYTES
        with target.log.open("rb") as log:
            log.seek(self._log_at)
            said = log.read()
        self._log_at += len(said)
        for line in said.splitlines():
            if _BAD_LINE.search(line) and _REFUSED not in line:
                raise self._finding(f"it logged: {line.decode(errors='replace')}")
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await target.server.probe(target.address)
        except (OSError, EOFError, TimeoutError, AssertionError, BokiError, msgspec.DecodeError) as error:
            raise self._finding(f"it does not serve a valid peer: {error!r}") from error

    def _finding(self, what: str) -> Finding:
        FINDINGS.mkdir(parents=True, exist_ok=True)
        path = FINDINGS / f"live-{self._target.name}"
        path.write_bytes(msgspec.msgpack.encode(list(self._last)))
        said = "\n".join(self._target.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
        return Finding(
            f"{self._target.name}: {what}\nThe last {len(self._last)} connections are in {path}. The end of its log:\n{said}"
        )


async def fuzz_live(
    directory: Path, names: list[str], *, seconds: float, seed: int, report: Callable[[str], object] = lambda _: None
) -> dict[str, Counts]:
    """Starts a cluster in `directory` and fuzzes the servers named, one after another; `report` gets a line for each. Raises Finding."""
    found: dict[str, Counts] = {}
    async with (
        LocalCluster(directory, bookies=1, controllers=1, settings=ONE_COPY) as cluster,
        running("gateway", "--url", cluster.url, "--port", "0", log=directory / "gateway.log") as gateway,
    ):
        for name in names:
            server = SERVERS[name]
            if server.role == "gateway":
                address = Address.parse(gateway.address.removeprefix("http://"))
                target = Target(name, address, gateway.process.pid, directory / "gateway.log", server)
            else:
                role = f"{server.role}-1"
                target = Target(
                    name, Address.parse(cluster.address(role)), cluster.pids[role], cluster.log_path(role), server
                )
            fuzzed = Fuzzed(target, Random(f"{seed}/{name}"))
            found[name] = fuzzed.counts
            await fuzzed.run(seconds)
            await cluster.check()
            report(fuzzed.counts.line(name))
    return found


ONE_COPY: Final = {f"BOKI_{role}_{name}": "1" for role in ("SEQUENCER", "ENGINE") for name in ("REPLICAS", "ACKS")}


def main() -> None:
    parser = argparse.ArgumentParser(description="Damaged conversations with real servers.")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each server")
    parser.add_argument("--servers", default=",".join(SERVERS), help="with commas")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    print(f"live servers, seed {arguments.seed}, {arguments.seconds:g} s each", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        try:
            names = arguments.servers.split(",")
            asyncio.run(
                fuzz_live(Path(directory), names, seconds=arguments.seconds, seed=arguments.seed, report=_print)
            )
        except Finding as finding:
            sys.exit(f"seed {arguments.seed}: {finding}")


def _print(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
