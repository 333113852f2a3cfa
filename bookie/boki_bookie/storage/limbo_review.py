"""Into limbo and out of it: a damaged store is salvaged when its operator says so, and watched until it is repaired.

Starting (`open_or_salvage`): a store that opens is served as it is. One that does not, because something is missing, foreign
or damaged, is refused, unless `salvage` is set. Then, in this order: all metadata is read; the list of ledgers in doubt is
made durable; what can be read is made into a store again (`salvage`); only then it serves.

Repairing is somebody else's part (it needs a ledger client, `boki ledger repair`): what is missing comes back as recovery
adds. Nobody has to declare the bookie whole: `LimboReview` looks at the listed ledgers now and then, and takes off
the list what is proven (`limbo_rules`).

*Fresh* reads: a metadata store may serve reads from a replica that lags. The bookie writes its own cookie first; what its
session reads after that is not older than what had happened before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from boki_bookie.begin.identity import Identity
from boki_bookie.begin.salvage import Salvage
from boki_bookie.settings import BookieSettings
from boki_bookie.space.limbo_rules import Doubt, is_proven, judge_lost, names
from boki_bookie.storage.limbo import Limbo
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.digests import master_key
from boki_common.bookkeeper.layout import LedgerLayout, cookie_path, list_ledgers
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState, decode
from boki_common.errors import BokiError, CorruptData, DiskFailed, NoNode
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.ports import Disk, Random

READS_AT_ONCE: Final = 64
"""Ledgers whose metadata is read at the same time."""

_log = get_logger("bookie")

OpenStorage = Callable[..., Awaitable[Storage]]
"""Opens the store of a directory, in the `limbo` that it gets."""
Owns = Callable[[int], bool]
"""Whether a ledger lies in this directory of the bookie."""


class Survey(NamedTuple):
    """What all metadata says to a bookie that has lost something."""

    listed: dict[int, bool]
    """Ledgers in doubt, and whether each is fenced."""
    keys: dict[int, bytes]
    """Master keys of ledgers that name the bookie."""


async def open_or_salvage(
    disk: Disk,
    bookie: Identity,
    metadata: MetadataStore,
    *,
    open_storage: OpenStorage,
    rng: Random,
    settings: BookieSettings,
    owns: Owns = lambda _: True,
) -> Storage:
    """Opens a store; one that is in limbo answers so. `owns`: whether a ledger lies in this directory.

    An older copy (`life_rules`) is salvaged though nothing in it is damaged.

    Raises:
        CorruptData, DiskFailed: what is damaged, and what to do. MetadataError: it has to be salvaged, and that needs the
        metadata. VersionMismatch, DiskFull.
    """
    try:
        if bookie.is_older_copy:
            raise CorruptData(f"{disk.describe()} is an older copy of what served last", path=disk.describe())
        limbo = await Limbo.load(disk, bookie.raw)
        return await open_storage(limbo=limbo)
    except (CorruptData, DiskFailed) as damage:
        if not settings.salvage:
            raise
        _log.warning("salvaging a damaged store", place=disk.describe(), error=damage)
        found = await survey(metadata, bookie.bookie_id, owns=owns)
        limbo = await Limbo.begin(disk, bookie.raw, found.listed)
        salvaged = await Salvage(
            disk,
            bookie.raw,
            rng=rng,
            settings=settings,
            keys=found.keys,
            may_stay_open=lambda ledger_id: found.listed.get(ledger_id) is False,
        ).run()
        _log.warning("salvaged; in limbo until it is repaired", place=disk.describe(), **salvaged._asdict())
        return await open_storage(limbo=limbo)


async def survey(metadata: MetadataStore, bookie_id: BookieId, *, owns: Owns = lambda _: True) -> Survey:
    """Reads the metadata of every ledger that this directory owns, fresh. Raises MetadataError."""
    await _refresh(metadata, bookie_id)
    listed: dict[int, bool] = {}
    keys: dict[int, bytes] = {}
    ours = [ledger_id for ledger_id in await list_ledgers(metadata) if owns(ledger_id)]
    for ledger_id, found in (await _read_all(metadata, ours)).items():
        if found is None:
            continue  # deleted meanwhile
        readable = None if isinstance(found, CorruptData) else found
        doubt = judge_lost(readable, bookie_id)
        if doubt is not Doubt.NONE:
            listed[ledger_id] = doubt is Doubt.FENCED
        if readable is not None and names(readable, bookie_id):
            keys[ledger_id] = master_key(readable.password)
    return Survey(listed, keys)


class LimboReview:
    """Ends the limbo of one store when there is proof. `start` it beside the server, `close` it before the store."""

    def __init__(
        self,
        storage: Storage,
        metadata: MetadataStore,
        bookie_id: BookieId,
        *,
        interval_s: float,
        owns: Owns = lambda _: True,
    ) -> None:
        self._storage = storage
        self._owns = owns
        self._metadata = metadata
        self._bookie_id = bookie_id
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Looks from now on, if there is anything to look at."""
        if self.in_limbo:
            self._task = asyncio.create_task(self._run(), name="bookie limbo review")

    @property
    def in_limbo(self) -> bool:
        return self._storage.limbo is not None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def look(self) -> None:
        """Takes off the list what is proven; ends limbo when nothing is left. Raises MetadataError, StorageError."""
        limbo = self._storage.limbo
        if limbo is None:
            return
        await _refresh(self._metadata, self._bookie_id)
        proven = await self._proven(limbo.ledgers)
        await self._storage.journal.flushed()  # what is held may only be on its way to the disk
        if proven:
            await limbo.clear(proven)
            _log.info("ledgers are out of limbo", ledgers=len(proven), left=len(limbo.ledgers))
        if not limbo.ledgers:
            await self._end(limbo)

    async def _end(self, limbo: Limbo) -> None:
        """The last look: what was closed on this bookie while it was in limbo must be here too."""
        closed = []
        ours = [ledger_id for ledger_id in await list_ledgers(self._metadata) if self._owns(ledger_id)]
        for ledger_id, found in (await _read_all(self._metadata, ours)).items():
            if isinstance(found, CorruptData):
                raise found
            if found is not None and found.state is LedgerState.CLOSED and names(found, self._bookie_id):
                closed.append(ledger_id)
        proven = frozenset(await self._proven(closed))
        await self._storage.journal.flushed()
        left = {ledger_id: True for ledger_id in closed if ledger_id not in proven}
        if left:
            await limbo.list_more(left)
            return
        await self._storage.end_limbo()
        _log.info("limbo is over: everything that this bookie owes is here", bookie_id=self._bookie_id)

    async def _proven(self, ledgers: Iterable[int]) -> list[int]:
        """Those of which everything is held, closed or gone."""
        found = await _read_all(self._metadata, ledgers)
        return [
            ledger_id
            for ledger_id, metadata in found.items()
            if not isinstance(metadata, CorruptData) and is_proven(metadata, self._bookie_id, self._stored(ledger_id))
        ]

    def _stored(self, ledger_id: int) -> frozenset[int]:
        return frozenset(self._storage.entry_ids(ledger_id) or ())

    async def _run(self) -> None:
        while self.in_limbo and not self._storage.failed.done():
            try:
                await self.look()
            except BokiError as error:
                _log.warning("limbo could not be looked at; trying again", error=error)
            await asyncio.sleep(self._interval_s)


async def _refresh(metadata: MetadataStore, bookie_id: BookieId) -> None:
    path = cookie_path(bookie_id)
    cookie = await metadata.get(path)
    await metadata.set(path, cookie.value, version=cookie.version)


async def _metadata_of(store: MetadataStore, ledger_id: int) -> LedgerMetadata:
    """Raises NoNode: it is at the place of no layout. CorruptData."""
    *others, last = (layout.path(ledger_id) for layout in LedgerLayout)
    for path in others:
        try:
            return decode((await store.get(path)).value)
        except NoNode:
            continue
    return decode((await store.get(last)).value)


async def _read_all(metadata: MetadataStore, ledgers: Iterable[int]) -> dict[int, LedgerMetadata | CorruptData | None]:
    """By ledger: its metadata, why that cannot be read, or None when there is none."""

    async def read(ledger_id: int) -> LedgerMetadata | CorruptData | None:
        try:
            return await _metadata_of(metadata, ledger_id)
        except NoNode:
            return None
        except CorruptData as error:
            return error

    ordered = list(ledgers)
    found: dict[int, LedgerMetadata | CorruptData | None] = {}
    for at in range(0, len(ordered), READS_AT_ONCE):
        some = ordered[at : at + READS_AT_ONCE]
        found.update(zip(some, await asyncio.gather(*map(read, some)), strict=True))
    return found
