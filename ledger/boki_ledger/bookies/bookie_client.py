"""The real `BookieTransport`: bookies over the network, by id, one or a few links to each.

Adds and reads go over links that speak v2 (`bookie_link`), what v2 has not over one that speaks v3 (`v3_link`), made when
it is first needed. With `wire_protocol` "v3" everything goes over that one.

The first v2 link to a bookie stays; further ones exist only while a second channel of one ledger needs its own connection (a
writer and a recovery in one process, a slot that changed away and back), see `bookie_link`.
"""

from __future__ import annotations

import asyncio

from boki_common import limits
from boki_common.background_tasks import BackgroundTasks
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import Overloaded
from boki_common.ids import BookieId
from boki_ledger import transport
from boki_ledger.bookies.bookie_directory import BookieDirectory
from boki_ledger.bookies.bookie_link import BookieLink
from boki_ledger.bookies.v3_link import V3Link
from boki_ledger.settings import WIRE_V3, LedgerSettings


class BookieNetwork:
    """See `transport.BookieTransport`."""

    def __init__(self, directory: BookieDirectory, settings: LedgerSettings, token: ClusterToken = NO_TOKEN) -> None:
        self._token = token
        self._directory = directory
        self._settings = settings
        self._speaks_v3 = settings.wire_protocol == WIRE_V3
        self._links: dict[BookieId, list[BookieLink]] = {}
        self._v3_links: dict[BookieId, V3Link] = {}
        self._closing = BackgroundTasks()

    def open_channel(
        self, bookie: BookieId, ledger_id: int, listener: transport.ChannelListener, *, deferred_sync: bool = False
    ) -> transport.AddChannel:
        if deferred_sync or self._speaks_v3:
            return self._v3_link(bookie).open_channel(ledger_id, listener, deferred_sync=deferred_sync)
        links = self._links.setdefault(bookie, [])
        for link in links:
            if link.can_carry(ledger_id):
                return link.open_channel(ledger_id, listener)
        if len(links) >= limits.LEDGER_LINKS_PER_BOOKIE:
            raise Overloaded(
                f"{limits.LEDGER_LINKS_PER_BOOKIE} connections to bookie {bookie} carry adds of ledger {ledger_id} already; "
                "too many recoveries of one ledger run at once",
                bookie_id=bookie,
            )
        return self._new_link(bookie).open_channel(ledger_id, listener)

    def read(
        self, bookie: BookieId, ledger_id: int, entry_id: int, *, fence_key: bytes | None = None
    ) -> asyncio.Future[transport.ReadAnswer]:
        if self._speaks_v3:
            return self._v3_link(bookie).read(ledger_id, entry_id, fence_key)
        links = self._links.get(bookie)
        return (links[0] if links else self._new_link(bookie)).read(ledger_id, entry_id, fence_key)

    def read_batch(
        self, bookie: BookieId, ledger_id: int, entry_id: int, *, max_count: int, max_bytes: int
    ) -> asyncio.Future[transport.BatchAnswer]:
        return self._first_link(bookie).read_batch(ledger_id, entry_id, max_count, max_bytes)

    def serves_batches(self, bookie: BookieId) -> bool:
        links = self._links.get(bookie)
        return not self._speaks_v3 and (not links or links[0].serves_batches)

    def read_lac(self, bookie: BookieId, ledger_id: int) -> asyncio.Future[transport.LacAnswer]:
        return self._v3_link(bookie).read_lac(ledger_id)

    def write_lac(
        self, bookie: BookieId, ledger_id: int, master_key: bytes, body: bytes
    ) -> asyncio.Future[transport.Outcome]:
        return self._v3_link(bookie).write_lac(ledger_id, master_key, body)

    def force(self, bookie: BookieId, ledger_id: int) -> asyncio.Future[transport.Outcome]:
        return self._v3_link(bookie).force(ledger_id)

    def wait_for_lac(
        self, bookie: BookieId, ledger_id: int, previous_lac: int, *, wait_s: float
    ) -> asyncio.Future[transport.PollAnswer]:
        return self._v3_link(bookie).wait_for_lac(ledger_id, previous_lac, wait_s)

    def bookie_info(self, bookie: BookieId) -> asyncio.Future[transport.SpaceAnswer]:
        return self._v3_link(bookie).bookie_info()

    def list_entries(self, bookie: BookieId, ledger_id: int) -> asyncio.Future[transport.EntriesAnswer]:
        return self._v3_link(bookie).list_entries(ledger_id)

    def hold_ledger(
        self, bookie: BookieId, ledger_id: int, master_key: bytes, version: int
    ) -> asyncio.Future[transport.Outcome]:
        return self._first_link(bookie).hold(ledger_id, master_key, version)

    def seems_up(self, bookie: BookieId) -> bool:
        if self._speaks_v3:
            link = self._v3_links.get(bookie)
            return link is None or link.error is None
        links = self._links.get(bookie)
        return not links or links[0].connection is not None or links[0].error is None

    async def close(self) -> None:
        """Ends all links. Idempotent."""
        links = [link for links in self._links.values() for link in links]
        v3_links = list(self._v3_links.values())
        self._links.clear()
        self._v3_links.clear()
        for link in links:
            await link.close()
        for v3_link in v3_links:
            await v3_link.close()
        await self._closing.finish()

    def _first_link(self, bookie: BookieId) -> BookieLink:
        links = self._links.get(bookie)
        return links[0] if links else self._new_link(bookie)

    def _v3_link(self, bookie: BookieId) -> V3Link:
        link = self._v3_links.get(bookie)
        if link is None:
            link = self._v3_links[bookie] = V3Link(bookie, self._directory, self._settings, self._token)
        return link

    def _new_link(self, bookie: BookieId) -> BookieLink:
        link = BookieLink(bookie, self._directory, self._settings, self._idle, self._token)
        self._links.setdefault(bookie, []).append(link)
        return link

    def _idle(self, link: BookieLink) -> None:
        links = self._links.get(link.bookie, [])
        if link in links[1:]:
            links.remove(link)
            self._closing.spawn(link.close(), f"closing a link to bookie {link.bookie}")
