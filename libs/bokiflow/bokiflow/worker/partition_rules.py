"""Which worker of a group owns which partition. Pure.

Highest random weight: of the workers that are alive, the one whose hash with the partition is the largest. So one that comes or goes
moves only its share. It is a wish: who owns a partition is the newest claim of its fence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import xxhash

from bokilib.records.tags import PARTITIONS


def assigned(worker: str, alive: Iterable[str], partitions: int = PARTITIONS) -> list[int]:
    """The partitions that a worker should have, in order."""
    workers = sorted({worker, *alive})
    return [one for one in range(partitions) if max(workers, key=lambda name: _weight(name, one)) == worker]


def _weight(worker: str, partition: int) -> tuple[int, str]:
    return xxhash.xxh3_64_intdigest(f"{partition}/{worker}".encode()), worker


def to_claim(
    wanted: Sequence[int], holders: Mapping[int, str], me: str, over: Iterable[str], *, settled: bool
) -> list[int]:
    """What to claim now: of what is wanted, what nobody holds or whoever holds it is over; the rest once the view has settled.

    Args:
        holders: of partitions that were claimed. over: workers that are known to be gone.
        settled: a whole lease was listened to, so that who is alive is known.
    """
    gone = set(over)
    return [one for one in wanted if holders.get(one) != me and (settled or one not in holders or holders[one] in gone)]
