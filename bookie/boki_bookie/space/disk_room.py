"""How many bytes adds may still take from a disk, counted from the last look at its free space. Pure.

    free space   ── writable_above_bytes ──  a read-only bookie takes all adds again
                 ── read_only_below_bytes ── user data stop here; what is below is the reserve
                 ── reserve_floor ────────── control entries stop here; the rest is for recovery, checkpoints and compaction

A control entry is an add that its writer flagged as high priority (`v2.FLAG_HIGH_PRIORITY`): a metalog entry, or a part of an index
snapshot. Without them nothing can be trimmed and reclaimed on a full disk.

An add is counted at once, twice: it is written to the journal and to the entry log. So user data cannot run through the reserve
between two looks, and a look is due when half of what was found is used up. Space that is given back meanwhile is found by that look.
"""

from __future__ import annotations

from typing import Final, Protocol

_COPIES: Final = 2
"""An add is written to the journal, then to the entry log."""
UNKNOWN_BYTES: Final = 1 << 62
"""Room for user data before the first look."""


class RoomSettings(Protocol):
    """The bounds; of `BookieSettings`."""

    @property
    def read_only_below_bytes(self) -> int: ...

    @property
    def control_reserve_bytes(self) -> int: ...


def reserve_floor(settings: RoomSettings) -> int:
    """Return the free bytes that control entries leave: at least half of what user data leave."""
    below = settings.read_only_below_bytes
    return max(below - settings.control_reserve_bytes, below - below // 2)


class DiskRoom:
    """See the module. Invariant: control entries have no room while it is not known how much is free."""

    __slots__ = ("_look_at", "control_bytes", "data_bytes")

    def __init__(self) -> None:
        self.data_bytes = UNKNOWN_BYTES
        """What user data may take."""
        self.control_bytes = 0
        """What control entries may take while the bookie is read-only."""
        self._look_at = 0

    def measured(self, free_bytes: int, settings: RoomSettings, *, unstored_bytes: int, reserve: bool = True) -> None:
        """Count from a look at the disk on.

        Args:
            unstored_bytes: of entries in memory, which a checkpoint will write.
            reserve: whether control entries may use the reserve: not of a bookie that an administrator keeps read-only.
        """
        left = free_bytes - unstored_bytes
        self.data_bytes = max(0, left - settings.read_only_below_bytes)
        self.control_bytes = max(0, left - reserve_floor(settings)) if reserve else 0
        self._look_at = self.data_bytes // 2

    @property
    def look_due(self) -> bool:
        """Whether user data have used so much that the disk should be looked at now."""
        return self.data_bytes < self._look_at

    def take_data(self, size: int) -> bool:
        """Count an add of user data, if there is room for it."""
        left = self.data_bytes - _COPIES * size
        if left < 0:
            self._look_at = self.data_bytes + 1  # whatever is left
            return False
        self.data_bytes = left
        return True

    def take_control(self, size: int) -> bool:
        """Count a control entry, if the reserve has room for it."""
        left = self.control_bytes - _COPIES * size
        if left < 0:
            return False
        self.control_bytes = left
        return True
