"""What the metadata store says about bookies as members of ledgers: whose they are, and since when they are the same.

Reads cookies for `member_trust`, which decides. A bookie once known as ours is looked up again only where it matters whether
its disk is still there (`fresh`): its id names a disk, and no other bookie ever gets it; its cookie is deleted before a new
bookie serves in its place. All others are read each time, since their cookies may be made anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from boki_common import limits
from boki_common.bookkeeper import layout
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.errors import CorruptData, NoNode
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore
from boki_ledger.metadata import member_trust
from boki_ledger.metadata.member_trust import Member

_log = get_logger("ledger")


class Members:
    """See the module. One per client."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._ours: dict[BookieId, None] = {}

    async def look(self, bookies: Iterable[BookieId], *, fresh: bool = False) -> dict[BookieId, Member]:
        """What is known about bookies; `fresh`: as it is now. Raises MetadataUnavailable."""
        bookies = tuple(bookies)
        if fresh:
            for bookie in bookies:
                self._ours.pop(bookie, None)
        if all(bookie in self._ours for bookie in bookies):
            return {bookie: Member(ours=True, made=None) for bookie in bookies}
        found = await asyncio.gather(*(self._look(bookie) for bookie in bookies))
        return dict(zip(bookies, found, strict=True))

    async def remember(self, before: LedgerMetadata | None, after: LedgerMetadata) -> LedgerMetadata:
        """`after` with the cookies of the bookies that join by it. Raises MetadataUnavailable.

        A closed ledger is never recovered, so that nothing need be remembered of it.
        """
        if after.state is LedgerState.CLOSED:
            return after
        return member_trust.remember(after, await self.look(member_trust.joined(before, after)))

    async def _look(self, bookie: BookieId) -> Member:
        if bookie in self._ours:
            return Member(ours=True, made=None)
        path = layout.cookie_path(bookie)
        try:
            value = (await self._store.get(path)).value
            if layout.decode_cookie(value).ours:
                if len(self._ours) < limits.LEDGER_BOOKIES_KNOWN:
                    self._ours[bookie] = None
                return Member(ours=True, made=None)
        except NoNode:
            return Member(ours=False, made=None)
        except CorruptData as error:
            _log.warning("the cookie of a bookie cannot be read", bookie_id=bookie, error=error)
        try:
            return Member(ours=False, made=await self._store.created(path))
        except NoNode:
            return Member(ours=False, made=None)
