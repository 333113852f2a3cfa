"""The LOST commands that a log has ordered, with their evidence, as `boki log show --lost` tells them.

They are read from the metalogs, entry by entry; those of terms that were reclaimed are gone with what they were about.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from boki_common.errors import BokiError, MetadataError
from boki_metalog.entries import loss_evidence
from boki_metalog.entries.metalog_entry import Lost, decode

if TYPE_CHECKING:
    from boki_ledger.client import LedgerClient
    from boki_metalog.terms.term_record import TermRecord
    from boki_metalog.terms.view import Installed

READ_ENTRIES: Final = 256


async def losses_of(
    ledgers: LedgerClient, installed: Installed | None, records: Sequence[TermRecord]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The losses that the current term and some sealed ones have ordered, oldest first; and what could not be read."""
    found: list[dict[str, Any]] = []
    faults: list[str] = []
    terms: list[tuple[int, int, int | None]] = [
        (one.term, one.metalog_ledger, one.last_entry + 1) for one in records if not one.reclaimed
    ]
    if installed is not None:
        terms.append((installed.term, installed.metalog_ledger, None))
    for term, ledger_id, end in sorted(terms, key=itemgetter(0)):
        try:
            found += await _of_term(ledgers, term, ledger_id, end)
        except BokiError as error:
            if isinstance(error, MetadataError):
                raise
            faults.append(f"not all of the metalog of term {term} can be read: {error}")
    return found, faults


async def _of_term(ledgers: LedgerClient, term: int, ledger_id: int, end: int | None) -> list[dict[str, Any]]:
    found = []
    reader = await ledgers.open(ledger_id, recover=False)
    try:
        stop = await reader.read_lac() + 1 if end is None else end
        for first in range(0, stop, READ_ENTRIES):
            payloads = await reader.read(first, min(first + READ_ENTRIES, stop) - 1)
            for number, payload in enumerate(payloads, first):
                found += [_described(term, number, one) for one in decode(payload).commands if isinstance(one, Lost)]
    finally:
        await reader.close()
    return found


def _described(term: int, entry: int, lost: Lost) -> dict[str, Any]:
    return {
        "term": lost.term,
        "shard": lost.shard,
        "first": lost.first_entry,
        "stop": lost.stop_entry,
        "indexed": lost.indexed,
        "ordered_in": {"term": term, "entry": entry},
        "evidence": loss_evidence.described(lost.evidence),
    }


def lines(loss: dict[str, Any]) -> list[str]:
    """One of them, for people."""
    stand = "their rows stand" if loss["indexed"] else "their records join nothing"
    at = loss["ordered_in"]
    head = (
        f"entries {loss['first']} to {loss['stop'] - 1} of shard {loss['shard']} of term {loss['term']} are lost, by entry {at['entry']} "
        f"of the metalog of term {at['term']}: {stand}"
    )
    return [head, *(f"  {line}" for line in loss_evidence.lines_of(loss["evidence"]))]
