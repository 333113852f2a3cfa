"""How much room bookies have: asked of each over the wire, as Apache's tools do; Apache's bookies answer too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from boki_common.bookkeeper.status import V2Status
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.ids import BookieId
from boki_common.metadata.store import MetadataStore
from boki_ledger.bookies.bookie_client import BookieNetwork
from boki_ledger.bookies.bookie_directory import BookieDirectory
from boki_ledger.settings import LedgerSettings


class Space(NamedTuple):
    """Of one bookie, all its disks together."""

    free_bytes: int
    total_bytes: int


class BookieSpace:
    """Keeps its connections. Close it."""

    def __init__(self, store: MetadataStore, settings: LedgerSettings, token: ClusterToken = NO_TOKEN) -> None:
        """`store`: where the addresses are; it stays its owner's. `token`: shown to bookies."""
        self._network = BookieNetwork(BookieDirectory(store, retry_s=settings.retry_most_s), settings, token)

    async def ask(self, bookies: Sequence[str], *, timeout_s: float) -> dict[str, Space]:
        """The room of those that answer in time."""
        asked = {name: self._network.bookie_info(BookieId(name)) for name in bookies}
        if not asked:
            return {}
        done, late = await asyncio.wait(asked.values(), timeout=timeout_s)
        for one in late:
            one.cancel()
        answers = {name: one.result() for name, one in asked.items() if one in done}
        return {
            name: Space(found.free_bytes, found.total_bytes)
            for name, found in answers.items()
            if found.status == V2Status.OK and found.free_bytes is not None and found.total_bytes is not None
        }

    async def close(self) -> None:
        """Idempotent."""
        await self._network.close()
