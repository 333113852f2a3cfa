"""The partitions that each worker of a group should own and claim. Pure.

Highest random weight: a partition goes to the living worker whose hash with it is the largest, so a worker that joins or leaves moves only
its share. The actual owner is the worker of the newest claim of the partition's fence.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import xxhash

from bokilib.records.tags import PARTITIONS


def assigned(worker: str, alive: Iterable[str], partitions: int = PARTITIONS) -> list[int]:
    """Return the partitions that a worker should own, in order."""
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

    A wanted partition without a living holder is claimed at once, that of a living holder once the view has settled. A partition that its
    holder took from this worker waits for the next heartbeat: workers that disagree move a partition once a heartbeat, and not at the
    speed of the log.

    Args:
        wanted: partitions that the worker should own.
        holders: the workers of the newest claims, by partition.
        me: the worker.
        gone: workers that are dead or leaving.
        settled: the worker has listened for a whole lease, so it knows all living workers.
        lost: partitions that other workers took from this one since its last heartbeat.
    """
    return [
        one
        for one in wanted
        if (holder := holders.get(one)) != me and (holder is None or (one not in lost and (settled or holder in gone)))
    ]
