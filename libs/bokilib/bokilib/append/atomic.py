"""A record with effects of several libraries: all of them take effect at one place in the log, or none does.

    async with Atomic(log) as tx:
        tx.add(store_part)
        tx.add(queue_part)
    print(tx.seqnum)

Each library adds a `Contribution` (tags, expectations, events). All of them belong to one book, that of the log, and
committing is one append.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final

from boki_common.errors import ClosedError
from bokilib.append.log import Log
from bokilib.records.contribution import Contribution, joined


class Atomic:
    """A transaction over several libraries. Leaving its block appends the record; leaving it with an error appends nothing.

    Attributes:
        seqnum: the seqnum of the record; 0 before it is appended, and if there was nothing to append.
    """

    def __init__(self, log: Log) -> None:
        self.seqnum = 0
        self._log: Final = log
        self._parts: list[Contribution] = []
        self._ended = False

    def add(self, part: Contribution) -> None:
        """Add the contribution of one library.

        Raises:
            ClosedError: this Atomic was committed or left.
            InvalidArgument: the part is no contribution.
            WrongBook: it is for another book.
        """
        if self._ended:
            raise ClosedError("this Atomic has ended: begin another one")
        self._log.check_part(part)
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
        """Append all contributions as one record.

        Returns:
            The seqnum of the record, or 0 if no event was added.

        Raises:
            Conflict: an expectation of one contribution failed; none of them took effect.
            AtomicTooLarge: the contributions do not fit one record; nothing was sent.
            InvalidArgument: two contributions use one new id.
            AppendUnknown: the outcome of the append is unknown.
            ClosedError: this Atomic was committed before.
        """
        if self._ended:
            raise ClosedError("this Atomic has ended: begin another one")
        self._ended = True
        one = joined(self._parts)
        if one.events:
            self.seqnum = await self._log.append(one)
        return self.seqnum
