"""How young the writers were that the log has forgotten (ADR 23). Pure.

Per slot, the *floor* is the birth of the youngest session writer of its books that was forgotten. Number 1 of a writer that is
not known, and not younger than that, is not decided: it may be a copy of what a forgotten writer sent, and what that became of
nobody knows any more. Every forgotten writer is at or below the floor, so nothing of it is ever applied again; no clock is
asked. A floor only rises.

Slots bound what is kept; books of one slot refuse a little more than each would alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from boki_common.ids import slot_of
from boki_common.writer_ids import birth_of


class WriterFloors:
    """See the module."""

    def __init__(self, floors: Mapping[int, int] | None = None) -> None:
        self.by_slot: dict[int, int] = dict(floors or {})
        """Slot → birth; a slot that is not here has forgotten none."""
        self._highest = max(self.by_slot.values(), default=-1)

    def __bool__(self) -> bool:
        return bool(self.by_slot)

    def of(self, book: int) -> int:
        """The floor of a book's slot; -1 if it has forgotten no writer."""
        return self.by_slot.get(slot_of(book), -1)

    def forgotten(self, book: int, writer: bytes) -> None:
        """A session writer of the book is known no more."""
        birth = birth_of(writer)
        if birth is not None and birth > self.of(book):
            self.by_slot[slot_of(book)] = birth
            self._highest = max(self._highest, birth)

    def refuses(self, book: int, writer: bytes) -> bool:
        """Whether number 1 of a session writer that is not known may be one that was forgotten. Most often one comparison decides."""
        birth = birth_of(writer)
        return birth is not None and birth <= self._highest and birth <= self.of(book)

    def keep(self, wanted: Callable[[int], bool]) -> None:
        """Drops the floors of slots that are not wanted."""
        self.by_slot = {slot: birth for slot, birth in self.by_slot.items() if wanted(slot)}
        self._highest = max(self.by_slot.values(), default=-1)
