"""Membership: one ephemeral node per process that says it is there, and the reading of all of them.

`Membership` keeps its node alive: it makes it again after a lost session or when somebody removed it, and writes a new
value when told to. While the store cannot be reached it tries on, without end; members being absent is a *hint* that
they are gone, never a proof (DESIGN §8).

A node of the same name that we did not make belongs to our predecessor (killed and restarted under the same name) or to
a second process started by mistake. `join` waits for it to vanish for a bounded time and then refuses; it takes nothing
over, so two processes never think that they hold one name.

Names under /boki/members are `<role>/<incarnation>` with JSON objects as values; bookies register under /ledgers with
other values (`bookkeeper.layout`).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Self

import msgspec

from boki_common import limits
from boki_common.errors import BadVersion, CorruptData, MetadataError, NodeExists, NoNode
from boki_common.logs import get_logger
from boki_common.metadata import paths
from boki_common.metadata.settle import compare_and_set, create_settled
from boki_common.metadata.store import MetadataStore, ensure_path

MEMBERS: Final = "/boki/members"
JOIN_TIMEOUT_S: Final = 3 * limits.SESSION_TIMEOUT_S
"""How long `join` waits for a predecessor's node to vanish."""
RETRY_DELAY_S: Final = 0.5

_log = get_logger("metadata")


def member_path(role: str, incarnation: str) -> str:
    return f"{MEMBERS}/{role}/{incarnation}"


async def members(store: MetadataStore, role: str) -> dict[str, dict[str, Any]]:
    """The values of all members of a role, by incarnation, sorted. Raises CorruptData for a value that is no JSON object."""
    folder = f"{MEMBERS}/{role}"
    found: dict[str, dict[str, Any]] = {}
    try:
        names = await store.children(folder)
    except NoNode:
        return found
    for name in names:
        path = f"{folder}/{name}"
        try:
            value = (await store.get(path)).value
        except NoNode:
            continue  # left in between
        try:
            found[name] = msgspec.json.decode(value, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise CorruptData(f"expected a JSON object in {path}, found {value[:100]!r}: {error}", path=path) from error
    return found


class Membership:
    """One ephemeral node that stays. Invariant: at most one write of the node is under way.

    Made by `join`, ended by `leave`. `value` is what the node holds or will hold as soon as the store can be reached.
    """

    def __init__(self, store: MetadataStore, path: str, value: bytes) -> None:
        self.path = path
        self.value = value
        self._store = store
        self._mine = False
        self._leaving = False
        self._wake = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        store.on_session_lost(self._session_lost)

    @classmethod
    async def join(cls, store: MetadataStore, path: str, value: bytes, *, timeout_s: float = JOIN_TIMEOUT_S) -> Self:
        """Makes the node (and its missing parents) and keeps it.

        Raises:
            NodeExists: a node of that name, made by another session, was still there after `timeout_s`.
            MetadataError: the store failed; nothing is kept.
        """
        membership = cls(store, path, value)
        await ensure_path(store, paths.parent_of(path))
        watch = store.watch(path)
        try:
            async with asyncio.timeout(timeout_s):
                while not await membership._make():
                    await watch.changed()
        except TimeoutError as error:
            raise NodeExists(
                f"{path} is held by another session and did not vanish within {timeout_s} s: does another process run "
                "under the same name? Stop it first",
                path=path,
            ) from error
        finally:
            watch.close()
        membership._keeper = asyncio.create_task(membership._keep(), name=f"membership {path}")
        return membership

    async def update(self, value: bytes) -> None:
        """Replaces the value. Returns when it is written.

        Raises:
            MetadataError: not written yet, or unknown; the membership writes it as soon as it can.
        """
        self.value = value
        try:
            await self._write_value()
        finally:
            self._wake.set()

    async def leave(self) -> None:
        """Removes the node and stops keeping it. Idempotent.

        Raises:
            MetadataError: the node may still be there; it vanishes with the session.
        """
        if self._leaving:
            return
        self._leaving = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        if self._mine:
            try:
                await self._store.delete(self.path, version=(await self._store.get(self.path)).version)
            except NoNode:
                return  # gone already, that is what we want

    def _session_lost(self) -> None:
        self._mine = False
        self._wake.set()

    async def _make(self) -> bool:
        """Makes the node. False when a node that is not ours is in the way."""
        try:
            await create_settled(self._store, self.path, self.value, ephemeral=True)
        except NodeExists:
            return False
        self._mine = True
        return True

    async def _write_value(self) -> None:
        """Brings the node to `value`; makes it when it is gone and ours to make."""
        if not self._mine and not await self._make():
            return
        try:
            current = await self._store.get(self.path)
            if current.value != self.value:
                await compare_and_set(self._store, self.path, self.value, version=current.version)
        except NoNode:
            self._mine = False
            await self._make()

    async def _keep(self) -> None:
        watch = self._store.watch(self.path)
        watching = asyncio.create_task(self._forward(watch), name=f"membership watch {self.path}")
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                try:
                    await self._write_value()
                except (MetadataError, BadVersion) as error:
                    _log.warning("membership not written, trying again", path=self.path, error=error)
                    await asyncio.sleep(RETRY_DELAY_S)
                    self._wake.set()
        finally:
            watch.close()
            watching.cancel()
            await asyncio.wait([watching])

    async def _forward(self, watch: Any) -> None:
        while True:
            await watch.changed()
            self._wake.set()
