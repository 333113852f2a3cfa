"""Payments on a LogBook: an order is paid once, whatever the network does.

`RetriedPayments` is how one writes it first. It gives up waiting after two seconds and tries again, which is right for anything that may be
done twice; but an append that nobody answered may be in the log all the same. `ConditionalPayments` names what it expects: that nobody
paid the order yet. Then trying again is harmless, and a conflict is good news.

`examples/test_payments.py` shows the difference on simulated clusters.
"""

from __future__ import annotations

from boki import Book, Conflict, OutcomeUnknown, Unreachable

TIMEOUT_S = 2.0


class RetriedPayments:
    """Wrong: an order can be paid twice."""

    def __init__(self, book: Book) -> None:
        self.book = book

    async def pay(self, order: str, cents: int) -> None:
        while True:
            try:
                await self.book.append(b"%d" % cents, tags=[f"paid/{order}"], timeout=TIMEOUT_S)
                return
            except (OutcomeUnknown, Unreachable):
                continue


class ConditionalPayments(RetriedPayments):
    """Right: the log itself refuses the second payment."""

    async def pay(self, order: str, cents: int) -> None:
        stream = f"paid/{order}"
        while True:
            try:
                await self.book.append(b"%d" % cents, tags=[stream], expect={stream: None}, timeout=TIMEOUT_S)
                return
            except Conflict:
                return
            except (OutcomeUnknown, Unreachable):
                continue


async def payments_of(book: Book, order: str) -> int:
    """How often an order was paid."""
    return len([record async for record in book.read(f"paid/{order}")])
