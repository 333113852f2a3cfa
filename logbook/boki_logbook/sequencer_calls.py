"""What an engine asks of sequencers: the one of a book's log, and the next one when it cannot prove that its term goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from boki_common import limits
from boki_common.errors import BokiError, NetworkError, NoSequencer, OrderUnknown, SlotNotInTerm, TermOver
from boki_common.ids import Position, slot_of
from boki_logbook.apply.engine_log import EngineLog
from boki_logbook.ports import ShardLink
from boki_metalog.entries.progress import Order
from boki_metalog.terms.view import FIRST_LOG, View

ORDER_WAIT_S: Final = limits.CALL_TIMEOUT_S
"""A command or a barrier waits so long for a sequencer that takes it, through as many terms as there are."""


class SequencerCalls:
    """See the module. Notified of views and of links that come up."""

    def __init__(self, logs: Mapping[int, EngineLog]) -> None:
        self._logs = logs
        self._view: View | None = None
        self._log_of_slot: tuple[int, ...] = ()
        self._only_log: int | None = None
        """The log that orders every slot, while one does."""
        self._moved: list[asyncio.Future[None]] = []

    def view_changed(self, view: View) -> None:
        """Slots, logs or terms are others."""
        self._view = view
        self._log_of_slot = tuple(log for first, last, log in view.slots for _ in range(first, last + 1))
        self._only_log = view.slots[0].log if len({one.log for one in view.slots}) == 1 else None
        self.link_changed()

    def link_changed(self) -> None:
        """A sequencer can be spoken to: who waits for one tries again."""
        moved, self._moved = self._moved, []
        for future in moved:
            if not future.done():
                future.set_result(None)

    def log_of(self, book: int) -> int:
        """The log whose current term orders the book."""
        if self._only_log is not None:
            return self._only_log
        return self._log_of_slot[slot_of(book)] if self._log_of_slot else FIRST_LOG

    def link_of(self, log: int) -> ShardLink | None:
        """The sequencer of a log's current term, while it can be spoken to."""
        found = self._logs.get(log)
        return None if found is None else found.link

    async def order(self, book: int, command: Order) -> tuple[int, Position]:
        """As `Serving.order`."""
        return await self._ask(book, lambda link: link.order(command))

    async def barrier(self, book: int) -> tuple[int, Position]:
        """As `Serving.barrier`."""
        return await self._ask(book, lambda link: link.barrier())

    async def _ask(self, book: int, call: Callable[[ShardLink], Awaitable[Position]]) -> tuple[int, Position]:
        asked: tuple[ShardLink, View | None] | None = None
        fault: BokiError | None = None
        perhaps = False  # whether a sequencer that was asked may have ordered it
        try:
            async with asyncio.timeout(ORDER_WAIT_S):
                while True:
                    log = self._logs.get(self.log_of(book))
                    link = None if log is None else log.link
                    if log is not None and link is not None and (link, self._view) != asked:
                        asked = link, self._view
                        before, perhaps = perhaps, True
                        try:
                            return log.log, await call(link)
                        except (TermOver, SlotNotInTerm, NetworkError) as error:
                            fault = error
                            perhaps = before or not error.definite
                    else:
                        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                        self._moved.append(moved)
                        await moved
        except TimeoutError:
            raise (OrderUnknown if perhaps else NoSequencer)(
                f"no sequencer of log {self.log_of(book)} answered within {ORDER_WAIT_S} s"
                f"{'' if fault is None else f', the last said: {fault}'}; "
                f"{'whether it was ordered is unknown' if perhaps else 'nothing was ordered'}: ask again"
            ) from fault
