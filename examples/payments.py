"""Payments on a LogBook: an order is paid once, whatever the network does.

    .venv/bin/python -m pytest examples/test_payments.py

`RetriedPayments` is the obvious program: it waits two seconds for its append and then appends again. That is right for appends that may
happen twice; but an append without an answer may still be in the log. `ConditionalPayments` appends under the condition that the order
has no payment yet. Then a retry is harmless, and a conflict means that the order is paid.

The tests run both on simulated clusters and print nothing unless they fail: the second program passes under every network fault, and for
the first one the simulator finds the fault that pays an order twice. See docs/simulator.md.
"""

from __future__ import annotations

from boki import Book, Conflict, OutcomeUnknown, Unreachable

TIMEOUT_S = 2.0


class RetriedPayments:
    """Payments that repeat an append without an answer. Wrong: an order can be paid twice."""

    def __init__(self, book: Book) -> None:
        self.book = book

    async def pay(self, order: str, cents: int) -> None:
        """Append a payment, and repeat the append until it is acknowledged."""
        while True:
            try:
                await self.book.append(b"%d" % cents, tags=[f"paid/{order}"], timeout=TIMEOUT_S)
                return
            except (OutcomeUnknown, Unreachable):
                continue


class ConditionalPayments(RetriedPayments):
    """Payments that expect the order to be unpaid. Right: the log refuses a second payment."""

    async def pay(self, order: str, cents: int) -> None:
        """Append the payment of an order unless it is paid, and repeat that until the log decided."""
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
    """Return the number of payments of an order."""
    return len([record async for record in book.read(f"paid/{order}")])
