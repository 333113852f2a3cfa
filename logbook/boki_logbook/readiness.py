"""Whether an engine has applied what a call needs: all that was ordered before it started, and all that a session has seen; and
what it may show then. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from boki_common.engine.engine_protocol import Token
from boki_common.ids import Position
from boki_logbook.apply.engine_parts import EngineParts
from boki_metalog.terms.term_order import ALL_SLOTS


class Readable(Protocol):
    """A log, as far as this matters."""

    @property
    def ready(self) -> bool:
        """Whether what was ordered before the engine started is applied."""


class Readiness:
    """See the module."""

    def __init__(self, parts: EngineParts, slots: int, logs: Mapping[int, Readable]) -> None:
        self._parts = parts
        self._all_slots = slots == ALL_SLOTS
        self._logs = logs
        self._first_logs: tuple[int, ...] | None = None
        """The logs that existed when this engine started, until all of them have caught up."""
        self._ready = False

    def view_changed(self) -> None:
        """The logs that there are by now are known."""
        if self._first_logs is None:
            self._first_logs = tuple(self._logs)

    @property
    def ready(self) -> bool:
        """Whether everything that was ordered before this engine started is applied."""
        if not self._ready and self._first_logs is not None:
            self._ready = all(self._logs[log].ready for log in self._first_logs)
        return self._ready

    def view_after(self, token: Token, book: int, log: int) -> tuple[dict[int, Position], int] | None:
        """What a reply about a book of this log shows (`Frontier.view_of`), if all that a session has seen is applied, and what was
        ordered before the start: in all logs, or in the book's."""
        if not self._ready and not self.ready and not self._has_caught_up(log):
            return None
        parts = self._parts
        if not self._all_slots:
            foreign = parts.terms.foreign
            token = {number: position for number, position in token.items() if not foreign(position.term)}
        return parts.frontier.view_after(token, book)

    def _has_caught_up(self, log: int) -> bool:
        """What comes before the log's term in other logs was applied first. Without a view nobody knows which log has a book."""
        found = None if self._first_logs is None else self._logs.get(log)
        return found is not None and found.ready
