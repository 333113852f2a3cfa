"""The metadata store port: a small tree of versioned values, as ZooKeeper has it.

Touched per segment, per term and per membership change, never per append. Three implementations (`memory`, `sqlite`,
`zookeeper`) pass one contract suite (`common/tests/metadata/contract.py`).

Rules:
- Paths are absolute (`/boki/view`), without a trailing slash, `.` or `..`. A parent must exist before its child.
- A new node has version 0; each `set` adds one. `version` is compared, never ignored.
- A write whose answer was lost raises `MetadataUnknown`; a re-read does not settle it, only a later version does (DESIGN §4
  rule 4): repeat the same write at the same version until the version moves, then compare what is there.
- A `set` may make nodes besides; all of it happens, or nothing. The version is compared first.
- Ephemeral nodes belong to the session of the store object that made them and vanish with it; they have no children.
  After an expired session the store opens a new one by itself and calls the `on_session_lost` callbacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from boki_common.errors import ClosedError, MetadataUnavailable, NodeExists, NoNode

NOTHING: Final[Mapping[str, bytes]] = MappingProxyType({})
READ_AT_ONCE: Final = 64
"""Values asked for at once."""


class Versioned(NamedTuple):
    """A value and its version."""

    value: bytes
    version: int


class Watch(Protocol):
    """Reports that something about a path may have changed. Level-triggered: changes that nobody waited for are remembered,
    several may be reported as one, and one may be spurious (after a reconnect). Read again after each."""

    async def changed(self) -> None:
        """Returns once the node or its list of children may have changed since the last return (or since the start)."""

    def close(self) -> None:
        """Stops watching. Idempotent."""


class NotifiedWatch:
    """A `Watch` that its store notifies of changes; the store forgets it when it is closed."""

    def __init__(
        self,
        path: str,
        forget: Callable[[NotifiedWatch], None],
        arm: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`arm`: asks to be notified of the next change of a path, where a server notifies of one only. MetadataUnavailable: it retries."""
        self.path = path
        self._forget = forget
        self._arm = arm
        self._notices = 0
        self._notified = asyncio.Event()
        self._closed = False

    def notify(self) -> None:
        """For the store: something may have changed."""
        self._notices += 1
        self._notified.set()

    async def changed(self) -> None:
        while True:
            await self._notified.wait()
            if self._closed:
                raise ClosedError(f"the watch of {self.path} is closed")
            notices = self._notices
            try:
                if self._arm is not None:
                    await self._arm(self.path)
            except MetadataUnavailable:
                continue  # it waited for a connection as long as any call; the next round waits again
            # No await from here: a change that came while the watch was being armed is kept for the next call.
            if self._notices == notices:
                self._notified.clear()
            return

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.notify()
            self._forget(self)


class MetadataStore(Protocol):
    """See the module's rules. Every method may raise MetadataUnavailable; every write also MetadataUnknown."""

    async def start(self) -> None:
        """Connects. Raises MetadataUnavailable after the connect time-out."""

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes are gone when it returns. Idempotent."""

    async def get(self, path: str) -> Versioned:
        """Raises NoNode."""

    async def exists(self, path: str) -> bool: ...

    async def created(self, path: str) -> int | None:
        """When a node was made: greater than that of every node made before, so a node made anew has another one.

        None where the store does not keep it (SQLite). Raises NoNode.
        """

    async def children(self, path: str) -> list[str]:
        """Names (not paths) of the children, sorted. Raises NoNode."""

    async def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        """Raises NodeExists, NoNode (no parent), InvalidArgument (value over the limit)."""

    async def create_sequential(self, prefix: str, value: bytes = b"", *, ephemeral: bool = False) -> str:
        """Creates `prefix` + ten digits, a number that its parent has not given before; returns the path."""

    async def set(self, path: str, value: bytes, *, version: int, creating: Mapping[str, bytes] = NOTHING) -> int:
        """Compare-and-swap; returns the new version. Raises BadVersion, NoNode.

        Args:
            creating: path → value of nodes that are made in the same write, or else nothing is done: NodeExists, if one is
                there already and the version is the expected one. Their parents exist. At most `paths.CREATED_MAX`.
        """

    async def delete(self, path: str, *, version: int) -> None:
        """Raises BadVersion, NoNode, NotEmpty."""

    def watch(self, path: str) -> Watch:
        """Watches the node (made, changed, deleted) and its list of children; it need not exist yet."""

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        """Calls back, on the event loop, whenever a session ended and a new one has begun: ephemeral nodes are gone."""


async def names_below(store: MetadataStore, folder: str) -> list[str]:
    """Names of the children, sorted; none, where the folder is not there."""
    try:
        return await store.children(folder)
    except NoNode:
        return []


async def values_below(store: MetadataStore, folder: str) -> dict[str, bytes]:
    """The values of the children by their names, sorted, without those that vanish meanwhile."""
    found: dict[str, bytes] = {}

    async def read(name: str) -> None:
        try:
            found[name] = (await store.get(f"{folder}/{name}")).value
        except NoNode:
            return

    names = await names_below(store, folder)
    for begin in range(0, len(names), READ_AT_ONCE):
        await asyncio.gather(*map(read, names[begin : begin + READ_AT_ONCE]))
    return dict(sorted(found.items()))


async def ensure_path(store: MetadataStore, path: str) -> None:
    """Makes `path` and its missing parents, with empty values; existing nodes stay as they are."""
    made = ""
    for part in path.strip("/").split("/"):
        made = f"{made}/{part}"
        if not await store.exists(made):
            try:
                await store.create(made)
            except NodeExists:
                pass
