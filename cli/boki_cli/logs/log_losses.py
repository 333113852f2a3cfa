"""The LOST commands that a log has ordered, with their evidence, as `boki log show --lost` lists them.

They are read from the metalogs, entry by entry; those of terms that were reclaimed are gone with what they were about.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from boki_common.errors import BokiError, MetadataError
from boki_logbook.scan.metalogs import Term, entries_of
from boki_metalog.entries import loss_evidence
from boki_metalog.entries.metalog_entry import Lost

if TYPE_CHECKING:
    from boki_ledger.client import LedgerClient


async def losses_of(ledgers: LedgerClient, terms: Iterable[Term]) -> tuple[list[dict[str, Any]], list[str]]:
    """The losses that some terms have ordered, in their order; and what could not be read."""
    found: list[dict[str, Any]] = []
    faults: list[str] = []
    for term in terms:
        try:
            found += [] if term.reclaimed else await _of_term(ledgers, term)
        except BokiError as error:
            if isinstance(error, MetadataError):
                raise
            faults.append(f"not all of the metalog of term {term.term} can be read: {error}")
    return found, faults


async def _of_term(ledgers: LedgerClient, term: Term) -> list[dict[str, Any]]:
    found, number = [], 0
    async for entry in entries_of(ledgers, term):
        found += [_described(term.term, number, one) for one in entry.commands if isinstance(one, Lost)]
        number += 1
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
