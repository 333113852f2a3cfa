"""Whether a handler may still decide about its message. Pure.

A receipt is (shard, claim, id, number). It is good for one decision, of the process that owns the shard, for as long as

- the shard's claim is the one that it was handed out under (a claim that was repeated for the same owner is the same),
- the message is handed out, by the hand-out of this number, and nothing was submitted for it.

It is checked when the decision is *submitted*, without waiting in between. An epoch alone would not do: a message whose lease ran out
goes to a second handler of the same owner, and both would commit. Nor would the number of the attempt: that one may follow one of the
same number, which did not fail.
"""

from __future__ import annotations

from typing import NamedTuple

from bokiqueue.errors import StaleReceipt
from bokiqueue.events import Id


class Receipt(NamedTuple):
    """What a handler was given with its message."""

    shard: int
    claim: int
    id: Id
    number: int


def check(receipt: Receipt, claim: int, number: int | None) -> None:
    """Raises StaleReceipt, with the reason.

    Args:
        claim: the owner's, 0 when it has none any more.
        number: of the hand-out of the message, if it is handed out and undecided; None: it is not.
    """
    if receipt.claim != claim:
        why = "the shard has another owner" if not claim else "the shard was claimed anew meanwhile"
    elif number is None:
        why = "it was decided already, or its lease ran out"
    elif receipt.number != number:
        why = "its lease ran out, and it was handed out again"
    else:
        return
    raise StaleReceipt(
        f"message {receipt.id} is not this handler's any more: {why}; raise lease_s= or extend() it",
        found=receipt.number,
        expected=number,
    )
