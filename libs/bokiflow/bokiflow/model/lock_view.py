"""A lock as of one place of the log: of what is there of its stream and of its checkpoints; and what is to be done with it. Pure.

- The queue is what the newest checkpoint has, and then what lies above its `covers`.
- A stream that is trimmed further than the newest checkpoint covers was empty there, or another checkpoint was made since: who made it
  trimmed only after it was in the log, so whoever *saw* the gap, and looks then, finds it (`hides_some`).
- What lives is written anew when it is as old as a term: a checkpoint, never an Enqueued again, since its place is the fencing number.
- Of what nobody holds the newest records stay for a day, of both streams: they lead whoever looks through old terms to the lock. Then a
  checkpoint has the empty queue; from there on, whoever looked before makes none any more. When that is a day old, the log is to
  forget that there was a lock: a stream that is trimmed and nothing more is remembered by each engine, for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from bokiflow.model import lock_rules
from bokiflow.model.lock_rules import Checkpoint, LockEvent, Queue
from bokilib.retention.checkpoint_rules import FORGET_MS

RECORDS: Final = 64
"""Of one lock that is never free; then its queue is kept in a checkpoint."""


class Found(NamedTuple):
    """One record, of a lock's stream or of its checkpoints."""

    seqnum: int
    time_ms: int
    events: Sequence[LockEvent]

    @property
    def checkpoint(self) -> Checkpoint | None:
        """What it has, if it is one."""
        return next((event for event in self.events if isinstance(event, Checkpoint)), None)


class View(NamedTuple):
    """A lock as of a snapshot.

    Attributes:
        position: of the snapshot. newest: seqnum of the newest record of its stream that is there; 0: none is.
        records: above what the queue begins with. checkpoint: seqnum of the newest one, covers: up to where it counts; 0: there is none,
            or it does not count any more.
        oldest_ms: when the oldest record was appended that the queue follows from. newest_ms: the newest of all that is there.
    """

    queue: Queue
    position: int
    newest: int = 0
    records: int = 0
    checkpoint: int = 0
    covers: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0


def covered(found: Sequence[Found]) -> int:
    """Up to where a lock's stream is in the newest checkpoint among these."""
    return max((one.checkpoint.covers for one in found if one.checkpoint is not None), default=0)


def hides_some(found: Sequence[Found], trimmed: int) -> bool:
    """Whether there may be a newer checkpoint than those that were found: more is trimmed than they cover."""
    return trimmed > covered(found)


def viewed(position: int, found: Sequence[Found], trimmed: int) -> View:
    """The lock, of which no newer checkpoint is there as of `position`.

    Args:
        found: records of both streams, ascending. trimmed: the last place of its stream that is known to be trimmed.
    """
    covers = covered(found)
    base = next((one for one in found if one.checkpoint is not None and one.checkpoint.covers == covers), None)
    counts = base is not None and trimmed <= covers
    of_stream = [one for one in found if one.checkpoint is None]
    above = [one for one in of_stream if one.seqnum > max(covers, trimmed)]
    queue: Queue = base.checkpoint.queue if counts and base is not None and base.checkpoint is not None else ()
    for one in above:
        queue = lock_rules.after(queue, one.seqnum, one.events)
    needed = [base] if counts and base is not None else above
    return View(
        queue,
        position,
        max((one.seqnum for one in of_stream), default=0),
        len(above),
        max((one.seqnum for one in found if one.checkpoint is not None), default=0),
        covers if counts else 0,
        min((one.time_ms for one in needed), default=0),
        max((one.time_ms for one in found), default=0),
    )


def is_long(view: View) -> bool:
    """Whether a checkpoint pays for those who read it."""
    return bool(view.queue) and view.records >= RECORDS


def is_over(view: View) -> bool:
    """Whether its newest record is a checkpoint of an empty queue."""
    return view.covers > 0 and not view.records and not view.queue


def must_carry(view: View, now_ms: int, carry_ms: int) -> bool:
    """Whether a checkpoint has to be made, so that an old term may go."""
    there = view.newest or view.checkpoint
    return bool(there) and not is_over(view) and now_ms - view.oldest_ms >= carry_ms


class Marks(NamedTuple):
    """First seqnums to keep of a lock's stream, and of its checkpoints; 0: nothing of it goes. They go together, by one command.

    Attributes:
        forget: that there was a lock, too.
    """

    records: int = 0
    checkpoints: int = 0
    forget: bool = False


def trim_marks(view: View, now_ms: int = 0) -> Marks:
    """What nobody needs. `now_ms`: by the clock of the log; 0: nothing is forgotten."""
    if is_over(view) and now_ms and now_ms - view.newest_ms > FORGET_MS:
        return Marks(view.position + 1, view.position + 1, True)  # what comes after the snapshot is above it, and stays
    if view.queue or is_over(view):
        return Marks(view.covers + 1, view.checkpoint) if view.covers else Marks()
    return Marks(view.newest, view.checkpoint + (view.checkpoint < view.newest) if view.checkpoint else 0)


def trim_marks_under(view: View, checkpoint: int) -> Marks:
    """What a checkpoint of this view replaces that is at that place."""
    return Marks(view.position + 1, checkpoint)
