"""Partitions of a library that exists in these tests only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import boki
from boki.testing import MemoryCluster
from bokilib.append.log import Log, Read
from bokilib.partitions.claims import NewestClaims, Picked
from bokilib.partitions.owner import PartitionOwner
from bokilib.records.events import Event, Picker

PARTITIONS = 4
FENCES = [f"toy/own/{one}" for one in range(PARTITIONS)]


class ToyClaimed(Event, tag="toy.claim", frozen=True):
    partition: int
    who: str
    left: str = ""


PICKER: Picker[ToyClaimed] = Picker("toy", (ToyClaimed,))


def picked(read: Read) -> Iterable[Picked[str]]:
    for one in PICKER.of(read.record.seqnum, read.envelope):
        yield Picked(one.partition, one.who, left=one.left or None)


def claims_of(log: Log) -> NewestClaims[str]:
    return NewestClaims(log, FENCES, picked)


def owner_on(log: Log, who: str, said: Callable[[str], None] = lambda text: None) -> PartitionOwner[str]:
    """Return the partitions of a member. `said`: called with "changed", and with "a left" for a release of a."""
    return PartitionOwner(
        log,
        who,
        claims_of(log),
        ToyClaimed,
        changed=lambda: said("changed"),
        released=lambda move: said(f"{move.left} left"),
    )


async def log_of(cluster: MemoryCluster) -> Log:
    return Log((await cluster.connect()).book("b"))


class TrimmedUnder:
    """A book in which partition 3 is claimed again, and the claim before is trimmed, after each linearizable position that is read."""

    def __init__(self, book: boki.Book, owner: PartitionOwner[Any], fence: str, times: int) -> None:
        self.left = times
        self._book, self._owner, self._fence = book, owner, fence

    def __getattr__(self, name: str) -> Any:
        return getattr(self._book, name)

    async def now(self, **options: Any) -> int:
        position = await self._book.now(**options)
        if options and self.left:
            self.left -= 1
            claim = await self._owner.claim([3])
            await self._book.trim([(self._fence, claim)])
        return position
