"""Which copies a ledger misses, which of them may be made anew, in what order and on which bookies. Pure.

    | state of the ledger | fragments that are repaired                                                        |
    |---------------------|------------------------------------------------------------------------------------|
    | CLOSED              | all                                                                                |
    | OPEN                | those before the last: they end where the next one begins                          |
    | IN_RECOVERY         | none: its recoverer closes it soon, and begins again if fragments change under it |

**Never the last fragment of a ledger that is not closed.** Its writer counts acknowledgements of the bookies that it knows; two
silent swaps there lose an acknowledged entry (`ledger/tests/models`). The writer itself replaces them, or recovery closes it.

    | a bookie is                                              | counts as lost                                   |
    |----------------------------------------------------------|--------------------------------------------------|
    | registered                                               | no                                               |
    | without a cookie: retired, its disk will not come back   | at once                                          |
    | away for less than the grace                             | where an entry has one other copy at most        |
    | away for the grace                                       | yes; in a mass outage only where an entry has one other copy at most |

A *mass outage*: more than a quarter of the bookies that have a cookie are away. Most likely the network or the metadata
store is at fault, and copying everything would do harm.

First come ledgers with the fewest copies left, among these the smallest. A fragment without entries needs no copy, only the
change of its metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from boki_common.bookkeeper.ledger_metadata import NO_DIGEST, LedgerMetadata, LedgerState
from boki_common.ids import BookieId
from boki_ledger.rules.write_set import write_sets

FOR_GOOD: Final = float("inf")
"""How long a bookie without a cookie is away."""
MASS_OUTAGE_PART: Final = 4
"""More than one in so many bookies away is a mass outage."""


class Fragment(NamedTuple):
    """A fragment whose entries are fixed: `first` up to and without `end`."""

    number: int
    first: int
    end: int
    bookies: tuple[BookieId, ...]


class Move(NamedTuple):
    """One slot of one fragment that another bookie gets."""

    fragment: int
    slot: int
    lost: BookieId
    target: BookieId
    entries: tuple[range, ...]
    """Those that the slot has; none overlap."""

    @property
    def copies(self) -> int:
        return sum(map(len, self.entries))


class Blocker(Enum):
    """The reason for which a missing copy is not made now."""

    NO_TARGET = "no bookie can take it: each one of ours that takes writes is a member of the fragment already, refuses, or is away"
    IN_RECOVERY = "the ledger is being recovered: it is looked at again once it is closed"
    OPEN = "its last fragment is still written: its writer, or recovery, replaces the bookie"
    NO_DIGEST = "its metadata does not say which digest its entries have (metadata of version 1)"


class Plan(NamedTuple):
    """What is to be done for one ledger."""

    moves: tuple[Move, ...]
    blockers: tuple[tuple[BookieId, Blocker], ...]
    """Lost bookies that keep a slot, with the reason; each pair once."""


class Urgency(NamedTuple):
    """How soon a ledger is repaired: the lowest first."""

    copies_left: int
    """Of the entry with the fewest; 0: it is lost unless a bookie comes back."""
    missing_bytes: int
    """About, without headers; 0 where the metadata does not say."""
    ledger_id: int


def fixed_fragments(metadata: LedgerMetadata) -> list[Fragment]:
    """The fragments of the first table, with those that have no entries."""
    if metadata.state is LedgerState.IN_RECOVERY:
        return []
    firsts = [first for first, _ in metadata.ensembles]
    if metadata.state is LedgerState.CLOSED:
        ends = [*firsts[1:], metadata.last_entry + 1]
    else:
        ends = firsts[1:]
    return [
        Fragment(index, first, end, bookies)
        for index, ((first, bookies), end) in enumerate(zip(metadata.ensembles, ends, strict=False))
    ]


def fixed_end(metadata: LedgerMetadata) -> int:
    """Entries below this are fixed: nobody adds to them, and repair may copy them."""
    fragments = fixed_fragments(metadata)
    return fragments[-1].end if fragments else 0


def slot_entries(metadata: LedgerMetadata, fragment: Fragment, slot: int) -> tuple[range, ...]:
    """The entries of a fragment that one slot has, ascending in each range; no range is empty."""
    size, quorum = metadata.ensemble_size, metadata.write_quorum
    if size == quorum:
        found = [range(fragment.first, fragment.end)]
    else:
        residues = sorted((slot - place) % size for place in range(quorum))
        found = [range(fragment.first + (residue - fragment.first) % size, fragment.end, size) for residue in residues]
    return tuple(entries for entries in found if entries)


def copies_left(metadata: LedgerMetadata, away: Iterable[BookieId]) -> int:
    """Copies of the worst entry on bookies that are not away; Qw, if there is no entry in a fixed fragment."""
    gone = frozenset(away)
    least = metadata.write_quorum
    for fragment in fixed_fragments(metadata):
        least = min(least, *_copies_of(metadata, fragment, gone), metadata.write_quorum)
    return least


def _copies_of(metadata: LedgerMetadata, fragment: Fragment, gone: frozenset[BookieId]) -> Iterator[int]:
    """For each write set that has an entry in the fragment: the bookies of it that are not away, each once."""
    entries = range(fragment.first, min(fragment.end, fragment.first + metadata.ensemble_size))
    sets = write_sets(metadata.ensemble_size, metadata.write_quorum)
    for entry_id in entries:
        slots = sets[entry_id % metadata.ensemble_size]
        yield len({fragment.bookies[slot] for slot in slots} - gone)


def is_mass_outage(away: Mapping[BookieId, float], bookies: int) -> bool:
    """Whether too many of `bookies` with a cookie are away; those that are retired do not count."""
    return MASS_OUTAGE_PART * sum(1 for away_s in away.values() if away_s != FOR_GOOD) > bookies


def lost_bookies(
    metadata: LedgerMetadata, away: Mapping[BookieId, float], *, grace_s: float, mass_outage: bool
) -> frozenset[BookieId]:
    """The second table, for one ledger. `away`: for how many seconds, of each that is not registered."""
    named = {bookie for _, bookies in metadata.ensembles for bookie in bookies}
    gone = {bookie: away[bookie] for bookie in named if bookie in away}
    if not gone:
        return frozenset()
    if copies_left(metadata, gone) <= 1:
        return frozenset(gone)
    return frozenset(
        bookie for bookie, away_s in gone.items() if away_s == FOR_GOOD or (away_s >= grace_s and not mass_outage)
    )


def plan_ledger(metadata: LedgerMetadata, lost: frozenset[BookieId], targets: Sequence[BookieId]) -> Plan:
    """Gives each slot of a lost bookie, in the fixed fragments, to the first of `targets` that fits.

    Fragments that lost the same bookie get the same target where they can. A bookie has one slot of a fragment at most.
    """
    blockers = _blockers_without_end(metadata, lost)
    moves: list[Move] = []
    preferred: dict[BookieId, BookieId] = {}
    for fragment in fixed_fragments(metadata):
        members = dict.fromkeys(fragment.bookies)
        for slot, bookie in enumerate(fragment.bookies):
            if bookie not in lost:
                continue
            entries = slot_entries(metadata, fragment, slot)
            if entries and metadata.digest_type == NO_DIGEST:
                blockers[bookie, Blocker.NO_DIGEST] = None
                continue
            wished = [preferred[bookie]] if bookie in preferred else []
            target = next((one for one in (*wished, *targets) if one not in members and one not in lost), None)
            if target is None:
                blockers[bookie, Blocker.NO_TARGET] = None
                continue
            preferred.setdefault(bookie, target)
            members[target] = None
            moves.append(Move(fragment.number, slot, bookie, target, entries))
    return Plan(tuple(moves), tuple(blockers))


def _blockers_without_end(metadata: LedgerMetadata, lost: frozenset[BookieId]) -> dict[tuple[BookieId, Blocker], None]:
    """Return the lost bookies in fragments without a fixed end, each with the reason: no repair changes these fragments."""
    reason = Blocker.OPEN if metadata.state is LedgerState.OPEN else Blocker.IN_RECOVERY
    without_end = metadata.ensembles[len(fixed_fragments(metadata)) :]
    return {(bookie, reason): None for _, bookies in without_end for bookie in bookies if bookie in lost}


def applied(metadata: LedgerMetadata, moves: Iterable[Move]) -> LedgerMetadata:
    """The metadata with the moves made. Nothing else of it changes: neither state nor end, nor where a fragment begins."""
    ensembles = [list(bookies) for _, bookies in metadata.ensembles]
    fixed = len(fixed_fragments(metadata))
    for move in moves:
        bookies = ensembles[move.fragment]
        assert move.fragment < fixed, f"fragment {move.fragment} has no fixed end"
        assert bookies[move.slot] == move.lost and move.target not in bookies, (bookies, move)
        bookies[move.slot] = move.target
    firsts = (first for first, _ in metadata.ensembles)
    return replace(metadata, ensembles=tuple((first, tuple(new)) for first, new in zip(firsts, ensembles, strict=True)))


def missing_entries(metadata: LedgerMetadata, lost: frozenset[BookieId]) -> int:
    """Copies of entries that lost bookies had in fixed fragments."""
    return sum(
        len(entries)
        for fragment in fixed_fragments(metadata)
        for slot, bookie in enumerate(fragment.bookies)
        if bookie in lost
        for entries in slot_entries(metadata, fragment, slot)
    )


def missing_bytes(metadata: LedgerMetadata, lost: frozenset[BookieId]) -> int:
    """About the bytes of these copies: a closed ledger says how long it is, an open one does not (0)."""
    if metadata.last_entry < 0:
        return 0
    return metadata.length * missing_entries(metadata, lost) // (metadata.last_entry + 1)


def urgency(ledger_id: int, metadata: LedgerMetadata, lost: frozenset[BookieId]) -> Urgency:
    return Urgency(copies_left(metadata, lost), missing_bytes(metadata, lost), ledger_id)
