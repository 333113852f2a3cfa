"""While a simulation runs, nothing under it may reach the machine: who tries is stopped, and the line is named.

Patched for the duration: the functions of `time` and `random`, `os.urandom`, files, sockets, threads. Which of three
things happens depends on who calls:

    the real ports (`boki_common.runtime.process`)   get the simulation's wall clock and randomness: `boki.connect` works
    the interpreter and test tools (`PASSES`)        pass; for a time they get the simulation's
    everybody else                                   `Refused`, and the run has failed, even if somebody swallows the error

Not seen: C code that asks the kernel by itself, such as `datetime.now`, and whoever kept a function before (`from time
import time`); ruff bans both in this repository, and the determinism test compares whole traces.
"""

from __future__ import annotations

import builtins
import io
import os
import random  # noqa: TID251 - to be patched
import socket  # noqa: TID251 - to be patched
import sys
import threading  # noqa: TID251 - to be patched
import time  # noqa: TID251 - to be patched
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from boki_sim.world.errors import Refused
from boki_sim.world.loop import SimLoop
from boki_sim.world.process import CURRENT
from boki_sim.world.randomness import SimRandom, stream

EPOCH_S: Final = 1_767_225_600.0
"""2026-01-01: wall time when a simulation begins."""
PORTS: Final = "boki_common.runtime.process"
WATCH: Final = "boki_common.runtime.code_watch"
"""Its thread watches real time; here time stands still while code runs, and there is nothing to watch."""
PASSES: Final = (
    "importlib",
    "_frozen_importlib",
    "zipimport",
    "linecache",
    "tokenize",
    "traceback",
    "inspect",
    "warnings",
    "logging",
    "structlog",
    "prometheus_client",
    "_pytest",
    "pluggy",
    "pytest_timeout",
    "hypothesis",
    "coverage",
    "blockbuster",
    "forbiddenfruit",
    "multiprocessing",
    "asyncio.runners",
    "boki_sim",
)
"""Modules, with all below them, that are not the simulated program."""

_CLOCKS: Final = {
    "time": 1.0,
    "time_ns": 1e9,
    "monotonic": 1.0,
    "monotonic_ns": 1e9,
    "perf_counter": 1.0,
    "perf_counter_ns": 1e9,
}
_RANDOM: Final = [
    name for name, found in vars(random).items() if isinstance(getattr(found, "__self__", None), random.Random)
]
"""Functions that draw from the generator that everybody shares, or set it."""


class Guard:
    """What was refused, and the simulation's own clock and randomness for those who may ask."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.refused: list[str] = []
        self._loop = loop
        self._seed = seed
        self._streams: dict[str, SimRandom] = {}
        self._threads = threading.get_ident()

    def randomness(self) -> SimRandom:
        """Of the process that runs now."""
        process = CURRENT.get(None) or self._loop.outside
        found = self._streams.get(process.name)
        if found is None:
            found = self._streams[process.name] = SimRandom(stream(self._seed, "system", process.name))
        return found

    def wall_s(self) -> float:
        """Wall time in seconds, as the machine has it whose process runs now."""
        process = CURRENT.get(None) or self._loop.outside
        return EPOCH_S + self._loop.now if process.clock is None else process.clock.now_ms() / 1000

    def _caller(self) -> str:
        """The module that called a patched function; "" for another thread, which is none of ours."""
        if threading.get_ident() != self._threads:
            return ""
        return str(sys._getframe(2).f_globals.get("__name__", "?"))

    def _refuse(self, what: str) -> Refused:
        frame = sys._getframe(2)
        line = f"{what} by {frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_qualname})"
        self.refused.append(line)
        return Refused(f"{line}: inside the simulation, reach the machine through the ports only")

    def clock(self, name: str, unit: float, real: Callable[[], Any]) -> Callable[[], Any]:
        def patched() -> Any:
            caller = self._caller()
            if not caller:
                return real()
            if caller == PORTS or caller.startswith(PASSES):
                now = self.wall_s() * unit
                return now if unit == 1.0 else int(now)
            raise self._refuse(f"time.{name}()")

        return patched

    def elapsed(self, real: Callable[[int], float]) -> Callable[[int], float]:
        """`clock_gettime`, which the ports ask how long the machine has been up."""

        def patched(clock: int) -> float:
            caller = self._caller()
            if not caller or (caller != PORTS and caller.startswith(PASSES)):
                return real(clock)
            if caller == PORTS:
                return self._loop.now
            raise self._refuse("time.clock_gettime()")

        return patched

    def refusing(self, what: str, real: Callable[..., Any], *, left_out: str = "-") -> Callable[..., Any]:
        """Refuse a call. `left_out`: a module whose call is left out instead."""

        def patched(*args: Any, **options: Any) -> Any:
            caller = self._caller()
            if caller == left_out:
                return None
            if not caller or caller.startswith(PASSES):
                return real(*args, **options)
            raise self._refuse(what)

        return patched

    def urandom(self, real: Callable[[int], bytes]) -> Callable[[int], bytes]:
        def patched(size: int) -> bytes:
            caller = self._caller()
            if caller in (PORTS, "secrets", "random"):
                return self.randomness().token(size)
            if not caller or caller.startswith(PASSES):
                return real(size)
            raise self._refuse("os.urandom()")

        return patched


def _patches(guard: Guard) -> Iterator[tuple[Any, str, Any]]:
    for name, unit in _CLOCKS.items():
        yield time, name, guard.clock(name, unit, getattr(time, name))
    yield time, "clock_gettime", guard.elapsed(time.clock_gettime)
    yield time, "sleep", guard.refusing("time.sleep()", time.sleep)
    for name in _RANDOM:
        yield random, name, guard.refusing(f"random.{name}()", getattr(random, name))
    real_urandom = os.urandom  # noqa: TID251 - to be patched
    yield os, "urandom", guard.urandom(real_urandom)
    yield random, "_urandom", guard.urandom(real_urandom)
    for module, name in ((builtins, "open"), (io, "open"), (os, "open"), (os, "fdopen")):
        yield module, name, guard.refusing(f"{module.__name__}.{name}()", getattr(module, name))
    for name in ("create_connection", "getaddrinfo", "socketpair"):
        yield socket, name, guard.refusing(f"socket.{name}()", getattr(socket, name))
    yield socket.socket, "__init__", guard.refusing("socket.socket()", socket.socket.__init__)
    start = guard.refusing("threading.Thread.start()", threading.Thread.start, left_out=WATCH)
    yield threading.Thread, "start", start


@contextmanager
def guarded(loop: SimLoop, seed: int) -> Iterator[Guard]:
    """Patches the machine away; what was there comes back in any case."""
    guard = Guard(loop, seed)
    before = []
    try:
        for owner, name, patched in list(_patches(guard)):
            before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, patched)
        yield guard
    finally:
        for owner, name, real in reversed(before):
            setattr(owner, name, real)
