"""Input arrives without blocking: whole files in large chunks, pipes as they fill, and it can be stopped."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from boki_cli.records.input_chunks import CHUNK_BYTES, chunks, open_input, size_of
from boki_common.errors import InvalidArgument


def test_a_file_is_read_in_chunks(tmp_path: Path) -> None:
    content = os.urandom(CHUNK_BYTES + 100)
    path = tmp_path / "input"
    path.write_bytes(content)
    descriptor = open_input(str(path))
    assert size_of(descriptor) == len(content)

    async def collect() -> list[bytes]:
        return [chunk async for chunk in chunks(descriptor, asyncio.Event())]

    found = asyncio.run(collect())
    os.close(descriptor)
    assert list(map(len, found)) == [CHUNK_BYTES, 100]
    assert b"".join(found) == content


async def test_a_pipe_hands_out_what_is_there_and_stops_when_asked() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    assert size_of(reading) is None
    stop = asyncio.Event()
    found = chunks(reading, stop)
    os.write(writing, b"one\n")
    assert await anext(found) == b"one\n"
    following = asyncio.ensure_future(anext(found, b"stopped"))
    await asyncio.sleep(0)
    assert not following.done()
    stop.set()
    assert await following == b"stopped"
    os.close(writing)
    os.close(reading)


async def test_a_pipe_that_ends_ends_the_input() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.write(writing, b"last")
    os.close(writing)
    assert [chunk async for chunk in chunks(reading, asyncio.Event())] == [b"last"]
    os.close(reading)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "flights.csv").touch()
    with pytest.raises(InvalidArgument, match=r"No such file or directory; did you mean .*flights\.csv\?"):
        open_input(str(tmp_path / "flight.csv"))
    with pytest.raises(InvalidArgument, match="it is a folder"):
        open_input(str(tmp_path))
