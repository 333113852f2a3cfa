"""Validation: whether the metadata of a ledger names this bookie and OPEN, before its first normal add is taken.

Why: a writer may hold a ledger that others recovered and closed while this bookie did not exist; this disk never saw the
fence, so it would take the add, and the writer would believe it.

| the metadata says | answer |
|---|---|
| OPEN, and names this bookie in some ensemble | OK |
| IN_RECOVERY or CLOSED (never goes back) | FENCED |
| OPEN without this bookie, or no such ledger | look again for `validation_retry_for_s`, then FENCED |
| nothing: the store is away | wait up to `validation_timeout_s`, then TOO_MANY_REQUESTS: nothing was stored, come again |
| something that cannot be read | IO_ERROR |

Looking again covers a store that serves reads from a replica behind its leader (ZooKeeper does): the writer may have just
made the ledger, or just replaced a bookie by this one. FENCED, because the writer must stop and cannot know the outcome of
what it sent: exactly what a fence means.
"""

from __future__ import annotations

import asyncio
from typing import Final

from boki_bookie.entries.ledger_digests import LedgerDigests
from boki_bookie.settings import BookieSettings
from boki_common.backoff import Backoff
from boki_common.bookkeeper.layout import LEDGER_ID_MAX, LedgerLayout, read_layout
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState, decode
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import CorruptData, MetadataUnavailable, MetadataUnknown, NoNode
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore

FIRST_DELAY_S: Final = 0.01
DELAY_MAX_S: Final = 0.5

_log = get_logger("bookie")


def judge(metadata: LedgerMetadata | None, bookie_id: str) -> V2Status | None:
    """OK, FENCED, or None for a state that may only be late. Pure."""
    if metadata is None:
        return None
    if metadata.state is not LedgerState.OPEN:
        return V2Status.FENCED
    named = any(bookie_id in bookies for _, bookies in metadata.ensembles)
    return V2Status.OK if named else None


class LedgerValidation:
    """Reads the metadata of ledgers; call it with the ledger."""

    def __init__(
        self,
        metadata: MetadataStore,
        bookie_id: str,
        settings: BookieSettings,
        *,
        digests: LedgerDigests | None = None,
    ) -> None:
        """`digests` learn which digest ledgers that may be written have."""
        self._metadata = metadata
        self._bookie_id = bookie_id
        self._digests = digests
        self._layout: LedgerLayout | None = None
        self._timeout_s = settings.validation_timeout_s
        self._retry_for_s = settings.validation_retry_for_s

    async def __call__(self, ledger_id: int) -> V2Status:
        """The table above. Raises nothing but cancellation."""
        if ledger_id > LEDGER_ID_MAX:
            return V2Status.BAD_REQUEST
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._look(ledger_id)
        except TimeoutError:
            _log.warning("an add waits no longer: the metadata store is away", ledger_id=ledger_id)
            return V2Status.TOO_MANY_REQUESTS
        except CorruptData as error:
            _log.error("the metadata of a ledger cannot be read", ledger_id=ledger_id, error=error)
            return V2Status.IO_ERROR

    async def _look(self, ledger_id: int) -> V2Status:
        loop = asyncio.get_running_loop()
        give_up_at: float | None = None
        backoff = Backoff(FIRST_DELAY_S, DELAY_MAX_S)
        while True:
            try:
                metadata = await self._read(ledger_id)
                status = judge(metadata, self._bookie_id)
                if status is V2Status.OK and self._digests is not None and metadata is not None:
                    self._digests.learn(ledger_id, metadata)
                if status is not None:
                    return status
                give_up_at = give_up_at or loop.time() + self._retry_for_s
                if loop.time() >= give_up_at:
                    _log.warning("refused an add of a ledger that does not name this bookie", ledger_id=ledger_id)
                    return V2Status.FENCED
            except (MetadataUnavailable, MetadataUnknown) as error:
                _log.debug("the metadata store is away", ledger_id=ledger_id, error=error)
            await asyncio.sleep(backoff.next())

    async def _read(self, ledger_id: int) -> LedgerMetadata | None:
        try:
            if self._layout is None:
                self._layout = await read_layout(self._metadata)
            return decode((await self._metadata.get(self._layout.path(ledger_id))).value)
        except NoNode:
            return None
