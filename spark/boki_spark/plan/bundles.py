"""Bundles of small partitions: a Python task costs some 50 ms, reading a small term a fraction of that. Pure.

    for bundle in bundled(partitions): ...      # one Spark task each

Rules:
- The order of partitions is kept. With `UNBUNDLED` partitions or fewer, each is a task.
- A bundle has at most `BUNDLE_POSITIONS` positions, or one partition, and therefore at most 256 KiB when it is pickled.
- Bundles depend only on where partitions begin and end, which does not change while a log grows. A batch of a stream that is run again
  therefore has the same bundles.

Streams do not read files. Bundles of file partitions (`together`) depend on how much of each file is read, which is little if one tag in
a thousand is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

UNBUNDLED: Final = 64
"""The number of partitions up to which each is a task of its own."""
BUNDLE: Final = 64
"""The largest number of partitions in a bundle."""
BUNDLE_POSITIONS: Final = 4_096
"""The largest number of positions in a bundle of several partitions."""
_ROUNDING: Final = 1e-9


class SizedPartition(Protocol):
    """A partition with the positions [start, stop) of a term."""

    @property
    def start_pos(self) -> int: ...

    @property
    def stop_pos(self) -> int: ...


P = TypeVar("P", bound=SizedPartition)
T = TypeVar("T")


def bundled(partitions: Sequence[P], *, least: int = 1) -> list[tuple[P, ...]]:
    """Group the partitions that each task reads.

    Args:
        least: the smallest number of tasks. If bundles are fewer, each partition is a task.
    """
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
    """Group pieces in order, so that each bundle is filled to 1 at most or has one piece.

    Args:
        fill: returns the share of a bundle that a piece fills.
        least: the smallest number of tasks. Pieces that fill fewer bundles are spread over as many, if there are enough of them.
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
