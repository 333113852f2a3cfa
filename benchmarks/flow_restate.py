"""A node of Restate, which `flow_peer` drives: the server, a service of steps that do nothing, counters, and clients that ask over HTTP.

    python -m benchmarks.flow_restate SERVER DIRECTORY

Service and clients are in this process, the server is another; all listen on the loopback alone.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import socket
import subprocess
import sys
import urllib.request
from importlib import metadata
from pathlib import Path
from time import monotonic
from typing import Any, Final

from benchmarks.flow_peer import serve

START_TIMEOUT_S: Final = 50.0


COUNTERS: Final = 1_000


def service() -> Any:
    """The application: workflows of one step and of five, and counters, which are virtual objects."""
    restate: Any = importlib.import_module("restate")
    bench = restate.Service("bench")

    async def step(number: int) -> int:
        return number + 1

    @bench.handler()  # type: ignore[untyped-decorator]  # of a package that need not be there
    async def steps(ctx: Any, count: int) -> int:
        total = 0
        for _ in range(count):
            total = await ctx.run_typed("step", step, number=total)
        return total

    counters = restate.VirtualObject("counters")

    @counters.handler()  # type: ignore[untyped-decorator]  # of a package that need not be there
    async def add(ctx: Any, number: int) -> int:
        total = (await ctx.get("total", type_hint=int) or 0) + number
        ctx.set("total", total)
        return total

    # What the SDK reads of it: the types of this module are unknown to it.
    steps.__annotations__.update(ctx=restate.Context, count=int)
    add.__annotations__.update(ctx=restate.ObjectContext, number=int)
    return restate.app([bench, counters])


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in held]
    for one in held:
        one.close()
    return ports


def start_server(program: str, directory: Path, ports: list[int]) -> subprocess.Popen[bytes]:
    """The server, with the settings that it is shipped with, but for where it listens and keeps its data."""
    node, ingress, admin = ports
    directory.mkdir(parents=True)
    settings = {
        "RESTATE_BASE_DIR": str(directory),
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
        "RUST_LOG": "warn",
    }
    with (directory / "log").open("wb") as log:
        return subprocess.Popen([program, "--no-logo"], stdout=log, stderr=log, env={**os.environ, **settings})


def ask(url: str, body: object | None = None) -> bytes:
    """One call, blocking."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as reply:
        found: bytes = reply.read()
        return found


def until_it_answers(url: str, body: object | None = None) -> None:
    """Asks until there is an answer. Raises the last fault."""
    deadline = monotonic() + START_TIMEOUT_S
    while True:
        try:
            ask(url, body)
            return
        except OSError:
            if monotonic() > deadline:
                raise
            import time

            time.sleep(0.1)


class Clients:
    """Connections that are kept, one for each client at a time: HTTP/1.1, as little of it as is needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._counter = 0
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def steps(self, count: int) -> None:
        """Runs a workflow of so many steps to its end."""
        found = await self._call("/bench/steps", count)
        assert found == count, found

    async def add(self) -> None:
        """Adds to one counter after the other."""
        self._counter = (self._counter + 1) % COUNTERS
        await self._call(f"/counters/c{self._counter}/add", 1)

    async def _call(self, path: str, argument: int) -> int:
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._port)
        body = str(argument).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        headers = (await reader.readuntil(b"\r\n\r\n")).lower()
        found = b""
        if b"content-length:" in headers:
            length = int(headers.split(b"content-length:")[1].split(b"\r\n")[0])
            found = await reader.readexactly(length)
        else:
            while (size := int(await reader.readline(), 16)) > 0:
                found += await reader.readexactly(size)
                await reader.readline()
            await reader.readline()
        assert b" 200 " in headers.split(b"\r\n")[0], (headers, found)
        self._idle.append((reader, writer))
        return int(found)


async def run(port: int, node_pid: int, ports: list[int]) -> None:
    config: Any = importlib.import_module("hypercorn.config").Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.accesslog = None
    hypercorn: Any = importlib.import_module("hypercorn.asyncio")
    stop = asyncio.Event()
    serving = asyncio.create_task(hypercorn.serve(service(), config, shutdown_trigger=stop.wait))
    _, ingress, admin = ports
    await asyncio.to_thread(until_it_answers, f"http://127.0.0.1:{admin}/health")
    await asyncio.to_thread(
        until_it_answers, f"http://127.0.0.1:{admin}/deployments", {"uri": f"http://127.0.0.1:{port}"}
    )
    await asyncio.to_thread(until_it_answers, f"http://127.0.0.1:{ingress}/bench/steps", 1)
    clients = Clients(ingress)
    loads = {"1 step": lambda: clients.steps(1), "5 steps": lambda: clients.steps(5), "add": clients.add}
    await serve(loads, version=metadata.version("restate-sdk"), server=node_pid)
    stop.set()
    await serving


def main() -> None:
    program, directory = sys.argv[1:]
    port, *ports = free_ports(4)
    server = start_server(program, Path(directory), ports)
    try:
        asyncio.run(run(port, server.pid, ports))
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
