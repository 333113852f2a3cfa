"""How far everything is applied, log by log, and which term may be applied next. Pure.

    positions   log → metalog position below which everything is applied here
    received    log → metalog position below which everything has come
    covered     log → seqnum of the last place applied that a book of the log may lie at

Rules:
- *Gate*: a term begins to be applied only when the terms of other logs that it comes after are applied to their ends. So the
  streams of a book only ever grow at their ends, though its slot moves from log to log.
- A position in a term therefore implies all that the term's books were ordered before, in whatever log. It is all that a
  reply about a book has to carry: the position of the log that has the slot *here*, as far as it is applied.
- `covered` of a log is never below what the terms before its current one covered: nothing of its books lies above.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from boki_common import limits
from boki_common.engine.engine_protocol import Token
from boki_common.ids import Position, slot_of

_NOWHERE = Position(0, 0)


class Frontier:
    """See the module. Invariant: `positions` ≤ `received` in every log."""

    def __init__(self) -> None:
        self.positions: dict[int, Position] = {}
        self.received: dict[int, Position] = {}
        self.covered: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        """Term applied to its end → what its log covered then. One item a term."""
        self._only: int | None = None
        """The one log that ever had a slot, while there is no other."""
        self._owners: list[int | None] = [None] * limits.SLOTS

    def may_begin(self, after: Iterable[int]) -> bool:
        """Whether all these terms are applied to their ends."""
        return all(term in self.ended for term in after)

    def begin(self, term: int, log: int, slots: Iterable[tuple[int, int]], after: Iterable[int]) -> None:
        """The term's entries are applied from here on; its slots are its log's."""
        assert self.may_begin(after) and term > self.positions.get(log, _NOWHERE).term, f"term {term} out of order"
        self.positions[log] = Position(term, 0)
        covered = max((self.ended[before] for before in after), default=0)
        if covered > self.covered.get(log, 0):
            self.covered[log] = covered
        for first, last in slots:
            self._owners[first : last + 1] = [log] * (last + 1 - first)
        self._only = log if all(owner == log for owner in self._owners) else None

    def restore(
        self,
        positions: Mapping[int, Position],
        covered: Mapping[int, int],
        ended: Mapping[int, int],
        begun: Iterable[tuple[int, int, Iterable[tuple[int, int]]]],
    ) -> None:
        """Goes on from a snapshot, instead of from nothing.

        Args:
            ended: term applied to its end → what its log covered then.
            begun: (term, log, slots) of every term that began to be applied.
        """
        assert not self.positions, "a frontier is restored before anything is applied"
        self.positions, self.received = dict(positions), dict(positions)
        self.covered, self.ended = dict(covered), dict(ended)
        for _, log, slots in sorted(begun):
            for first, last in slots:
                self._owners[first : last + 1] = [log] * (last + 1 - first)
        owner = self._owners[0]
        self._only = owner if all(one == owner for one in self._owners) else None

    def came(self, log: int, position: Position) -> None:
        """Everything below this metalog position has come."""
        self.received[log] = position

    def passed(self, log: int, position: Position, last_seqnum: int) -> None:
        """A metalog entry is applied; `last_seqnum` 0: the term has ordered nothing yet."""
        self.positions[log] = position
        if last_seqnum:
            self.covered[log] = last_seqnum

    def end(self, term: int, log: int) -> None:
        """All of the term is applied."""
        self.ended[term] = self.covered.get(log, 0)

    def reached(self, token: Token) -> bool:
        """Whether everything that a session has seen is applied."""
        positions = self.positions
        for log, position in token.items():
            if position > positions.get(log, _NOWHERE):
                return False
        return True

    def log_of(self, book: int) -> int | None:
        """The log that has the book here, as far as is applied; None before there was any."""
        return self._only if self._only is not None else self._owners[slot_of(book)]

    def view_of(self, book: int) -> tuple[dict[int, Position], int]:
        """What a reply about the book shows, as a token, and the last place that is applied and that the book may lie at; 0 when
        there is none."""
        log = self._only
        if log is None:
            log = self.log_of(book)
        return ({}, 0) if log is None else ({log: self.positions[log]}, self.covered.get(log, 0))

    def view_after(self, token: Token, book: int) -> tuple[dict[int, Position], int] | None:
        """`view_of` the book, if everything that a session has seen is applied."""
        return self.view_of(book) if self.reached(token) else None
