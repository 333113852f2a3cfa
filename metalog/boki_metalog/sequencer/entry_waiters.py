"""Waiters at a sequencer for an acknowledged metalog entry: commands for theirs, barriers that are not proven otherwise for
any that begins after them.

    prove, proven     bookies are asked about a barrier, and answered
    order, barrier    a request arrived
    taken             an entry begins: it carries the oldest commands, and serves every barrier asked for until now
    acked             that entry is acknowledged: those it served are to be answered
    clear             the term is over: no waiter is served any more; those of the entry in flight are returned apart

Rules:
- One entry is in flight at a time. A request that comes while one is waits for the next: the one in flight began before
  it, so its acknowledgement proves nothing about now (DESIGN §7).
- All barriers that wait share one entry, whatever it says.
- A command whose requester is gone is ordered all the same, so its place is kept.

Pure. Knows neither commands nor connections: a waiter is any value.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from boki_common import limits
from boki_common.errors import Overloaded

W = TypeVar("W")


class EntryWaiters(Generic[W]):
    """See the module.

    Invariant: `orders` are the commands given to the sequencer and not in an entry yet, in the order they were given;
    `in_flight` waits for the entry in flight.
    """

    __slots__ = ("barriers", "in_flight", "orders", "proving")

    def __init__(self) -> None:
        self.orders: deque[W] = deque()
        self.barriers: list[W] = []
        self.in_flight: list[W] = []
        self.proving: dict[W, None] = {}
        """Barriers that the bookies were asked for."""

    def prove(self, waiter: W) -> None:
        """Bookies were asked about a barrier; how many may be is decided before."""
        self.proving[waiter] = None

    def proven(self, waiter: W) -> bool:
        """They answered; whether the requester still waits for that."""
        waits = waiter in self.proving
        self.proving.pop(waiter, None)
        return waits

    def order(self, waiter: W) -> None:
        """The next command in order has this waiter; how many may wait is decided where commands are queued."""
        self.orders.append(waiter)

    def barrier(self, waiter: W) -> None:
        """Raises Overloaded when too many wait."""
        if len(self.barriers) >= limits.BARRIERS_WAITING:
            raise Overloaded(
                f"{len(self.barriers)} requests wait for a metalog entry; try again later", found=len(self.barriers)
            )
        self.barriers.append(waiter)

    def taken(self, orders: int) -> None:
        """An entry with so many of the commands that wait begins."""
        assert not self.in_flight, "one entry in flight"
        if orders:
            self.in_flight = [self.orders.popleft() for _ in range(orders)]
        if self.barriers:
            self.in_flight += self.barriers
            self.barriers = []

    def acked(self) -> list[W]:
        """Those whom the entry in flight served, commands first; they wait no longer."""
        served, self.in_flight = self.in_flight, []
        return served

    def forget_barriers(self, gone: Callable[[W], bool]) -> None:
        """Drops the barriers of requesters that are gone."""
        self.barriers = [waiter for waiter in self.barriers if not gone(waiter)]
        self.proving = {waiter: None for waiter in self.proving if not gone(waiter)}

    def clear(self) -> tuple[list[W], list[W]]:
        """Removes all waiters, oldest first: those of the entry in flight, which recovery may keep or drop; and those of no entry."""
        taken, left = self.in_flight, [*self.orders, *self.barriers, *self.proving]
        self.orders.clear()
        self.proving = {}
        self.in_flight, self.barriers = [], []
        return taken, left
