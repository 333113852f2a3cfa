"""The metadata store in memory: for tests and for the simulator.

A `MemoryTree` stands for the server: it holds the nodes and the sessions. Each `MemoryStore` is one session, as each
process has one in the real world. Nothing here reads a clock: sessions end only when somebody says so.

Faults are part of the surface, not a test's patch:

    store.disconnect(), store.reconnect()   the session cannot reach the tree (its ephemerals stay): MetadataUnavailable
    tree.disconnect(), tree.reconnect()     nobody can
    store.expire_session()                  the session ends at the tree; its owner learns it when it reaches the tree
    store.crash()                           the process is gone: the session stays until `expire_session`
    store.fail_next_write(fault, count=n)   what becomes of the next writes, see `Fault`
    store.faults = plan                     asked before every call, with the name of the method and the path
    tree.deliver_delayed()                  writes of fault DELAYED reach the tree now, in the order they were sent

A DELAYED write is the hard case of a lost answer: it may still land after its sender has looked and seen nothing. It
fails on arrival if its session has expired, as it does in ZooKeeper.

Each call gives way to other tasks before and after it takes effect, so that interleavings show; with `gives_way` unset
it takes effect at once, for who lets its callers wait otherwise.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from boki_common import limits
from boki_common.errors import (
    ClosedError,
    MetadataError,
    MetadataUnavailable,
    MetadataUnknown,
    NodeExists,
    NoNode,
    Overloaded,
)
from boki_common.metadata import paths
from boki_common.metadata.store import NOTHING, NotifiedWatch, Versioned

T = TypeVar("T")

DELAYED_WRITES: Final = 4_096
"""Bound of the writes that wait for `deliver_delayed`."""


class Fault(enum.Enum):
    """What becomes of a call. A read has no outcome to lose: for it every fault but NONE means UNAVAILABLE."""

    NONE = "none"
    UNAVAILABLE = "unavailable"
    """Not sent: raises MetadataUnavailable."""
    REQUEST_LOST = "request lost"
    """Sent, never applied: raises MetadataUnknown."""
    ANSWER_LOST = "answer lost"
    """Applied: raises MetadataUnknown."""
    DELAYED = "delayed"
    """Raises MetadataUnknown now; applied, or refused, at `MemoryTree.deliver_delayed`."""


FaultPlan = Callable[[str, str], Fault]


@dataclass(slots=True)
class _Node:
    value: bytes
    session: int
    """The session that an ephemeral node belongs to; 0 = persistent."""
    version: int = 0
    created: int = 0
    next_number: int = 0
    children: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Delayed:
    session: int
    apply: Callable[[], object]


class MemoryTree:
    """The nodes and sessions that several stores share. Its methods are synchronous; stores add waiting and faults."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {paths.ROOT: _Node(b"", 0)}
        self._sessions: set[int] = set()
        self._last_session = 0
        self._last_created = 0
        self._watches: dict[str, dict[NotifiedWatch, MemoryStore]] = {}
        self._watch_count = 0
        self._delayed: deque[_Delayed] = deque()
        self._stores: list[MemoryStore] = []
        self.reachable = True

    def disconnect(self) -> None:
        """No store reaches the tree until `reconnect`. Sessions stay."""
        self.reachable = False

    def reconnect(self) -> None:
        """Ends `disconnect`. Every watch reports one change, as after any reconnect."""
        self.reachable = True
        for store in list(self._stores):
            store.catch_up()

    def deliver_delayed(self) -> list[BaseException | None]:
        """Applies the delayed writes. Returns for each what it met: None when it was applied."""
        outcomes: list[BaseException | None] = []
        while self._delayed:
            write = self._delayed.popleft()
            if write.session not in self._sessions:
                outcomes.append(MetadataUnavailable("its session has expired"))
                continue
            try:
                write.apply()
            except MetadataError as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        return outcomes

    def delay(self, session: int, apply: Callable[[], object]) -> None:
        if len(self._delayed) >= DELAYED_WRITES:
            raise Overloaded(f"{DELAYED_WRITES} delayed writes wait already: call deliver_delayed()")
        self._delayed.append(_Delayed(session, apply))

    def add_store(self, store: MemoryStore) -> None:
        self._stores.append(store)

    def remove_store(self, store: MemoryStore) -> None:
        if store in self._stores:
            self._stores.remove(store)

    def open_session(self) -> int:
        self._last_session += 1
        self._sessions.add(self._last_session)
        return self._last_session

    def has_session(self, session: int) -> bool:
        return session in self._sessions

    def end_session(self, session: int) -> None:
        """Removes the session and its ephemeral nodes. Idempotent."""
        self._sessions.discard(session)
        for path in sorted(path for path, node in self._nodes.items() if node.session == session != 0):
            self._remove(path)

    def get(self, path: str) -> Versioned:
        node = self._node(path)
        return Versioned(node.value, node.version)

    def exists(self, path: str) -> bool:
        return path in self._nodes

    def created(self, path: str) -> int:
        return self._node(path).created

    def children(self, path: str) -> list[str]:
        return sorted(self._node(path).children)

    def create(self, path: str, value: bytes, session: int) -> None:
        if session and session not in self._sessions:
            raise MetadataUnavailable(f"{path} was not made: the session expired before the request arrived", path=path)
        parent = self._check_absent(path)
        self._last_created += 1
        self._nodes[path] = _Node(value, session, created=self._last_created)
        parent.children.add(paths.name_of(path))
        self._notify(path, paths.parent_of(path))

    def create_sequential(self, prefix: str, value: bytes, session: int) -> str:
        parent = self._parent(prefix)
        while True:
            path = paths.sequential_path(prefix, parent.next_number)
            parent.next_number += 1
            if path not in self._nodes:
                break
        self.create(path, value, session)
        return path

    def set(self, path: str, value: bytes, version: int, creating: Mapping[str, bytes] = NOTHING) -> int:
        node = self._at_version(path, version)
        for new in creating:
            self._check_absent(new)
        for new, new_value in creating.items():
            self.create(new, new_value, 0)
        node.value = value
        node.version += 1
        self._notify(path)
        return node.version

    def delete(self, path: str, version: int) -> None:
        node = self._at_version(path, version)
        if node.children:
            raise paths.not_empty(path)
        self._remove(path)

    def add_watch(self, watch: NotifiedWatch, store: MemoryStore) -> None:
        if self._watch_count >= limits.METADATA_WATCHES:
            raise Overloaded(f"{limits.METADATA_WATCHES} watches are open: close those that are no longer waited for")
        self._watch_count += 1
        self._watches.setdefault(watch.path, {})[watch] = store

    def remove_watch(self, watch: NotifiedWatch) -> None:
        watches = self._watches.get(watch.path, {})
        if watches.pop(watch, None) is not None:
            self._watch_count -= 1
            if not watches:
                del self._watches[watch.path]

    def _node(self, path: str) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(f"there is no metadata node {path}", path=path)
        return node

    def _parent(self, path: str) -> _Node:
        parent = self._node(paths.parent_of(path))
        if parent.session:
            raise paths.no_children_allowed(path)
        return parent

    def _check_absent(self, path: str) -> _Node:
        """The parent of a node that may be made."""
        parent = self._parent(path)
        if path in self._nodes:
            raise NodeExists(f"{path} exists already", path=path)
        return parent

    def _at_version(self, path: str, version: int) -> _Node:
        node = self._node(path)
        paths.check_at_version(path, version, node.version)
        return node

    def _remove(self, path: str) -> None:
        del self._nodes[path]
        self._nodes[paths.parent_of(path)].children.discard(paths.name_of(path))
        self._notify(path, paths.parent_of(path))

    def _notify(self, *changed: str) -> None:
        for path in changed:
            for watch, store in self._watches.get(path, {}).items():
                if self.reachable and store.reachable:
                    watch.notify()


class MemoryStore:
    """One session on a `MemoryTree`; see the module for its faults, `MetadataStore` for its methods."""

    def __init__(self, tree: MemoryTree | None = None) -> None:
        self.tree = tree if tree is not None else MemoryTree()
        self.reachable = True
        self.gives_way = True
        self.faults: FaultPlan = lambda _operation, _path: Fault.NONE
        self._next_writes: deque[Fault] = deque()
        self._session = 0
        self._open = False
        self._watches: list[NotifiedWatch] = []
        self._callbacks: list[Callable[[], None]] = []

    async def start(self) -> None:
        await asyncio.sleep(0)
        self._require_reachable("start", paths.ROOT)
        if not self._open:
            self._open = True
            self._session = self.tree.open_session()
            self.tree.add_store(self)

    async def close(self) -> None:
        await asyncio.sleep(0)
        if self._open and self.reachable and self.tree.reachable:
            self.tree.end_session(self._session)
        self.crash()

    def crash(self) -> None:
        """The process is gone without a word: the session and its ephemerals stay until `expire_session`."""
        self._open = False
        self.tree.remove_store(self)
        for watch in list(self._watches):
            watch.close()

    def disconnect(self) -> None:
        """This store cannot reach the tree until `reconnect`."""
        self.reachable = False

    def reconnect(self) -> None:
        """Ends `disconnect`: notifies every watch of one change; if the session expired meanwhile, begins a new one."""
        self.reachable = True
        self.catch_up()

    def expire_session(self) -> None:
        """Ends the session at the tree. A store that reaches the tree begins a new one and calls back at once."""
        self.tree.end_session(self._session)
        if self._open and self.reachable and self.tree.reachable:
            self.catch_up()

    def fail_next_write(self, fault: Fault, *, count: int = 1) -> None:
        """The next `count` writes that no plan fails meet `fault`."""
        self._next_writes.extend([fault] * count)

    def catch_up(self) -> None:
        """What a reconnect does: a new session if the old one is gone, one change reported by each watch."""
        if not (self._open and self.reachable and self.tree.reachable):
            return
        if not self.tree.has_session(self._session):
            self._session = self.tree.open_session()
            for callback in self._callbacks:
                callback()
        for watch in self._watches:
            watch.notify()

    async def get(self, path: str) -> Versioned:
        return await self._read("get", path, lambda: self.tree.get(path))

    async def exists(self, path: str) -> bool:
        return await self._read("exists", path, lambda: self.tree.exists(path))

    async def created(self, path: str) -> int | None:
        return await self._read("created", path, lambda: self.tree.created(path))

    async def children(self, path: str) -> list[str]:
        return await self._read("children", path, lambda: self.tree.children(path))

    async def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        paths.check_node(path, value)
        session = self._session if ephemeral else 0
        await self._write("create", path, lambda: self.tree.create(path, value, session))

    async def create_sequential(self, prefix: str, value: bytes = b"", *, ephemeral: bool = False) -> str:
        paths.check_prefix(prefix, value)
        session = self._session if ephemeral else 0
        return await self._write(
            "create_sequential", prefix, lambda: self.tree.create_sequential(prefix, value, session)
        )

    async def set(self, path: str, value: bytes, *, version: int, creating: Mapping[str, bytes] = NOTHING) -> int:
        paths.check_set(path, value, version, creating)
        return await self._write("set", path, lambda: self.tree.set(path, value, version, creating))

    async def delete(self, path: str, *, version: int) -> None:
        paths.check_delete(path, version)
        await self._write("delete", path, lambda: self.tree.delete(path, version))

    def watch(self, path: str) -> NotifiedWatch:
        paths.check_path(path)
        self._require_open()
        watch = NotifiedWatch(path, self.forget_watch)
        self.tree.add_watch(watch, self)
        self._watches.append(watch)
        return watch

    def forget_watch(self, watch: NotifiedWatch) -> None:
        """What a watch calls when it is closed."""
        self.tree.remove_watch(watch)
        if watch in self._watches:
            self._watches.remove(watch)

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    async def _read(self, operation: str, path: str, apply: Callable[[], T]) -> T:
        paths.check_path(path)
        self._require_open()
        fault = self.faults(operation, path)
        if self.gives_way:
            await asyncio.sleep(0)
        self._require_reachable(operation, path)
        if fault is not Fault.NONE:
            raise MetadataUnavailable(f"{operation} of {path} was not sent: injected fault {fault.value}", path=path)
        result = apply()
        if self.gives_way:
            await asyncio.sleep(0)
        return result

    async def _write(self, operation: str, path: str, apply: Callable[[], T]) -> T:
        self._require_open()
        fault = self.faults(operation, path)
        if fault is Fault.NONE and self._next_writes:
            fault = self._next_writes.popleft()
        if self.gives_way:
            await asyncio.sleep(0)
        self._require_reachable(operation, path)
        if fault is Fault.UNAVAILABLE:
            raise MetadataUnavailable(f"{operation} of {path} was not sent: injected fault {fault.value}", path=path)
        if fault is Fault.DELAYED:
            self.tree.delay(self._session, apply)
        elif fault is not Fault.REQUEST_LOST:
            result = apply()
            if self.gives_way:
                await asyncio.sleep(0)
            if fault is Fault.NONE:
                return result
        raise MetadataUnknown(f"the answer to {operation} of {path} was lost: injected fault {fault.value}", path=path)

    def _require_open(self) -> None:
        if not self._open:
            raise ClosedError("the metadata store is not started or was closed")

    def _require_reachable(self, operation: str, path: str) -> None:
        if not (self.reachable and self.tree.reachable):
            raise MetadataUnavailable(f"{operation} of {path} was not sent: the store cannot be reached", path=path)
