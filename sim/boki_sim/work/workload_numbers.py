"""How simulated clients use a named writer.

Every record is noted before it is sent first, in a place that outlives the client (`operations.Notes`). So whatever became of a
number, and whoever comes after a crash, sends the same record under it again until the log has decided it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import boki
from boki_sim.work.operations import APPEND, CONFLICT, OK, Noted, Notes
from boki_sim.work.recorder import Recorder
from boki_sim.work.workload_appends import expectation_now_and_then, send

NUMBERED_AT_ONCE: Final = 4
SENT_AGAIN: Final = 20
"""How far back a decided number of a named writer is sent again; the log keeps 1,024 answers."""


class NamedWriter:
    """The writer of one client process: in each book it has one user at a time."""

    def __init__(self, recorder: Recorder, name: str = "") -> None:
        self._recorder = recorder
        self._name = name or recorder.session.partition("#")[0]
        self._busy: set[str] = set()

    async def send_some(self, book: boki.Book) -> None:
        """The next numbers, or those that are undecided; now and then one that is decided long since."""
        name, recorder = str(book.name), self._recorder
        if name in self._busy:
            return
        self._busy.add(name)
        try:
            notes = recorder.history.notes.setdefault((self._name, name), Notes())
            await self._note_next(book, notes)
            first = notes.decided + 1
            if first > 1 and recorder.numbers.random() < 0.2:
                again = recorder.numbers.randrange(max(1, first - SENT_AGAIN), first)
                await self._send(book, again, notes.records[again - 1])
            calls = [self._send(book, n, notes.records[n - 1]) for n in range(first, len(notes.records) + 1)]
            for decided in await asyncio.gather(*calls):
                if not decided:
                    break
                notes.decided += 1
        finally:
            self._busy.discard(name)

    async def go_on(self, book: boki.Book) -> str:
        """Long after, when the log may have forgotten it: a number that was decided, and the next ones, until one is refused.

        Never the first: that would begin a writer anew. Returns the last error, if there was one.
        """
        notes = self._recorder.history.notes[self._name, str(book.name)]
        first = notes.decided + 1
        if first == 1:
            return ""
        await self._note_next(book, notes)
        if first > 2:
            again = self._recorder.numbers.randrange(max(2, first - SENT_AGAIN), first)
            await self._send(book, again, notes.records[again - 1])
        for number in range(first, len(notes.records) + 1):
            if not await self._send(book, number, notes.records[number - 1]):
                return self._recorder.history.operations[-1].error
            notes.decided += 1
        return ""

    async def _note_next(self, book: boki.Book, notes: Notes) -> None:
        """Notes records until there are some to send."""
        recorder = self._recorder
        wanted = recorder.numbers.randrange(1, NUMBERED_AT_ONCE + 1)
        while len(notes.records) - notes.decided < wanted:
            expect = await expectation_now_and_then(recorder, book)
            notes.records.append(Noted(recorder.tags(), recorder.data(), expect))

    async def _send(self, book: boki.Book, number: int, noted: Noted) -> bool:
        """Sends a record under its number; returns whether the log decided it."""
        operation = self._recorder.begin(
            book,
            APPEND,
            tags=noted.tags,
            data=noted.data,
            expect=noted.expect,
            writer=self._name,
            number=number,
        )
        await send(self._recorder, book, operation)
        return operation.outcome in (OK, CONFLICT)
