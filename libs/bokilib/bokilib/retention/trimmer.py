"""Trims of many streams as few commands: what goes is collected, and leaves together.

At most 512 pairs a command: one of 4,096 stops an engine for 13 ms. Tags that were added together go together: a command forgets
streams at one place of the log, and who knows something by several streams is to find all of them or none. Of a stream the highest
mark counts. What is not flushed when a process dies is trimmed by whoever computes the marks again: they follow from what is in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from bokilib.ports import BookPort

PAIRS: Final = 512
PENDING: Final = 65_536
"""Streams that wait; a mark of another one is dropped, since it is computed again."""


class Trimmer:
    """See the module."""

    def __init__(self, book: BookPort) -> None:
        self._book = book
        self._marks: dict[tuple[str, ...], dict[str, int]] = {}
        self._forgets: dict[tuple[str, ...], dict[str, int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, tag: str, before: int, *, forget: bool = False) -> None:
        """Of a stream nothing below `before` is needed any more; with `forget`, nor that there was one."""
        self.add_together({tag: before}, forget=forget)

    def add_together(self, marks: Mapping[str, int], *, forget: bool = False) -> None:
        """The same of up to 512 streams, by one command."""
        assert 0 < len(marks) <= PAIRS, "what goes together fits a command"
        pending = self._forgets if forget else self._marks
        streams = tuple(sorted(marks))
        known = pending.get(streams)
        if known is None:
            if self._count + len(marks) > PENDING:
                return
            self._count += len(marks)
        pending[streams] = {tag: max(before, (known or {}).get(tag, 0)) for tag, before in marks.items()}

    async def flush(self) -> int:
        """Orders what was collected; returns how many commands it took. What fails is kept, and may be flushed again."""
        commands = 0
        for pending, forget in ((self._marks, False), (self._forgets, True)):
            while pending:
                sent = dict(_command(pending))
                marks: dict[str, int] = {}
                for together in sent.values():
                    marks |= {tag: max(before, marks.get(tag, 0)) for tag, before in together.items()}
                await self._book.trim(list(marks.items()), forget=forget)
                commands += 1
                for streams, together in sent.items():
                    if pending.get(streams) == together:
                        del pending[streams]
                        self._count -= len(streams)
        return commands


def _command(pending: Mapping[tuple[str, ...], dict[str, int]]) -> Iterator[tuple[tuple[str, ...], dict[str, int]]]:
    """What of it goes first, whole."""
    pairs = 0
    for streams, marks in pending.items():
        pairs += len(marks)
        if pairs > PAIRS:
            return
        yield streams, dict(marks)
