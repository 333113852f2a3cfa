"""Partitions of few records travel together: a task of Python costs some 50 ms, a small term a fraction of one. Pure.

    for bundle in bundled(partitions): ...      # one task of Spark each

Rules:
- The order stays, and `UNBUNDLED` partitions or fewer go each by itself.
- A bundle has at most `BUNDLE_POSITIONS` positions, or one partition, and so at most 256 KiB pickled.
- What is bundled depends on where partitions begin and end, and on nothing that changes while a log goes on: a batch of a stream that
  is run again has the same bundles.

Of files (`together`), which streams do not read, it depends on how much of each is about to be read: of one tag in a thousand a little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

UNBUNDLED: Final = 64
BUNDLE: Final = 64
"""Partitions that go together, at most."""
BUNDLE_POSITIONS: Final = 4_096
_ROUNDING: Final = 1e-9


class SizedPartition(Protocol):
    """A partition: positions [start, stop) of a term."""

    @property
    def start_pos(self) -> int: ...

    @property
    def stop_pos(self) -> int: ...


P = TypeVar("P", bound=SizedPartition)
T = TypeVar("T")


def bundled(partitions: Sequence[P], *, least: int = 1) -> list[tuple[P, ...]]:
    """What each task reads. `least`: tasks that are asked for; if there would be fewer, each partition goes by itself."""
    if len(partitions) <= UNBUNDLED:
        return [(one,) for one in partitions]
    found: list[list[P]] = []
    positions = 0
    for one in partitions:
        own = one.stop_pos - one.start_pos
        if not found or len(found[-1]) == BUNDLE or positions + own > BUNDLE_POSITIONS:
            found.append([])
            positions = 0
        found[-1].append(one)
        positions += own
    return [tuple(bundle) for bundle in found] if len(found) >= least else [(one,) for one in partitions]


def together(pieces: Sequence[T], fill: Callable[[T], float], *, least: int = 1) -> list[tuple[T, ...]]:
    """What each task reads, in order: pieces that fill a bundle to 1 at most, or one piece.

    Args:
        fill: how far a piece fills a bundle.
        least: tasks that are asked for; pieces that fill fewer bundles are dealt out to as many, as far as they go.
    """
    fills = [fill(one) for one in pieces]
    room = min(1.0, sum(fills) / least)
    found: list[list[T]] = []
    filled = 0.0
    for one, own in zip(pieces, fills, strict=True):
        if not found or len(found[-1]) == BUNDLE or filled + own > room * (1 + _ROUNDING):
            found.append([])
            filled = 0.0
        found[-1].append(one)
        filled += own
    return [tuple(bundle) for bundle in found]
