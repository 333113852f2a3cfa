"""The metadata store of a simulated cluster: the one in memory, with a way to it and with sessions that expire.

`SimStore` is one process's session. Requests travel, in order, and so do answers; what the store does with a request is
`boki_common.metadata.memory`'s business, its faults included. A process that is dead, paused or cut off for longer than
the session time-out loses its session, as ZooKeeper would have it.

`ObservedTree` calls an observer at every change of a value, at the moment it happens.
"""

from __future__ import annotations

import random  # noqa: TID251 - the type; the generators come from the seed
from collections.abc import Awaitable, Callable, Mapping
from math import log
from typing import TypeVar

from boki_common import limits
from boki_common.metadata.memory import MemoryStore, MemoryTree
from boki_common.metadata.store import NOTHING, NotifiedWatch, Versioned
from boki_sim.world.loop import SimLoop
from boki_sim.world.process import SimProcess, State
from boki_sim.world.steps import Steps, of_change
from boki_sim.world.trace import Trace

T = TypeVar("T")

Observer = Callable[[str, bytes | None, bytes | None], None]
"""Path, value before (None: the node was not there), value after (None: it is deleted)."""


class ObservedTree(MemoryTree):
    """A tree that reports every change."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self._observer = observer

    def create(self, path: str, value: bytes, session: int) -> None:
        super().create(path, value, session)
        self._observer(path, None, value)

    def set(self, path: str, value: bytes, version: int, creating: Mapping[str, bytes] = NOTHING) -> int:
        before = self.get(path).value
        result = super().set(path, value, version, creating)
        self._observer(path, before, value)
        return result

    def delete(self, path: str, version: int) -> None:
        before = self.get(path).value
        super().delete(path, version)
        self._observer(path, before, None)


class SimStore:
    """The `MetadataStore` that one process gets."""

    def __init__(
        self,
        loop: SimLoop,
        tree: MemoryTree,
        process: SimProcess,
        numbers: random.Random,
        trace: Trace,
        delay_s: float,
        steps: Steps | None = None,
    ) -> None:
        self.inner = MemoryStore(tree)
        self.inner.gives_way = False  # requests and answers travel
        self.delay_s = delay_s
        """Mean of the time that a request, or an answer, is on its way."""
        self._loop = loop
        self._tree = tree
        self._process = process
        self._random = numbers.random
        self._trace = trace
        self._note = trace.note
        self._steps = steps
        self.answers = 0
        """Requests that were answered."""
        self._newest = {"request": 0.0, "answer": 0.0}
        self._cut_off = False
        process.on_death.append(self._orphaned)

    # -- faults

    def cut_off(self) -> None:
        """The process cannot reach the store until `rejoin`; its session expires when that takes long."""
        if not self._cut_off:
            self._cut_off = True
            self.inner.disconnect()
            self._expires_while(lambda: self._cut_off)

    def rejoin(self) -> None:
        if self._cut_off:
            self._cut_off = False
            self._process.call_soon(self.inner.reconnect)

    def expire(self) -> None:
        """The store ends the session; its owner learns it when it runs and can reach the store."""
        self._tree.end_session(self.inner._session)
        self._trace.add(self._process.name, "session", "expired")
        if self._steps is not None:
            self._steps.met("session ends", self._process)
        self._process.call_soon(self.inner.catch_up)

    def paused(self) -> None:
        """To be called when the process was paused."""
        self._expires_while(lambda: self._process.state is State.PAUSED)

    def _orphaned(self) -> None:
        session = self.inner._session
        self.inner.crash()
        outside = self._loop.outside.context
        self._loop.call_later(limits.SESSION_TIMEOUT_S, self._tree.end_session, session, context=outside)

    def _expires_while(self, condition: Callable[[], bool]) -> None:
        session = self.inner._session

        def look() -> None:
            if condition() and self.inner._session == session:
                self.expire()

        self._loop.call_later(limits.SESSION_TIMEOUT_S, look, context=self._loop.outside.context)

    # -- the port

    async def start(self) -> None:
        await self._round_trip("start", "/", self.inner.start)

    async def close(self) -> None:
        await self.inner.close()

    async def get(self, path: str) -> Versioned:
        return await self._round_trip("get", path, lambda: self.inner.get(path))

    async def exists(self, path: str) -> bool:
        return await self._round_trip("exists", path, lambda: self.inner.exists(path))

    async def created(self, path: str) -> int | None:
        return await self._round_trip("created", path, lambda: self.inner.created(path))

    async def children(self, path: str) -> list[str]:
        return await self._round_trip("children", path, lambda: self.inner.children(path))

    async def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        await self._write("create", path, value, lambda: self.inner.create(path, value, ephemeral=ephemeral))

    async def create_sequential(self, prefix: str, value: bytes = b"", *, ephemeral: bool = False) -> str:
        return await self._round_trip(
            "create_sequential", prefix, lambda: self.inner.create_sequential(prefix, value, ephemeral=ephemeral)
        )

    async def set(self, path: str, value: bytes, *, version: int, creating: Mapping[str, bytes] = NOTHING) -> int:
        def change() -> Awaitable[int]:
            return self.inner.set(path, value, version=version, creating=creating)

        return await self._write("set", path, value, change, besides=creating)

    async def delete(self, path: str, *, version: int) -> None:
        await self._write("delete", path, None, lambda: self.inner.delete(path, version=version))

    def watch(self, path: str) -> NotifiedWatch:
        return self.inner.watch(path)

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        self.inner.on_session_lost(callback)

    async def _write(
        self,
        operation: str,
        path: str,
        value: bytes | None,
        call: Callable[[], Awaitable[T]],
        besides: Mapping[str, bytes] = NOTHING,
    ) -> T:
        """A round trip that changes something: two steps for each change that is one of a protocol; `besides`: new nodes."""
        steps = self._steps
        before = self._tree.get(path).value if self._tree.exists(path) else None
        changes = [(new, of_change(new, one, None)) for new, one in besides.items()]
        changes = [(one, step) for one, step in (*changes, (path, of_change(path, value, before))) if step]
        if steps is None or not changes:
            return await self._round_trip(operation, path, call)
        for one, step in changes:
            steps.met(f"{step} asked", self._process, path=one)

        async def changed() -> T:
            result = await call()
            for one, step in changes:
                steps.met(f"{step} made", self._process, path=one)
            return result

        return await self._round_trip(operation, path, changed)

    async def _round_trip(self, operation: str, path: str, call: Callable[[], Awaitable[T]]) -> T:
        await self._travel("request")
        outcome = "ok"
        try:
            return await call()
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            self._note((self._loop.now, self._process.name, operation, path, outcome))
            self.answers += 1
            if outcome != "CancelledError":
                await self._travel("answer")

    def _travel(self, way: str) -> Awaitable[None]:
        """One way; who set out earlier arrives earlier."""
        loop = self._loop
        at = loop.now - log(1.0 - self._random()) * self.delay_s
        soonest = self._newest[way] + 1e-6
        if at < soonest:
            at = soonest
        self._newest[way] = at
        return loop.settled_at(at, self._process)
