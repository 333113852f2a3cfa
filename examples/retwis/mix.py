"""Who does what how often: 15 % log in, 30 % look at a profile, 50 % at posts (one in four at those of all), 5 % post. Pure."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

MIX: Final = {"login": 15, "profile": 30, "posts": 50, "post": 5}
"""Operation → how often, in a hundred: of the evaluation of Boki, section 7.3."""
OF_ALL: Final = 0.25
BODY_CHARACTERS: Final = 64


class MixStep(NamedTuple):
    """One operation of a client, about one of so many users."""

    operation: str
    user: int
    of_all: bool


class OperationMix:
    """The steps of one client."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)
        self._operations = list(MIX)
        self._weights = list(MIX.values())

    def step(self, users: int) -> MixStep:
        """The next one; users are numbered from 0."""
        (operation,) = self._random.choices(self._operations, self._weights)
        return MixStep(operation, self._random.randrange(users), self._random.random() < OF_ALL)

    def body(self) -> str:
        """The text of a post."""
        return "".join(self._random.choices("abcdefghijklmnopqrstuvwxyz ", k=BODY_CHARACTERS))

    def some(self, of: list[str], count: int) -> list[str]:
        """Some of many."""
        return self._random.sample(of, count)
