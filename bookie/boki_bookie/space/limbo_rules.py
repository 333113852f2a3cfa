"""What a bookie that lost part of its disk may still claim, and when it may claim everything again. Pure.

A bookie whose journal, checkpoint or entry log is missing, foreign or damaged beyond a torn end may be started on what is
readable (`salvage`). It then holds less than it acknowledged, so its negatives prove nothing: it is *in limbo*.

    | metadata of a ledger when the rest was salvaged | limbo                                                     |
    |--------------------------------------------------|-----------------------------------------------------------|
    | CLOSED, does not name this bookie                 | not listed: nobody asks here                              |
    | CLOSED, names it                                  | listed, fenced                                            |
    | OPEN or IN_RECOVERY, names it                     | listed, fenced: its fence may be among what was lost      |
    | OPEN or IN_RECOVERY, does not name it             | listed: an ensemble change to it may be on its way        |
    | cannot be read                                    | listed, fenced                                            |

    | question in limbo                                  | answer                                                   |
    |----------------------------------------------------|----------------------------------------------------------|
    | an entry that is held                               | the entry                                                |
    | one that is not held, or the last entry, or the LAC | unknown, unless this ledger was validated since and is not listed |
    | normal add of a listed, fenced ledger               | FENCED; recovery adds are taken                          |

Nothing that was salvaged counts as validated. So a ledger that is validated and not listed was made after the salvage, and what
this bookie says of it is certain.

A ledger leaves the list when its metadata is gone, or CLOSED and every entry that its write sets put here is held. When the
list is empty, all metadata is looked at once more; if that lists nothing, limbo is over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum

from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState


class Doubt(Enum):
    """What the metadata of a ledger makes of it when a bookie has lost something."""

    NONE = "none"
    LISTED = "listed"
    FENCED = "listed, fenced"


def judge_lost(metadata: LedgerMetadata | None, bookie_id: str) -> Doubt:
    """The first table; None is metadata that cannot be read."""
    if metadata is None or names(metadata, bookie_id):
        return Doubt.FENCED
    return Doubt.NONE if metadata.state is LedgerState.CLOSED else Doubt.LISTED


def names(metadata: LedgerMetadata, bookie_id: str) -> bool:
    """Whether some ensemble has this bookie."""
    return any(bookie_id in bookies for _, bookies in metadata.ensembles)


def owed_ranges(metadata: LedgerMetadata, bookie_id: str) -> list[range]:
    """The entries of a closed ledger that its write sets put on this bookie; every entry is in one range at most.

    Entry e lies on the Qw slots from e mod E on, so a slot holds the entries of Qw residues: one range each.
    """
    assert metadata.state is LedgerState.CLOSED, "only a closed ledger says what must be there"
    size, quorum = metadata.ensemble_size, metadata.write_quorum
    found = []
    firsts = [first for first, _ in metadata.ensembles] + [metadata.last_entry + 1]
    for (first, bookies), end in zip(metadata.ensembles, firsts[1:], strict=True):
        residues = {
            (slot - place) % size for slot, name in enumerate(bookies) if name == bookie_id for place in range(quorum)
        }
        if len(residues) == size:
            found.append(range(first, end))
        else:
            found.extend(range(first + (residue - first) % size, end, size) for residue in sorted(residues))
    return [entries for entries in found if entries]


def missing_entries(metadata: LedgerMetadata, bookie_id: str, stored: Collection[int]) -> Iterator[int]:
    """The entries of a closed ledger that this bookie owes and does not hold."""
    have = stored if isinstance(stored, (set, frozenset)) else frozenset(stored)
    for entries in owed_ranges(metadata, bookie_id):
        for entry_id in entries:
            if entry_id not in have:
                yield entry_id


def is_proven(metadata: LedgerMetadata | None, bookie_id: str, stored: Collection[int]) -> bool:
    """Whether a ledger may leave the list; None is metadata that is gone."""
    if metadata is None:
        return True
    if metadata.state is not LedgerState.CLOSED:
        return False
    return next(missing_entries(metadata, bookie_id, stored), None) is None
