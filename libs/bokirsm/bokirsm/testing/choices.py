"""The choices of handlers in a run: the strategy makes each, and a handler that runs again gets the same ones. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import xxhash

from bokirsm.errors import WrongCall
from bokirsm.machine.handling import Choices

FRACTIONS: Final = 1_024
"""Different values of `fraction` in a run: so few that the least and the largest come up."""


class StepChoices(Choices):
    """The choices of the handler that runs.

    Attributes:
        made: those that it made.
    """

    __slots__ = ("_again", "_pick", "made")

    def __init__(self, pick: Callable[[int], int]) -> None:
        """Let `pick` choose numbers below a bound."""
        self.made: list[int] = []
        self._pick: Final = pick
        self._again: list[int] | None = None

    def begin(self) -> None:
        """Begin a handler."""
        self.made, self._again = [], None

    def repeat(self) -> None:
        """Begin the handler again, with the choices that it made."""
        self._again = list(reversed(self.made))

    def below(self, bound: int) -> int:
        """Return a number that the strategy chooses."""
        if bound < 1:
            raise WrongCall(f"expected a bound of at least 1, found {bound}")
        if self._again is not None:
            found = self._again.pop() if self._again else 0
            return min(found, bound - 1)
        found = self._pick(bound)
        self.made.append(found)
        return found

    def fraction(self) -> float:
        """Return one of 1,024 numbers from 0 to below 1."""
        return self.below(FRACTIONS) / FRACTIONS


class RunTokens:
    """Tokens of a run, of which no two are equal.

    Attributes:
        count: tokens that were made.
    """

    def __init__(self) -> None:
        self.count = 0

    def token(self, size: int) -> bytes:
        """Return the next token."""
        self.count += 1
        found = b""
        while len(found) < size:
            found += xxhash.xxh3_128_digest(f"{self.count}/{len(found)}".encode())
        return found[:size]
