"""Effects of several libraries in one record: all of them happen, at one place, or none.

    async with Atomic(log) as tx:
        tx.add(store_part)
        tx.add(queue_part)
    print(tx.seqnum)

Each library contributes (tags, expect, events). What commits together lives in one book. One append.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final

from boki_common.errors import ClosedError
from bokilib.append.log import Log
from bokilib.records.contribution import Contribution, joined


class Atomic:
    """See the module. Leaving it without an error appends; with one, nothing happened.

    Attributes:
        seqnum: the place of the record; 0 before it is appended, and when there was nothing to append.
    """

    def __init__(self, log: Log) -> None:
        self.seqnum = 0
        self._log: Final = log
        self._parts: list[Contribution] = []
        self._ended = False

    def add(self, part: Contribution) -> None:
        """What a library has to say. Raises ClosedError when it was committed."""
        if self._ended:
            raise ClosedError("this Atomic has ended: begin another one")
        self._parts.append(part)

    async def __aenter__(self) -> Atomic:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.commit()
        self._ended = True

    async def commit(self) -> int:
        """Appends what was added; returns the place of the record, 0 if nothing was added.

        Raises:
            Conflict: an expectation of one part failed, so nothing of any happened. AtomicTooLarge: nothing was sent.
            AppendUnknown. ClosedError: it was committed before.
        """
        if self._ended:
            raise ClosedError("this Atomic has ended: begin another one")
        self._ended = True
        one = joined(self._parts)
        if one.events:
            self.seqnum = await self._log.append(one)
        return self.seqnum
