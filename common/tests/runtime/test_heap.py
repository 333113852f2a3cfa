"""What the allocator keeps, and what goes back."""

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from boki_common.runtime import heap
from boki_common.runtime.spare_memory import LOOKS

on_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps memory as configured")

BURST = """
import asyncio
from boki_common.runtime.heap import HeapKeeper, tune_memory
from boki_common.runtime.spare_memory import LOOKS

tune_memory()

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20

async def main(keeper):
    keeper.start()
    for _ in range(LOOKS):
        await keeper.look()                 # what starting left behind
    before = resident()
    burst = [b"x" * 100_000 for _ in range(600)]
    kept = burst[::60]                      # in between, so that no end of the heap is free
    at_most = resident()
    del burst
    after = resident()
    for _ in range(LOOKS):
        await keeper.look()
    print(before, at_most, after, resident(), len(kept))
    keeper.stop()

asyncio.run(main(HeapKeeper()))
"""


def run_script(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


def test_memory_is_tuned_on_glibc_only(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = run_script("from boki_common.runtime.process import tune_memory; print(tune_memory())")
    assert tuned.strip() == str(platform.libc_ver()[0] == "glibc")

    def no_such_name(_name: str) -> str:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "confstr", no_such_name)
    assert heap.tune_memory() is False


@on_glibc
def test_freed_memory_stays_at_first_and_goes_back_when_nobody_needs_it() -> None:
    before, at_most, after, at_last, _ = map(int, run_script(BURST).split())
    assert at_most >= before + 50
    assert after >= at_most - 10, "what is freed is kept for what comes next"
    assert at_last <= before + 10


@pytest.mark.parametrize("missing", ["glibc", "figures"])
def test_where_there_is_nothing_to_see_nothing_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str
) -> None:
    if missing == "glibc":
        monkeypatch.delattr(os, "confstr")
    else:
        monkeypatch.setattr(heap, "_STATM", str(tmp_path / "absent"))
    keeper = heap.HeapKeeper()
    keeper.start()  # without a loop: a timer would fail
    keeper.stop()


@on_glibc
@pytest.mark.blocking_allowed
def test_the_loop_goes_on_while_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gives back waits here until the loop has had a turn."""
    turn, given_back = threading.Event(), []

    class Library:
        def malloc_trim(self, _padding: int) -> None:
            given_back.append(turn.wait(10))

        def mallinfo2(self) -> SimpleNamespace:
            return SimpleNamespace(uordblks=0, hblkhd=0)

    monkeypatch.setattr(heap, "_library_with_figures", Library)
    keeper = heap.HeapKeeper()

    async def look() -> None:
        for _ in range(LOOKS - 1):
            await keeper.look()
        asyncio.get_running_loop().call_soon(turn.set)
        await keeper.look()

    asyncio.run(look())
    keeper.stop()
    assert given_back == [True]


@pytest.mark.parametrize("size", [0, 1, 4_096, 3 * 1024 * 1024])
def test_an_unfilled_buffer_has_its_size_and_is_an_ordinary_one(size: int) -> None:
    buffer = heap.unfilled(size)
    assert type(buffer) is bytearray and len(buffer) == size
    view = memoryview(buffer)
    view[:] = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert bytes(buffer) == bytes(range(256)) * (size // 256) + bytes(size % 256)
    view.release()
    buffer += b"more"
    assert len(buffer) == size + 4 and buffer.endswith(b"more")


def test_an_unfilled_buffer_without_the_function_of_cpython(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_MADE", None)
    assert heap.unfilled(5) == bytes(5)


def test_an_unfilled_buffer_that_nobody_has_memory_for() -> None:
    with pytest.raises(MemoryError):
        heap.unfilled(1 << 62)
    with pytest.raises(MemoryError):
        heap.unfilled(sys.maxsize)
