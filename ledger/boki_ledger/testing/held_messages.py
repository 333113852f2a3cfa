"""Messages between clients and scripted bookies that a test holds back, and lets travel in the order that it wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

A = TypeVar("A")


class Message(NamedTuple):
    """A request on its way to a bookie, or its answer on its way back."""

    bookie: str
    kind: str
    """"add", "read", or what is asked in v3: "read_lac", "write_lac", "force", "poll", "info", "list"."""
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


class Draw(Protocol):
    """Draws as `random.Random` does."""

    def choice(self, options: Sequence[A], /) -> A: ...
    def randrange(self, stop: int, /) -> int: ...
    def random(self) -> float: ...


def one_travels(draw: Draw, requests: Hold, answers: Hold, slowness: Callable[[Message], float]) -> None:
    """One message that is kept arrives, an early one more often than a late one, one on a slow way seldom (`slowness`, 0 to 1)."""
    for _ in range(6):
        kept = draw.choice([answers.kept, requests.kept]) or requests.kept or answers.kept
        if not kept:
            return
        at = min(draw.randrange(len(kept)), draw.randrange(len(kept)))
        if draw.random() >= slowness(kept[at][0]):
            _, go = kept.pop(at)
            go()
            return
