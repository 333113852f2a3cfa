"""A cluster in memory that commands reach by its URL, and a way to run commands as a shell would."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TextIO

import pytest
from click.testing import CliRunner

from boki.testing import MemoryCluster
from boki_cli import options
from boki_cli.main import boki as boki_command


class Outcome(NamedTuple):
    """What a shell sees of a command."""

    code: int
    out: str
    err: str


RunBoki = Callable[..., Outcome]


@contextmanager
def piped(content: bytes) -> Iterator[TextIO]:
    """A pipe that hands out the content and ends: what `... | boki append -` reads."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)  # the command waits until it is readable; a read that blocks would be a fault

    def write() -> None:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(content)

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(reading) as pipe:
        yield pipe
    writer.join(10)


@pytest.fixture
def run_boki() -> RunBoki:
    """Runs one command line in this process: `run_boki("read", "--book", "b", stdin=b"...")`."""

    def run(*arguments: str, stdin: bytes = b"") -> Outcome:
        with CliRunner().isolation() as (out, err, _), piped(stdin) as pipe:
            sys.stdin = pipe
            code = options.run(boki_command, arguments)
            found, said = out.getvalue(), err.getvalue()
        return Outcome(code, found.decode(), said.decode())

    return run


@pytest.fixture
def memory_url() -> Iterator[str]:
    """The URL of a cluster in memory whose loop runs in a thread: each command has a loop of its own."""
    ready = threading.Event()
    urls: list[str] = []
    loop = asyncio.new_event_loop()
    done = asyncio.Event()

    async def serve() -> None:
        async with MemoryCluster() as cluster:
            urls.append(cluster.url)
            ready.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    yield urls[0]
    loop.call_soon_threadsafe(done.set)
    thread.join(10)
    loop.close()
