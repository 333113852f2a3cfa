"""How messages travel in a schedule that a seed draws."""

from __future__ import annotations

import random
from collections.abc import Callable

from boki_ledger.testing.held_messages import Hold, Message


def one_travels(draw: random.Random, requests: Hold, answers: Hold, slowness: Callable[[Message], float]) -> None:
    """One message that is kept arrives, an early one more often than a late one, one on a slow way seldom (`slowness`, 0 to 1)."""
    for _ in range(6):
        kept = draw.choice([answers.kept, requests.kept]) or requests.kept or answers.kept
        if not kept:
            return
        at = min(draw.randrange(len(kept)), draw.randrange(len(kept)))
        if draw.random() >= slowness(kept[at][0]):
            _, go = kept.pop(at)
            go()
            return
