"""Membership: one ephemeral node per process that says it is there, and the reading of all of them.

`Membership` keeps its node alive: it makes it again after a lost session or when somebody removed it, and writes a new
value on request. While the store cannot be reached it retries without end; members being absent is a *hint* that
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
from boki_common.errors import (
    DECODE_FAULTS,
    ClosedError,
    CorruptData,
    MetadataError,
    MetadataUnknown,
    NodeExists,
    NoNode,
)
from boki_common.logs import get_logger
from boki_common.metadata import paths
from boki_common.metadata.settle import compare_and_set, create_settled
from boki_common.metadata.store import MetadataStore, Watch, ensure_path, values_below

MEMBERS: Final = "/boki/members"
JOIN_TIMEOUT_S: Final = 3 * limits.SESSION_TIMEOUT_S
"""How long `join` waits for a predecessor's node to vanish."""
RETRY_DELAY_S: Final = 0.5

_log = get_logger("metadata")


def member_path(role: str, incarnation: str) -> str:
    return f"{MEMBERS}/{role}/{incarnation}"


async def members(store: MetadataStore, role: str) -> dict[str, dict[str, Any]]:
    """The values of all members of a role, by incarnation, sorted. Raises CorruptData for a value that is no JSON object."""
    found: dict[str, dict[str, Any]] = {}
    for incarnation, value in (await values_below(store, f"{MEMBERS}/{role}")).items():
        try:
            found[incarnation] = msgspec.json.decode(value, type=dict[str, Any])
        except DECODE_FAULTS as error:
            path = member_path(role, incarnation)
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
        self._left = False
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        store.on_session_lost(self._session_lost)

    @classmethod
    async def join(cls, store: MetadataStore, path: str, value: bytes, *, timeout_s: float = JOIN_TIMEOUT_S) -> Self:
        """Makes the node (and its missing parents) and keeps it.

        Raises:
            NodeExists: a node of that name, made by another session, was still there after `timeout_s`.
            MetadataError: the store failed; nothing is kept, but what was made may stay until the session ends.
        """
        membership = cls(store, path, value)
        await ensure_path(store, paths.parent_of(path))
        await membership._make_in_time(timeout_s)
        membership._keeper = asyncio.create_task(membership._keep(), name=f"membership {path}")
        return membership

    async def update(self, value: bytes) -> None:
        """Replaces the value. Returns when it is written. Raises MetadataError: not written yet, or unknown; the membership
        writes it as soon as it can."""
        self.value = value
        try:
            await self._write_value()
        finally:
            self._wake.set()

    async def leave(self) -> None:
        """Removes the node and stops keeping it. Idempotent; after the store was closed there is nothing to do. Raises
        MetadataError: the node may still be there; it vanishes with the session."""
        if self._left or self._keeper is None:
            return
        self._left = True
        self._keeper.cancel()
        await asyncio.wait([self._keeper])
        try:
            current = await self._store.get(self.path)
            # A write that was cut off may have made the node after all: then it holds our value.
            if self._mine or current.value == self.value:
                await self._store.delete(self.path, version=current.version)
        except (NoNode, ClosedError):
            return  # gone already, that is what we want

    def _session_lost(self) -> None:
        self._mine = False
        self._wake.set()

    async def _make_in_time(self, timeout_s: float) -> None:
        watch = self._store.watch(self.path)
        in_the_way: NodeExists | None = None
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        return await self._make()
                    except NodeExists as error:
                        in_the_way = error
                    await watch.changed()
        except TimeoutError as error:
            if in_the_way is None:
                raise MetadataUnknown(f"{self.path} could not be made within {timeout_s} s", path=self.path) from error
            raise NodeExists(
                f"{self.path} is held by another session and did not vanish within {timeout_s} s: does another process "
                "run under the same name? Stop it first",
                path=self.path,
            ) from in_the_way
        finally:
            watch.close()

    async def _make(self) -> None:
        """Raises NodeExists when a node that is not ours is in the way."""
        await create_settled(self._store, self.path, self.value, ephemeral=True)
        self._mine = True

    async def _write_value(self) -> None:
        """Brings the node to `value`; makes it when it is gone."""
        async with self._writing:
            if not self._mine:
                await self._make()
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
        failing = False
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                try:
                    await self._write_value()
                    failing = False
                except ClosedError:
                    return  # the session is gone, and the node with it
                except NodeExists as error:
                    # The watch fires when it vanishes.
                    _log.warning("membership taken by another session", path=self.path, error=error)
                except MetadataError as error:
                    if not failing:
                        _log.warning("membership not written, trying on", path=self.path, error=error)
                    failing = True
                    await asyncio.sleep(RETRY_DELAY_S)
                    self._wake.set()
        finally:
            watch.close()
            watching.cancel()
            await asyncio.wait([watching])

    async def _forward(self, watch: Watch) -> None:
        try:
            while True:
                await watch.changed()
                self._wake.set()
        except ClosedError:
            self._wake.set()  # the keeper finds the store closed
