"""The process around a role: wall clock, randomness, event loop, signals, memory, garbage collector.

`SystemClock` and `SystemRandom` are the real implementations of the ports. `run` starts the loop for a server and turns
SIGTERM and SIGINT into one event that the server waits for; `run_command` is for commands that end by themselves. What a
server has freed and does not need for a while goes back to the system (`heap`). Its standard error neither fails nor waits
(`error_stream`), and faults that nobody caught take one line (`loop_faults`).

Rules:
- The loop is uvloop's where it can be imported; `BOKI_LOOP=asyncio` turns it off, `BOKI_LOOP=uvloop` demands it. All
  code runs on both: neither has timers below a millisecond.
- The first signal asks for a clean stop, the second one cancels. What is acknowledged is durable before the
  acknowledgement leaves, so even SIGKILL loses nothing; a clean stop only saves others a time-out.
- One of the few modules that may use `os`, `time` and `signal`; it knows no role.
"""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from boki_common.errors import SettingsError
from boki_common.logs import count_lost, get_logger, lost_notice
from boki_common.runtime import error_stream
from boki_common.runtime.heap import HeapKeeper
from boki_common.runtime.heap import tune_memory as tune_memory
from boki_common.runtime.loop_faults import LoopFaults, take_library_logs

T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]

INTERRUPTED: Final = 130
"""Exit code of a process that a signal cancelled: 128 + SIGINT, as shells have it."""

_log = get_logger("process")


_ELAPSED: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has it. Elsewhere (macOS) the monotonic clock of the system itself runs on while the machine sleeps."""


class SystemClock:
    """Time of the machine (port `MachineClock`)."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def elapsed_s(self) -> float:
        return time.clock_gettime(_ELAPSED)


class SystemRandom:
    """Randomness of the operating system (port `Random`)."""

    def token(self, size: int) -> bytes:
        return os.urandom(size)

    def below(self, bound: int) -> int:
        return secrets.randbelow(bound)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return secrets.SystemRandom().sample(items, len(items))


def loop_factory(environ: Mapping[str, str] = os.environ) -> LoopFactory:
    """What makes the event loops of this process. Raises SettingsError: BOKI_LOOP is neither "uvloop" nor "asyncio", or uvloop
    is demanded and cannot be imported."""
    wanted = environ.get("BOKI_LOOP", "")
    if wanted not in ("", "asyncio", "uvloop"):
        raise SettingsError(f"expected BOKI_LOOP to be asyncio or uvloop, found {wanted!r}; unset it for the default")
    if wanted == "asyncio":
        return asyncio.new_event_loop
    try:
        import uvloop
    except ImportError as fault:
        if wanted == "uvloop":
            raise SettingsError(f"BOKI_LOOP asks for uvloop: {fault}; pip install uvloop") from fault
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def run(main: Callable[[asyncio.Event], Coroutine[Any, Any, int]]) -> int:
    """Runs a server until it returns; the result is the exit code of the process.

    Args:
        main: gets the event that SIGTERM and SIGINT set; closes what it opened and returns an exit code. A second
            signal cancels it, and the exit code is `INTERRUPTED`.

    Raises:
        What `main` raises, and SettingsError of `loop_factory`.
    """
    error_stream.install(notice=lost_notice, lost=count_lost)
    take_library_logs()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.get_loop().set_exception_handler(LoopFaults())
        return runner.run(_with_kept_heap(main, HeapKeeper()))


def run_command(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Runs a command that ends by itself; the first SIGTERM or SIGINT cancels it: exit code `INTERRUPTED`."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_until_stopped(lambda _stop: main(), graceful_signals=0))


async def _with_kept_heap(main: Callable[[asyncio.Event], Coroutine[Any, Any, int]], heap: HeapKeeper) -> int:
    heap.start()
    try:
        return await _until_stopped(main, graceful_signals=1)
    finally:
        heap.stop()


async def _until_stopped(main: Callable[[asyncio.Event], Coroutine[Any, Any, int]], *, graceful_signals: int) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    task = asyncio.ensure_future(main(stop))
    signals_met = 0

    def met(number: signal.Signals) -> None:
        nonlocal signals_met
        signals_met += 1
        if signals_met <= graceful_signals:
            _log.info("stopping", signal=number.name)
            stop.set()
        else:
            task.cancel()

    handled = (signal.SIGTERM, signal.SIGINT)
    for number in handled:
        loop.add_signal_handler(number, met, number)
    try:
        return await task
    except asyncio.CancelledError:
        if signals_met <= graceful_signals:
            raise
        return INTERRUPTED
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def freeze_garbage() -> None:
    """To be called once a role is up, and after an index rebuild: what lives now will live long.

    Excludes all present objects from collections, and collects new ones less often: batches and columns leave few cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
