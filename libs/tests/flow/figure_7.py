"""Steps and locks as the paper has them (§5.1, Figures 6 and 7), as an oracle: the log says who was first. Pure, without the library.

- A step's outcome is the first record of its tag, whoever appended it.
- A lock's record names the record that it follows. It counts if that is the last one that counts: of several that follow one record the
  first does. Who is named by one that counts had the lock; "" is nobody.

    0 - | 1 a 0 | 2 b 0 | 3 - 1          seqnum, who (- is nobody), which record it follows
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class LockRecord(NamedTuple):
    """A lock's record. `prev`: seqnum of the record that it follows, None: it is the first."""

    seqnum: int
    holder: str
    prev: int | None


def parse(text: str) -> list[LockRecord]:
    """A log as above."""
    rows = []
    for cell in text.split("|"):
        seqnum, holder, *prev = cell.split()
        rows.append(LockRecord(int(seqnum), holder.strip("-"), int(prev[0]) if prev else None))
    return rows


def chain(rows: Iterable[LockRecord]) -> list[LockRecord]:
    """The records that count, in order."""
    found: list[LockRecord] = []
    for row in rows:
        if row.prev == (found[-1].seqnum if found else None):
            found.append(row)
    return found


def holders(rows: Iterable[LockRecord]) -> list[str]:
    """Who had the lock, one after the other."""
    return [row.holder for row in chain(rows) if row.holder]


def first(outcomes: Sequence[str]) -> str:
    """What a step gave, of all that was appended for it."""
    return outcomes[0]
