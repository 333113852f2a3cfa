"""Placement: which slots of an ensemble store an entry. Pure.

An ensemble is a ring of E slots. Entry e lies on the Qw consecutive slots that begin at slot e mod E (round robin). Writer,
reader and recovery all ask this one function, so they cannot disagree, at any entry id.
"""

from __future__ import annotations


def write_set(entry_id: int, ensemble_size: int, write_quorum: int) -> tuple[int, ...]:
    """Slots that store `entry_id`, the first choice of a reader first."""
    assert 0 < write_quorum <= ensemble_size and entry_id >= 0, (entry_id, ensemble_size, write_quorum)
    return tuple((entry_id + place) % ensemble_size for place in range(write_quorum))


def write_sets(ensemble_size: int, write_quorum: int) -> tuple[tuple[int, ...], ...]:
    """All write sets of an ensemble; entry e uses the one at index e mod E."""
    return tuple(write_set(entry_id, ensemble_size, write_quorum) for entry_id in range(ensemble_size))
