"""What an event loop reports takes one line; what it repeats for ever takes one a minute."""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from boki_common import logs
from boki_common.runtime.loop_faults import LibraryLogs, LoopFaults


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    with logs.configured(stream=stream):
        yield stream


async def test_a_thousand_failed_accepts_are_one_line_with_what_to_do(said: io.StringIO) -> None:
    faults, loop = LoopFaults(), asyncio.get_running_loop()
    error = OSError(errno.EMFILE, "Too many open files")
    for _ in range(1_000):
        faults(loop, {"message": "socket.accept() out of system resource", "exception": error, "socket": object()})
    (line,) = said.getvalue().splitlines()
    assert "no connection can be accepted" in line
    assert "ulimit -n" in line


async def test_a_fault_that_nobody_caught_is_one_line_with_its_traceback(said: io.StringIO) -> None:
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError as error:
        LoopFaults()(asyncio.get_running_loop(), {"message": "Task exception was never retrieved", "exception": error})
    (line,) = said.getvalue().splitlines()
    assert 'event="Task exception was never retrieved"' in line
    assert "ZeroDivisionError: a bug" in line
    assert "Traceback" in line


def test_what_a_library_logs_is_one_line_too(said: io.StringIO) -> None:
    log = logging.getLogger("aiohttp.server.of.a.test")
    log.propagate = False
    log.addHandler(LibraryLogs())
    try:
        raise ValueError("bad request")
    except ValueError:
        log.exception("Error handling request from %s", "10.0.0.7")
    log.warning("of %d arguments", "not a number")
    first, second = said.getvalue().splitlines()
    assert 'source=aiohttp.server.of.a.test event="Error handling request from 10.0.0.7"' in first
    assert "Traceback" in first
    assert "cannot be read" in second


CROWDED = """
import asyncio, resource, sys
from boki_common import logs
from boki_common.net.connection import Address, FrameServer
from boki_common.runtime import process

class Echo:
    def __init__(self, connection):
        self.connection = connection
        connection.introduced()
    def frames_received(self, frames):
        for frame in frames:
            self.connection.send(len(frame).to_bytes(4, "big"), frame)
    def connection_lost(self, error): ...

async def main(stop):
    server = await FrameServer.start(Address("127.0.0.1", 0), Echo)
    print(server.address.port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.close()
    return 0

resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
logs.configure()
sys.exit(process.run(main))
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_connections_are_taken_again_when_there_are_descriptors_with_few_words(loop: str) -> None:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CROWDED, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"BOKI_LOOP": loop},
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    port = int(await child.stdout.readline())
    crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
    if loop == "asyncio":
        assert b"no connection can be accepted" in await child.stderr.readline()
    for _, writer in crowd:
        writer.close()
    while True:  # until one is served
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\0\0\0\2ok")
        try:
            answer = await reader.readexactly(6)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            continue
        break
    assert answer == b"\0\0\0\2ok"
    writer.close()
    child.stdin.close()
    assert await child.wait() == 0
    assert await child.stderr.read() == b""
