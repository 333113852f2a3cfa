"""Looks whether enough bookies take writes (`boki_common.engine.admission`): when it starts, and when bookies come, go, or change.

So the first append on a full disk is refused at once. While appends wait for long, or are refused, it also looks every `LOOK_S`. What it
cannot find out leaves it at what it reported last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from boki_common.bookkeeper.layout import AVAILABLE, READ_ONLY, available_bookies
from boki_common.engine.admission import TAKEN, Admission
from boki_common.errors import BokiError
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore

LOOK_S: Final = 1.0
"""How often it looks; and appends that wait for less than this are nothing to ask about."""

_log = get_logger("engine")


class AdmissionWatch:
    """See the module.

    Args:
        needed: bookies that have to acknowledge an entry.
        waiting_s: how long the oldest append waits to be ordered.
        on_change: called with each change.

    Attributes:
        now: what was found last.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        *,
        needed: int,
        waiting_s: Callable[[], float],
        on_change: Callable[[Admission], None],
    ) -> None:
        self._metadata: Final = metadata
        self._needed: Final = needed
        self._waiting_s: Final = waiting_s
        self._on_change: Final = on_change
        self.now = TAKEN

    async def run(self) -> None:
        """Look whenever there is reason to. Ends only when cancelled."""
        watches = [self._metadata.watch(path) for path in (AVAILABLE, READ_ONLY)]
        changes = [asyncio.ensure_future(watch.changed()) for watch in watches]
        try:
            await self.look()
            while True:
                changed, _ = await asyncio.wait(changes, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                changes = [
                    asyncio.ensure_future(watch.changed()) if change in changed else change
                    for watch, change in zip(watches, changes, strict=True)
                ]
                if changed or self.due:
                    await self.look()
        finally:
            for change in changes:
                change.cancel()
            for watch in watches:
                watch.close()

    @property
    def due(self) -> bool:
        """Whether there is reason to look."""
        return not self.now.taken or self._waiting_s() >= LOOK_S

    async def look(self) -> None:
        """Asks the metadata store once, and reports what is different."""
        try:
            writable = await available_bookies(self._metadata)
            read_only = await available_bookies(self._metadata, read_only=True)
        except BokiError as error:
            _log.info("bookies not counted", error=error)
            return
        before, self.now = self.now, Admission(len(writable), len(read_only), self._needed)
        if before.taken != self.now.taken:
            if self.now.taken:
                _log.info("appends are taken again", writable=len(writable))
            else:
                _log.warning("appends are refused", error=self.now.error())
            self._on_change(self.now)
