"""Checkpoints and the trims that they allow: history, hot or idle, stays as short as the rules want it (`checkpoint_rules`).

Any process may do each step at any time, and die between any two. A checkpoint expects that none was made since its snapshot; trims
follow from the checkpoints that are in the log. A checkpoint is never trusted because it was sent: it is read back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from boki_common.errors import BokiError, Conflict, Trimmed
from bokilib.records.conflict_rules import Expected
from bokilib.records.contribution import Contribution
from bokilib.retention.checkpoint_rules import (
    FORGET_MS,
    GRACE_MS,
    NOTHING,
    PART_BYTES,
    RETENTION_MS,
    Ages,
    Marks,
    Ripening,
    WholeCheckpoint,
    due,
    ended,
    must_rewrite,
    split,
    trim_plan,
)
from bokilib.retention.rewritten_states import State as CarriedState
from bokilib.retention.rewritten_states import append_states
from bokilib.retention.trimmer import Trimmer
from bokistore.model import directory_rules, fold
from bokistore.model.directory_rules import Subject
from bokistore.model.events import AnyEvent, Checkpoint, DirectoryCheckpoint, DirectoryEnded, Ended
from bokistore.model.fold import View
from bokistore.read.checkpoint_reads import directory_in, view_in
from bokistore.read.snapshot_reads import Views

PART_DATA_BYTES: Final = PART_BYTES - 4_096
"""Room for the name and what surrounds it."""
AT_ONCE: Final = 64
"""Subjects that are looked at together."""
RIPENING_SUBJECTS: Final = 4_096
"""Subjects whose young checkpoints are remembered; beyond that the oldest note is dropped, and made again when it is needed."""


class State(NamedTuple):
    """A subject as of a snapshot, as the events of its checkpoint, one per part. Only objects have a `view`."""

    subject: Subject
    events: list[AnyEvent]
    records: int
    size: int
    view: View | None = None


class Checkpointer:
    """Checkpoints and trims of one store; see the module. All ages are by the clock of the log."""

    def __init__(
        self,
        views: Views,
        *,
        grace_ms: int = GRACE_MS,
        retention_ms: int = RETENTION_MS,
        forget_ms: int = FORGET_MS,
        part_bytes: int = PART_DATA_BYTES,
    ) -> None:
        self._views = views
        self._log = views.log
        self._ages = Ages(grace_ms, retention_ms, forget_ms)
        self._part_bytes = part_bytes
        self._trimmer = Trimmer(self._log.book)
        self._ripening: dict[Subject, Ripening] = {}
        self.unreadable = 0
        """Subjects that could not be rewritten: they are damaged, or of a later version."""

    # -- one subject

    async def checkpoint(self, name: str) -> int:
        """Append a checkpoint of an object, as `checkpoint_subject` does."""
        return await self.checkpoint_subject(Subject(name))

    async def checkpoint_subject(self, subject: Subject, *, records: int = 0, size: int = 0) -> int:
        """Append a checkpoint of a subject as of now, if there are new records.

        Args:
            subject: an object or a bucket.
            records: make one only if this many records, counted again, lie above the newest; 0: in any case.
            size: the same in bytes.

        Returns:
            Its place; 0 if none was due, or another process was faster.
        """
        snapshot = await self._log.book.now()
        ((wholes, _),) = await self._views.checkpoints.kept([subject], snapshot)
        state = await self._state(subject, snapshot, wholes, None)
        if not state.records or (records and not due(state.records, state.size, records, size)):
            if state.view is not None:
                self._views.cache.recount(subject.name, state.records, state.size)
            return 0
        made = await self._append(state, {subject.checkpoints: snapshot}, snapshot)
        if made and state.view is not None:
            self._views.cache.put(msgspec.structs.replace(state.view, seen=snapshot, records=0, size=0))
            self._views.cache.recount(subject.name, 0, 0)
        return made

    def _idle(self, subject: Subject, last: WholeCheckpoint, snapshot: int) -> State:
        """Repeat the last checkpoint of a subject without newer records. Raises as reading it would."""
        if last.ended_ms is not None:
            return State(subject, [_end(subject, snapshot, last.ended_ms)], 0, 0)
        _ = directory_in(subject, last) if subject.collection else view_in(subject.name, last)
        return State(subject, self._parts(subject, snapshot, last.data), 0, 0)

    def _parts(self, subject: Subject, snapshot: int, data: bytes) -> list[AnyEvent]:
        kind = DirectoryCheckpoint if subject.collection else Checkpoint
        parts = split(data, self._part_bytes)
        return [kind(subject.name, snapshot, at, len(parts), part) for at, part in enumerate(parts)]

    async def _state(
        self, subject: Subject, snapshot: int, wholes: Sequence[WholeCheckpoint], now_ms: int | None
    ) -> State:
        """Return the contents of a checkpoint as of a snapshot, folded from the newest one regardless of the cache.

        The time since when there is nothing passes from checkpoint to checkpoint; after a subject existed meanwhile, it is now.
        """
        view = None
        if subject.collection:
            directory = await self._views.directory(subject, snapshot)
            records, size, exists = directory.records, directory.size, bool(directory.ids)
            data = directory_rules.checkpoint_data(directory)
        else:
            ((view, *_),) = await self._views.checkpoints.objects([subject.name], snapshot, counted=True)
            records, size, exists = view.records, view.size, view.exists
            data = fold.checkpoint_data(view)
        if exists:
            return State(subject, self._parts(subject, snapshot, data), records, size, view)
        since_ms = wholes[0].ended_ms if ended(wholes, 0) and not records else None
        if since_ms is None:
            since_ms = await self.now_ms() if now_ms is None else now_ms
        return State(subject, [_end(subject, snapshot, since_ms)], records, size, view)

    async def _append(self, state: State, expect: Expected, snapshot: int) -> int:
        """Append the parts of a checkpoint; return the last one's place, or 0 if another process's checkpoint came first.

        Each part expects the one before, so a concurrent checkpoint cannot come between.
        """
        tag = state.subject.checkpoints
        last = snapshot
        try:
            for event in state.events:
                one = Contribution((tag,), {**expect, tag: last}, (event,))
                last = await self._log.append(one, seen=snapshot, settle=True)
        except Conflict:
            return 0
        return last

    # -- many of them, forward

    async def carry(self, subjects: Sequence[Subject], now_ms: int, fence: Expected, *, carry_ms: int) -> int:
        """Rewrite checkpoints that are old and still needed; return how many.

        Args:
            subjects: objects and buckets.
            now_ms: the time by the log's clock.
            fence: expectations of the carrier's records.
            carry_ms: the age at which a checkpoint is rewritten.

        Raises:
            Conflict: the fence moved.
        """
        carried = 0
        for start in range(0, len(subjects), AT_ONCE):
            some = subjects[start : start + AT_ONCE]
            snapshot = await self._log.book.now()
            ages = self._ages._replace(carry_ms=carry_ms)
            old = [one for one in await self._kept(some, snapshot, most=1) if must_rewrite(*one[1:], now_ms, ages)]
            states = await asyncio.gather(*(self._state_or_none(*one, snapshot, now_ms) for one in old))
            carried += await self._carry([state for state in states if state is not None], snapshot, fence)
        return carried

    async def _state_or_none(
        self, subject: Subject, wholes: Sequence[WholeCheckpoint], newest: int, snapshot: int, now_ms: int
    ) -> State | None:
        """Return the state to rewrite. None: a newer checkpoint is there already, or the subject cannot be read."""
        try:
            if wholes and newest <= wholes[0].covers:
                return self._idle(subject, wholes[0], snapshot)
            return await self._state(subject, snapshot, wholes, now_ms)
        except Trimmed:
            return None  # its replacement was seen (`checkpoint_reads`)
        except BokiError as error:
            if error.retryable:
                raise
            self.unreadable += 1
            return None

    async def _kept(
        self, subjects: Sequence[Subject], at: int | None = None, *, most: int = 2
    ) -> list[tuple[Subject, list[WholeCheckpoint], int]]:
        """Return `CheckpointReads.kept` of the readable subjects; an unreadable one does not affect the others."""
        try:
            found = await self._views.checkpoints.kept(subjects, at, most=most)
        except BokiError as error:
            if error.retryable:
                raise
            if len(subjects) > 1:
                return [one for subject in subjects for one in await self._kept([subject], at, most=most)]
            self.unreadable += not isinstance(error, Trimmed)
            return []
        return [(subject, *two) for subject, two in zip(subjects, found, strict=True)]

    async def _carry(self, states: Sequence[State], snapshot: int, fence: Expected) -> int:
        whole = [state for state in states if len(state.events) == 1]
        carried = [CarriedState(state.subject.checkpoints, snapshot, state.events[0]) for state in whole]
        made = len(await append_states(self._log, carried, fence, seen=snapshot))
        for state in states:
            if len(state.events) > 1:
                made += bool(await self._append(state, fence, snapshot))
        return made

    # -- trims

    async def now_ms(self) -> int:
        """Return the log's time: when its newest record was ordered."""
        newest = await self._log.book.read_prev()
        return 0 if newest is None else newest.time_ms

    async def trim(self, name: str, now_ms: int | None = None) -> bool:
        """Trim the records that the checkpoints of an object replace; return whether anything was trimmed. `now_ms` is the log's time."""
        return await self.remove_old([Subject(name)], now_ms)

    async def remove_old(self, subjects: Sequence[Subject], now_ms: int | None = None) -> bool:
        """Trim what checkpoints replace, and forget subjects that ended long ago; return whether anything was trimmed."""
        when_ms = await self.now_ms() if now_ms is None else now_ms
        anything = False
        for start in range(0, len(subjects), AT_ONCE):
            some = subjects[start : start + AT_ONCE]
            forgotten: list[tuple[Subject, int]] = []
            for subject, wholes, newest in await self._kept(some):
                marks, forget = trim_plan(wholes, newest, when_ms, self._ages)
                if marks == NOTHING:
                    marks = self._ripe(subject, wholes, when_ms)
                else:
                    self._ripening.pop(subject, None)
                if marks == NOTHING:
                    continue
                self._trimmer.add(subject.stream, marks.records, forget=forget)
                self._trimmer.add(subject.checkpoints, marks.checkpoints)
                if forget:
                    forgotten.append((subject, wholes[0].seqnum))
            anything |= await self._trimmer.flush() > 0
            for subject, last in forgotten:
                if await self._is_forgotten(subject.stream):
                    self._trimmer.add(subject.checkpoints, last + 1, forget=True)
            await self._trimmer.flush()
        return anything

    def _ripe(self, subject: Subject, wholes: Sequence[WholeCheckpoint], now_ms: int) -> Marks:
        """Return the marks for a subject whose checkpoints are replaced faster than they reach the required age."""
        if len(wholes) < 2:
            return NOTHING
        ripening = self._ripening.setdefault(subject, Ripening())
        if len(self._ripening) > RIPENING_SUBJECTS:
            del self._ripening[next(iter(self._ripening))]
        ripening.see(wholes, self._ages.grace_ms)
        return ripening.ripe(now_ms, self._ages.grace_ms)

    async def _is_forgotten(self, stream: str) -> bool:
        """Return whether a fold from 1 meets neither a record nor a mark.

        The checkpoint of its end stays in the checkpoint stream until that is *seen*: a process that creates the subject again folds from
        it. Trimming both in one command would leave a trimmed stream without a checkpoint if the subject were created at that moment.
        """
        async for _ in self._log.book.read(stream, start=1):
            return False
        return True


def _end(subject: Subject, snapshot: int, since_ms: int) -> AnyEvent:
    return (DirectoryEnded if subject.collection else Ended)(subject.name, snapshot, since_ms)
