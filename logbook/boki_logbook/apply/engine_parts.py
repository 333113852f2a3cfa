"""What the logs of one engine share, and what is known of terms beside them. Value types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from boki_logbook.apply.lost_entries import LostEntries
from boki_logbook.peers.pushed_headers import PushedHeaders
from boki_logbook.read.cache import BatchCache
from boki_logbook.read.entry_source import EntrySource
from boki_logbook.settings import EngineSettings
from boki_logbook.state.frontier import Frontier
from boki_logbook.state.state import DecisionState
from boki_metalog.terms.term_record import TermRecord


class KnownTerms(NamedTuple):
    """What is known of terms without their logs. `foreign`: whether a term is known to have none of the engine's slots: then
    nobody here waits for what it ordered. `record_of`: the record of a sealed term, as far as it was read."""

    foreign: Callable[[int], bool]
    record_of: Callable[[int], TermRecord | None]


NO_TERMS = KnownTerms(lambda _: False, lambda _: None)


@dataclass(slots=True, kw_only=True)
class EngineParts:
    """See the module.

    Attributes:
        state: replaced once, when the engine begins with a snapshot, before any log is found.
        given_up: what is known to be lost; an engine that begins anew knows what the one before it knew.
        pushed: headers of other engines' entries.
    """

    incarnation: str
    settings: EngineSettings
    state: DecisionState
    frontier: Frontier
    cache: BatchCache
    given_up: LostEntries
    source: EntrySource
    pushed: PushedHeaders
    terms: KnownTerms = NO_TERMS
