"""Closes the data ledgers of shards that ended, in the background (DESIGN §8, "Engine lost").

Nothing waits for it: the metalog already says where a shard ends. Who closes what:

- The engine that wrote a shard closes its ledger with its own writer, at once. That is one swap of metadata.
- Of a shard that is another's, or whose writer failed, an engine looks at the ledger after a while: then it is closed, as a
  rule. Else its engine is gone, and recovery closes it, with the ordered entries as floor. Each engine waits another while for
  each ledger, so that the first one does it and the others find it done.
- What a dead engine left unwritten of its carried entries is taken from the metalog (`carried_entries`).
- Recovery that would close below the floor closes nothing; that is evidence of loss, it is logged and tried again.

Bounded by the shards of the terms that this engine has seen.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

from boki_common import limits
from boki_common.backoff import Backoff
from boki_common.errors import BokiError, LedgerDataMissing, NoSuchLedger, RecoveryFailed
from boki_common.logs import get_logger
from boki_common.retry import event_or_timeout
from boki_ledger.ledgers import Ledgers, LedgerWriter
from boki_logbook.index.places import ShardPlace
from boki_logbook.read.carried_entries import CarriedEntries

_log = get_logger("engine.sealer")


class _Ended(NamedTuple):
    due_s: float
    number: int
    """Decides between those due at the same time."""
    shard: ShardPlace
    writer: LedgerWriter | None
    backoff: Backoff
    """After failures."""


class Sealer:
    """See the module. `run` works until it is cancelled."""

    def __init__(
        self,
        ledgers: Ledgers,
        carried: CarriedEntries,
        *,
        incarnation: str,
        others_s: float,
        backoff: Callable[[], Backoff],
    ) -> None:
        """`others_s`: another's ledger is looked at after once to twice this time, as `incarnation` and its id decide.
        `backoff`: the pauses of one series of attempts."""
        self._ledgers = ledgers
        self._carried = carried
        self._incarnation = incarnation
        self._others_s = others_s
        self._backoff = backoff
        self._loop = asyncio.get_running_loop()
        self._ended: list[_Ended] = []
        """A heap."""
        self._given = 0
        self._busy = False
        self._wake = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Ledgers that are to be closed yet."""
        return len(self._ended) + self._busy

    def seal(self, shard: ShardPlace, writer: LedgerWriter | None) -> None:
        """Has the data ledger of a shard that ended closed, with all that is ordered of it. `writer`: if this engine wrote it."""
        wait_s = 0.0 if writer is not None else self._others_s * (1 + _turn(self._incarnation, shard.ledger_id))
        self._push(wait_s, shard, writer, self._backoff())

    async def run(self) -> None:
        while True:
            now_s = self._loop.time()
            if not self._ended or self._ended[0].due_s > now_s:
                await event_or_timeout(self._wake, self._ended[0].due_s - now_s if self._ended else None)
                continue
            ended = heappop(self._ended)
            self._busy = True
            try:
                await self._close(ended)
            except (BokiError, TimeoutError) as error:
                _, _, shard, _, backoff = ended
                log = _log.error if isinstance(error, LedgerDataMissing) else _log.info
                log("data ledger not closed yet", ledger_id=shard.ledger_id, floor=shard.entries_end, error=error)
                self._push(backoff.next(), shard, None, backoff)
            finally:
                self._busy = False

    def _push(self, wait_s: float, shard: ShardPlace, writer: LedgerWriter | None, backoff: Backoff) -> None:
        self._given += 1
        heappush(self._ended, _Ended(self._loop.time() + wait_s, self._given, shard, writer, backoff))
        self._wake.set()

    async def _close(self, ended: _Ended) -> None:
        shard, writer = ended.shard, ended.writer
        ledger_id, floor = shard.ledger_id, shard.entries_end
        try:
            if writer is not None:
                await self._close_own(writer, floor)
                return
            try:
                reader = await self._ledgers.open(ledger_id, recover=True, floor=floor)  # fences nothing that is closed
            except (LedgerDataMissing, RecoveryFailed) as error:
                carried = await self._carried_of(shard)
                if not carried:
                    raise
                _log.info(
                    "the metalog has what the data ledger lacks",
                    ledger_id=ledger_id,
                    entries=sorted(carried),
                    error=error,
                )
                reader = await self._ledgers.open(ledger_id, recover=True, floor=floor, carried=carried)
        except NoSuchLedger:
            return  # its term was reclaimed
        await reader.close()

    async def _carried_of(self, shard: ShardPlace) -> dict[int, bytes]:
        """What the metalog carries of the last entries of a shard; nothing when it cannot be read now."""
        stop = shard.entries_end
        try:
            return await self._carried.find(shard.term, shard.number, max(stop - limits.CARRIED_BEHIND, 0), stop)
        except BokiError as error:
            _log.info("the metalog cannot be looked at", term=shard.term, shard=shard.number, error=error)
            return {}

    async def _close_own(self, writer: LedgerWriter, floor: int) -> None:
        """Carried entries that were written last may not be acknowledged yet: a ledger closes behind what is."""
        try:
            async with asyncio.timeout(self._others_s):
                await writer.acknowledged(floor - 1)
        except TimeoutError:
            writer.abandon()
            raise
        await writer.close()


def _turn(incarnation: str, ledger_id: int) -> float:
    """From 0 to 1, another one for each engine and ledger."""
    return zlib.crc32(f"{incarnation} {ledger_id}".encode()) / 2**32
