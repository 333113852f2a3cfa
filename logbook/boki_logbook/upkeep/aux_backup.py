"""Keeps aux data over restarts, when `aux_backup_s` says so: the newest of it in a ledger, now and then (docs/adr/0015).

    start    what the backups of all engines have goes into the cache, as far as it has room and nothing newer
    round    if aux data changed: all of it, at most `aux_backup_bytes`, to a new ledger; the one before is deleted

Aux data is a cache of what a program can compute again, so nothing here is waited for by anybody, and whatever fails is tried
again in the next round. What was set since the last round is lost with the engine. Which ledgers there are, and who deletes
which, is in `aux_rules`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from boki_common.errors import BokiError, NoSuchLedger
from boki_common.logs import get_logger
from boki_common.metadata.membership import members
from boki_common.metadata.settle import compare_and_set
from boki_common.metadata.store import MetadataStore
from boki_ledger.ledgers import LedgerReader, Ledgers
from boki_logbook.read.cache import BatchCache
from boki_logbook.settings import EngineSettings
from boki_logbook.state.snapshots import INCARNATION_KEY, ROLE_KEY, UNUSABLE, Upload, value_of
from boki_logbook.upkeep import aux_rules
from boki_logbook.upkeep.aux_rules import AUX_PATH, AuxNode, BackupRow

ROLE: Final = b"aux"
CACHE_SHARE: Final = 2
"""What is read at the start takes at most one part of so many of the cache."""

_log = get_logger("aux backup")


class AuxBackup:
    """See the module. One runs in each engine; `read` and `saved_changes` are for tests."""

    def __init__(
        self,
        *,
        cache: BatchCache,
        incarnation: str,
        metadata: MetadataStore,
        ledgers: Ledgers,
        settings: EngineSettings,
        role: str,
    ) -> None:
        self.read: dict[int, None] = {}
        """Backups of engines that were here before; what they had is in the cache, as far as it had room."""
        self.saved_changes = 0
        """How many changes of the cache's aux data our backup has seen."""
        self._cache = cache
        self._incarnation = incarnation
        self._metadata = metadata
        self._ledgers = ledgers
        self._settings = settings
        self._role = role

    async def run(self) -> None:
        """Reads what there is, then goes round after round, until cancelled."""
        loaded = False
        while True:
            try:
                if loaded:
                    await self.round()
                else:
                    await self.load()
                    loaded = True
            except BokiError as error:
                _log.info("aux data: tried again next round", loaded=loaded, error=error)
            await asyncio.sleep(self._settings.aux_backup_s)

    # -- start

    async def load(self) -> None:
        """Newest backups first; of a record that is in several, or was set meanwhile, the newest stays."""
        room = min(self._settings.aux_backup_bytes, self._cache.limit_bytes // CACHE_SHARE)
        node, _ = await self._node()
        found: dict[int, bytes] = {}
        written = node.of_state("written")
        for row in reversed(written):
            for seqnum, data in await self._items(row, room):
                if room > 0 and seqnum not in found:
                    found[seqnum] = data
                    room -= len(data)
        self.read.update(dict.fromkeys(row.ledger_id for row in written))
        for seqnum in reversed(found):  # what was used last is put last, so it stays longest
            if self._cache.aux(seqnum) is None:
                self._cache.put_aux(seqnum, found[seqnum])
        if found:
            _log.info("aux data read from backups", records=len(found), ledgers=len(self.read))

    async def _items(self, row: BackupRow, room: int) -> list[tuple[int, bytes]]:
        """The items of a backup, most recently used first, until there is no more room; what is damaged is left out."""
        items: list[tuple[int, bytes]] = []
        try:
            reader: LedgerReader = await self._ledgers.open(row.ledger_id, recover=False)
            try:
                for entry in range(reader.last_entry + 1 if reader.closed else 0):
                    (chunk,) = await reader.read(entry, entry)
                    items += aux_rules.decode_chunk(chunk)
                    room -= len(chunk)
                    if room <= 0:
                        break
                    await asyncio.sleep(0)
            finally:
                await reader.close()
        except UNUSABLE as error:
            _log.info("backup of aux data not usable", ledger_id=row.ledger_id, error=error)
        return items

    # -- rounds

    async def round(self) -> None:
        """Writes a backup if there is something new, or ours is not named any more; deletes what is of no use."""
        node, version = await self._node(make=True)
        if self._cache.aux_changes != self.saved_changes or (self.saved_changes and not self._named(node)):
            node, version = await self._save(node, version)
        alive = await members(self._metadata, self._role)
        tidied = aux_rules.tidied(node, alive, self.read if self._named(node) else ())
        if tidied != node:
            node, version = tidied, await self._swap(tidied, version)
        deleted = [row.ledger_id for row in node.of_state("retired") if await self._deleted(row.ledger_id)]
        if deleted:
            await self._swap(aux_rules.without(node, deleted), version)

    def _named(self, node: AuxNode) -> bool:
        return any(row.incarnation == self._incarnation for row in node.of_state("written"))

    async def _save(self, node: AuxNode, version: int) -> tuple[AuxNode, int]:
        settings, changes = self._settings, self._cache.aux_changes
        custom = {ROLE_KEY: ROLE, INCARNATION_KEY: self._incarnation.encode()}
        writer = await self._ledgers.create(replicas=settings.replicas, acks=settings.acks, custom=custom)
        ledger_id = writer.ledger_id
        try:
            version = await self._swap(aux_rules.begun(node, self._incarnation, ledger_id), version)
        except BokiError as error:
            writer.abandon()
            if error.definite:  # it is not named, and will not be
                await self._deleted(ledger_id)
            raise
        upload = Upload(writer)
        try:
            for chunk in aux_rules.encode_chunks(self._newest()):
                await upload.put(chunk)
                await asyncio.sleep(0)
            await upload.end()
        except BaseException:
            writer.abandon()
            raise
        node, version = await self._node()
        after = aux_rules.finished(node, self._incarnation, ledger_id)
        if after is None:
            return node, version  # somebody took us for gone: the next round begins anew
        version = await self._swap(after, version)
        self.saved_changes = changes
        return after, version

    def _newest(self) -> Iterator[tuple[int, bytes]]:
        """Aux data, most recently used first, as much as a backup has room for; what goes meanwhile is left out."""
        room = self._settings.aux_backup_bytes
        for seqnum in self._cache.aux_seqnums():
            data = self._cache.aux(seqnum)
            if data is not None:
                room -= len(data)
                if room < 0:
                    return
                yield seqnum, data

    async def _deleted(self, ledger_id: int) -> bool:
        try:
            await self._ledgers.delete(ledger_id)
        except NoSuchLedger:
            return True
        except BokiError as error:
            _log.info("ledger of aux data not deleted yet", ledger_id=ledger_id, error=error)
            return False
        return True

    # -- the node

    async def _node(self, *, make: bool = False) -> tuple[AuxNode, int]:
        value, version = await value_of(self._metadata, AUX_PATH, aux_rules.encode_node(AuxNode()), make=make)
        return aux_rules.decode_node(value), version

    async def _swap(self, node: AuxNode, version: int) -> int:
        """Raises BadVersion: another engine was faster; the next round sees what it did."""
        return await compare_and_set(self._metadata, AUX_PATH, aux_rules.encode_node(node), version=version)
