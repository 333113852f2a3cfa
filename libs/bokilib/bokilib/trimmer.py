"""Trims of many streams as few commands: what goes is collected, and leaves together.

At most 512 pairs a command: one of 4,096 stops an engine for 13 ms. Of a stream the highest mark counts. What is not flushed
when a process dies is trimmed by whoever computes the marks again: they follow from what is in the log.
"""

from __future__ import annotations

from typing import Final

from bokilib.ports import BookPort

PAIRS: Final = 512
PENDING: Final = 65_536
"""Streams that wait; a mark of another one is dropped, since it is computed again."""


class Trimmer:
    """See the module."""

    def __init__(self, book: BookPort) -> None:
        self._book = book
        self._marks: dict[str, int] = {}
        self._forgets: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._marks) + len(self._forgets)

    def add(self, tag: str, before: int, *, forget: bool = False) -> None:
        """Of a stream nothing below `before` is needed any more; with `forget`, nor that there was one."""
        marks = self._forgets if forget else self._marks
        if before > marks.get(tag, 0) and (tag in marks or len(self) < PENDING):
            marks[tag] = before

    async def flush(self) -> int:
        """Orders what was collected; returns how many commands it took. What fails is kept, and may be flushed again."""
        commands = 0
        for marks, forget in ((self._marks, False), (self._forgets, True)):
            while marks:
                pairs = list(marks.items())[:PAIRS]
                await self._book.trim([(tag, before) for tag, before in pairs], forget=forget)
                commands += 1
                for tag, before in pairs:
                    if marks.get(tag) == before:
                        del marks[tag]
        return commands
