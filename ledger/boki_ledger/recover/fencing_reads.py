"""Fencing reads of one recovery, asked in rounds until what they are for is done.

A round asks every question once; what stayed unknown is asked again in the next, after growing pauses. Without any progress for
`retry_for_s` it gives up. What an answer means its owner (`Recovering`) decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BokiError, Unauthorized
from boki_common.ids import BookieId
from boki_ledger.ports import LedgerPorts
from boki_ledger.rules.answers import Answer
from boki_ledger.transport import ReadAnswer

Question = tuple[int, int]
"""Entry (`v2.LAST_ENTRY` for the last there is) and slot of the ensemble."""


class Recovering(Protocol):
    """The owner of the reads."""

    def take(self, entry_id: int, slot: int, answer: ReadAnswer) -> Answer:
        """Takes an answer; UNKNOWN: it is to be asked again."""

    def waits(self) -> bool:
        """Whether something else may still come without asking."""

    def gave_up(self) -> BokiError:
        """What to raise after no progress for so long."""


class FencingReads:
    """See the module."""

    def __init__(
        self, ledger_id: int, ensemble: tuple[BookieId, ...], key: bytes, ports: LedgerPorts, owner: Recovering
    ) -> None:
        self._ledger_id = ledger_id
        self._ensemble = ensemble
        self._key = key
        self._ports = ports
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._progress = 0
        self._asked: dict[Question, asyncio.Future[ReadAnswer]] = {}
        self._unknown: set[Question] = set()
        self.refusal: BokiError | None = None
        """What ended it: set by `refuse`."""

    @property
    def open(self) -> bool:
        """Whether a question was asked that has no definite answer yet."""
        return bool(self._asked or self._unknown)

    @property
    def missing(self) -> list[BookieId]:
        """Bookies that owe a definite answer, sorted."""
        return sorted({self._ensemble[slot] for _, slot in (*self._asked, *self._unknown)})

    def progressed(self) -> None:
        """Something came that the end depends on."""
        self._progress += 1
        self._news.set()

    def look_again(self) -> None:
        """Something changed; it is no progress."""
        self._news.set()

    def refuse(self, error: BokiError) -> None:
        """Asking makes no sense any more."""
        self.refusal = error
        self._news.set()

    def ask_again(self, bookie: BookieId) -> None:
        """The answer of a bookie counts now, and did not when it was asked."""
        self._unknown = {(entry_id, slot) for entry_id, slot in self._unknown if self._ensemble[slot] != bookie}
        self.progressed()

    def close(self) -> None:
        """Forgets what is under way."""
        for future in self._asked.values():
            future.cancel()

    async def work(self, done: Callable[[], bool], questions: Callable[[], Iterator[Question]]) -> None:
        """Asks until done. Raises what was refused, or what `gave_up` says."""
        settings = self._ports.settings
        backoff = settings.backoff()
        round_ends = self._loop.time() + backoff.next()
        progress, last_progress = self._progress, self._loop.time()
        while not done():
            if self.refusal is not None:
                raise self.refusal
            for entry_id, slot in questions():
                if (entry_id, slot) not in self._asked and (entry_id, slot) not in self._unknown:
                    self._ask(entry_id, slot)
            now = self._loop.time()
            if progress != self._progress:
                progress, last_progress = self._progress, now
            waits = self._asked or self._owner.waits()
            give_up_at = last_progress + settings.retry_for_s + (settings.answer_timeout_s if waits else 0.0)
            if now >= give_up_at:
                raise self._owner.gave_up()
            try:
                async with asyncio.timeout_at(min(round_ends, give_up_at)):
                    await self._news.wait()
            except TimeoutError:
                round_ends = self._loop.time() + backoff.next()
                self._unknown.clear()
            self._news.clear()

    def _ask(self, entry_id: int, slot: int) -> None:
        future = self._ports.transport.read(self._ensemble[slot], self._ledger_id, entry_id, fence_key=self._key)
        self._asked[entry_id, slot] = future
        future.add_done_callback(lambda done: self._answered(entry_id, slot, done))

    def _answered(self, entry_id: int, slot: int, future: asyncio.Future[ReadAnswer]) -> None:
        if future.cancelled():
            return
        del self._asked[entry_id, slot]
        self._news.set()
        answer = future.result()
        if answer.status is V2Status.UNAUTHORIZED:
            self.refusal = Unauthorized(
                f"bookie {self._ensemble[slot]} refuses the password of ledger {self._ledger_id}",
                ledger_id=self._ledger_id,
            )
        elif self._owner.take(entry_id, slot, answer).definite:
            self._progress += 1
        else:
            self._unknown.add((entry_id, slot))
