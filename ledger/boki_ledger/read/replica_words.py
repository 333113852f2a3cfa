"""What every bookie that may have an entry says of it, each for itself: evidence for people, when nobody has the entry.

Reads ask one replica after the other, and stop at the first good copy. Here all of the entry's write set are asked at once, and what
one says changes nothing for another. Nothing is concluded: see `answers` for what may be.
"""

from __future__ import annotations

import asyncio

from boki_common.bookkeeper.digests import digest_for
from boki_common.bookkeeper.entry_body import verify_body
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.errors import BokiError
from boki_common.ids import BookieId
from boki_ledger.metadata.ensemble_change import fragment_of
from boki_ledger.rules.answers import Answer, answer_of
from boki_ledger.rules.write_set import write_set
from boki_ledger.settings import LedgerSettings
from boki_ledger.transport import BookieTransport, ReadAnswer


async def words_of_replicas(
    ledger_id: int, metadata: LedgerMetadata, entry: int, transport: BookieTransport, settings: LedgerSettings
) -> dict[BookieId, str]:
    """The words of each bookie of the entry's write set, in its order. Never raises: who does not answer is named so."""
    _, bookies = fragment_of(metadata.ensembles, entry)
    slots = write_set(entry, metadata.ensemble_size, metadata.write_quorum)
    asked = {bookies[slot]: transport.read(bookies[slot], ledger_id, entry) for slot in slots}
    await asyncio.wait(asked.values(), timeout=settings.answer_timeout_s)
    found = {}
    for bookie, future in asked.items():
        if future.done():
            found[bookie] = _words(ledger_id, metadata, entry, future.result())
        else:
            future.cancel()
            found[bookie] = f"gave no answer in {settings.answer_timeout_s} s"
    return found


def _words(ledger_id: int, metadata: LedgerMetadata, entry: int, answer: ReadAnswer) -> str:
    if answer.status is None:
        return f"could not be asked: {answer.error}"
    verdict = answer_of(answer.status)
    if verdict is Answer.NEVER_HAD:
        return f"never had it ({answer.status.name})"
    if verdict is Answer.UNKNOWN or answer.body is None:
        return f"answered {answer.status.name}"
    try:
        verify_body(answer.body, ledger_id, entry, digest_for(metadata.digest_type, metadata.password))
    except BokiError as error:
        return f"has a damaged copy: {error}"
    return "has it whole"
