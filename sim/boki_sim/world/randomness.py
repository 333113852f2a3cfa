"""Randomness of a simulation: every stream of numbers follows from the seed and the stream's name.

A stream of its own for each purpose (the network, each disk, each client) keeps one fault from shifting the numbers of all
others, so that a fault script can be shrunk: what is left out changes little of what remains.

`SimRandom` is the port `Random` that simulated roles get.
"""

from __future__ import annotations

import random  # noqa: TID251 - the generator itself, always made from a seed
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")


def stream(seed: int, *name: str | int) -> random.Random:
    """The generator of that name under a seed; independent of hash seeds and of all other names."""
    text = "/".join(map(str, (seed, *name))).encode()
    return random.Random(int.from_bytes(blake2b(text, digest_size=16).digest(), "big"))


class SimRandom:
    """The port `Random` over one stream."""

    def __init__(self, numbers: random.Random) -> None:
        self._numbers = numbers

    def token(self, size: int) -> bytes:
        return self._numbers.randbytes(size)

    def below(self, bound: int) -> int:
        return self._numbers.randrange(bound)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        shuffled = list(items)
        self._numbers.shuffle(shuffled)
        return shuffled
