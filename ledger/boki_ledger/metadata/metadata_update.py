"""Changes of a ledger's metadata: read, transform, compare-and-swap, until the swap succeeds.

    updates = LedgerUpdates(store, rng, settings)
    seen = await updates.change(ledger_id, transform, known=seen)

`transform` is pure: it gets the present metadata and returns the wanted one, None if nothing is to be changed, or raises
to give up. It is called again, on what is then there, after every lost race, so it must look at all it relies on.

A swap whose answer was lost is *unknown*, and reading does not settle it: the write may still be on its way. It is repeated
at the same version until the version moves (`metadata.settle`), however long that takes; each of our writes carries a fresh
token (`ctoken`), which identifies the write that moved it. Bookies that are not ours are remembered with their cookies as they
become members (`member_trust`). A swap that certainly was not sent may be postponed by the caller.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeVar

from boki_common.bookkeeper import layout, ledger_metadata
from boki_common.bookkeeper.layout import LedgerLayout
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.errors import BadVersion, MetadataUnavailable, NoNode, NoSuchLedger, Overloaded
from boki_common.metadata.settle import Superseded, compare_and_set
from boki_common.metadata.store import MetadataStore, Watch
from boki_common.retry import retry
from boki_common.runtime.ports import Random
from boki_ledger.metadata.members import Members
from boki_ledger.settings import LedgerSettings

T = TypeVar("T")

RACES: Final = 1_000
"""Lost races after which a change gives up; each one means that somebody else's change landed."""

Transform = Callable[[LedgerMetadata], LedgerMetadata | None]


class SeenMetadata(NamedTuple):
    """Metadata and the version of its node."""

    metadata: LedgerMetadata
    version: int


class LedgerUpdates:
    """See the module. Stateless but for its ports and the layout of the cluster, which never changes."""

    def __init__(self, store: MetadataStore, rng: Random, settings: LedgerSettings) -> None:
        self._store = store
        self._rng = rng
        self._settings = settings
        self.members = Members(store)
        self._layout: LedgerLayout | None = None

    async def path(self, ledger_id: int) -> str:
        """The node of a ledger's metadata. Raises MetadataUnavailable; SettingsError: a layout that is none of ours."""
        if self._layout is None:
            self._layout = await layout.read_layout(self._store)
        return self._layout.path(ledger_id)

    def watch(self, ledger_id: int) -> Watch:
        """Watches the metadata of a ledger that was read, or made, before."""
        assert self._layout is not None, "no ledger was read yet"
        return self._store.watch(self._layout.path(ledger_id))

    async def read(self, ledger_id: int) -> SeenMetadata:
        """The present metadata. Raises NoSuchLedger, CorruptData; MetadataUnavailable: the store stayed away for
        `retry_for_s`."""
        return await self.retry(lambda: self.read_now(ledger_id))

    async def read_now(self, ledger_id: int) -> SeenMetadata:
        """`read`, without waiting for the store."""
        try:
            found = await self._store.get(await self.path(ledger_id))
        except NoNode:
            raise _no_such_ledger(ledger_id) from None
        return SeenMetadata(ledger_metadata.decode(found.value), found.version)

    async def made(self, ledger_id: int) -> int | None:
        """When the ledger was made, as `MetadataStore.created` counts. Raises NoSuchLedger, MetadataUnavailable."""
        try:
            return await self._store.created(await self.path(ledger_id))
        except NoNode:
            raise _no_such_ledger(ledger_id) from None

    async def create(self, ledger_id: int, metadata: LedgerMetadata) -> SeenMetadata:
        """Makes the node of a new ledger. Raises NodeExists: the id was taken; MetadataUnavailable: nothing was made;
        MetadataUnknown: it may have been."""
        known = await self.retry(lambda: self.members.remember(None, metadata))
        wanted = replace(known, ctoken=self._token())
        value = ledger_metadata.encode(wanted)
        await self.retry(lambda: self.path(ledger_id))
        assert self._layout is not None
        made = self._layout
        await self.retry(lambda: layout.create_ledger(self._store, ledger_id, value, made))
        return SeenMetadata(wanted, 0)

    async def change(
        self, ledger_id: int, transform: Transform, *, known: SeenMetadata | None = None, retry_for_s: float = 0.0
    ) -> SeenMetadata:
        """Applies `transform`; returns what is there afterwards. Once a swap is unknown it insists until that is settled.

        Args:
            transform: see the module.
            known: what the caller saw last, which saves a read.
            retry_for_s: how long to repeat a swap that was not sent.

        Raises:
            NoSuchLedger: deleted. Overloaded: `RACES` lost races. MetadataUnavailable: nothing was changed.
            What `transform` raises.
        """
        seen = known if known is not None else await self.read(ledger_id)
        path = await self.path(ledger_id)
        for _ in range(RACES):
            wanted = transform(seen.metadata)
            if wanted is None:
                return seen
            if wanted.ensembles[-1] != seen.metadata.ensembles[-1]:
                remembered = partial(self.members.remember, seen.metadata, wanted)
                wanted = await self.retry(remembered, retry_for_s=retry_for_s)
            wanted = replace(wanted, ctoken=self._token())
            value, version = ledger_metadata.encode(wanted), seen.version
            try:
                return SeenMetadata(wanted, await self._swap(path, value, version, retry_for_s))
            except NoNode:
                raise _no_such_ledger(ledger_id) from None
            except Superseded:
                seen = await self._insist_on_reading(ledger_id)
            except BadVersion:
                seen = await self.read(ledger_id)
        raise _too_many_races(ledger_id)

    async def swap_exactly(self, ledger_id: int, wanted: LedgerMetadata, *, known: SeenMetadata) -> SeenMetadata:
        """Writes `wanted` at the version of `known`, or not at all: it is never applied to what another wrote.

        An unknown outcome is settled: the write is repeated at that version until the version has moved.

        Raises:
            BadVersion: another write took the version. Superseded, one of these: it cannot be known whether ours was applied
            before that. NoSuchLedger: deleted. MetadataUnavailable: nothing was sent.
        """
        wanted = replace(wanted, ctoken=self._token())
        path = await self.path(ledger_id)
        try:
            version = await self._swap(path, ledger_metadata.encode(wanted), known.version, 0.0)
        except NoNode:
            raise _no_such_ledger(ledger_id) from None
        return SeenMetadata(wanted, version)

    async def delete(self, ledger_id: int) -> None:
        """Removes the ledger from the metadata; its bookies collect its entries later.

        A lost answer needs no settling: whatever happens to it, the ledger is gone in the end.

        Raises:
            NoSuchLedger: it is not there. MetadataUnavailable, MetadataUnknown: try again.
        """
        for _ in range(RACES):
            version = (await self.read(ledger_id)).version
            try:
                await self._store.delete(await self.path(ledger_id), version=version)
                return
            except BadVersion:
                continue
            except NoNode:
                raise _no_such_ledger(ledger_id) from None
        raise _too_many_races(ledger_id)

    async def retry(self, call: Callable[[], Awaitable[T]], *, retry_for_s: float | None = None) -> T:
        """Repeats a call that was not sent, until `retry_for_s` (default: the settings') is over."""
        return await retry(
            call,
            self._settings.backoff(),
            retryable=lambda error: isinstance(error, MetadataUnavailable),
            timeout_s=self._settings.retry_for_s if retry_for_s is None else retry_for_s,
        )

    async def _swap(self, path: str, value: bytes, version: int, retry_for_s: float) -> int:
        return await self.retry(
            lambda: compare_and_set(self._store, path, value, version=version, deadline_s=math.inf),
            retry_for_s=retry_for_s,
        )

    async def _insist_on_reading(self, ledger_id: int) -> SeenMetadata:
        while True:
            try:
                return await self.read(ledger_id)
            except MetadataUnavailable:
                await asyncio.sleep(self._settings.retry_most_s)

    def _token(self) -> int:
        """63 random bits, never 0, which means *no token*."""
        return int.from_bytes(self._rng.token(8), "big") >> 1 or 1


def _no_such_ledger(ledger_id: int) -> NoSuchLedger:
    return NoSuchLedger(f"there is no ledger {ledger_id}: it was deleted or never made", ledger_id=ledger_id)


def _too_many_races(ledger_id: int) -> Overloaded:
    return Overloaded(f"{RACES} races for the metadata of ledger {ledger_id} were lost; who changes it all the time?")
