"""How far an open ledger is acknowledged, as its bookies report it: the highest LAC that verified bodies carry.

All bookies of the last fragment are asked, until every ack quorum contains one that answered (`coverage`). Each reports the
LAC that was written by itself and the last entry it stores, which carries the writer's LAC of its time. A bookie that does
not say so in v3 is asked for its last entry alone.

A LAC that is too low is always safe: readers see less. Nothing here closes or proves the absence of anything.
"""

from __future__ import annotations

import asyncio

from boki_common.bookkeeper import v2
from boki_common.bookkeeper.digests import Digest
from boki_common.bookkeeper.entry_body import verify_body
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.errors import DigestMismatch, EntryUnknown
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_ledger.rules.answers import Answer, answer_of
from boki_ledger.rules.coverage import covered
from boki_ledger.rules.lac_body import decode_lac
from boki_ledger.settings import LedgerSettings
from boki_ledger.transport import BookieTransport, LacAnswer

_log = get_logger("ledger")


class LacReads:
    """See the module. Stateless but for its ports."""

    def __init__(self, ledger_id: int, digest: Digest, transport: BookieTransport, settings: LedgerSettings) -> None:
        self._ledger_id = ledger_id
        self._digest = digest
        self._transport = transport
        self._settings = settings

    async def read(self, metadata: LedgerMetadata) -> int:
        """The LAC, at least what the metadata itself proves. Raises EntryUnknown: no bookie gave a definite answer."""
        first, bookies = metadata.ensembles[-1]
        answers = [Answer.UNKNOWN] * len(bookies)
        lac = first - 1
        loop = asyncio.get_running_loop()
        slots = {
            asyncio.ensure_future(self._ask(bookie)): slot  # each with a task: asked twice at most, and seldom
            for slot, bookie in enumerate(bookies)
        }
        waiting = set(slots)
        give_up_at = loop.time() + self._settings.answer_timeout_s
        try:
            while waiting and not covered(answers, write_quorum=metadata.write_quorum, ack_quorum=metadata.ack_quorum):
                left = max(0.0, give_up_at - loop.time())
                done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
                for task in done:
                    answers[slots[task]], seen_lac = task.result()
                    lac = max(lac, seen_lac)
        finally:
            for task in waiting:
                task.cancel()
        if not any(answer.definite for answer in answers):
            raise EntryUnknown(
                f"no bookie of {', '.join(bookies)} tells how far ledger {self._ledger_id} is acknowledged; try again when "
                "they are back",
                ledger_id=self._ledger_id,
            )
        return lac

    async def _ask(self, bookie: BookieId) -> tuple[Answer, int]:
        taken, lac = self.take(await self._transport.read_lac(bookie, self._ledger_id))
        if taken.definite:
            return taken, lac
        last = await self._transport.read(bookie, self._ledger_id, v2.LAST_ENTRY)
        again, last_lac = self.take(LacAnswer(last.status, None, last.body))
        return again, max(lac, last_lac)

    def take(self, answer: LacAnswer) -> tuple[Answer, int]:
        """What one LAC read, or one of a last entry, says; a damaged body says nothing, and makes the answer unknown."""
        taken, lac = answer_of(answer.status), -1
        try:
            if answer.explicit is not None:
                lac = decode_lac(answer.explicit, self._ledger_id, self._digest)
            if answer.last_entry is not None:
                header, _ = verify_body(answer.last_entry, self._ledger_id, v2.LAST_ENTRY, self._digest)
                lac = max(lac, header.lac)
        except DigestMismatch as error:
            _log.warning("damaged LAC met", ledger_id=self._ledger_id, error=error)
            return Answer.UNKNOWN, lac
        return taken, lac
