"""The partitions of a worker (`bokilib.partitions`): their records, the workers that it claims from, and the workflows in them.

A workflow has a fence of its own, and stays with the worker that runs it. So a worker claims a partition also from a living holder, and
holders give none: they keep the workflows that they run there. A worker that is drained names those in its release (`Leaving`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import boki
from boki_common.errors import BokiError
from bokiflow.history import instance_state
from bokiflow.history.inspection import UNREADABLE
from bokiflow.history.instance_state import PartitionFold
from bokiflow.model.flow_events import PICKER, Leaving, PartitionClaimed
from bokilib.append.log import Log, Read
from bokilib.partitions.assignment import by_weight, moves
from bokilib.partitions.claims import ClaimMove, NewestClaims, Picked
from bokilib.partitions.owner import PartitionOwner
from bokilib.partitions.peers import Peers
from bokilib.records import tags
from bokilib.records.contribution import Contribution


def partitions_of(
    log: Log, group: str, worker: str, changed: Callable[[], None], left: Callable[[Leaving, int], None]
) -> PartitionOwner[Leaving]:
    """Return the partitions of a worker.

    Args:
        log: the log of the book.
        group: the group of workers.
        worker: the name of this start of the worker.
        changed: called after a release or a claim of this worker's partitions was read.
        left: called before, with what a release says about its worker, and the seqnum.
    """

    def released(move: ClaimMove[Leaving]) -> None:
        told = move.left
        if told is None or not told.worker:  # an older program does not name the worker
            told = Leaving(group, move.before.who if move.before is not None else "")
        left(told, move.now.seqnum)

    fences = [tags.flow_partition_owner(group, one) for one in range(tags.PARTITIONS)]
    return PartitionOwner(
        log,
        worker,
        NewestClaims(log, fences, partial(_picked, group)),
        lambda partition, who, left: PartitionClaimed(group, partition, who, left),
        changed=changed,
        released=released,
    )


def _picked(group: str, read: Read) -> Iterable[Picked[Leaving]]:
    """Return the claims and releases of a group's partitions in a record."""
    events = PICKER.of(read.record.seqnum, read.envelope)
    leaving = next((one for one in events if isinstance(one, Leaving) and one.group == group), None)
    for event in events:
        if isinstance(event, PartitionClaimed) and event.group == group:
            left = None if event.worker else leaving or Leaving(group, event.left)
            yield Picked(event.partition, event.worker, left=left)


def to_claim(owner: PartitionOwner[Leaving], peers: Peers) -> list[int]:
    """Return the partitions that a worker claims now.

    A worker takes its share from every holder once it has listened for a whole lease. Before, it does not know all living workers, and
    takes all partitions without a holder or of workers that are leaving.
    """
    holders = set(owner.holders.values())
    gone = {name for name in holders if peers.is_leaving(name)}
    if not peers.settled():
        return moves(owner.who, [owner.who] * tags.PARTITIONS, owner.standings(gone.__contains__)).take
    # A holder may be alive and silent so far: its lease may be longer than this worker has listened.
    planned = by_weight({owner.who, *peers.alive(), *holders}.difference(gone), tags.PARTITIONS)
    return moves(owner.who, planned, owner.standings(lambda holder: True)).take


async def leave(
    owner: PartitionOwner[Leaving], group: str, keeps: Sequence[int] = (), runs: Sequence[str] = ()
) -> bool:
    """Give up all partitions of a worker, and tell other workers which workflows it still runs. It claims nothing after that.

    `keeps`, `runs`: see `Leaving`. Return False, with nothing appended, if a partition moved meanwhile; the caller retries.
    """
    told = Leaving(group, owner.who, tuple(keeps), tuple(runs))
    return await owner.release(Contribution((tags.flow_blocked(group),), {}, (told,))) > 0


def still_runs(leaving: Leaving) -> Callable[[str], bool] | None:
    """Return a function that tells whether a worker that is drained still runs a workflow; None if it runs none."""
    if not leaving.keeps:
        return None
    return lambda id: id in leaving.runs if leaving.runs else tags.partition_of(id) in leaving.keeps


class Unfinished(NamedTuple):
    """Workflows of partitions that were started up to a position and may not have ended.

    Attributes:
        ids: oldest first.
        unreadable: the records that this program cannot open, with the errors. They may start more workflows.
    """

    ids: list[str]
    unreadable: dict[int, BokiError]


async def unfinished(log: Log, group: str, partitions: Sequence[int], last: int) -> Unfinished:
    """Return the workflows of partitions that were started up to a position and may not have ended."""
    unreadable: dict[int, BokiError] = {}
    folds = {one: PartitionFold() for one in partitions}
    wanted = [tags.flow_part(group, one) for one in partitions]
    async for item in log.book.read(tags=wanted, start=1, stop=last + 1):
        if isinstance(item, boki.Gap):
            continue  # trimmed workflows are in a checkpoint, or have ended
        try:
            instance_state.apply(folds, group, item.seqnum, item.time_ms, await log.open(item))
        except UNREADABLE as error:
            unreadable[item.seqnum] = error
    found = sorted((start, id) for fold in folds.values() for id, start in fold.ids.items())
    return Unfinished([id for _, id in found if tags.partition_of(id) in folds], unreadable)
