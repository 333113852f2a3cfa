"""Producers and consumers of a queue, for a while: how many messages, how long from push to handling, whose processor time.

A `Side` pushes bytes and hands them to whoever handles them. Producers push one message after another, and wait while so many are not
handled: a rate is that of messages which came through. With `per_s` they push at that pace instead. Delivery is from before the push to
the handler, and of messages that were pushed within the time measured.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Final, NamedTuple, Protocol

from benchmarks import machine
from benchmarks.closed_loop import cpu_groups
from benchmarks.report import Row

SIZE: Final = 1_024
WARM_UP_S: Final = 0.5
BACKLOG: Final = 512
DRAIN_S: Final = 30.0
UNTIMED: Final = "nan".ljust(20)
"""Of a message whose handler does not know when it was pushed."""

Handled = Callable[[bytes | str], None]


class Side(Protocol):
    """One of those that are compared."""

    @property
    def pids(self) -> Mapping[str, int]: ...

    async def push(self, producer: int, body: str) -> None:
        """Returns when it is durable."""

    async def consume(self, consumers: int, ready: asyncio.Event, handled: Handled) -> None:
        """Handles messages until it is cancelled; sets `ready` when it can."""


class Shape(NamedTuple):
    """Of a load."""

    producers: int
    consumers: int
    per_s: float | None = None

    @property
    def name(self) -> str:
        pace = "" if self.per_s is None else f", {self.per_s:,.0f}/s"
        return f"{self.producers}P{self.consumers}C{pace}"


class _Run:
    """What is counted."""

    def __init__(self) -> None:
        self.pushed = 0
        self.handled = 0
        self.counted = 0
        self.taken = array("d")
        self.since_s = float("inf")
        self.until_s = float("inf")
        self.room = asyncio.Event()

    def took(self, body: bytes | str) -> None:
        now_s = perf_counter()
        self.handled += 1
        self.room.set()
        if self.since_s <= now_s < self.until_s:
            self.counted += 1
            sent_s = float(body[:20])
            if sent_s >= self.since_s:
                self.taken.append(now_s - sent_s)

    async def produce(self, side: Side, producer: int, every_s: float, stop: asyncio.Event) -> None:
        turn = perf_counter()
        while not stop.is_set():
            while self.pushed - self.handled >= BACKLOG and not stop.is_set():
                self.room.clear()
                await self.room.wait()
            self.pushed += 1
            await side.push(producer, f"{perf_counter():020.6f}".ljust(SIZE, "x"))
            if every_s:
                turn = max(turn + every_s, perf_counter() - every_s)
                await asyncio.sleep(max(0.0, turn - perf_counter()))


async def measure(name: str, side: Side, shape: Shape, seconds: float) -> Row:
    """The row of one round."""
    run, stop, ready = _Run(), asyncio.Event(), asyncio.Event()
    consuming = asyncio.create_task(side.consume(shape.consumers, ready, run.took))
    await ready.wait()
    every_s = shape.producers / shape.per_s if shape.per_s else 0.0
    producing = [asyncio.create_task(run.produce(side, number, every_s, stop)) for number in range(shape.producers)]
    await asyncio.sleep(WARM_UP_S)
    groups = cpu_groups(side.pids)
    before = {kind: machine.cpu_seconds(group) for kind, group in groups.items()}
    run.since_s = perf_counter()
    run.until_s = run.since_s + seconds
    await asyncio.sleep(seconds)
    used = {kind: machine.cpu_seconds(group) - before[kind] for kind, group in groups.items()}
    stop.set()
    run.room.set()
    await asyncio.gather(*producing)
    try:
        await _drain(run, consuming)
    except AssertionError as error:
        error.add_note(f"{name}, {shape.name}")
        raise
    consuming.cancel()
    await asyncio.gather(consuming, return_exceptions=True)
    ordered = sorted(run.taken) or [float("nan")]
    middle, late = ordered[len(ordered) // 2] * 1000, ordered[len(ordered) * 99 // 100] * 1000
    cpu = {kind: one * 1e6 / max(run.counted, 1) for kind, one in used.items()}
    return Row(f"{name}, {shape.name}", run.counted / seconds, middle, late, cpu)


async def _drain(run: _Run, consuming: asyncio.Task[None]) -> None:
    """The next round begins with nothing. Raises AssertionError: a message was lost."""
    deadline = perf_counter() + DRAIN_S
    while run.handled < run.pushed:
        if consuming.done():
            consuming.result()
        assert perf_counter() < deadline, f"{run.pushed - run.handled} of {run.pushed} messages did not come"
        await asyncio.sleep(0.02)
