"""Rules of checkpoints: when one is due, its parts, which one counts, and what may be trimmed because of it. Pure.

- A checkpoint is the state of a subject (an object, a bucket, a history) as of `covers`. It is appended with an expectation of its own
  stream ({checkpoints: snapshot}), so that of two checkpointers the one with the older snapshot cannot become the newest. It never
  joins the stream of its subject, since it would fail every open transaction of a hot object.
- A state larger than a record is appended in parts, one after the other. A checkpoint counts only if all its parts are in the log.
- A reader folds the newest complete checkpoint at or below its snapshot and the records above its `covers`.
- A subject is trimmed by the checkpoint *before* the newest, once that is older than any open transaction (`GRACE_MS`), so that open
  snapshots still find their checkpoint. So two are kept. The checkpoints of a hot subject come faster than they reach that age;
  it is trimmed by the newest one that is old enough (`Ripening`).
- A subject that ended (was deleted) has a checkpoint that says so, and since when. It is the last record to be trimmed: until the
  subject's stream is *seen* to be forgotten, a writer that creates the subject again begins its fold there.
- An idle subject is rewritten: its newest checkpoint is appended again once it is older than `Ages.carry_ms`, so that older terms can
  be reclaimed. The checkpoint of an ended subject keeps the time of the end, and is not rewritten after its retention.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from boki_common.limits import MIB

RECORDS_BETWEEN: Final = 1_000
BYTES_BETWEEN: Final = MIB
PART_BYTES: Final = MIB // 2
"""The most bytes of a state in one record, which has room for its envelope beside them."""
GRACE_MS: Final = 60_000
"""The greatest age of a transaction's snapshot."""
RETENTION_MS: Final = 7 * 24 * 3_600_000
"""How long a deletion is remembered."""
RIPENING: Final = 32
"""Checkpoints noted per grace: one that is closer to the one before it is skipped."""
REWRITE_MS: Final = 24 * 3_600_000
"""The age at which a record is rewritten out of its term."""
FORGET_MS: Final = 3_660_000
"""The age at which the log can forget a stream: its newest record is more than an hour old, rounded to minutes."""


class CheckpointPart(NamedTuple):
    """A record of a checkpoint, as read from the log.

    Attributes:
        seqnum: of the record.
        time_ms: of the record.
        covers: the seqnum as of which the checkpoint is the state.
        part: index of this part.
        parts: the number of parts of the checkpoint.
        by: incarnation of the writer; parts of two writers never make one checkpoint.
        data: this part of the encoded state.
        ended_ms: when the subject ended, or None if it exists.
    """

    seqnum: int
    time_ms: int
    covers: int
    part: int
    parts: int
    by: str
    data: bytes = b""
    ended_ms: int | None = None


class WholeCheckpoint(NamedTuple):
    """A checkpoint all of whose parts were read.

    Attributes:
        first: seqnum of its first part.
        seqnum: of its last part.
        time_ms: of its last part.
        covers: the seqnum as of which it is the state.
        data: the encoded state.
        ended_ms: when the subject ended, or None if it exists.
    """

    first: int
    seqnum: int
    time_ms: int
    covers: int
    data: bytes
    ended_ms: int | None = None


def due(records: int, size: int, records_between: int = RECORDS_BETWEEN, bytes_between: int = BYTES_BETWEEN) -> bool:
    """Return whether there are enough records or bytes above the last checkpoint for the next one to pay."""
    return records >= records_between or size >= bytes_between


def split(state: bytes, part_bytes: int = PART_BYTES) -> list[bytes]:
    """Split an encoded state into parts that fit one record each. A small or empty state is one part."""
    return [state[at : at + part_bytes] for at in range(0, len(state), part_bytes)] or [b""]


def newest_first(parts: Iterable[CheckpointPart]) -> list[WholeCheckpoint]:
    """Return the complete checkpoints of a checkpoint stream, newest first.

    Args:
        parts: records of the stream in descending order, without holes.
    """
    found: list[WholeCheckpoint] = []
    run: list[CheckpointPart] = []
    for part in parts:
        before = run[-1] if run else None
        if before is not None and (part.by, part.covers, part.parts, part.part + 1) != (
            before.by,
            before.covers,
            before.parts,
            before.part,
        ):
            run = []
        if run or part.part == part.parts - 1:
            run.append(part)
        if run and part.part == 0:
            data = b"".join(one.data for one in reversed(run))
            found.append(WholeCheckpoint(part.seqnum, run[0].seqnum, run[0].time_ms, part.covers, data, part.ended_ms))
            run = []
    return found


class Marks(NamedTuple):
    """First seqnums to keep in the streams of a subject; 0 to trim nothing."""

    records: int
    checkpoints: int


NOTHING: Final = Marks(0, 0)


def trim_marks(wholes: Sequence[WholeCheckpoint], now_ms: int, grace_ms: int = GRACE_MS) -> Marks:
    """Return what the checkpoint before the newest allows to trim.

    Args:
        wholes: the complete checkpoints, newest first.
        now_ms: by the clock of the log (`record.time_ms`).
        grace_ms: the greatest age of an open snapshot.
    """
    if len(wholes) < 2 or now_ms - wholes[1].time_ms < grace_ms:
        return NOTHING
    previous = wholes[1]
    return Marks(previous.covers + 1, previous.first)


class Ripening:
    """Trim marks of the checkpoints of one hot subject that were too young to trim by when they were read, oldest first.

    Bounded: a checkpoint within `grace_ms / RIPENING` of the one before it is skipped.
    """

    __slots__ = ("_young",)

    def __init__(self) -> None:
        self._young: deque[tuple[int, Marks]] = deque()

    def see(self, wholes: Sequence[WholeCheckpoint], grace_ms: int) -> None:
        """Note the checkpoint before the newest of `wholes`, which is newest first."""
        if len(wholes) < 2:
            return
        previous = wholes[1]
        if not self._young or previous.time_ms - self._young[-1][0] >= grace_ms // RIPENING:
            self._young.append((previous.time_ms, Marks(previous.covers + 1, previous.first)))

    def ripe(self, now_ms: int, grace_ms: int) -> Marks:
        """Return and drop the marks of the newest noted checkpoint that is old enough, or `NOTHING`."""
        marks = NOTHING
        while self._young and now_ms - self._young[0][0] >= grace_ms:
            marks = self._young.popleft()[1]
        return marks


class Ages(NamedTuple):
    """Ages that decide about retention, by the clock of the log.

    Attributes:
        grace_ms: the greatest age of an open snapshot.
        retention_ms: how long the end of a subject is remembered.
        forget_ms: the age at which the log can forget a stream.
        carry_ms: the age at which the newest checkpoint of an idle subject is rewritten.
    """

    grace_ms: int = GRACE_MS
    retention_ms: int = RETENTION_MS
    forget_ms: int = FORGET_MS
    carry_ms: int = REWRITE_MS


class TrimPlan(NamedTuple):
    """The trim of one subject.

    Attributes:
        marks: first seqnums to keep in its streams.
        forget: whether the log may forget the streams then.
    """

    marks: Marks
    forget: bool = False


def ended(wholes: Sequence[WholeCheckpoint], newest: int) -> bool:
    """Return whether a subject has ended and has no record since.

    Args:
        wholes: its complete checkpoints, newest first.
        newest: seqnum of the newest record of its stream, 0 for none.
    """
    return bool(wholes) and wholes[0].ended_ms is not None and newest <= wholes[0].covers


def trim_plan(wholes: Sequence[WholeCheckpoint], newest: int, now_ms: int, ages: Ages) -> TrimPlan:
    """Return the trim of a subject now. `wholes` and `newest` are as for `ended`."""
    if not ended(wholes, newest) or now_ms - wholes[0].time_ms < ages.grace_ms:
        return TrimPlan(trim_marks(wholes, now_ms, ages.grace_ms))
    last = wholes[0]
    expired = _is_expired(last, now_ms, ages) and now_ms - last.time_ms > ages.forget_ms
    return TrimPlan(Marks(last.covers + 1, last.first), expired)


def must_rewrite(wholes: Sequence[WholeCheckpoint], newest: int, now_ms: int, ages: Ages) -> bool:
    """Return whether a subject needs a new checkpoint so that older records can be trimmed. `wholes` and `newest` are as for `ended`."""
    if not wholes:
        return newest > 0
    if ended(wholes, newest) and _is_expired(wholes[0], now_ms, ages):
        return False
    return now_ms - wholes[0].time_ms >= ages.carry_ms


def _is_expired(last: WholeCheckpoint, now_ms: int, ages: Ages) -> bool:
    """Return whether the retention of a subject's end has passed."""
    return last.ended_ms is not None and now_ms - last.ended_ms >= ages.retention_ms
