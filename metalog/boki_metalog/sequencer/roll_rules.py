"""When a term has lasted long enough: it ends, its sequencer begins the next one, and its storage can be reclaimed.

Storage goes by terms (DESIGN §8): a term without live records is deleted as a whole, and an index snapshot is of a sealed
term. So no term may grow for ever. It is rolled at a number of shards, at an age, or at a number of metalog entries (what
a start without snapshot has to read).

Rules:
- The age is that of the first record: a term that ordered nothing has nothing to reclaim.
- A term with records that was trimmed while disks are full ends at once: storage is wanted now.
- Shards count once half of them are closed. Every engine opens one at once in the next term as well, so with more engines
  than shards allowed, terms would follow each other without an end.

Pure. Whether the term can be rolled now (a spare ledger is there, nothing is in flight) the caller knows.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class RollSettings(Protocol):
    """Where a term ends; of `SequencerSettings`."""

    @property
    def term_shards(self) -> int: ...

    @property
    def term_age_s(self) -> float: ...

    @property
    def term_entries(self) -> int: ...


class TermExtent(NamedTuple):
    """What a term has become.

    Attributes:
        first_s: when its first record was ordered, by the clock of `roll_reason`; None: none was.
        frees_space: whether it was trimmed while the disks of bookies are full.
    """

    first_s: float | None
    entries: int
    shards_opened: int
    shards_open: int
    frees_space: bool = False


def roll_reason(extent: TermExtent, settings: RollSettings, now_s: float) -> str | None:
    """Why the term is to end, for people; None: it goes on."""
    first_s, entries, opened, still_open, frees_space = extent
    if frees_space and first_s is not None:
        return "it was trimmed, and the disks of bookies are full: its storage can be reclaimed once it is over"
    if opened >= settings.term_shards and 2 * still_open <= opened:
        return f"it has {opened} shards, of {settings.term_shards} allowed"
    if entries >= settings.term_entries:
        return f"it has {entries} metalog entries, of {settings.term_entries} allowed"
    if first_s is not None and now_s - first_s >= settings.term_age_s:
        return f"its first record is {now_s - first_s:.0f} s old, of {settings.term_age_s:.0f} allowed"
    return None
