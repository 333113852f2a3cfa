"""Ensemble changes: who replaces whom, and what the fragment list becomes. Pure.

A ledger's fragments are append-or-replace-last: a change takes effect at LAC + 1, so entries up to LAC keep the bookies
that acknowledged them. If LAC + 1 is where the last fragment begins, that fragment has no acknowledged entry and is
replaced; otherwise a new one is appended. The caller keys what must be sent again by (slot, generation) as `acks` has it,
never by comparing two lists of bookies: a change can lead back to the same list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from boki_common.ids import BookieId

Fragment = tuple[int, tuple[BookieId, ...]]
"""(first entry, one bookie per slot)"""


def choose_replacements(
    ensemble: Sequence[BookieId], failed_slots: Iterable[int], spares: Iterable[BookieId]
) -> dict[int, BookieId]:
    """Gives each failed slot, in order, the next spare that is not in the ensemble; slots may go without.

    A bookie never takes two slots of one ensemble, and never its own back: it is in the ensemble.
    """
    members = frozenset(ensemble)
    candidates = iter(dict.fromkeys(spare for spare in spares if spare not in members))
    return dict(zip(failed_slots, candidates, strict=False))


def change_ensemble(
    fragments: Sequence[Fragment], *, first_entry: int, replacements: Mapping[int, BookieId]
) -> tuple[Fragment, ...]:
    """The fragments after the replacements took effect at `first_entry` (LAC + 1)."""
    last_first, bookies = fragments[-1]
    assert first_entry >= last_first, f"entry {first_entry} lies in an earlier fragment than the last, at {last_first}"
    changed = tuple(replacements.get(slot, bookie) for slot, bookie in enumerate(bookies))
    assert len(frozenset(changed)) == len(changed), f"a bookie has two slots in {changed}"
    kept = tuple(fragments[:-1]) if first_entry == last_first else tuple(fragments)
    return (*kept, (first_entry, changed))


def fragment_of(fragments: Sequence[Fragment], entry_id: int) -> Fragment:
    """The fragment of an entry: the last one that begins at or before it."""
    last = fragments[-1]
    if last[0] <= entry_id:  # mostly there is one fragment
        return last
    for fragment in reversed(fragments):
        if fragment[0] <= entry_id:
            return fragment
    raise AssertionError(f"no fragment of {fragments} holds entry {entry_id}")
