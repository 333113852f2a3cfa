"""What connections and readers ask of the engine they belong to. A port: `core.EngineCore` implements it, tests script it.

An engine follows all logs of the cluster and keeps one decision state for all books. Each book belongs to one log at a
time; when its slot moves, the state goes on with the next log only after the last term of the one before is applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from boki_common.engine.engine_protocol import Token
from boki_common.ids import Position
from boki_logbook.ports import ShardLink
from boki_metalog.entries.progress import Order


class Serving(Protocol):
    """See the module."""

    @property
    def positions(self) -> Mapping[int, Position]:
        """Per log: the metalog position up to which everything is applied here."""

    @property
    def ready(self) -> bool:
        """Whether everything that was ordered before this engine started is applied."""

    def view_of(self, book: int) -> tuple[dict[int, Position], int]:
        """What a reply about the book shows, as the token that goes with it, and what it covers: the seqnum of the last place in
        the book's log that is applied here. An empty token and 0 when nothing was ever ordered.

        One position is enough: it implies all that the book's records before it were ordered by, in whatever log.
        """

    def view_after(self, token: Token, book: int) -> tuple[dict[int, Position], int] | None:
        """`view_of` the book, if everything a session has seen is applied here, in every log that the token names, and what was
        ordered before this engine started: in all logs, or in those that have ever had the book, so that a log that stands
        still delays its own books only."""

    def log_of(self, book: int) -> int:
        """The log whose current term orders the book."""

    def link_of(self, log: int) -> ShardLink | None:
        """The sequencer of a log's current term, while it can be spoken to."""

    async def order(self, book: int, command: Order) -> tuple[int, Position]:
        """Has the book's log order a command; returns (log, position behind the entry that holds it), acknowledged.

        When a term ends in between, the next one is asked.

        Raises:
            NoSequencer: nobody took it in time. OrderUnknown: somebody may have; all commands may be repeated.
            InvalidArgument, Overloaded: it was refused.
        """

    def forget_before_ms(self, book: int) -> int:
        """What was ordered in the book's log before this time may be forgotten by a trim; 0: nothing."""

    async def barrier(self, book: int) -> tuple[int, Position]:
        """A position of the book's log that was acknowledged by an entry started after this call; calls share entries. Raises
        NoSequencer: no sequencer could prove in time that its term goes on; Overloaded: too many wait."""
