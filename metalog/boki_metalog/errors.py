"""Errors that only the metalog knows; the tree is in `boki_common.errors`.

A participant imports this package, so that these arrive from a peer as what they are.
"""

from __future__ import annotations

from boki_common.errors import MetalogError


class ShardNotOpen(MetalogError):
    """The shard is closed, or was never opened in this term: its end is what the metalog says, open another one."""


class ImpossibleReport(MetalogError):
    """A progress report that no sequence of ledger entries explains; the reporter is broken."""


class UnfitCarry(ImpossibleReport):
    """An entry that was to be carried is not the one that its engine says it is; the engine is broken."""


class TermFull(MetalogError):
    """The term has no positions or shard numbers left, or has lasted long enough: its sequencer begins the next one."""

    retryable = True


class SpareTaken(MetalogError):
    """The spare ledger was a term's metalog already, is gone, or its sequencer has a term: offer another one."""

    retryable = True


class TermRecordConflict(MetalogError):
    """A term's record exists and says something else than the closed metalog and the view do: stop and investigate."""


class MetalogUnreadable(MetalogError):
    """Nobody here can read the last entry of a term, so where the term ends is not known, and its next one cannot begin."""


class ThinlyServed(MetalogError):
    """Slots have no engine that indexes them, or only one."""

    retryable = True
