"""When a process gives freed memory back to the system. Pure: resident and used bytes are passed in.

Giving back is dear (a page costs a microsecond to return and another to fault in again), so only memory goes back that
was not needed for a while: what was free at each of the last looks. Under load something needs it again within seconds, also
under one that pauses now and then; after a burst nothing does.

Libraries, stacks and the interpreter's own arenas are resident too, and no matter of the allocator that is asked here:
what was left when memory was given back the last time counts as theirs.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from boki_common.limits import MIB

SPARE_BYTES: Final = 12 * MIB
"""Less is not worth it."""
LOOKS: Final = 10
"""Memory that was free at so many looks in a row is spare."""


class SpareMemory:
    """See the module. Each `look` that says so is followed by `given_back`."""

    __slots__ = ("_elsewhere", "_free")

    def __init__(self) -> None:
        self._elsewhere = 0
        self._free: deque[int] = deque(maxlen=LOOKS)

    def look(self, resident: int, in_use: int) -> bool:
        """Whether to give back now."""
        self._free.append(resident - in_use - self._elsewhere)
        return len(self._free) == LOOKS and min(self._free) >= SPARE_BYTES

    def given_back(self, resident: int, in_use: int) -> None:
        """What is left."""
        self._elsewhere = resident - in_use
        self._free.clear()
