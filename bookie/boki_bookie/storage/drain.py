"""A bookie that follows its mark: read-only by a person's word, or drained (`boki_common.bookkeeper.bookie_mark`).

`begin` reads the mark before anybody is served, `look` follows it from then on. While the bookie drains, each look asks
for a garbage collection that reads all metadata, and notes in the mark, in this order: that all adds are refused, once they are;
how many ledgers are left; that none is. Since all adds are refused, what is left only gets less. What goes, and on
what proof, is the business of `gc_rules`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from boki_bookie.entries.ledger_index import HELD_FOR_GOOD
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.bookie_mark import (
    DRAINING,
    LEFT_NAMED,
    RETIRED,
    UNMARKED,
    BookieMark,
    SeenMark,
    kept_read_only,
)
from boki_common.bookkeeper.bookie_marks import read_mark, write_mark
from boki_common.bookkeeper.layout import cookie_path
from boki_common.errors import BadVersion, Overloaded, WrongDirectory
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.ports import Random

RACES: Final = 10
"""Lost races after which a person's word is given up: the mark changes all the time."""

_log = get_logger("bookie")

Apply = Callable[[BookieMark], Awaitable[None]]
"""Makes a mark the bookie's own: when it returns, adds are taken or refused as the mark says."""


class Drain:
    """See the module."""

    def __init__(
        self,
        metadata: MetadataStore,
        bookie_id: BookieId,
        storages: Sequence[Storage],
        rng: Random,
        apply: Apply,
    ) -> None:
        self._metadata = metadata
        self._bookie_id = bookie_id
        self._storages = tuple(storages)
        self._rng = rng
        self._apply = apply
        self._seen: SeenMark = UNMARKED
        self._turn = asyncio.Lock()
        """An older mark must not be applied after a newer one was, and noted."""
        self._sessions = 0
        metadata.on_session_lost(self._session_lost)

    def _session_lost(self) -> None:
        self._sessions += 1

    @property
    def mark(self) -> BookieMark:
        """The mark that was applied last."""
        return self._seen.mark

    async def begin(self) -> None:
        """Read the mark and apply it, as new as a write of the same session. Raises WrongDirectory: the bookie is retired.
        MetadataError, CorruptData."""
        while True:
            session = self._sessions
            path = cookie_path(self._bookie_id)
            cookie = await self._metadata.get(path)
            await self._metadata.set(path, cookie.value, version=cookie.version)
            await self._follow()
            if session == self._sessions:
                return

    async def look(self) -> None:
        """Follow the mark, and take the drain a step further. Raises as `begin`; BadVersion is met by the next look."""
        async with self._turn:
            await self._follow()
            if self.mark.state == DRAINING:
                await self._advance()

    async def keep_read_only(self, read_only: bool) -> None:
        """Note a person's word in the mark, durably, and apply it. Raises MetadataError: it may or may not have been noted."""
        async with self._turn:
            await self._note(read_only)
            await self._follow()

    async def _note(self, read_only: bool) -> None:
        for _ in range(RACES):
            seen = await read_mark(self._metadata, self._bookie_id)
            wanted = kept_read_only(seen.mark, read_only)
            if wanted == seen.mark:
                return
            try:
                await write_mark(self._metadata, self._bookie_id, wanted, seen=seen, rng=self._rng)
                return
            except BadVersion as error:
                _log.info("mark changed meanwhile: it is read again", bookie_id=self._bookie_id, error=error)
        raise Overloaded(
            f"{RACES} races for the mark of bookie {self._bookie_id} were lost; who changes it all the time?"
        )

    async def _follow(self) -> None:
        seen = await read_mark(self._metadata, self._bookie_id)
        if seen.version < self._seen.version:
            return  # read in another session, from a server that lags behind
        if seen.mark.state == RETIRED:
            raise WrongDirectory(
                f"bookie {self._bookie_id} was drained and is retired: no ledger needs what is on its disk; stop it, and format the "
                "disk anew to use it again",
                path=self._bookie_id,
            )
        before = self._seen.mark
        if (before.state, before.read_only) != (seen.mark.state, seen.mark.read_only):
            _log.info(
                "follows its mark", bookie_id=self._bookie_id, state=seen.mark.state, read_only=seen.mark.read_only
            )
            await self._apply(seen.mark)
        self._seen = seen

    async def _advance(self) -> None:
        """Collect garbage while adds are refused, then note in the mark which ledgers are left."""
        assert all(storage.drains for storage in self._storages), "a mark was not applied"
        left: list[int] = []
        held = 0
        for storage in self._storages:
            ledgers = [ledger for ledger in map(storage.ledger, storage.ledger_ids) if ledger and ledger.entry_count]
            left += [ledger.ledger_id for ledger in ledgers]
            held += sum(ledger.hold == HELD_FOR_GOOD for ledger in ledgers)
            if ledgers:
                storage.request_checkpoint()
                storage.request_gc(major=True)
        for storage in self._storages:
            await storage.journal.flushed()  # what is gone stays gone
        wanted = msgspec.structs.replace(
            self.mark,
            refuses=True,
            empty=not left,
            ledgers=len(left),
            left=tuple(sorted(left)[:LEFT_NAMED]),
            held_for_good=held,
            in_limbo=any(storage.limbo is not None for storage in self._storages),
        )
        if wanted != self.mark:
            self._seen = await write_mark(self._metadata, self._bookie_id, wanted, seen=self._seen, rng=self._rng)
            if wanted.empty:
                _log.info("drained: no entry is left", bookie_id=self._bookie_id)
