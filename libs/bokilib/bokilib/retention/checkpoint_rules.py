"""When a checkpoint is due, what it is made of, which one counts, and what may be trimmed then. Pure.

- A checkpoint is the state as of `covers`. It is appended with an expectation of its own stream ({checkpoints: snapshot}): of
  two checkpointers with different knowledge the older one must not become the newest. It never joins the stream of what it
  covers: it would fail every open transaction of a hot object.
- A state larger than a record goes in parts, one after the other; they count when all are there, and only then.
- Read: the newest complete one at or below the snapshot, then what lies above its `covers`; a fold names its start.
- Trimmed is by the checkpoint *before* the newest, once that one is older than any open transaction (`grace`): snapshots that
  are still read at find their checkpoint. So two are kept. What changes without rest has more that are too young: its checkpoints
  come faster than they grow old, and it is trimmed by the newest of them that is old enough (`Ripening`).
- What ended (was deleted) has a checkpoint too, which says that there is nothing, and since when. It is the last of its stream
  that goes: while the stream of what ended is not *seen* to be forgotten, whoever makes it anew begins a fold there.
- What must stay is carried: a checkpoint anew, when the newest one is older than `age`, though nothing is new. What ended
  keeps its time, else it would never be over; once its retention is over it is not carried any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from boki_common.limits import MIB

RECORDS_BETWEEN: Final = 1_000
BYTES_BETWEEN: Final = MIB
PART_BYTES: Final = MIB // 2
"""Of one record, with what surrounds it."""
GRACE_MS: Final = 60_000
"""How old a transaction's snapshot may be."""
RETENTION_MS: Final = 7 * 24 * 3_600_000
"""For how long what was deleted is remembered."""
RIPENING: Final = 32
"""Parts of a grace: a checkpoint that is nearer to another one is not noted beside it."""
REWRITE_MS: Final = 24 * 3_600_000
"""What is older is carried out of its term."""
FORGET_MS: Final = 3_660_000
"""The log forgets a stream whose newest record is an hour old, in whole minutes."""


class CheckpointPart(NamedTuple):
    """One record of a checkpoint, as it was read.

    Attributes:
        part, parts: which of how many.
        by: who wrote it; parts of two writers are never one checkpoint.
        ended_ms: since when there is nothing; None: there is something.
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
    """A checkpoint of which all parts are there.

    Attributes:
        first, seqnum: its first part and its last.
        ended_ms: since when there is nothing; None: there is something.
    """

    first: int
    seqnum: int
    time_ms: int
    covers: int
    data: bytes
    ended_ms: int | None = None


def due(records: int, size: int, records_between: int = RECORDS_BETWEEN, bytes_between: int = BYTES_BETWEEN) -> bool:
    """Whether so much lies above the last checkpoint that the next one pays."""
    return records >= records_between or size >= bytes_between


def split(state: bytes, part_bytes: int = PART_BYTES) -> list[bytes]:
    """The parts of a state; one, if it fits."""
    return [state[at : at + part_bytes] for at in range(0, len(state), part_bytes)] or [b""]


def newest_first(parts: Iterable[CheckpointPart]) -> list[WholeCheckpoint]:
    """The complete checkpoints among records of a checkpoint stream, newest first.

    Args:
        parts: descending by seqnum, without holes.
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
    """What may be trimmed: first seqnums to keep. 0: nothing."""

    records: int
    checkpoints: int


NOTHING: Final = Marks(0, 0)


def trim_marks(wholes: Sequence[WholeCheckpoint], now_ms: int, grace_ms: int = GRACE_MS) -> Marks:
    """What may be trimmed by the checkpoints that are there, newest first.

    Args:
        now_ms: on the clock of the log (`record.time_ms`).
    """
    if len(wholes) < 2 or now_ms - wholes[1].time_ms < grace_ms:
        return NOTHING
    previous = wholes[1]
    return Marks(previous.covers + 1, previous.first)


class Ripening:
    """Checkpoints of one subject that were read back while they were too young to trim by: where they are, oldest first.

    Bounded: of those that are close to each other one is enough.
    """

    __slots__ = ("_young",)

    def __init__(self) -> None:
        self._young: deque[tuple[int, Marks]] = deque()

    def see(self, wholes: Sequence[WholeCheckpoint], grace_ms: int) -> None:
        """What is there, newest first: the one before the newest is noted."""
        if len(wholes) < 2:
            return
        previous = wholes[1]
        if not self._young or previous.time_ms - self._young[-1][0] >= grace_ms // RIPENING:
            self._young.append((previous.time_ms, Marks(previous.covers + 1, previous.first)))

    def ripe(self, now_ms: int, grace_ms: int) -> Marks:
        """What may be trimmed by the newest that has become old enough since the last time."""
        marks = NOTHING
        while self._young and now_ms - self._young[0][0] >= grace_ms:
            marks = self._young.popleft()[1]
        return marks


class Ages(NamedTuple):
    """By the clock of the log.

    Attributes:
        grace_ms: of snapshots. retention_ms: of what ended. forget_ms: of streams that the log can forget.
        carry_ms: of the newest checkpoint of what is idle.
    """

    grace_ms: int = GRACE_MS
    retention_ms: int = RETENTION_MS
    forget_ms: int = FORGET_MS
    carry_ms: int = REWRITE_MS


class TrimPlan(NamedTuple):
    """What may be trimmed of one subject: its streams' first seqnums to keep, and whether they may be forgotten then."""

    marks: Marks
    forget: bool = False


def ended(wholes: Sequence[WholeCheckpoint], newest: int) -> bool:
    """Whether nothing is there, and nothing came since.

    Args:
        wholes: newest first. newest: seqnum of the newest record of the stream that they are of, 0 for none.
    """
    return bool(wholes) and wholes[0].ended_ms is not None and newest <= wholes[0].covers


def trim_plan(wholes: Sequence[WholeCheckpoint], newest: int, now_ms: int, ages: Ages) -> TrimPlan:
    """What may be trimmed; arguments as for `ended`."""
    if not ended(wholes, newest) or now_ms - wholes[0].time_ms < ages.grace_ms:
        return TrimPlan(trim_marks(wholes, now_ms, ages.grace_ms))
    last = wholes[0]
    over = _is_over(last, now_ms, ages) and now_ms - last.time_ms > ages.forget_ms
    return TrimPlan(Marks(last.covers + 1, last.first), over)


def must_rewrite(wholes: Sequence[WholeCheckpoint], newest: int, now_ms: int, ages: Ages) -> bool:
    """Whether a checkpoint has to be made anew, so that older records may go; arguments as for `ended`."""
    if not wholes:
        return newest > 0
    if ended(wholes, newest) and _is_over(wholes[0], now_ms, ages):
        return False
    return now_ms - wholes[0].time_ms >= ages.carry_ms


def _is_over(last: WholeCheckpoint, now_ms: int, ages: Ages) -> bool:
    """Whether it need not be remembered any more that there was something."""
    return last.ended_ms is not None and now_ms - last.ended_ms >= ages.retention_ms
