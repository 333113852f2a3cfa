"""Which log a batch of appends goes to, when there are several: one log for one slot at a time. Pure.

    slot → the *live term* that this engine appends the slot's records to, or none

Rules:
- A slot stays with its term until that term is over *here*: until all of it was received, so that what was not cut is known.
  Only then it goes to the newest live term that has it, or to nowhere until there is one.
- So the records of one book go one way at a time, and what one term did not cut goes to the next before anything newer.

A term is live from when the view names it until its record is received; terms that were over when they were met never are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from boki_common import limits
from boki_common.ids import slot_of
from boki_metalog.terms.term_order import slot_mask
from boki_metalog.terms.view import SlotRange

NOWHERE: Final = -1
"""No live term has the slot."""
_NO_TERM: Final = 0
_NO_SLOTS: Final = b"0" * limits.SLOTS
_ONE: Final = ord("1")


class Part(NamedTuple):
    """Runs of a batch that go to one log (`NOWHERE`: wait), ascending, and their slots as bits."""

    log: int
    runs: Sequence[int]
    slots: int


class Routes:
    """See the module. Invariant: the term of each slot is live and has the slot."""

    def __init__(self) -> None:
        self._live: dict[int, tuple[int, int]] = {}
        """Term → its log and its slots as bits; ascending by term within a log, few."""
        self._terms = [_NO_TERM] * limits.SLOTS
        self._slot_of: dict[int, int] = {}
        """Of books that were appended to lately: hashing costs more than looking up."""

    @property
    def only(self) -> int:
        """The log that every slot goes to; `NOWHERE` when they go different ways."""
        term = self._terms[0]
        return self._live[term][0] if term and self._terms.count(term) == limits.SLOTS else NOWHERE

    def started(self, log: int, term: int, slots: Iterable[SlotRange]) -> None:
        """The view names the term, and its log's terms before are over here."""
        ranges = list(slots)
        self._live[term] = log, slot_mask(ranges)
        for first, last in ranges:
            held = self._terms[first : last + 1]
            if any(held):
                self._terms[first : last + 1] = [one or term for one in held]
            else:
                self._terms[first : last + 1] = [term] * len(held)

    def ended(self, term: int) -> None:
        """All of the term was received. One that was not live says nothing."""
        if self._live.pop(term, None) is None:
            return
        if not self._live:
            self._terms = [_NO_TERM] * limits.SLOTS
            return
        newest_first = sorted(self._live.items(), reverse=True)
        for slot, held in enumerate(self._terms):
            if held == term:
                self._terms[slot] = next((one for one, (_, mask) in newest_first if mask >> slot & 1), _NO_TERM)

    def log_of(self, slot: int) -> int:
        """Where the records of a slot go."""
        term = self._terms[slot]
        return self._live[term][0] if term else NOWHERE

    def split(self, books: Sequence[int]) -> list[Part]:
        """Splits a batch that has these books, run by run, in order of the first run that goes to each log.

        Nearly always all go to one: clients send the books of each log by themselves, as far as they know.
        """
        known = self._slot_of
        if len(known) > limits.ENGINE_BOOKS_ROUTED:
            known.clear()
        for book in books:
            if book not in known:
                known[book] = slot_of(book)
        slots = list(map(known.__getitem__, books))
        log_of = {_NO_TERM: NOWHERE, **{term: log for term, (log, _) in self._live.items()}}
        logs = [log_of[term] for term in map(self._terms.__getitem__, slots)]
        if logs.count(logs[0]) == len(logs):
            return [Part(logs[0], range(len(logs)), _mask(slots))]
        parts: dict[int, tuple[list[int], list[int]]] = {}
        """By log: runs and their slots."""
        for at, log in enumerate(logs):
            part = parts.setdefault(log, ([], []))
            part[0].append(at)
            part[1].append(slots[at])
        return [Part(log, runs, _mask(of_log)) for log, (runs, of_log) in parts.items()]


def _mask(slots: Sequence[int]) -> int:
    """Slots as bits."""
    digits = bytearray(_NO_SLOTS)
    for slot in slots:
        digits[~slot] = _ONE  # the last one first
    return int(digits, 2)
