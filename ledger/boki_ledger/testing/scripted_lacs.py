"""What a scripted bookie knows of LACs: those that were written by themselves, and waiters for a higher one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_ENTRY_LAC: Final = slice(16, 24)
_EXPLICIT_LAC: Final = slice(8, 16)

Look = Callable[[bool], bool]
"""Given whether its time is over: whether it is answered."""


def lac_of(body: bytes) -> int:
    """The LAC in the header of a stored entry."""
    return int.from_bytes(body[_ENTRY_LAC], "big", signed=True)


class ScriptedLacs:
    """One bookie's. A LAC that was written never falls; long polls wait until they are notified."""

    def __init__(self) -> None:
        self.explicit: dict[int, bytes] = {}
        self._lacs: dict[int, int] = {}
        self._polls: dict[int, list[Look]] = {}
        self.forgetful = False
        """As Apache's: a poll that a move of the LAC does not answer is not looked at again before its time is over."""
        self._forgotten: dict[int, list[Look]] = {}

    def explicit_lac(self, ledger_id: int) -> int:
        body = self.explicit.get(ledger_id)
        return -1 if body is None else int.from_bytes(body[_EXPLICIT_LAC], "big", signed=True)

    def write(self, ledger_id: int, body: bytes) -> None:
        if int.from_bytes(body[_EXPLICIT_LAC], "big", signed=True) > self.explicit_lac(ledger_id):
            self.explicit[ledger_id] = bytes(body)

    def watch(self, ledger_id: int, look: Look) -> None:
        if not look(False):
            self._polls.setdefault(ledger_id, []).append(look)

    def changed(self, ledger_id: int, lac: int) -> None:
        if lac > self._lacs.get(ledger_id, -1):
            self._lacs[ledger_id] = lac
            self.look(ledger_id)

    def look(self, ledger_id: int) -> None:
        left = [look for look in self._polls.pop(ledger_id, []) if not look(False)]
        kept = self._forgotten if self.forgetful else self._polls
        kept[ledger_id] = [*kept.get(ledger_id, []), *left]

    def end_polls(self) -> None:
        polls, self._polls = self._polls, {}
        forgotten, self._forgotten = self._forgotten, {}
        for looks in [*polls.values(), *forgotten.values()]:
            for look in looks:
                look(True)

    def forget_polls(self) -> None:
        self._polls.clear()
        self._forgotten.clear()

    @property
    def waiting(self) -> int:
        """Long polls that wait."""
        return sum(map(len, self._polls.values()))
