"""Connections that have not introduced themselves yet, decided: who may come, stay, and hold how much. Pure.

A *stranger* is a peer of whom no HELLO was accepted yet, where there is one; of a bookie, who has not sent a whole frame. Anybody
who reaches a port can be one, so strangers are few, get little, and not for long:

- frames of at most `frame_bytes`, and buffers that are never larger than thrice what arrived (`frames`);
- `wait_s` to introduce themselves;
- `connections` of them at once: one more takes the place of the oldest, as an honest peer introduces itself at once;
- `buffered_bytes` in all of their buffers, first ones not counted, so that a HELLO is always taken.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from boki_common import limits

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangerLimits:
    """See the module."""

    frame_bytes: int = limits.STRANGER_FRAME_BYTES
    wait_s: float = limits.STRANGER_WAIT_S
    connections: int = limits.STRANGERS
    buffered_bytes: int = limits.STRANGERS_BUFFERED_BYTES
    first_frame_introduces: bool = False
    """Where the protocol has no HELLO."""


BEFORE_HELLO: Final = StrangerLimits()
BEFORE_FIRST_FRAME: Final = StrangerLimits(
    frame_bytes=limits.FRAME_BYTES, buffered_bytes=4 * limits.STRANGERS_BUFFERED_BYTES, first_frame_introduces=True
)


class Strangers(Generic[T]):
    """Who they are, oldest first. Invariant: `buffered` is the sum of what `grew` counted of those who are here."""

    def __init__(self, allowed: StrangerLimits = BEFORE_HELLO) -> None:
        self.allowed = allowed
        self.buffered = 0
        self._until: dict[T, float] = {}
        self._sizes: dict[T, int] = {}

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, one: object) -> bool:
        return one in self._until

    @property
    def oldest(self) -> T | None:
        return next(iter(self._until), None)

    @property
    def next_end(self) -> float | None:
        """When the time of the oldest is over."""
        return next(iter(self._until.values()), None)

    def came(self, one: T, now: float) -> T | None:
        """Takes one more; returns who has to go for it."""
        self._until[one] = now + self.allowed.wait_s
        return self.oldest if len(self._until) > self.allowed.connections else None

    def grew(self, one: T, size: int) -> bool:
        """Whether a stranger may have a buffer of `size` instead of its last."""
        held = self._sizes.get(one, 0)
        if self.buffered - held + size > self.allowed.buffered_bytes:
            return False
        self.buffered += size - held
        self._sizes[one] = size
        return True

    def left(self, one: T) -> bool:
        """It introduced itself, or is gone; whether it was a stranger until now."""
        self.buffered -= self._sizes.pop(one, 0)
        return self._until.pop(one, None) is not None

    def overdue(self, now: float) -> list[T]:
        """Whose time is over."""
        found: list[T] = []
        for one, end in self._until.items():
            if end > now:
                break
            found.append(one)
        return found
