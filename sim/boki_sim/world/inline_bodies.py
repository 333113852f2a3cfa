"""Blocking functions of users, run in the loop: what `boki_common.runtime.bodies` gets here instead of threads.

A function runs some time after it was called for, whole, and its result arrives some time after that: a process that is killed
in between has run it without its result. Both times are drawn. One that was abandoned still runs, as in a thread.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - the type; the generators come from the seed
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

T = TypeVar("T")

BODIES: Final = "boki_common.runtime.bodies"
"""The module that may ask for it."""
MEAN_S: Final = 0.002


def run_inline(
    loop: asyncio.AbstractEventLoop, numbers: random.Random, body: Callable[..., T], args: tuple[Any, ...]
) -> asyncio.Future[T]:
    """What becomes of the function."""
    future: asyncio.Future[T] = loop.create_future()
    before_s, after_s = numbers.expovariate(1 / MEAN_S), numbers.expovariate(1 / MEAN_S)

    def run() -> None:
        finish: Callable[[], None]
        try:
            finish = partial(future.set_result, body(*args))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as an executor does: the caller gets it
            finish = partial(future.set_exception, error)
        loop.call_later(after_s, lambda: None if future.done() else finish())

    loop.call_later(before_s, run)
    return future
