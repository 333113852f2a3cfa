"""`boki append` of a file, with the server or the command itself killed at several points: the same command again ends exact."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

import boki
from itests.support.processes import BOKI, Running, running

pytestmark = pytest.mark.processes

RECORDS = 30_000
POINTS = (1, 2_000, 15_000)
"""Records that are committed when something is killed."""


def boki_dev(folder: Path, listen: str) -> AbstractAsyncContextManager[Running]:
    arguments = ("dev", "--data", folder / "data", "--listen", listen, "--gateway-port", "-1")
    return running(*arguments, log=folder / "dev.log")


async def append(folder: Path, url: str) -> Process:
    path = folder / "in.txt"
    command = ("append", str(path), "--book", "b", "--format", "text", "--tag", "t", "--url", url, "--timeout", "1")
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    return await asyncio.create_subprocess_exec(*BOKI, *command, stdout=PIPE, stderr=PIPE, env=environment)


async def killed_at(url: str, records: int, victim: Process, command: Process) -> None:
    """Kills the victim once so many records are in the book, or the command is over."""
    async with boki.connect(url) as client:
        records_seen = 0
        position: int | None = None
        book = client.book("b")
        while records_seen < records and command.returncode is None:
            page = [record async for record in book.read(start=position, limit=1_000, consistency="linearizable")]
            records_seen += len(page)
            position = page[-1].seqnum + 1 if page else position
        if victim.returncode is None:
            victim.send_signal(signal.SIGKILL)
        await victim.wait()


@asynccontextmanager
async def a_file_of_lines(folder: Path) -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """Makes the file; what it yields checks that a book has exactly its lines."""
    lines = [b"line %d" % number for number in range(RECORDS)]
    (folder / "in.txt").write_bytes(b"\n".join(lines))

    async def check(url: str) -> None:
        async with boki.connect(url) as client:
            assert [record.data async for record in client.book("b").read("t", consistency="linearizable")] == lines

    yield check


@pytest.mark.timeout(120)
async def test_the_server_killed_at_several_points(tmp_path: Path) -> None:
    listen = f"unix://{tmp_path}/engine.sock"
    async with a_file_of_lines(tmp_path) as check:
        for point in (*POINTS, RECORDS + 1):
            async with boki_dev(tmp_path, listen) as server:
                command = await append(tmp_path, listen)
                if point <= RECORDS:
                    await killed_at(listen, point, server.process, command)
                _, said = await command.communicate()
            assert b"--skip" not in said
            if command.returncode == 0:
                break  # it was done before anything was killed
            assert command.returncode in (3, 5), said
        async with boki_dev(tmp_path, listen):
            await check(listen)


@pytest.mark.timeout(120)
async def test_the_command_killed_at_several_points(tmp_path: Path) -> None:
    listen = f"unix://{tmp_path}/engine.sock"
    async with a_file_of_lines(tmp_path) as check, boki_dev(tmp_path, listen):
        for point in (*POINTS, RECORDS + 1):
            command = await append(tmp_path, listen)
            if point <= RECORDS:
                await killed_at(listen, point, command, command)
            _, said = await command.communicate()
            if command.returncode == 0:
                break
            assert command.returncode == -signal.SIGKILL, said
        await check(listen)
