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
from boki._window import Pending, Window
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
        window: of the numbers, as it was before; `items` are all of its pending ones, in order.
    """

    def __init__(self, owner: Appender, window: Window, items: list[Pending]) -> None:
        self._owner = owner
        self._writer = window.writer
        self._flags = window.flags
        self._first = window.low
        self._ordered = window.ordered
        self._progressed_at = owner.progressed_at
        self._items: list[Pending] = [item for item in items if item.first <= window.sent]
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
        window = inquiry.window
        if settle and not window.flags & RUN_VOID:
            self._void(inquiry)
        while window.next_number <= number:
            ticket = Ticket(*self._content(window.next_number))
            if window.flags & RUN_VOID:
                ticket.become_void(_NO_TAGS)
            window.sent = max(window.sent, window.next_number)
            self._asked[window.next_number] = ticket
            inquiry.add(ticket)
        window.sent_again = window.sent
        return self._asked[number]

    def _begin(self) -> Appender:
        """A window of the old numbers, from the lowest that is undecided."""
        first = self._first
        while first in self._asked and self._asked[first].settled:
            first += 1
        window = Window(self._writer, first, self._flags)
        window.ordered = self._ordered
        self._inquiry = self._owner.inquiry(window)
        return self._inquiry

    def _content(self, number: int) -> Content:
        if not self._contents:
            self._contents = [content for item in self._items for content in item.contents()]
        return self._contents[number - self._items[0].first]

    @staticmethod
    def _void(inquiry: Appender) -> None:
        """What is not decided yet is sent again as voids."""
        window = inquiry.window
        window.flags |= RUN_VOID
        for item in window.items:
            if isinstance(item, Ticket) and not item.decided:
                item.become_void(_NO_TAGS)
        inquiry.send_again()
