"""Where numbered records leave from, as a small protocol: `_outbox` is one, tests script others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from boki_common.runtime.ports import Buffer

N = TypeVar("N", contravariant=True)


class Frames(Protocol):
    """Something is to be sent, or nothing."""

    def clear(self) -> None:
        """Sends nothing."""

    def frames(self) -> Iterator[list[Buffer]]:
        """What is to be sent, which then is on the connection."""


class Queue(Frames, Protocol[N]):
    """Takes note of who has something to send (`Numbers`), and has it sent."""

    def put(self, numbers: N, size: int) -> bool:
        """Takes note that a writer has something to send. Returns whether it is time to send it."""

    def holds(self, numbers: N) -> bool:
        """Whether it took note, and has not sent since."""
