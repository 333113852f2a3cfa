"""The data ledger of an engine's next shard, made ahead, so that a shard begins with one message to the sequencer.

A ledger that was offered as a shard of a term, with unknown outcome, is of use in that term or nowhere: then it is closed, as is
one that the sequencer refuses. What is made ahead and never offered is deleted when the engine stops: nobody else knows of it.
"""

from __future__ import annotations

from typing import Final

from boki_common.background_tasks import BackgroundTasks
from boki_common.errors import BokiError
from boki_common.logs import get_logger
from boki_ledger.ledgers import Ledgers, LedgerWriter
from boki_logbook.ports import ShardLink
from boki_logbook.settings import EngineSettings
from boki_metalog.errors import ShardNotOpen

_log = get_logger("engine.appender")

LEDGER_ROLE: Final = {"boki.role": b"data"}
"""Custom metadata of the ledgers made here, for people who list them."""
INCARNATION: Final = "boki.incarnation"
"""Who made a data ledger, in its custom metadata: for whoever deletes those that no engine needs any more."""


class SpareLedger:
    """See the module. One `open_shard` at a time."""

    def __init__(self, ledgers: Ledgers, *, incarnation: str, settings: EngineSettings) -> None:
        self._ledgers = ledgers
        self._incarnation = incarnation
        self._settings = settings
        self.spare: LedgerWriter | None = None
        """Made ahead, if there is one."""
        self._offered_in = 0
        """The term in which the spare was offered as a shard with unknown outcome."""
        self._background = BackgroundTasks()

    async def open_shard(self, link: ShardLink) -> tuple[int, LedgerWriter]:
        """The number of a new shard, and its ledger, which is spare no longer. Raises what creating and opening do: try again."""
        writer = self.spare
        if writer is not None and self._offered_in not in (0, link.term):  # it may be a shard of that term
            self.spare = None
            self.close_unused(writer)
            writer = None
        if writer is None:
            writer = self.spare = await self._create()
        self._offered_in = link.term
        try:
            number = await link.open_shard(self._incarnation, writer.ledger_id)
        except ShardNotOpen:
            self.spare = None
            self.close_unused(writer)
            raise
        self._offered_in = 0
        self.spare = None
        return number, writer

    def make(self) -> None:
        """Makes the next one, in the background."""
        self._background.spawn(self._make())

    def close_unused(self, writer: LedgerWriter) -> None:
        """Closes a ledger that will have no entry, in the background."""
        self._background.spawn(self._close_unused(writer))

    async def delete(self) -> None:
        """Deletes the one made ahead. Raises BokiError."""
        spare, self.spare = self.spare, None
        if spare is not None:
            spare.abandon()
            await self._ledgers.delete(spare.ledger_id)

    async def close(self) -> None:
        """Ends what goes on in the background."""
        await self._background.close()

    async def _create(self) -> LedgerWriter:
        return await self._ledgers.create(
            replicas=self._settings.replicas,
            acks=self._settings.acks,
            custom=LEDGER_ROLE | {INCARNATION: self._incarnation.encode()},
        )

    async def _make(self) -> None:
        try:
            spare = await self._create()
        except BokiError as error:
            _log.info("no spare data ledger yet", error=error)  # one is made when it is needed
            return
        if self.spare is None:
            self.spare = spare
        else:
            await self._close_unused(spare)

    async def _close_unused(self, writer: LedgerWriter) -> None:
        try:
            await writer.close()
        except BokiError as error:
            _log.info("unused data ledger not closed", ledger_id=writer.ledger_id, error=error)
