"""Closes the data ledgers of shards that ended, in the background (DESIGN §8, "Engine lost").

Nothing waits for it: the metalog already says where a shard ends. A ledger is closed by its own writer, if that is this
engine and the writer did not fail; else by recovery, with the ordered entries as floor. Recovery that would close below the
floor closes nothing; that is evidence of loss, it is logged and tried again.

Bounded by the shards of the terms that this engine has seen.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from boki_common.errors import BokiError, LedgerDataMissing, NoSuchLedger
from boki_common.logs import get_logger
from boki_logbook.ports import DataLedgers, LedgerWriter

_log = get_logger("engine.sealer")


class _Ended(NamedTuple):
    ledger_id: int
    floor: int
    writer: LedgerWriter | None


class Sealer:
    """See the module. `run` works until it is cancelled."""

    def __init__(self, ledgers: DataLedgers, *, retry_first_s: float, retry_limit_s: float) -> None:
        self._ledgers = ledgers
        self._retry_first_s = retry_first_s
        self._retry_limit_s = retry_limit_s
        self._ended: deque[_Ended] = deque()
        self._wake = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Ledgers that are to be closed yet."""
        return len(self._ended)

    def seal(self, ledger_id: int, floor: int, writer: LedgerWriter | None) -> None:
        """Has a data ledger closed that holds at least `floor` entries."""
        self._ended.append(_Ended(ledger_id, floor, writer))
        self._wake.set()

    async def run(self) -> None:
        pause_s = self._retry_first_s
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._ended:
                ended = self._ended.popleft()
                try:
                    await self._close(ended)
                    pause_s = self._retry_first_s
                except BokiError as error:
                    self._ended.append(ended._replace(writer=None))
                    log = _log.error if isinstance(error, LedgerDataMissing) else _log.info
                    log("data ledger not closed yet", ledger_id=ended.ledger_id, floor=ended.floor, error=error)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, self._retry_limit_s)

    async def _close(self, ended: _Ended) -> None:
        try:
            if ended.writer is not None:
                await ended.writer.close()
                return
            reader = await self._ledgers.open(ended.ledger_id, recover=True, floor=ended.floor)
        except NoSuchLedger:
            return  # its term was reclaimed
        await reader.close()
