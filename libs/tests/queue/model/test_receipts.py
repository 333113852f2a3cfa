"""Receipts are good for one decision, of one delivery, under one claim."""

from __future__ import annotations

import pytest

from bokiqueue.errors import StaleReceipt
from bokiqueue.model.events import Id
from bokiqueue.model.receipts import Receipt, check

RECEIPT = Receipt(0, 10, Id(5, 0), 2)


def test_the_one_who_has_it_may_decide() -> None:
    check(RECEIPT, 10, 2)


@pytest.mark.parametrize(
    ("claim", "number", "why"),
    [
        (0, 2, "another owner"),
        (11, 2, "claimed again"),
        (10, None, "decided already"),
        (10, 3, "handed out again"),
    ],
)
def test_no_other_handler_may_decide(claim: int, number: int | None, why: str) -> None:
    with pytest.raises(StaleReceipt, match=why):
        check(RECEIPT, claim, number)
