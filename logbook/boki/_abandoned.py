"""What was sent and given up: asking for it again, or voiding it, until the log has decided it (DESIGN §6.8).

When an appender gives up, the numbers it had sent stay undecided for the SDK; the log may have them, or get them yet. Their
tickets share one `Abandoned`. Whoever asks for the outcome of number n has all numbers from the lowest undecided one up to n
sent again, in order, under their old numbers and marked as sent before: dense numbers are decided once, so what was applied
is not applied again. Voids in their place decide the same numbers as *never*.

A session writer is forgotten when it was idle for an hour; then its numbers would begin anew. So nothing is asked any more
30 minutes after its last verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from boki._arguments import encode_tags
from boki._pending import Content, Ticket
from boki._window import Pending
from boki_common.errors import WriterForgotten
from boki_common.record_batch import RUN_NAMED, RUN_VOID

if TYPE_CHECKING:
    from boki._appender import Appender

ASKED_FOR_S: Final = 1_800.0
"""How long after its last verdict a session writer may be asked for (DESIGN §6.9)."""
_NO_TAGS: Final = encode_tags(())


class Abandoned:
    """The numbers of one writer that were given up together.

    Args:
        owner: who gave them up.
        items: all of its pending ones, in order; they are its still.
    """

    def __init__(self, owner: Appender, items: list[Pending]) -> None:
        self._owner = owner
        self._writer = owner.writer
        self._flags = owner.flags
        self._first = owner.low
        self._ordered = owner.ordered
        self._progressed_at = owner.progressed_at
        self._items: list[Pending] = [item for item in items if item.first <= owner.sent]
        self._contents: list[Content] = []
        self._asked: dict[int, Ticket] = {}
        self._inquiry: Appender | None = None

    def ask(self, number: int, *, settle: bool) -> Ticket:
        """A ticket that is decided when the number is.

        Raises:
            WriterForgotten: too late. ClosedError.
        """
        known = self._asked.get(number)
        if known is not None and known.settled:
            return known
        self._owner.connection.check_open()
        if not self._flags & RUN_NAMED and self._owner.connection.now() - self._progressed_at > ASKED_FOR_S:
            raise WriterForgotten(
                f"append {number} was given up over {ASKED_FOR_S:.0f} s ago: the log may have forgotten its writer since, "
                "nobody can know what became of it; read the book",
                writer=self._writer,
                number=number,
            )
        inquiry = self._inquiry
        if inquiry is None or inquiry.stale:
            inquiry = self._begin()
        if settle and not inquiry.flags & RUN_VOID:
            self._void(inquiry)
        while inquiry.next_number <= number:
            ticket = Ticket(*self._content(inquiry.next_number))
            if inquiry.flags & RUN_VOID:
                ticket.become_void(_NO_TAGS)
            inquiry.sent = max(inquiry.sent, inquiry.next_number)
            self._asked[inquiry.next_number] = ticket
            inquiry.queue(ticket)
        inquiry.sent_again = inquiry.sent
        return self._asked[number]

    def _begin(self) -> Appender:
        """A window of the old numbers, from the lowest that is undecided."""
        first = self._first
        while first in self._asked and self._asked[first].settled:
            first += 1
        inquiry = self._inquiry = self._owner.inquiry(self._writer, first, self._flags)
        inquiry.ordered = self._ordered
        return inquiry

    def _content(self, number: int) -> Content:
        if not self._contents:
            self._contents = [content for item in self._items for content in item.contents()]
        return self._contents[number - self._items[0].first]

    @staticmethod
    def _void(inquiry: Appender) -> None:
        """What is not decided yet is sent again as voids."""
        inquiry.flags |= RUN_VOID
        for item in inquiry.items:
            if isinstance(item, Ticket) and not item.decided:
                item.become_void(_NO_TAGS)
        inquiry.send_again()
