"""Locks that nobody touches for days are carried out of old terms; of locks that nobody holds nothing is left.

    async with Carrier(log, [LockCarried(log), store.carried()], who="host-7"): ...

Workers do it by themselves (`LockRoom.carry`): who owns the first partition of a group looks through the old part of the book once in a
while, under that partition's fence. So a lock needs nobody who remembers it: the workflow that holds it may be blocked, or sleep for a
year, and who gave it back may have died right then.

- A checkpoint expects those of its lock not to have moved, and the fence. Two who carry at once do no harm but work.
- Many locks are carried by one record; of some that moved, the others are.
- What goes, goes after the checkpoint is in the log; who dies between both is made up for by the next round, which finds what is old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import boki
from boki_common.errors import BokiError
from boki_common.logs import get_logger
from bokiflow.locks import lock_reading
from bokiflow.locks.lock_reading import AT_ONCE
from bokiflow.model import lock_view
from bokiflow.model.lock_rules import PICKER, Checkpoint
from bokiflow.model.lock_view import Marks, View
from bokilib.append.log import Log, Read
from bokilib.records import tags
from bokilib.records.conflict_rules import Expected
from bokilib.retention.rewritten_states import State, append_states
from bokilib.retention.trimmer import Trimmer

log = get_logger(__name__)


class LockCarried:
    """Locks of a book, as `bokilib.Carrier` carries them. Implements `bokilib.retention.carrier.Carries`."""

    def __init__(self, opened: Log) -> None:
        self._log: Final = opened
        self._trimmer: Final = Trimmer(opened.book)
        self._names: dict[str, None] = {}

    @property
    def library(self) -> str:
        return "lock"

    def collect(self, read: Read) -> int:
        """See `Carries`."""
        self._names |= dict.fromkeys(event.id for event in PICKER.of(read.record.seqnum, read.envelope))
        return len(self._names)

    async def carry(self, now_ms: int, fence: Expected, *, carry_ms: int) -> tuple[int, int]:
        """See `Carries`."""
        names, self._names = list(self._names), {}
        carried = unreadable = 0
        for at in range(0, len(names), AT_ONCE):
            some = names[at : at + AT_ONCE]
            views = await self._views(some)
            unreadable += len(some) - len(views)
            due = {name: view for name, view in views.items() if lock_view.must_carry(view, now_ms, carry_ms)}
            made = await self._append(due, fence)
            carried += len(made)
            for name, view in views.items():
                anew = made.get(name)
                trim_to(
                    self._trimmer,
                    name,
                    lock_view.trim_marks(view, now_ms) if anew is None else lock_view.trim_marks_under(view, anew),
                )
        await self._trimmer.flush()
        return carried, unreadable

    async def tend(self) -> None:
        """See `Carries`: nothing else is due."""

    async def _views(self, names: Sequence[str]) -> dict[str, View]:
        """Those that can be read: one that cannot keeps its own term, and no other's."""
        try:
            return await lock_reading.read_many(self._log, names)
        except BokiError as error:
            if error.retryable:
                raise
            if len(names) == 1:
                log.warning("a lock cannot be read", name=names[0], error=str(error))
                return {}
        half = len(names) // 2
        return {**await self._views(names[:half]), **await self._views(names[half:])}

    async def _append(self, due: Mapping[str, View], fence: Expected) -> dict[str, int]:
        """Checkpoints; returns where each is. Raises Conflict: the fence moved."""
        streams = {tags.lock_checkpoint(name): name for name in due}
        states = [
            State(stream, due[name].position, Checkpoint(name, due[name].position, due[name].queue))
            for stream, name in streams.items()
        ]
        return {streams[stream]: at for stream, at in (await append_states(self._log, states, fence)).items()}


def trim_to(trimmer: Trimmer, name: str, marks: Marks) -> None:
    """Collects what goes of a lock."""
    streams = {tags.lock(name): marks.records, tags.lock_checkpoint(name): marks.checkpoints}
    going = {stream: before for stream, before in streams.items() if before}
    if going:
        trimmer.add_together(going, forget=marks.forget)


async def carry_old(opened: Log, fence: Expected, now_ms: int, carry_ms: int) -> int:
    """Carries what of locks is as old as a term; returns how many of them. Raises Conflict: the fence moved.

    Args:
        now_ms: by the clock of the log.
    """
    carried, count = LockCarried(opened), 0
    async for item in opened.book.read(start=1):
        if isinstance(item, boki.Gap):
            continue
        if now_ms - item.time_ms < carry_ms:
            break
        if await _collected(opened, carried, item) >= AT_ONCE:
            count += (await carried.carry(now_ms, fence, carry_ms=carry_ms))[0]
    return count + (await carried.carry(now_ms, fence, carry_ms=carry_ms))[0]


async def _collected(opened: Log, carried: LockCarried, record: boki.Record) -> int:
    try:
        return carried.collect(Read(record, await opened.open(record)))
    except BokiError as error:
        if error.retryable:
            raise
        return 0  # of somebody else, or of a later version: it keeps its term
