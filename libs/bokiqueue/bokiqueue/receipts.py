"""Whether a handler may still decide about its message. Pure.

A receipt is (shard, claim, id, attempt). It is good for one decision, of the process that owns the shard, for as long as

- the shard's claim is the one that it was handed out under (a claim that was repeated for the same owner is the same),
- the message is handed out, at this attempt, and nothing was submitted for it.

It is checked when the decision is *submitted*, without waiting in between. An epoch alone would not do: a message whose lease ran out
goes to a second handler of the same owner, and both would commit.
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
    attempt: int


def check(receipt: Receipt, claim: int, attempt: int | None) -> None:
    """Raises StaleReceipt, with the reason.

    Args:
        claim: the owner's, 0 when it has none any more.
        attempt: at which the message is handed out and undecided; None: it is not.
    """
    if receipt.claim != claim:
        why = "the shard has another owner" if not claim else "the shard was claimed anew meanwhile"
    elif attempt is None:
        why = "it was decided already, or its lease ran out"
    elif receipt.attempt != attempt:
        why = f"its lease ran out, and it was handed out again (attempt {attempt})"
    else:
        return
    raise StaleReceipt(
        f"message {receipt.id.seqnum}-{receipt.id.number} (attempt {receipt.attempt}) is not this handler's any more: {why}; "
        "raise lease= or extend() it",
        found=receipt.attempt,
        expected=attempt,
    )
