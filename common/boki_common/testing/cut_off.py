"""Waits of blocking faces that a signal cuts off, as Ctrl-C and the alarms of test runners do.

with cut_off(thread.run):
    next(records)              # waits for a record, and is cut off by an error
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from boki_common.errors import BokiError
from boki_common.runtime.loop_thread import Handover

_TAKE: Final = Handover._take.__qualname__
RESEND_S: Final = 0.05


class Alarm(Exception):
    """The error that the handler of the signal raises."""


@contextmanager
def cut_off(run: Callable[[Coroutine[Any, Any, bool]], bool]) -> Iterator[None]:
    """Raise Alarm in the main thread, which waits for a `Handover` inside, once its coroutine runs; swallow it at the end.

    Args:
        run: runs a coroutine in the loop of the handover and waits.
    """

    async def takes() -> bool:
        return any(getattr(task.get_coro(), "__qualname__", "") == _TAKE for task in asyncio.all_tasks())

    def waits() -> bool:
        """Return whether the thread waits: an error raised just before would leave the coroutine alone."""
        frame: FrameType | None = sys._current_frames()[here]
        while frame is not None and frame.f_code is not Future.result.__code__:
            frame = frame.f_back
        return frame is not None

    def send() -> None:
        try:
            while not left.is_set() and not (run(takes()) and waits()):
                pass
        except BokiError:
            return  # closed
        while not left.is_set():  # a signal that arrives just before the thread begins to wait does not wake it
            signal.pthread_kill(here, signal.SIGUSR1)
            left.wait(RESEND_S)

    def ring(*_: object) -> None:
        if not rung.is_set():
            rung.set()
            raise Alarm

    left, rung = threading.Event(), threading.Event()
    here = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, ring)
    sender = threading.Thread(target=send, name="alarm")
    sender.start()
    try:
        yield
        raise AssertionError("expected a wait to be cut off, but it ended")
    except Alarm:
        pass
    finally:
        left.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)
