"""Who runs under one `Log`, one after the other or at the same time. Pure.

A program may end a worker and begin another on the same Log, which has one incarnation. So each is given a token of its own, and later
ones get to know at once which of the earlier ones have ended: nobody waits for a silence that this process knows of.
"""

from __future__ import annotations

from typing import Final


class Incarnations:
    """See the module. Only who runs is remembered: what was given and does not run has ended, or never began."""

    def __init__(self, by: str) -> None:
        """`by`: of the Log; nobody else's tokens begin like it."""
        self._by: Final = by
        self._given = 0
        self._fences = 0
        self._running: Final[set[str]] = set()

    def give(self) -> str:
        """A token that nobody had; the first is the Log's own."""
        self._given += 1
        return self._by if self._given == 1 else f"{self._by}-{self._given}"

    def fence(self, scope: str) -> str:
        """Return a token for one more fence object of a scope; no other object of this incarnation gets it."""
        self._fences += 1
        return f"{scope}/{self._fences}" if scope else str(self._fences)

    def began(self, token: str) -> None:
        """It runs from now on."""
        self._running.add(token)

    def ended(self, token: str) -> None:
        """It runs nothing any more."""
        self._running.discard(token)

    def runs(self, token: str) -> bool:
        """Whether it is one of these, and runs."""
        return token in self._running

    def over(self, token: str) -> bool:
        """Whether it is one of these, and runs nothing; of others nothing is known."""
        return token not in self._running and (token == self._by or token.startswith(f"{self._by}-"))


def scope_of(token: str) -> str:
    """Return the scope of a token that `Incarnations.fence` gave."""
    return token.rpartition("/")[0]
