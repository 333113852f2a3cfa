"""Random operations of a client, in the mix of the evaluation: 15 % logins, 30 % profiles, 50 % timelines, 5 % posts.

    OperationMix(seed).step(users)                  # MixStep("posts", user=17, of_all=False)

A quarter of the reads of timelines are reads of the global one. A seed always gives the same steps.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

MIX: Final = {"login": 15, "profile": 30, "posts": 50, "post": 5}
"""Operation → its share in percent, from the evaluation of Boki, section 7.3."""
GLOBAL_SHARE: Final = 0.25
"""Share of reads of timelines that read the global one."""
BODY_CHARACTERS: Final = 64


class MixStep(NamedTuple):
    """Operation of a client.

    Attributes:
        operation: key of MIX.
        user: number of the user that it concerns.
        of_all: whether a read of a timeline reads the global one.
    """

    operation: str
    user: int
    of_all: bool


class OperationMix:
    """Random steps of one client."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)
        self._operations = list(MIX)
        self._weights = list(MIX.values())

    def step(self, users: int) -> MixStep:
        """Return the next step, about one of `users` users, which are numbered from 0."""
        (operation,) = self._random.choices(self._operations, self._weights)
        return MixStep(operation, self._random.randrange(users), self._random.random() < GLOBAL_SHARE)

    def body(self) -> str:
        """Return the text of a post."""
        return "".join(self._random.choices("abcdefghijklmnopqrstuvwxyz ", k=BODY_CHARACTERS))

    def some(self, of: list[str], count: int) -> list[str]:
        """Return a random sample; a `Choose` of `examples.retwis.app`."""
        return self._random.sample(of, count)
