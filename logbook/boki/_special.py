"""What hardly any writer needs beside its numbers: those that are named or ask again, and those the log refused something. Pure."""

from __future__ import annotations

from typing import Final

from boki._session import BookView


class Special:
    """What hardly any writer needs.

    Attributes:
        flags: of all its runs, as `record_batch` has them.
        asking: asks for numbers again that it, or another writer of the same name, has given before.
        view: of the book; None: the numbers are it.
        stale: this writer takes nothing any more, until `renew`.
        stalled: the log refused a number; nothing is sent for a while.
        gaps: so many refusals in a row.
        filled_from: the numbers from here to the oldest undecided one are holes, which voids fill; 0: there are none.
        next_hole: the first of the holes that is not on the current connection yet; 0: there are no holes.
        sent_again: highest number that was, or will be, sent more than once.
        voided_to: what is undecided up to this number is sent as voids.
    """

    __slots__ = (
        "asking", "filled_from", "flags", "gaps", "next_hole", "sent_again", "stale", "stalled", "view", "voided_to",
    )  # fmt: skip

    def __init__(self, flags: int = 0, view: BookView | None = None, *, asking: bool = False) -> None:
        self.flags = flags
        self.asking: Final = asking
        self.view: Final = view
        self.stale = False
        self.begin()

    def begin(self) -> None:
        """Of a writer of which nothing was sent."""
        self.stalled = False
        self.gaps = self.filled_from = self.next_hole = self.sent_again = self.voided_to = 0

    def renew(self, *, stale: bool) -> None:
        """Nobody, or again somebody, knows where it goes on."""
        self.stale = stale

    def void(self, number: int) -> None:
        """Send voids up to this number from now on."""
        self.voided_to = number

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
        self.filled_from = self.next_hole = first

    def filled(self, number: int) -> None:
        """The holes below this number are on the connection."""
        self.next_hole = number

    def refill(self) -> None:
        """No hole is on a connection any more."""
        self.next_hole = self.filled_from

    def sent_before(self, number: int) -> None:
        """Numbers up to this one are, or will be, sent again."""
        self.sent_again = max(self.sent_again, number)


NOTHING: Final = Special()
"""Of all session writers of which nothing special is to be said; it never changes."""
