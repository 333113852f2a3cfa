"""Receipts, which say whether a handler may still decide about its message. Pure.

A receipt is (shard, claim, id, number). It is good for one decision of the process that owns the shard, as long as

- the shard's claim is the one under which the message was delivered; a claim repeated by the same owner counts as the
  same,
- the message is in flight by the delivery of this number, and no decision was submitted for it.

It is checked when the decision is *submitted*, without waiting in between. The claim alone would not do: a message
whose lease ran out goes to a second handler of the same owner, and both would commit. Nor would the number of the
attempt: it is the same after an attempt that did not fail.
"""

from __future__ import annotations

from typing import NamedTuple

from bokiqueue.errors import StaleReceipt
from bokiqueue.model.events import Id


class Receipt(NamedTuple):
    """The proof that a handler has a message."""

    shard: int
    claim: int
    id: Id
    number: int


def check(receipt: Receipt, claim: int, number: int | None) -> None:
    """Check that a receipt is good.

    Args:
        claim: the owner's claim, 0 if it has none any more.
        number: the number of the delivery in which the message is in flight and undecided, or None.

    Raises:
        StaleReceipt: it is not; the text says why.
    """
    if receipt.claim != claim:
        why = "the shard has another owner" if not claim else "the shard was claimed again meanwhile"
    elif number is None:
        why = "it was decided already, or its lease ran out"
    elif receipt.number != number:
        why = "its lease ran out, and it was handed out again"
    else:
        return
    raise StaleReceipt(
        f"message {receipt.id} belongs to this handler no longer: {why}; raise lease_s= or extend() it",
        found=receipt.number,
        expected=number,
    )
