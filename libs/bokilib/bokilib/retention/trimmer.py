"""A trimmer: trims of many streams, collected and sent as few commands.

A command has at most 512 pairs of tag and mark: one of 4,096 stops an engine for 13 ms. Streams that were added together are trimmed by
one command, so that a reader of several of them finds all or none forgotten. The highest mark of a stream counts. Marks that were not
flushed when a process died are computed again by another process, since they follow from the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from bokilib.ports import BookPort

PAIRS: Final = 512
PENDING: Final = 65_536
"""The most streams with pending marks. The marks of further streams are dropped, and computed again later."""


class Trimmer:
    """Pending trims of one book. `len` is the number of streams."""

    def __init__(self, book: BookPort) -> None:
        self._book = book
        self._marks: dict[tuple[str, ...], dict[str, int]] = {}
        self._forgets: dict[tuple[str, ...], dict[str, int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, tag: str, before: int, *, forget: bool = False) -> None:
        """Add a trim of one stream.

        Args:
            tag: of the stream.
            before: records below this seqnum are trimmed.
            forget: the log may also forget that the stream ever had a record.
        """
        self.add_together({tag: before}, forget=forget)

    def add_together(self, marks: Mapping[str, int], *, forget: bool = False) -> None:
        """Add a trim of up to 512 streams by one command, as `add` does for one."""
        assert 0 < len(marks) <= PAIRS, "streams that are trimmed together fit one command"
        pending = self._forgets if forget else self._marks
        streams = tuple(sorted(marks))
        known = pending.get(streams)
        if known is None:
            if self._count + len(marks) > PENDING:
                return
            self._count += len(marks)
        pending[streams] = {tag: max(before, (known or {}).get(tag, 0)) for tag, before in marks.items()}

    async def flush(self) -> int:
        """Send the pending trims. After an error those not sent stay pending.

        Returns:
            The number of commands.
        """
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
    """Yield pending trims for one command, in order, as many as fit."""
    pairs = 0
    for streams, marks in pending.items():
        pairs += len(marks)
        if pairs > PAIRS:
            return
        yield streams, dict(marks)
