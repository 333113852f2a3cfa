"""The progress of a group in a shard: the fold of its consumer stream. Pure.

- Every event has the whole new state of a message (attempts are numbers, not increments). Applying a known event again,
  with those that followed it, changes nothing: a checkpoint may contain more than the events up to `covers`, never
  less.
- The state is that of the newest complete checkpoint with all events above its `covers` applied, including those that
  stand *before* the checkpoint in the stream. They were in flight while the checkpoint was composed.
- A message is *finished* (acked, given up, or a duplicate), *delivered* (undecided), *due* (to redeliver), *held* (passed:
  its key was busy or its time has not come) or fresh. All messages below `floor` are finished.
- Attempts count failures: the number of an attempt is one more than the failed attempts before it, so an attempt that
  ends without failing is followed by one of the same number.
- A delivered message whose owner died is *guarded*: it is redelivered singly in its shard, and if the process dies
  again, alone in its member. A message is guarded too while it is by itself. Only a process that dies while a message
  is alone or by itself failed an attempt of it (`delivery_rules`).
- A record of messages that an owner cannot open (of a later version, or without its payload hook) is *unopened*: it
  holds the floor, so it is kept until an owner opens it. Its messages have no event until one is delivered.
- Records below the registration of the group belong to a former one, and are no part of the state (`settings`).
- `read`: duplicates were distinguished up to here, in order. A reader of those messages takes the finished ones
  from this state and does not compare them with the window again, which has moved. It does not pass unopened records:
  an owner that can open one resumes from there.
- A purge raises the floor and leaves `read`: messages pushed later may be copies of those that were purged. So an owner
  reads from `needs`, which may be below the floor, and messages from there on are not trimmed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from bokilib.records.dedup import DedupWindow
from bokilib.retention.checkpoint_rules import CheckpointPart, newest_first
from bokiqueue.model.events import START, Acked, Checkpoint, Config, ConsumerEvent, Dead, Delivered, Id, Nacked


class CheckpointData(msgspec.Struct, array_like=True, frozen=True):
    """The data of a checkpoint.

    Attributes:
        over: (seqnum, first number, last number).
        attempts: of messages with more than one attempt or that are due.
        due: due times by the clock of the log.
        first_ms: ids of the deduplication window.
        guarded: as in the module; older versions ignore it.
    """

    floor: Id
    read: int
    upto: Id
    over: tuple[tuple[int, int, int], ...]
    held: tuple[Id, ...]
    attempts: tuple[tuple[Id, int], ...]
    due: tuple[tuple[Id, int], ...]
    first_ms: tuple[tuple[str, int], ...]
    unopened: tuple[int, ...] = ()
    guarded: tuple[tuple[Id, int], ...] = ()


SINGLY: Final = 1
ALONE: Final = 2
BY_ITSELF: Final = 3
"""As `ALONE`, but by chance: it ends when other messages are delivered."""
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(CheckpointData)


class Progress:
    """The progress of a group in a shard. See the module.

    Invariant: nothing is kept below `floor`, and a finished message is in no other set.
    """

    def __init__(self, start: int, window: DedupWindow) -> None:
        """Begin at the first record of messages that the group gets."""
        self.floor = Id(start, 0)
        self.read = max(start - 1, 0)
        self.upto = START
        self.over: set[Id] = set()
        self.held: set[Id] = set()
        self.attempts: dict[Id, int] = {}
        self.due: dict[Id, int] = {}
        self.unopened: dict[int, None] = {}
        self.guarded: dict[Id, int] = {}
        self.window: Final = window

    def is_finished(self, id: Id) -> bool:
        """Return True if a message is finished."""
        return id < self.floor or id in self.over

    def is_delivered(self, id: Id) -> bool:
        """Return True if a message is delivered and undecided: its handler may have died with it."""
        if id.seqnum in self.unopened and id not in self.attempts:
            return False
        return id <= self.upto and id not in self.held and id not in self.due and not self.is_finished(id)

    def attempt(self, id: Id) -> int:
        """Return the number of failed attempts, plus one if an attempt is under way."""
        return self.attempts.get(id, 1 if self.is_delivered(id) else 0)

    def next_attempt(self, id: Id) -> int:
        """Return the number of the next attempt, if the one under way did not fail."""
        return max(1, self.attempt(id)) if self.is_delivered(id) else self.attempt(id) + 1

    def apply(self, event: ConsumerEvent) -> None:
        """Apply an event of the consumer stream."""
        match event:
            case Delivered(upto=upto, held=held, again=again, unopened=unopened, guarded=guarded):
                self.unopened.update((seqnum, None) for seqnum in unopened if seqnum >= self.floor.seqnum)
                self.held.update(id for id in held if not self.is_finished(id))
                self.upto = max(self.upto, upto)
                for seqnum, index, attempt in again:
                    self._handed_out(Id(seqnum, index), attempt)
                self.guarded.update(
                    (id, guard) for seqnum, index, guard in guarded if not self.is_finished(id := Id(seqnum, index))
                )
            case Acked(ids=ids) | Dead(ids=ids):
                for id in ids:
                    self.ends(id)
            case Nacked(items=items):
                for seqnum, index, attempt, due_ms in items:
                    id = Id(seqnum, index)
                    if not self.is_finished(id):
                        self.held.discard(id)
                        self.guarded.pop(id, None)
                        self.attempts[id], self.due[id] = attempt, due_ms
            case Checkpoint():
                pass

    def _handed_out(self, id: Id, attempt: int) -> None:
        if self.is_finished(id):
            return
        self.held.discard(id)
        self.due.pop(id, None)
        self.guarded.pop(id, None)
        if attempt > 1 or id.seqnum in self.unopened:
            self.attempts[id] = attempt
        else:
            self.attempts.pop(id, None)

    def ends(self, id: Id) -> None:
        """Finish a message."""
        self.held.discard(id)
        self.attempts.pop(id, None)
        self.due.pop(id, None)
        self.guarded.pop(id, None)
        if id >= self.floor:
            self.over.add(id)

    @property
    def needs(self) -> Id:
        """The first message that an owner reads: it is unfinished, or was not compared with the window."""
        return min(self.floor, Id(self.read + 1, 0))

    def begin_at(self, seqnum: int) -> None:
        """Finish all messages below a seqnum: they were purged. Those above `read` still have to be compared with the window."""
        floor = Id(seqnum, 0)
        if floor <= self.floor:
            return
        self.floor = floor
        self.over = {id for id in self.over if id >= floor}
        self.held = {id for id in self.held if id >= floor}
        self.attempts = {id: attempt for id, attempt in self.attempts.items() if id >= floor}
        self.due = {id: due_ms for id, due_ms in self.due.items() if id >= floor}
        self.guarded = {id: guard for id, guard in self.guarded.items() if id >= floor}
        self.unopened = {one: None for one in self.unopened if one >= seqnum}

    def raise_floor(self, floor: Id) -> None:
        """Raise the floor to the first unfinished message, and forget what is below."""
        if floor <= self.floor:
            return
        self.floor = floor
        self.over = {id for id in self.over if id >= floor}
        self.unopened = {seqnum: None for seqnum in self.unopened if seqnum >= floor.seqnum}

    def encode(self) -> bytes:
        """Return the data of a checkpoint."""
        return _encoder.encode(
            CheckpointData(
                self.floor,
                self.read,
                self.upto,
                tuple(_runs(sorted(self.over))),
                tuple(sorted(self.held)),
                tuple(sorted(self.attempts.items())),
                tuple(sorted(self.due.items())),
                tuple(self.window.items()),
                tuple(self.unopened),
                tuple(sorted(self.guarded.items())),
            )
        )


def _runs(ids: Iterable[Id]) -> Iterable[tuple[int, int, int]]:
    """Join neighbours of one record into runs."""
    run: tuple[int, int, int] | None = None
    for seqnum, index in ids:
        if run is not None and run[0] == seqnum and run[2] + 1 == index:
            run = (seqnum, run[1], index)
            continue
        if run is not None:
            yield run
        run = (seqnum, index, index)
    if run is not None:
        yield run


def decode(data: bytes, window_ms: int) -> Progress:
    """Return the state that a checkpoint has."""
    kept = _decoder.decode(data)
    progress = Progress(1, DedupWindow(window_ms, kept.first_ms))
    progress.floor, progress.read, progress.upto = kept.floor, kept.read, kept.upto
    progress.over = {Id(seqnum, index) for seqnum, first, last in kept.over for index in range(first, last + 1)}
    progress.held = set(kept.held)
    progress.attempts = dict(kept.attempts)
    progress.due = dict(kept.due)
    progress.unopened = dict.fromkeys(kept.unopened)
    progress.guarded = dict(kept.guarded)
    return progress


class StreamRecord(NamedTuple):
    """A record of a consumer stream."""

    seqnum: int
    time_ms: int
    by: str
    events: Sequence[ConsumerEvent]


class FoldedStream(NamedTuple):
    """The state of a stream.

    Attributes:
        covers: that of the checkpoint it began with, 0 for none.
    """

    progress: Progress
    covers: int


def fold_group(rows: Sequence[StreamRecord], config: Config, group: str) -> FoldedStream:
    """Return the state of the stream of a group that is registered."""
    registered = config.registered.get(group, 0)
    kept = [row for row in rows if row.seqnum >= registered]
    return fold(kept, config.groups[group], config.dedup_ms, config.window_from(group))


def fold(rows: Sequence[StreamRecord], start: int, window_ms: int, window_from: int | None = None) -> FoldedStream:
    """Return the state of a stream.

    Args:
        rows: records in ascending order, from the newest complete checkpoint's `covers + 1` or before.
        start: where the group begins; later than its checkpoint if it was purged since.
        window_ms: the deduplication window.
        window_from: the first record of messages that are compared with the window, by default `start`.
    """
    first = start if window_from is None else window_from
    parts = [
        CheckpointPart(row.seqnum, row.time_ms, event.covers, event.part, event.parts, row.by, event.data)
        for row in reversed(rows)
        for event in row.events
        if isinstance(event, Checkpoint)
    ]
    wholes = newest_first(parts)
    covers = wholes[0].covers if wholes else 0
    progress = decode(wholes[0].data, window_ms) if wholes else Progress(first, DedupWindow(window_ms))
    for row in rows:
        if row.seqnum > covers:
            for event in row.events:
                progress.apply(event)
    progress.begin_at(start)
    progress.read = max(progress.read, first - 1)
    return FoldedStream(progress, covers)


# -- trimming


def messages_from(own: Id, others: Mapping[str, Id | None], starts: Mapping[str, int]) -> int:
    """Return the first seqnum of a shard's messages that must stay.

    Args:
        own: what this group needs (`Progress.needs`), as committed.
        others: likewise of the other groups, None for those without a checkpoint.
        starts: the first messages that the groups compare, by the settings under which `own` was committed.
    """
    lowest = own.seqnum
    for group, start in starts.items():
        if group in others:
            needs = others[group]
            lowest = min(lowest, needs.seqnum if needs is not None else start)
    return lowest


def consumer_from(covers: int) -> int:
    """Return the first seqnum of a consumer stream that must stay beside a checkpoint of `covers`."""
    return covers + 1
