"""The clock and the randomness of tests: moved by hand, counted, or from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class ManualClock:
    """Port `MachineClock`: stands where a test put it. The timers of the loop know nothing of it."""

    def __init__(self, now_ms: int = 1_000, *, now_s: float = 1.0) -> None:
        self.ms = now_ms
        self.now_s = now_s

    def now_ms(self) -> int:
        return self.ms

    def elapsed_s(self) -> float:
        return self.now_s


class CountingRandom:
    """The port `Random` without randomness: tokens count, shuffling keeps the order."""

    def __init__(self, seed: int = 0) -> None:
        self.count = seed

    def token(self, size: int) -> bytes:
        self.count += 1
        return self.count.to_bytes(size, "big")

    def below(self, bound: int) -> int:
        return 0

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return list(items)


class SeededRandom:
    """The port `Random`, from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def token(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return self._random.sample(list(items), len(items))
