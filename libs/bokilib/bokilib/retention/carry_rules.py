"""What is carried forward out of old terms, so that their storage comes back. Pure.

Storage goes by whole terms: one record that must stay keeps a term. So what lives is appended anew before its term is a day
old, many to a record, and trimmed where it was. Who has the turn of a library (`lib/carry/<library>`) reads the book from its beginning
up to a day ago and carries what has no owner (`carrier`); records of others are counted. What must be carried:
`checkpoint_rules.must_carry`.

- What is carried is a *state* (a checkpoint), never an event again: an event that is repeated has another place, and what
  depends on places (numbers of locks, order of messages) would change.
- It is carried as of the snapshot at which it was folded, under an expectation of its checkpoint stream; who comes too late
  carries nothing, because somebody else did.
- Only after the carried record is readable is what it replaces trimmed, below `covers + 1`: never below the carried record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from boki_common.limits import MIB, RECORD_EXPECTATIONS, RECORD_TAGS

CARRIED_BYTES: Final = MIB // 2


class Load(NamedTuple):
    """One state to carry: its size, and how many tags and expectations it adds to a record."""

    subject: str
    size: int
    tags: int = 1
    expectations: int = 1


def batches(loads: Sequence[Load], *, bytes_limit: int = CARRIED_BYTES) -> list[list[Load]]:
    """As few records as take all loads, in order; a load that is too large for any is alone, and goes in parts.

    One tag and one expectation are left for the fence.
    """
    found: list[list[Load]] = []
    size = tags = expectations = 0
    for load in loads:
        size, tags, expectations = size + load.size, tags + load.tags, expectations + load.expectations
        if not found or size > bytes_limit or tags >= RECORD_TAGS or expectations >= RECORD_EXPECTATIONS:
            found.append([])
            size, tags, expectations = load.size, load.tags, load.expectations
        found[-1].append(load)
    return found
