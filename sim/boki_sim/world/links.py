"""The ways between simulated machines: a link is one direction between two of them, a pipe one direction of one connection over it."""

from __future__ import annotations

import random  # noqa: TID251 - the type; the generators come from the seed
from collections import deque
from collections.abc import Callable


class Link:
    """One direction between two machines. `blocks` counts who blocks it; `held` is what waits for it to open: how it goes on."""

    __slots__ = ("blocks", "held", "numbers", "random", "slowness")

    def __init__(self, numbers: random.Random) -> None:
        self.numbers = numbers
        self.random = numbers.random
        self.blocks = 0
        self.slowness = 1.0
        self.held: list[Callable[[], None]] = []


class Pipe:
    """One direction of a connection. `flight` holds what is on its way, in order; timers take from its left end."""

    __slots__ = ("ended", "flight", "last_at", "link", "outstanding")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.flight: deque[bytes] = deque()
        self.last_at = 0.0
        self.outstanding = 0
        """Bytes written and not read by the peer's protocol."""
        self.ended = False
