"""Standard error of a server: never raises, never waits, says what was lost."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

import click
import pytest

from boki_common.runtime.error_stream import ErrorStream

LINE = "x" * 99 + "\n"
HELD_BYTES = 10_000


class Losses:
    """What a stream tells of."""

    def __init__(self) -> None:
        self.lines = 0

    def __call__(self, lines: int) -> None:
        self.lines += lines


@pytest.fixture
def losses() -> Losses:
    return Losses()


@pytest.fixture
def made(losses: Losses) -> Callable[[int], ErrorStream]:
    return lambda descriptor: ErrorStream(
        descriptor, notice=lambda count: f"lost {count}\n", lost=losses, held_bytes_limit=HELD_BYTES
    )


@pytest.fixture(params=["pipe", "socket"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """Descriptors of a reader and a writer."""
    if request.param == "pipe":
        pair = os.pipe()
    else:
        one, other = socket.socketpair()
        pair = one.detach(), other.detach()
    yield pair
    for descriptor in pair:
        with suppress(OSError):  # the test closed it
            os.close(descriptor)


@pytest.fixture
def read(ends: tuple[int, int], made: Callable[[int], ErrorStream]) -> tuple[int, ErrorStream]:
    """A reader's descriptor, and the stream that it reads."""
    return ends[0], made(ends[1])


def read_until(descriptor: int, end: bytes) -> bytes:
    found = b""
    while not found.endswith(end):
        found += os.read(descriptor, 65_536)
    return found


def test_what_can_be_written_is_there_at_once(read: tuple[int, ErrorStream]) -> None:
    reader, stream = read
    stream.write("one\n")
    assert os.read(reader, 100) == b"one\n"
    stream.write("zwölf \ud800\n")
    assert os.read(reader, 100) == "zwölf \\ud800\n".encode()


def test_bytes_are_taken_as_any_other_stream_of_text_does(read: tuple[int, ErrorStream]) -> None:
    reader, stream = read
    assert stream.buffer.write(memoryview(b"one\n")) == 4
    for said in (b"two", "three"):
        click.echo(said, file=cast(TextIO, stream))
    assert os.read(reader, 100) == b"one\ntwo\nthree\n"


def test_a_reader_that_stalls_keeps_nobody_waiting_and_gets_all_in_order_later(
    read: tuple[int, ErrorStream], losses: Losses
) -> None:
    reader, stream = read
    count = 0
    while not stream._held:
        stream.write(f"{count:99}\n")
        count += 1
    for number in range(count, count + 50):
        stream.write(f"{number:99}\n")
    found = read_until(reader, f"{count + 49:99}\n".encode())
    assert [int(line) for line in found.splitlines()] == list(range(count + 50))
    assert losses.lines == 0


def test_what_has_no_room_is_counted_and_reported_when_there_is_some_again(
    read: tuple[int, ErrorStream], losses: Losses
) -> None:
    reader, stream = read
    count = 0
    while not losses.lines:
        stream.write(LINE)
        count += 1
    for _ in range(6):
        stream.write(LINE)
    assert losses.lines == 7
    found = read_until(reader, b"lost 7\n")
    assert found == LINE.encode() * (count - 1) + b"lost 7\n"
    stream.finish()
    stream.write("after\n")
    assert os.read(reader, 100) == b"after\n"


def test_a_reader_that_is_gone_makes_lost_lines_and_nothing_else(read: tuple[int, ErrorStream], losses: Losses) -> None:
    reader, stream = read
    os.close(reader)
    for _ in range(3):
        stream.write(LINE)
    stream.finish()
    assert losses.lines == 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_lines_lost_to_a_full_disk_are_reported_when_there_is_space(
    made: Callable[[int], ErrorStream], losses: Losses, tmp_path: Path
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    stream = made(full)
    for _ in range(4):
        stream.write(LINE)
    assert losses.lines == 4
    file = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY)
    os.dup2(file, full)
    stream.write("again\n")
    stream.write("and again\n")
    assert (tmp_path / "log").read_text() == "lost 4\nagain\nand again\n"
    os.close(file)
    os.close(full)


def test_the_flag_of_the_inherited_description_is_left_as_it_was(made: Callable[[int], ErrorStream]) -> None:
    reader, writer = os.pipe()
    made(writer).write(LINE)
    assert os.get_blocking(writer)
    os.close(reader)
    os.close(writer)


SERVER = """
import asyncio, sys
from boki_common import limits, logs
from boki_common.runtime import process

async def main(stop):
    log = logs.get_logger("test")
    for number in range({count}):
        log.warning("a line", number=number, more="x" * 100)
    print("served", logs.lost_lines(), flush=True)
    return 3

limits.LOG_FLUSH_S = {flush_s}
logs.configure()
sys.exit(process.run(main))
"""


def server(count: int, *, flush_s: float) -> subprocess.Popen[bytes]:
    script = SERVER.format(count=count, flush_s=flush_s)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_server_whose_errors_nobody_reads_goes_on_and_ends() -> None:
    with server(20_000, flush_s=0.1) as child:
        assert child.stdout is not None and child.stderr is not None
        kind, lost = child.stdout.readline().split()
        assert kind == b"served"
        assert child.wait() == 3
        found = child.stderr.read()
    lines = found.splitlines()
    assert int(lost) > 0
    assert all(b"number=%d " % number in line for number, line in enumerate(lines[:-1]))


def test_the_end_of_a_server_waits_for_a_reader_that_comes_late() -> None:
    with server(2_000, flush_s=60) as child:
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline() == b"served 0\n"
        assert len(child.stderr.read().splitlines()) == 2_000
        assert child.wait() == 3
