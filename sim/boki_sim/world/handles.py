"""What waits in a simulated loop: callbacks, timers, futures and tasks, made with less ado than asyncio's own.

The hash of futures and tasks is the order of their making, so sets of them, which asyncio uses, have one order in every run.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import events
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

T = TypeVar("T")


class NumbersObjects(Protocol):
    """A loop that numbers its tasks and futures."""

    serial: int


class CountsCancelled(Protocol):
    """A loop that keeps cancelled timers for a while."""

    def timer_cancelled(self) -> None:
        """One of those that wait."""


class SimFuture(asyncio.Future[T]):
    """A future whose place in sets does not depend on its address."""

    __slots__ = ("serial",)
    serial: int

    def __hash__(self) -> int:
        try:
            return self.serial
        except AttributeError:
            return _numbered(self)


class SimHandle(events.Handle):
    """A callback that waits for its turn: asyncio's own, made with less ado. One without a callback is cancelled."""

    __slots__ = ()
    _repr = None
    _source_traceback = None

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._context = context

    @property
    def _cancelled(self) -> bool:  # type: ignore[override]  # what a Handle shows of itself asks for it
        return self._callback is None

    def cancel(self) -> None:
        self._callback = None
        self._args = ()

    def cancelled(self) -> bool:
        return self._callback is None


class SimTimer(events.TimerHandle):
    """As `SimHandle`, at a time."""

    __slots__ = ()
    _repr = None
    _source_traceback = None

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: CountsCancelled,
        context: contextvars.Context,
    ) -> None:
        self._when = when
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._scheduled = True

    @property
    def _cancelled(self) -> bool:  # type: ignore[override]  # what a Handle shows of itself asks for it
        return self._callback is None

    def cancel(self) -> None:
        if self._callback is not None:
            self._callback = None
            self._args = ()
            if self._scheduled:
                self._loop.timer_cancelled()

    def cancelled(self) -> bool:
        return self._callback is None


def _numbered(future: SimFuture[Any]) -> int:
    """A number at the first use as a member of a set."""
    loop = cast("NumbersObjects", future.get_loop())
    loop.serial += 1
    future.serial = loop.serial
    return future.serial
