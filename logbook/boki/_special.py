"""What hardly any writer needs beside its numbers: those that are named or ask again, and those the log refused something. Pure."""

from __future__ import annotations

from typing import Final

from boki._session import BookView
from boki_common.records.record_batch import RUN_VOID


class Special:
    """What hardly any writer needs.

    Attributes:
        flags: of all its runs, as `record_batch` has them.
        asking: asks for numbers again that it, or another writer of the same name, has given before.
        view: of the book; None: the numbers are it.
        stale: this writer takes nothing any more, until `renew`.
        stalled: the log refused a number; nothing is sent for a while.
        gaps: so many refusals in a row.
        filled_from: the next run fills the numbers from here to the oldest undecided one; 0: there is none to fill.
        sent_again: highest number that was, or will be, sent more than once.
    """

    __slots__ = ("asking", "filled_from", "flags", "gaps", "sent_again", "stale", "stalled", "view")

    def __init__(self, flags: int = 0, view: BookView | None = None, *, asking: bool = False) -> None:
        self.flags = flags
        self.asking: Final = asking
        self.view: Final = view
        self.stale = False
        self.begin()

    def begin(self) -> None:
        """Of a writer of which nothing was sent."""
        self.stalled = False
        self.gaps = self.filled_from = self.sent_again = 0

    def renew(self, *, stale: bool) -> None:
        """Nobody, or again somebody, knows where it goes on."""
        self.stale = stale

    def void(self) -> None:
        """All its runs are voids from now on."""
        self.flags |= RUN_VOID

    def stall(self) -> None:
        """The log refused a number."""
        self.stalled = True
        self.gaps += 1

    def resume(self) -> None:
        """The pause after a refusal is over."""
        self.stalled = False

    def progressed(self) -> None:
        """A number was decided."""
        self.gaps = 0

    def fill(self, first: int) -> None:
        """Holes begin at this number; 0: there are none."""
        self.filled_from = first

    def sent_before(self, number: int) -> None:
        """Numbers up to this one are, or will be, sent again."""
        self.sent_again = max(self.sent_again, number)


NOTHING: Final = Special()
"""Of all session writers of which nothing special is to be said; it never changes."""
