"""Messages between clients and scripted bookies that a test holds back, and lets travel in the order that it wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

A = TypeVar("A")


class Message(NamedTuple):
    """A request on its way to a bookie, or its answer on its way back."""

    bookie: str
    kind: str
    """"add", "read", "hold", or what is asked in v3: "read_lac", "write_lac", "force", "poll", "info", "list"."""
    entry_id: int
    """-1 for the last, and where there is none."""
    fence: bool
    recovery: bool
    answer: bool
    """False for the request, True for its answer."""
    entries: int = 1
    """More than 1 for a batch read, from `entry_id` on."""


class Hold:
    """A rule that keeps matching messages, and what it keeps."""

    def __init__(self, matches: Callable[[Message], bool]) -> None:
        self._matches = matches
        self.kept: list[tuple[Message, Callable[[], None]]] = []
        self.active = True

    def takes(self, message: Message, travel: Callable[[], None]) -> bool:
        if self.active and self._matches(message):
            self.kept.append((message, travel))
            return True
        return False

    def release(self, *, reverse: bool = False, stop: bool = True) -> None:
        """Lets what is kept travel; with `stop` (the default) the rule ends."""
        self.active = not stop
        kept, self.kept = self.kept, []
        for _, travel in reversed(kept) if reverse else kept:
            travel()

    def discard(self) -> None:
        """Forgets what is kept: those messages never arrive. The rule goes on."""
        self.kept.clear()

    def __len__(self) -> int:
        return len(self.kept)
