"""Which terms a term comes directly after, when slots move between logs. Pure.

Books move with their slots. What a log orders for a book in term t follows what another log ordered for it in an earlier term. So
whoever applies t first needs, for every slot of t, the newest earlier term that had it, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from boki_common import limits

ALL_SLOTS: Final = (1 << limits.SLOTS) - 1


def slot_mask(slots: Iterable[tuple[int, int]]) -> int:
    """Slots, as (first, last) inclusive, as the bits of one number."""
    mask = 0
    for first, last in slots:
        mask |= (1 << last + 1) - (1 << first)
    return mask


def terms_before(mask: int, earlier: Iterable[tuple[int, int, int]], log: int) -> tuple[int, ...]:
    """For each slot in `mask` the newest earlier term that had it, without those of `log`; ascending. `earlier`: (term, log,
    slot mask), *descending* by term; read no further than needed."""
    found = []
    for term, owner, slots in earlier:
        if slots & mask:
            mask &= ~slots
            if owner != log:
                found.append(term)
        if not mask:
            break
    return tuple(reversed(found))
