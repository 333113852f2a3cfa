"""A term, as its followers meet it."""

from __future__ import annotations

from typing import NamedTuple

from boki_metalog.terms.view import SlotRange


class TermInfo(NamedTuple):
    """A term, as its followers meet it."""

    term: int
    log: int
    slots: tuple[SlotRange, ...]
    metalog_ledger: int
    after: tuple[int, ...] = ()
    """Terms of other logs that had slots of this one directly before it: what they ordered comes first."""
    sealed: bool = False
    """Whether it was over when it was met: nothing can be appended to it any more."""
