"""Which worker of a group owns which partition. Pure.

Highest random weight: of the workers that are alive, the one whose hash with the partition is the largest. So one that comes or goes
moves only its share. It is a wish: who owns a partition is the newest claim of its fence.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import xxhash

from bokilib.records.tags import PARTITIONS


def assigned(worker: str, alive: Iterable[str], partitions: int = PARTITIONS) -> list[int]:
    """The partitions that a worker should have, in order."""
    workers = sorted({worker, *alive})
    return [one for one in range(partitions) if max(workers, key=lambda name: _weight(name, one)) == worker]


def _weight(worker: str, partition: int) -> tuple[int, str]:
    return xxhash.xxh3_64_intdigest(f"{partition}/{worker}".encode()), worker


def to_claim(
    wanted: Sequence[int],
    holders: Mapping[int, str],
    me: str,
    gone: Container[str],
    *,
    settled: bool,
    lost: Container[int] = (),
) -> list[int]:
    """Return the partitions to claim now, in order.

    A wanted partition that no living worker holds is claimed at once, one of a living holder once the view has settled. One that its
    holder took from this worker rests until the next beat, although the holder may be silent: workers that disagree move partitions once
    a beat, and not at the speed of the log.

    Args:
        wanted: partitions that the worker should have.
        holders: of partitions that were claimed.
        me: the worker.
        gone: workers that are known to be gone.
        settled: the worker listened for a whole lease, so it knows the living workers.
        lost: partitions that others took from this worker since its last beat.
    """
    return [
        one
        for one in wanted
        if (holder := holders.get(one)) != me and (holder is None or (one not in lost and (settled or holder in gone)))
    ]
