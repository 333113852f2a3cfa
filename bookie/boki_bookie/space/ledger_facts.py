"""What the metadata store proves about ledgers, for garbage collection.

A store is believed only while it proves to be this cluster's: it has the cluster's INSTANCEID and this bookie's cookie. So
a store that was wiped, restored from elsewhere or reached under another root deletes nothing. A ledger is gone when it is
at none of the paths that any layout gives it. An error, a time-out and a lost session prove nothing: `session` counts the
sessions that were lost, and proofs of two sessions do not add up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from boki_bookie.space.gc_rules import Fact, judge
from boki_common.bookkeeper.layout import LAYOUT, LEDGERS, LedgerLayout, cookie_path, instance_id, list_ledgers
from boki_common.bookkeeper.ledger_metadata import decode, encode
from boki_common.errors import BadVersion, CorruptData, MetadataError, NodeExists, NoNode
from boki_common.limits import CALL_TIMEOUT_S
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore, ensure_path
from boki_common.runtime.ports import Random

REPAIR_LOCKS: Final = f"{LEDGERS}/underreplication/locks"
"""Where Apache BookKeeper's repair holds one ephemeral node for each ledger that it copies."""

_log = get_logger("bookie")


class Reading(NamedTuple):
    """The result of one read of a ledger's metadata."""

    fact: Fact
    version: int
    """Of its node; -1 for none."""


class LedgerFacts:
    """From a metadata store, in time for each question. Every method may raise MetadataError or TimeoutError: nothing is known."""

    def __init__(self, metadata: MetadataStore, bookie_id: str, instance: str) -> None:
        """`instance`: INSTANCEID of the bookie's cluster."""
        self.session = 0
        """Sessions that were lost so far."""
        self._metadata = metadata
        self._bookie_id = bookie_id
        self._instance = instance
        metadata.on_session_lost(self._session_lost)

    def _session_lost(self) -> None:
        self.session += 1

    async def is_trusted(self) -> bool:
        """Whether the store is this cluster's."""
        async with asyncio.timeout(CALL_TIMEOUT_S):
            try:
                found = await instance_id(self._metadata)
                LedgerLayout((await self._metadata.get(LAYOUT)).value)
            except (NoNode, ValueError):
                found = ""
            known = await self._metadata.exists(cookie_path(self._bookie_id))
        if found == self._instance and known:
            return True
        _log.error(
            "the metadata store is not that of this bookie's cluster: nothing is deleted",
            expected=self._instance,
            found=found,
            knows_this_bookie=known,
        )
        return False

    async def listed(self) -> frozenset[int]:
        """Ledgers that a listing names: where to look, and no proof."""
        return frozenset(await list_ledgers(self._metadata))

    async def read(self, ledger_id: int) -> Reading:
        """Reads the node of one ledger."""
        for path in dict.fromkeys(layout.path(ledger_id) for layout in LedgerLayout):
            try:
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    found = await self._metadata.get(path)
            except NoNode:
                continue
            try:
                return Reading(judge(decode(found.value), self._bookie_id), found.version)
            except CorruptData as error:
                _log.error("metadata that cannot be read; the entries are kept", ledger_id=ledger_id, error=error)
                return Reading(Fact.KEEP, found.version)
        return Reading(Fact.GONE, -1)

    async def touch(self, ledger_id: int, version: int, rng: Random) -> None:
        """Write the metadata of a closed ledger again as it is, unless it moved from `version`: no swap at that version lands after
        it. An outcome that is unknown is as good as none: the next read tells."""
        known = LedgerLayout((await self._metadata.get(LAYOUT)).value)
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                found = await self._metadata.get(known.path(ledger_id))
                if found.version != version:
                    return
                token = int.from_bytes(rng.token(8), "big") >> 1 or 1
                value = encode(replace(decode(found.value), ctoken=token))
                await self._metadata.set(known.path(ledger_id), value, version=version)
        except (BadVersion, NoNode):
            return  # it moved meanwhile
        except CorruptData as error:
            _log.error("metadata that cannot be read; the entries are kept", ledger_id=ledger_id, error=error)

    @asynccontextmanager
    async def repair_lock(self, ledger_id: int) -> AsyncIterator[bool]:
        """Keeps repair away from a ledger; False when somebody else holds it."""
        path = f"{REPAIR_LOCKS}/urL{ledger_id:010d}"
        async with asyncio.timeout(CALL_TIMEOUT_S):
            await ensure_path(self._metadata, REPAIR_LOCKS)
            try:
                await self._metadata.create(path, self._bookie_id.encode(), ephemeral=True)
            except NodeExists:
                is_ours = False
            else:
                is_ours = True
        try:
            yield is_ours
        finally:
            if is_ours:
                await self._unlock(path)

    async def _unlock(self, path: str) -> None:
        try:
            await self._metadata.delete(path, version=0)
        except NoNode:
            pass  # it went with its session
        except MetadataError as error:
            _log.warning("a lock of repair is given back at the end of the session", path=path, error=error)
