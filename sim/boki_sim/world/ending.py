"""How a simulation is thrown away: its coroutines unwound without running, its garbage collected when nobody listens."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

KEPT_OBJECTS: Final = 100_000
"""As many may be there when a simulation begins, and be looked through by each of its collections: some milliseconds."""
UNWINDING_STEPS: Final = 50
"""How often a coroutine that waits again while it is ended is ended again."""


@contextmanager
def uncollected() -> Iterator[None]:
    """For a whole simulation and all that it made: garbage is collected where the loop says, and when this is over.

    What is there when one begins (modules, and whatever else a long process keeps) is not looked through again and again: after a few
    thousand tests that takes longer than a run.
    """
    collecting = gc.isenabled()
    gc.disable()
    if len(gc.get_objects()) > KEPT_OBJECTS:
        gc.collect()
        gc.freeze()
    try:
        yield
    finally:
        with errors_ignored():
            gc.collect()
        if collecting:
            gc.enable()


@contextmanager
def errors_ignored() -> Iterator[None]:
    """Ignores errors and warnings of code that is thrown away here."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # coroutines that had not begun yet
            yield
    finally:
        sys.unraisablehook = before


def end_task(task: asyncio.Task[Any]) -> None:
    """Unwinds a coroutine without running what it would await."""
    coroutine = task.get_coro()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own switch
    for _ in range(UNWINDING_STEPS):
        try:
            if coroutine is not None:
                coroutine.close()
            return
        except BaseException:  # noqa: BLE001 - it is being thrown away; what it says concerns nobody
            continue
