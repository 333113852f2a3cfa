"""Choice of the objects that a process follows, because it reads them often. Pure.

    read once                       a candidate; there are at most as many candidates as followed objects
    read again within `AGAIN_S`     followed, if there is a place
    no place                        the longest unread object gives up its place, if it was not read for `IDLE_S`

A process that reads more objects in turn than it may follow therefore does not exchange them all the time: each exchange costs the
engine too. Time alone ends nothing: an object that is no longer read is followed until it changes (`idle`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

AGAIN_S: Final = 60.0
IDLE_S: Final = 30.0


class FollowChoice:
    """See the module. Invariant: at most `limit` are chosen, and as many are candidates."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._read: OrderedDict[str, float] = OrderedDict()
        """Objects that are followed, and when each was read last."""
        self._candidates: OrderedDict[str, float] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self._read

    def read(self, name: str, now_s: float) -> None:
        """Note a read of an object that is followed."""
        self._read[name] = now_s
        self._read.move_to_end(name)

    def read_from_log(self, name: str, now_s: float) -> bool:
        """Note a read from the log; return whether to follow the object from now on, if there is a place (`room`)."""
        if name in self._read:
            self.read(name, now_s)
            return False
        before = self._candidates.pop(name, None)
        if before is not None and now_s - before <= AGAIN_S:
            return True
        self._candidates[name] = now_s
        if len(self._candidates) > self._limit:
            self._candidates.popitem(last=False)
        return False

    def room(self, now_s: float) -> tuple[bool, str | None]:
        """Return whether there is a place for one more object, and which object is dropped for it."""
        if len(self._read) < self._limit:
            return True, None
        longest = next(iter(self._read), None)
        if longest is None or now_s - self._read[longest] < IDLE_S:
            return False, None
        return True, longest

    def idle(self, name: str, now_s: float) -> bool:
        """Return whether an object was not read for `IDLE_S`."""
        return now_s - self._read[name] >= IDLE_S

    def drop(self, name: str) -> None:
        """Stop following an object."""
        self._read.pop(name, None)
