"""Which entries are due when a caller names their ids, in any order. Pure.

Invariant: ids are taken once each; what is due is always the next id in a row, so a ledger has no holes below its end.
What comes early is kept, up to bounds, until those before it came.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from boki_common.errors import InvalidArgument, Overloaded

T = TypeVar("T")


class CallerIds(Generic[T]):
    """Holds what came early. `T` is whatever belongs to an entry."""

    def __init__(self, ledger_id: int, *, entries_limit: int, bytes_limit: int) -> None:
        self.next = 0
        """The id that is due next."""
        self._ledger_id = ledger_id
        self._entries_limit = entries_limit
        self._bytes_limit = bytes_limit
        self._held: dict[int, tuple[T, int]] = {}
        self._bytes = 0

    def take(self, entry_id: int, item: T, size: int) -> None:
        """Keeps one entry of `size` bytes. Raises InvalidArgument: negative, or given before; Overloaded: too many or too much
        wait for an entry before them."""
        if entry_id < self.next or entry_id in self._held:
            expected = "entry ids from 0" if entry_id < 0 else "every entry id once"
            raise InvalidArgument(
                f"expected {expected}, found {entry_id} {'' if entry_id < 0 else 'again '}for ledger {self._ledger_id}",
                ledger_id=self._ledger_id,
                entry_id=entry_id,
            )
        full = len(self._held) >= self._entries_limit or (self._held and self._bytes + size > self._bytes_limit)
        if full and entry_id != self.next:
            raise Overloaded(
                f"{len(self._held)} entries of {self._bytes} bytes of ledger {self._ledger_id} wait for entry {self.next} "
                "or for acks; append that one, or wait",
                ledger_id=self._ledger_id,
                entry_id=entry_id,
            )
        self._held[entry_id] = item, size
        self._bytes += size

    def due(self) -> T | None:
        """What is to be sent next, if it came; it stays due until `sent`."""
        found = self._held.get(self.next)
        return None if found is None else found[0]

    def sent(self) -> None:
        """What was due was sent."""
        _, size = self._held.pop(self.next)
        self._bytes -= size
        self.next += 1

    def gap(self) -> range | None:
        """The first ids that are missing although later ones came; None if none is."""
        if not self._held or self.next in self._held:
            return None
        return range(self.next, min(self._held))

    def items(self) -> list[T]:
        """All that is held, by id."""
        return [self._held[entry_id][0] for entry_id in sorted(self._held)]
