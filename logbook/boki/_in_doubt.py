"""Appends in doubt: what was sent and given up. Asking for it again, or voiding it, until the log has decided it (DESIGN §6.8). Pure.

When numbers are given up, those that were sent stay undecided for the SDK; the log may have them, or get them yet. Whoever asks
for the outcome of number n has all numbers from the lowest undecided one up to n sent again, in order, under their old numbers
and marked as sent before: dense numbers are decided once, so what was applied is not applied again. Voids in their place decide
the same numbers as *never*.

A session writer is forgotten when it was idle for an hour; then nobody knows what became of its numbers, and the log decides none
of them anew (ADR 23). Nothing is asked any more 30 minutes after its last verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

from boki._arguments import Content, EncodedTags, Expectations
from boki._numbers import Numbers
from boki._pending import Pending
from boki._special import Special
from boki_common.errors import WriterForgotten

ASKED_FOR_S: Final = 1_800.0
"""How long after its last verdict a session writer may be asked for (DESIGN §6.9)."""


class Asked(Pending, Protocol):
    """One record that is asked for again."""

    @property
    def settled(self) -> bool:
        """Whether it is decided, and known how."""


_AskedT = TypeVar("_AskedT", bound=Asked)


def inquiry_of(numbers: Numbers, writer: bytes, first: int, flags: int, ordered: int) -> Numbers:
    """Asks for numbers again that were given before, from `first` on; the log has those up to `ordered`."""
    view = numbers if numbers.replaceable else numbers.special.view
    special = Special(flags, view, asking=True)
    inquiry = Numbers(numbers.session, numbers.book, numbers.outbox, writer, first, special)
    inquiry.known(ordered)
    return inquiry


class InDoubt(Generic[_AskedT]):
    """The numbers of one writer that were given up together.

    Args:
        numbers: which are about to be given up, with all that is undecided.
        make: a record that is asked for, from what it says.
    """

    def __init__(self, numbers: Numbers, make: Callable[[EncodedTags, bytes, Expectations], _AskedT]) -> None:
        self._numbers: Final = numbers
        self._make: Final = make
        self._named: Final = numbers.named
        self._flags: Final = numbers.flags
        self._writer: Final = numbers.writer
        self._first: Final = numbers.low
        self._ordered: Final = numbers.ordered
        self._progressed_at: Final = numbers.progressed_at
        self._items: Final[Sequence[Pending]] = [item for item in numbers.items() if item.first <= numbers.sent]
        self._contents: list[Content] = []
        self._asked: dict[int, _AskedT] = {}
        self._inquiry: Numbers | None = None

    def answer(self, number: int) -> _AskedT | None:
        """What was asked for and is settled."""
        found = self._asked.get(number)
        return found if found is not None and found.settled else None

    def asked(self, number: int) -> _AskedT:
        """What was asked for."""
        return self._asked[number]

    def check_age(self, number: int, now: float) -> None:
        """Raises WriterForgotten when it is too late to ask."""
        if not self._named and now - self._progressed_at > ASKED_FOR_S:
            raise WriterForgotten(
                f"append {number} was given up over {ASKED_FOR_S:.0f} s ago: the log may have forgotten its writer since, "
                "nobody can know what became of it; read the book",
                writer=self._writer,
                number=number,
            )

    def inquiry(self) -> Numbers:
        """The old numbers, from the lowest that is undecided; those of an inquiry that was given up are asked for anew."""
        if self._inquiry is None or self._inquiry.stale:
            first = self._first
            while first in self._asked and self._asked[first].settled:
                first += 1
            self._inquiry = inquiry_of(self._numbers, self._writer, first, self._flags, self._ordered)
        return self._inquiry

    def settle(self, inquiry: Numbers, number: int) -> bool:
        """Void what is not decided yet up to this number; what was given up behind it stays as it is. Return whether something has
        to be sent again."""
        if number <= inquiry.special.voided_to:
            return False
        inquiry.void(number)
        return inquiry.oldest is not None

    def wanted(self, inquiry: Numbers, number: int) -> Iterator[_AskedT]:
        """What is to be queued, one after the other, so that this number is asked for."""
        while inquiry.next_number <= number:
            next_number = inquiry.next_number
            item = self._make(*self._content(next_number))
            inquiry.sent_before(next_number)
            self._asked[next_number] = item
            yield item

    def _content(self, number: int) -> Content:
        if not self._contents:
            self._contents = [content for item in self._items for content in item.contents()]
        return self._contents[number - self._items[0].first]
