"""The verdict on the copies of one entry, and what a scrub of a ledger found. Pure.

    | a member of the entry's write set gives        | verdict                                                                |
    |------------------------------------------------|------------------------------------------------------------------------|
    | a body whose digest is right                   | sound                                                                  |
    | a body whose digest is wrong, or an I/O error  | damaged                                                                |
    | the answer that it has no such entry           | missing                                                                |
    | nothing, or anything else                      | unanswered                                                             |
    | a sound body, and another one gives another    | **diverged**: nothing says which one was acknowledged, so none is changed |

Two sound bodies are the same entry if ledger length and payload are equal. The LAC in the header and the digest over it may differ: a
writer repeats an entry with a newer LAC, and Apache's repair writes the end of the ledger into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from boki_common.ids import BookieId

NAMED: Final = 100
"""Copies of each kind that a report names; the rest is counted."""


class Verdict(Enum):
    """See the module."""

    SOUND = "sound"
    DAMAGED = "damaged"
    MISSING = "missing"
    UNANSWERED = "unanswered"


class Copy(NamedTuple):
    """One answer of one bookie for one entry. `content`: ledger length and payload, if it is sound."""

    verdict: Verdict
    content: tuple[int, bytes] | None = None


def has_diverged(copies: Mapping[BookieId, Copy]) -> bool:
    """Whether two sound copies are not the same entry."""
    return len({copy.content for copy in copies.values() if copy.verdict is Verdict.SOUND}) > 1


@dataclass(slots=True)
class Found:
    """Copies of one kind: how many, and the first of them."""

    total: int = 0
    named: list[tuple[int, str]] = field(default_factory=list)
    """(entry, bookie)"""

    def add(self, entry_id: int, bookie: str) -> None:
        self.total += 1
        if len(self.named) < NAMED:
            self.named.append((entry_id, bookie))


@dataclass(slots=True)
class Scrubbed:
    """The result of the scrub of one ledger."""

    ledger_id: int
    copies: int = 0
    """Copies that were looked at and are there; with digests, if these were asked for."""
    missing: int = 0
    """Copies that were not there; those of `copied` are there now."""
    copied: int = 0
    copied_bytes: int = 0
    damaged: Found = field(default_factory=Found)
    replaced: int = 0
    """Damaged copies that their bookie found damaged as well, and replaced."""
    diverged: Found = field(default_factory=Found)
    """Entries, each with all the bookies that have sound copies of it. Never changed."""
    lost: int = 0
    """Missing copies of entries that no bookie has whole."""
    unanswered: dict[BookieId, str] = field(default_factory=dict)
    """Bookies that could not be looked at, with the reason: the ledger is scrubbed again."""

    @property
    def is_whole(self) -> bool:
        """Whether each copy is there now, and sound as far as it was read."""
        return (
            self.missing == self.copied
            and self.damaged.total == self.replaced
            and not self.diverged.total
            and not self.unanswered
        )

    def describe(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "ledger_id": self.ledger_id,
            "copies": self.copies,
            "missing": self.missing,
            "copied": self.copied,
            "copied_bytes": self.copied_bytes,
            "damaged": self.damaged.total,
            "damaged_copies": [list(one) for one in self.damaged.named],
            "replaced": self.replaced,
            "diverged": self.diverged.total,
            "diverged_entries": [list(one) for one in self.diverged.named],
            "lost": self.lost,
            "unanswered": {str(bookie): why for bookie, why in self.unanswered.items()},
        }
