"""Seeds of a random run, one after the other, from a test or from the command line:

    .venv/bin/python -m libs.tests.oracles.store_run --first 1 --seeds 3000

A run is a coroutine function of a seed. It raises AssertionError where the library and its plain oracle differ, and returns its
counts, so that a person sees how much was checked. A seed that fails says how to run it alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeAlias

import boki
import boki._client
from boki_common import logs
from boki_common.errors import BokiError, ClosedError
from boki_common.testing.machine import SeededRandom
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.records.events import Envelope
from bokilib.testing import Died

Run: TypeAlias = Callable[[int], Coroutine[Any, Any, Counter[str]]]

VIRTUAL_S: Final = 400 * 86_400.0
"""Longest virtual time of a run: a run that waits for longer hangs."""


class JumpingClock(LoopClock):
    """A wall clock in virtual time that a run also moves by hand: hours go by though nothing waits."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class Witness:
    """A session that reads the whole book as it grows, before anything is trimmed. `records`: by place, with their time."""

    def __init__(self, book: boki.Book) -> None:
        self.records: Final[dict[int, tuple[int, Envelope]]] = {}
        self._log: Final = Log(book)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Witness:
        self._task = asyncio.get_running_loop().create_task(self._read())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def caught_up(self) -> None:
        """Wait until the witness has seen all records in the book now."""
        place = await self._log.book.now(consistency="linearizable")
        newest = await self._log.book.read_prev(at_most=place)
        while newest is not None and newest.seqnum not in self.records:
            assert self._task is not None and not self._task.done(), "the witness ended"
            await asyncio.sleep(0.01)

    async def _read(self) -> None:
        async for item in self._log.book.read(follow=True):
            if isinstance(item, boki.Record):
                self.records[item.seqnum] = (item.time_ms, await self._log.open(item))


def running_tasks() -> list[str]:
    """Return the names of all tasks of the run that are not done."""
    return sorted(task.get_name() for task in asyncio.all_tasks())


def run_seed(run: Run, seed: int) -> Counter[str]:
    """Run one seed. Its errors have a note that says how to run it alone."""

    @in_virtual_time
    async def one() -> Counter[str]:
        loop = asyncio.get_running_loop()
        unexpected: list[str] = []

        def failed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            error = context.get("exception")
            if not isinstance(error, (Died, ClosedError, BokiError)):
                unexpected.append(f"{context['message']}: {error!r}")

        loop.set_exception_handler(failed)
        random = SeededRandom(seed)
        async with asyncio.timeout(VIRTUAL_S):
            with constants(
                (boki._client, "SystemRandom", lambda: random)
            ):  # sessions, and pauses before clients connect again
                counted = await run(seed)
        assert not unexpected, f"a task of a library failed: {unexpected[0]}"
        return counted

    try:
        with logs.configured(level="error", stream=io.StringIO()):
            return one()
    except BaseException as error:
        error.add_note(f"seed {seed}; run it alone: .venv/bin/python -m {_module(run)} --first {seed} --seeds 1")
        raise


def run_seeds(run: Run, seeds: range) -> Counter[str]:
    """Run seeds one after the other, up to the first that fails; return the sum of their counts."""
    counted: Counter[str] = Counter()
    for seed in seeds:
        counted += run_seed(run, seed)
    return counted


@contextlib.contextmanager
def constants(*changes: tuple[object, str, object]) -> Iterator[None]:
    """Set constants of modules for a run: limits so small that a short run meets them."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def main(run: Run) -> int:
    """Run the command line, and return the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {_module(run)}")
    parser.add_argument("--first", type=int, default=1, help="seed to begin with")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    asked = parser.parse_args()
    began, counted, failed, ran = time.monotonic(), Counter[str](), 0, 0
    for seed in range(asked.first, asked.first + asked.seeds):
        if time.monotonic() - began > asked.seconds:
            break
        ran += 1
        try:
            counted += run_seed(run, seed)
        except Exception as error:  # noqa: BLE001 - the next seed is run all the same
            failed += 1
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{frame.name} ({frame.filename}:{frame.lineno})"
            say(f"seed {seed} FAILED: {type(error).__name__} in {place}: {error}")
            for note in getattr(error, "__notes__", ()):
                say(f"  {note}")
    seconds = time.monotonic() - began
    sums = ", ".join(f"{count} {what}" for what, count in sorted(counted.items()))
    say(f"{ran - failed} of {ran} seeds hold, {seconds:.0f} s; {sums}")
    return 1 if failed else 0


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _module(run: Run) -> str:
    spec = run.__globals__.get("__spec__")
    return spec.name if spec is not None else run.__module__
