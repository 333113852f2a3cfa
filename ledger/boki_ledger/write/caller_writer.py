"""A writer whose caller names the ids of entries, in any order: a `LedgerWriter` behind `caller_ids`.

    writer = await client.create(entry_ids="caller")
    await asyncio.gather(writer.append_at(1, b"second"), writer.append_at(0, b"first"))

Entries go to bookies in the order of their ids, those that came early once their predecessors came; so lengths in entries
are exact, and a ledger ends without holes, also when recovery closes it. They are acknowledged in that order in any case.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from boki_common.errors import BokiError, InvalidArgument, Overloaded, RecordTooLarge
from boki_common.limits import ENTRY_BYTES
from boki_common.runtime.ports import Buffer
from boki_ledger.settings import LedgerSettings
from boki_ledger.write.caller_ids import CallerIds
from boki_ledger.write.writer import LedgerWriter


class _Held(NamedTuple):
    payload: tuple[Buffer, ...]
    future: asyncio.Future[int]


class CallerIdWriter:
    """See the module. Made by `LedgerClient.create(entry_ids="caller")`."""

    def __init__(self, writer: LedgerWriter, settings: LedgerSettings) -> None:
        self.ledger_id = writer.ledger_id
        self._writer = writer
        self._ids: CallerIds[_Held] = CallerIds(
            writer.ledger_id, entries_limit=settings.window_entries, bytes_limit=settings.window_bytes
        )
        self._sent: deque[tuple[int, asyncio.Future[int]]] = deque()
        self._ended: BokiError | None = None
        writer.listen(self._acked, lambda error: None)
        writer.when_ended(self._end)

    @property
    def last_acked(self) -> int:
        """See `LedgerWriter.last_acked`."""
        return self._writer.last_acked

    @property
    def lac(self) -> int:
        """See `LedgerWriter.lac`."""
        return self._writer.lac

    async def append_at(self, entry_id: int, *payload: Buffer) -> int:
        """Appends the entry with this id; returns it once it and all before it are acknowledged.

        Cancelling withdraws nothing. The payload must not change until the entry is acknowledged.

        Raises:
            InvalidArgument: the id was given before, or is negative. RecordTooLarge: over `limits.ENTRY_BYTES`.
            Overloaded: too much waits for an entry before it; nothing was taken.
            LedgerClosed, ClosedError: closed or abandoned. Otherwise what failed the writer.
        """
        if self._ended is not None:
            raise self._ended
        size = sum(map(len, payload))
        if size > ENTRY_BYTES:
            raise RecordTooLarge(f"expected an entry of at most {ENTRY_BYTES} bytes, found {size}", found=size)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ids.take(entry_id, _Held(payload, future), size)
        self._send_due()
        return await future

    def listen(self, acked: Callable[[int], None], failed: Callable[[BokiError], None]) -> None:
        """See `LedgerWriter.listen`."""
        self._writer.listen(acked, failed)

    async def force(self) -> int:
        """See `LedgerWriter.force`."""
        return await self._writer.force()

    async def close(self) -> int:
        """See `LedgerWriter.close`. Raises InvalidArgument: an entry is missing before one that was given; append it and close
        again, or abandon."""
        if (gap := self._ids.gap()) is not None:
            missing = f"entry {gap.start}" if len(gap) == 1 else f"entries {gap.start} … {gap.stop - 1}"
            raise InvalidArgument(
                f"expected ledger {self.ledger_id} to be closed without holes, found entry {gap.stop} without {missing}: "
                "append what is missing and close it again, or abandon the writer",
                ledger_id=self.ledger_id,
                entry_id=gap.start,
            )
        return await self._writer.close()

    def abandon(self) -> None:
        """See `LedgerWriter.abandon`."""
        self._writer.abandon()

    def _send_due(self) -> None:
        while (held := self._ids.due()) is not None:
            try:
                entry_id = self._writer.submit(*held.payload)
            except Overloaded:
                return  # sent once the entries in flight are fewer
            except BokiError as error:
                self._end(error)
                return
            assert entry_id == self._ids.next, f"expected to send entry {self._ids.next}, sent {entry_id}"
            self._ids.sent()
            self._sent.append((entry_id, held.future))

    def _acked(self, last: int) -> None:
        while self._sent and self._sent[0][0] <= last:
            entry_id, future = self._sent.popleft()
            if not future.done():
                future.set_result(entry_id)
        self._send_due()

    def _end(self, error: BokiError) -> None:
        """Whatever was not acknowledged never will be, as far as its caller can know."""
        if self._ended is None:
            self._ended = error
        sent, self._sent = self._sent, deque()
        for future in (*(future for _, future in sent), *(held.future for held in self._ids.items())):
            if not future.done():
                future.set_exception(error.again())
