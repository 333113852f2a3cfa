"""What connections and readers ask of the engine they belong to. A port: `core.EngineCore` implements it, tests script it.

An engine follows all logs of the cluster and keeps one decision state for all books. Each book belongs to one log at a
time; when its slot moves, the state goes on with the next log only after the last term of the one before is applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from boki_common.engine_protocol import Token
from boki_common.ids import Position
from boki_metalog.metalog_entry import Command


class Serving(Protocol):
    """See the module."""

    @property
    def positions(self) -> Mapping[int, Position]:
        """Per log: the metalog position up to which everything is applied here."""

    @property
    def ready(self) -> bool:
        """Whether everything that was ordered before this engine started is applied."""

    def reached(self, token: Token) -> bool:
        """Whether everything a session has seen is applied here, in every log that the token names."""

    def covered(self, book: int) -> int:
        """Seqnum of the last place in the book's log that is applied here; 0 when nothing was ever ordered in it."""

    def log_of(self, book: int) -> int:
        """The log whose current term orders the book."""

    async def order(self, book: int, command: Command) -> tuple[int, Position]:
        """Has the book's log order a command; returns (log, position behind the entry that holds it), acknowledged.

        Raises:
            TermOver, NetworkError: whether it was ordered is unknown; all commands may be repeated.
            InvalidArgument: the command cannot be right.
        """

    async def barrier(self, book: int) -> tuple[int, Position]:
        """A position of the book's log that was acknowledged by an entry started after this call; calls share entries.

        Raises:
            TermOver, NetworkError: the term may be over; look at the view and ask again.
        """
