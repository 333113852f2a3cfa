"""Which entries in flight are acknowledged by which slots, and how far the prefix reaches. Pure, without objects per entry.

Rules:
- LAC is the last entry of the longest prefix in which every entry has acks of at least Qa slots of its write set. It never
  goes back, and an entry at or below it is forgotten here: later acks of it change nothing.
- An ack names (slot, generation). A slot's generation grows whenever another bookie takes the slot, so an answer of the
  predecessor never counts for the successor, even if both are the same bookie.
- While frozen nothing completes: an ensemble change is being committed, and LAC + 1 is the first entry of its fragment.
- A change clears all acks of all replaced slots at once, before anything is sent again or completes. An entry that was
  complete but for the freeze can become incomplete this way; it is then acknowledged anew or never.

One entry in flight is one 64-bit mask of slots in an array; applying an ack is one `|=`, completing one `bit_count`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from boki_common.errors import ProtocolError
from boki_ledger.rules.write_set import write_sets

ENSEMBLE_SIZE_MAX: Final = 64
"""Slots of one mask."""


class AckTracker:
    """See the module's rules. Entries in flight are lac + 1 … last; `_masks[i]` belongs to entry lac + 1 + i."""

    __slots__ = ("_generations", "_masks", "_size", "_write_sets", "ack_quorum", "frozen", "lac", "last", "striped")

    def __init__(self, *, ensemble_size: int, write_quorum: int, ack_quorum: int, lac: int = -1) -> None:
        assert 0 < ack_quorum <= write_quorum <= ensemble_size <= ENSEMBLE_SIZE_MAX
        self._size = ensemble_size
        self.ack_quorum = ack_quorum
        self._write_sets = tuple(frozenset(slots) for slots in write_sets(ensemble_size, write_quorum))
        self._generations = [0] * ensemble_size
        self._masks = array("Q")
        self.striped = write_quorum < ensemble_size
        """Whether a slot has not all entries."""
        self.lac = lac
        self.last = lac
        """The last entry submitted."""
        self.frozen = False

    @property
    def in_flight(self) -> int:
        """Entries submitted and not complete."""
        return self.last - self.lac

    def generation(self, slot: int) -> int:
        """The current generation of a slot: what its acks must name."""
        return self._generations[slot]

    def submit(self) -> int:
        """Takes the next entry; returns its id."""
        self._masks.append(0)
        self.last += 1
        return self.last

    def acked(self, slot: int, generation: int, first: int, count: int) -> bool:
        """Applies acks of `count` consecutive entries; those at or below LAC, or of an old generation, change nothing.

        Returns:
            Whether they make LAC + 1 complete, so that `advance` has something to do, unless it is frozen.

        Raises:
            ProtocolError: an entry that was never submitted, or is not the slot's: nothing of the call is applied.
        """
        if generation != self._generations[slot]:
            return False
        end = first + count
        if end > self.last + 1:
            raise ProtocolError(
                f"expected acks up to entry {self.last}, found one of entry {end - 1}: "
                "the bookie acknowledges what nobody sent",
                expected=self.last,
                found=end - 1,
            )
        if self.striped:
            self._check_placement(slot, first, count)
        base = self.lac + 1
        if end <= base:  # mostly the slowest bookie's
            return False
        masks, bit = self._masks, 1 << slot
        start = first - base if first > base else 0
        for index in range(start, end - base):
            masks[index] |= bit
        return start == 0 and masks[0].bit_count() >= self.ack_quorum

    def advance(self) -> int:
        """Completes what can be; returns by how many entries LAC moved."""
        if self.frozen:
            return 0
        quorum, done = self.ack_quorum, 0
        for mask in self._masks:
            if mask.bit_count() < quorum:
                break
            done += 1
        if done:
            del self._masks[:done]
            self.lac += done
        return done

    def replace(self, slots: Iterable[int]) -> None:
        """Other bookies took the slots: a new generation each, and all their acks are void. Only while frozen."""
        assert self.frozen, "an ensemble change must freeze before it computes its first entry"
        kept = 2**ENSEMBLE_SIZE_MAX - 1
        for slot in slots:
            self._generations[slot] += 1
            kept &= ~(1 << slot)
        for index, mask in enumerate(self._masks):
            self._masks[index] = mask & kept

    def has_ack(self, slot: int, entry_id: int) -> bool:
        """Whether the slot acknowledged an entry in flight."""
        return bool(self._masks[entry_id - self.lac - 1] >> slot & 1)

    def pending(self, slot: int) -> Iterator[int]:
        """Entries in flight that the slot should store and has not acknowledged, ascending: what to send it again."""
        first = self.lac + 1
        for index, mask in enumerate(self._masks):
            if not mask >> slot & 1 and slot in self._write_sets[(first + index) % self._size]:
                yield first + index

    def _check_placement(self, slot: int, first: int, count: int) -> None:
        sets = self._write_sets
        for entry_id in range(first, first + min(count, self._size)):
            if slot not in sets[entry_id % self._size]:
                raise ProtocolError(f"slot {slot} acknowledged entry {entry_id}, which was never sent there")
