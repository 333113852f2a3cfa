"""Rules of retention: when the history, the end and the id of an ended workflow are deleted, and when a partition is checkpointed. Pure.

All times are by the log's clock.

- The history and the emitted events of a workflow are trimmed a day after its end, or a week after the end of a failed one (`Histories`).
  A history that is kept for longer than a term lives is rewritten together with the end, within a bound in bytes.
- The end is kept for as long as its result (`retention`). Storage is reclaimed by whole terms, so before a term is a day old the end is
  repeated, many of them in one record (`Tombed`), and its older records are trimmed. A tomb names when the workflow ended, so that its
  retention does not start over. After its retention an end is not repeated.
- Then all streams of the id are forgotten together, once its newest record is old enough for the log to forget it. Until a round has *seen*
  that they are, the end stays in the partition's stream, where the next round finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from boki_common.limits import MIB, RECORD_EXPECTATIONS, RECORD_TAGS
from bokiflow.model.flow_events import AnyFlowEvent, Ended, Tombed
from bokiflow.model.outcomes import Failure, Outcome
from bokiflow.model.record_batcher import RECORD_BYTES, size_of
from bokilib.append.batches import Batches
from bokilib.records.tags import partition_of
from bokilib.retention.checkpoint_rules import Ages

AGES: Final = Ages()
MINUTE_MS: Final = 60_000
STARTS_BETWEEN: Final = 1_000
"""Starts between two checkpoints of a partition, at least."""
LARGE_BYTES: Final = 4_096
"""A larger result is kept in a record of its own and not in the tomb."""
MESSAGE_CHARS: Final = 200
"""Characters of a failure's message in the tomb, if the outcome has a record of its own."""


class Histories(NamedTuple):
    """Retention of the histories of ended workflows, by the clock of the log.

    Attributes:
        ms: milliseconds for workflows that returned or were cancelled.
        failed_ms: milliseconds for workflows that failed.
        rewritten_bytes: bytes that a worker rewrites in the life of a term, at most; further histories are trimmed early.
        bytes: bytes of histories that a worker keeps in its partitions before it rewrites them, at most; beyond them the oldest are
            trimmed early (`beyond`).
    """

    ms: int = AGES.carry_ms
    failed_ms: int = AGES.retention_ms
    rewritten_bytes: int = 256 * MIB
    bytes: int = 1_024 * MIB

    def kept_ms(self, ended: Ended) -> int:
        """Return for how long the history of a workflow is kept after its end."""
        return self.failed_ms if has_failed(ended) else self.ms


HISTORIES: Final = Histories()


class EndedWorkflow(NamedTuple):
    """A workflow that ended, as a record in its partition's stream has it.

    Attributes:
        id: the workflow.
        partition: its partition.
        seqnum: the seqnum of the record.
        time_ms: the time of the record.
        done_ms: when the workflow ended.
        ended: its end.
        large: the seqnum of its outcome; 0 if the outcome is in `ended`.
    """

    id: str
    partition: int
    seqnum: int
    time_ms: int
    done_ms: int
    ended: Ended
    large: int = 0


class _Minute(NamedTuple):
    """Histories of workflows of a partition that failed, or that did not, within a minute.

    Attributes:
        bytes: their size.
        first: the seqnum of the first of these ends.
        last: the seqnum of the last of these ends.
    """

    bytes: int
    first: int
    last: int


class Excess(NamedTuple):
    """The oldest histories of one kind that do not fit into a bound.

    Attributes:
        failed: they are of workflows that failed.
        minute: the minute, since 1970, of the newest of them. All of older minutes are trimmed.
        bytes: the bytes to trim of this minute, oldest first.
    """

    failed: bool
    minute: int
    bytes: int


class Measured:
    """Sizes of a partition's histories that are kept and not yet rewritten, by the minute in which their workflows ended.

    Attributes:
        last: the place up to which ends were counted.
    """

    def __init__(self) -> None:
        self.last = 0
        self._minutes: Final[dict[bool, dict[int, _Minute]]] = {False: {}, True: {}}
        """By whether the workflows failed."""

    def ended(self, one: EndedWorkflow) -> None:
        """Count the history of a workflow, by the record of its end."""
        if one.time_ms == one.done_ms:  # otherwise the end is repeated, and the history was rewritten or trimmed
            minutes, minute = self._minutes[has_failed(one.ended)], one.done_ms // MINUTE_MS
            known = minutes.get(minute, _Minute(0, one.seqnum, one.seqnum))
            minutes[minute] = _Minute(known.bytes + one.ended.history_bytes, known.first, one.seqnum)

    def by_minute(self, *, failed: bool) -> dict[int, int]:
        """Return the bytes of histories by minutes since 1970."""
        return {minute: found.bytes for minute, found in self._minutes[failed].items()}

    def forget(self, before: int, *, failed: bool) -> None:
        """Remove the histories of one kind of workflows that ended before a minute."""
        minutes = self._minutes[failed]
        for minute in [one for one in minutes if one < before]:
            del minutes[minute]

    def ends_of(self, excess: Excess) -> tuple[int, int] | None:
        """Return the first and the last seqnum of ends whose histories may have to be trimmed; None if there are none."""
        found = [one for minute, one in self._minutes[excess.failed].items() if minute <= excess.minute]
        span = (min(one.first for one in found), max(one.last for one in found)) if found else (1, 0)
        return span if span[0] <= span[1] else None

    def has(self, one: EndedWorkflow, excess: Excess) -> bool:
        """Return whether the history of a workflow may have to be trimmed: it is counted, of this kind, and old enough."""
        if one.time_ms != one.done_ms or has_failed(one.ended) is not excess.failed:
            return False
        minute = one.done_ms // MINUTE_MS
        counted = self._minutes[excess.failed].get(minute)
        return minute <= excess.minute and counted is not None and one.seqnum >= counted.first

    def trimmed(self, several: Sequence[EndedWorkflow]) -> None:
        """Remove the oldest histories of a minute and a kind: all of one record."""
        one = several[0]
        minutes, minute = self._minutes[has_failed(one.ended)], one.done_ms // MINUTE_MS
        known = minutes[minute]
        left = known.bytes - sum(each.ended.history_bytes for each in several)
        minutes[minute] = _Minute(left, one.seqnum + 1, known.last)


def has_failed(ended: Ended) -> bool:
    """Return whether a workflow failed: it did not return, and was not cancelled."""
    return ended.outcome.error is not None and not ended.outcome.cancelled


def beyond(several: Iterable[Measured], most_bytes: int) -> list[Excess]:
    """Return the oldest histories that do not fit into a bound, at most one for each kind.

    Workflows that failed and those that did not have half of it each, and what the others leave of their half: histories of many that
    return do not take the place of those that failed, which people look for, and the other way round.
    """
    kinds: dict[bool, dict[int, int]] = {False: {}, True: {}}
    for one in several:
        for failed, minutes in kinds.items():
            for minute, size in one.by_minute(failed=failed).items():
                minutes[minute] = minutes.get(minute, 0) + size
    totals = {failed: sum(minutes.values()) for failed, minutes in kinds.items()}
    found = []
    for failed, minutes in kinds.items():
        left = totals[failed] - (most_bytes - min(totals[not failed], most_bytes // 2))
        for minute in sorted(minutes):
            if left <= 0:
                break
            if left <= minutes[minute]:
                found.append(Excess(failed, minute, left))
            left -= minutes[minute]
    return found


class FenceContent(NamedTuple):
    """The content of a workflow's fence stream.

    Attributes:
        newest: the seqnum of the newest record; 0 if there is none.
        emptied: there were records, and the log remembers that they are trimmed.
        start: the seqnum of the start of a workflow that ended; 0 if it did not end.
        oldest: the seqnum of the oldest record; 0 if there is none.
        end: the end of the workflow; None if it did not end.
    """

    newest: int = 0
    emptied: bool = False
    start: int = 0
    oldest: int = 0
    end: EndedWorkflow | None = None

    @property
    def gone(self) -> bool:
        """True if the log has forgotten the stream, or never had it."""
        return not self.newest and not self.emptied


Fate: TypeAlias = Literal["drop", "trim", "tomb", "forget", "keep"]


def ended_workflow(seqnum: int, time_ms: int, event: AnyFlowEvent) -> EndedWorkflow | None:
    """Return the ended workflow of an event in a partition's stream; None if the event is no end."""
    if isinstance(event, Ended):
        return EndedWorkflow(event.id, partition_of(event.id), seqnum, time_ms, time_ms, event)
    if isinstance(event, Tombed):
        return EndedWorkflow(event.id, partition_of(event.id), seqnum, time_ms, event.done_ms, event.ended, event.large)
    return None


def fate(one: EndedWorkflow, own: FenceContent, now_ms: int, ages: Ages, *, pressing: bool) -> Fate:
    """Decide what to do with an end in a partition's stream.

    Args:
        one: the end.
        own: the fence of its workflow.
        now_ms: the time now.
        ages: the retention.
        pressing: an end of these partitions is as old as a term, so ends that soon will be are repeated with it.

    Returns:
        "drop" if the record is not needed any more, "trim" if the end was repeated since, "tomb" to repeat it, "forget" to delete all
        streams of the id, "keep" to do nothing yet.
    """
    age_ms = now_ms - one.time_ms
    if own.gone:
        return "drop"
    if own.emptied:
        return "forget" if age_ms > ages.forget_ms else "keep"
    if own.newest > one.seqnum:
        return "trim" if own.start == one.ended.start else "drop"
    if now_ms - one.done_ms >= ages.retention_ms:
        return "forget" if age_ms > ages.forget_ms else "keep"
    return "tomb" if age_ms >= carried_at(ages, pressing=pressing) else "keep"


def carried_at(ages: Ages, *, pressing: bool) -> int:
    """Return the age at which an end is repeated."""
    return ages.carry_ms // 2 if pressing else ages.carry_ms


def looked_at(ages: Ages, *, pressing: bool) -> int:
    """Return the age from which on an end may need something."""
    return min(carried_at(ages, pressing=pressing), max(ages.retention_ms, ages.forget_ms + 1))


def fate_of_history(
    one: EndedWorkflow, now_ms: int, histories: Histories, ages: Ages
) -> Literal["trim", "keep", "pass"]:
    """Decide what to do with the history of an ended workflow, at a record of its end.

    Returns:
        "trim" to trim it, "keep" to check it again at this record, "pass" if this record does not decide: the history is trimmed already,
        or it is kept for longer than a term lives and the repeated ends decide (`outlives`).
    """
    kept_ms = histories.kept_ms(one.ended)
    if kept_ms > ages.carry_ms or one.time_ms - one.done_ms >= max(kept_ms, 1):
        return "pass"
    return "trim" if now_ms - one.done_ms >= kept_ms else "keep"


def outlives(one: EndedWorkflow, now_ms: int, histories: Histories, ages: Ages) -> Literal["rewrite", "trim", "pass"]:
    """Decide what to do with the history of a workflow whose end is repeated now.

    Returns:
        "rewrite" to append it again, "trim" to trim it, "pass" if `fate_of_history` decides.
    """
    kept_ms = histories.kept_ms(one.ended)
    if kept_ms <= ages.carry_ms:
        return "pass"
    if now_ms - one.done_ms < kept_ms:
        return "rewrite"
    return "trim" if one.time_ms - one.done_ms < kept_ms else "pass"


def fate_of_sent(
    own: FenceContent, seqnum: int, time_ms: int, now_ms: int, histories: Histories, ages: Ages
) -> Literal["pass", "trim", "forget", "hold"]:
    """Decide what to do with a signal or another event sent to a workflow that does not run.

    Args:
        own: the fence of the workflow.
        seqnum: the seqnum of the event's record.
        time_ms: the time of that record.
        now_ms: the time now.
        histories: the retention of histories.
        ages: the retention.

    Returns:
        "pass" if it is trimmed with the workflow's history, "trim" to trim it, "forget" to forget the stream, "hold" to check it again
        later, for which the partition's stream has to stay.
    """
    if own.newest and own.end is None:
        return "pass"
    if own.end is not None:
        kept_ms = histories.kept_ms(own.end.ended)
        before_end = seqnum < own.newest and own.end.time_ms == own.end.done_ms
        if before_end or (kept_ms > ages.carry_ms and now_ms - own.end.done_ms < kept_ms):
            return "pass"
        due_ms = max(own.end.done_ms + kept_ms, time_ms + ages.grace_ms)
        return "trim" if now_ms >= due_ms else "hold"
    return "forget" if now_ms - time_ms > ages.forget_ms else "hold"


def is_due(starts: int, unfinished: int, oldest_ms: int, now_ms: int, carry_ms: int) -> bool:
    """Return whether a partition needs a checkpoint: enough workflows started, or its oldest record is as old as a term.

    Args:
        starts: workflows that started since the last checkpoint.
        unfinished: workflows that a checkpoint would list.
        oldest_ms: the time of the oldest record since the last checkpoint; 0 if there is none.
        now_ms: the time now.
        carry_ms: the age of old records.
    """
    return starts >= max(STARTS_BETWEEN, unfinished) or bool(oldest_ms and now_ms - oldest_ms >= carry_ms)


def tomb(one: EndedWorkflow, large: int) -> Tombed:
    """Return the event that repeats an end. `large` is the seqnum of the outcome if it has a record of its own, else 0."""
    ended = msgspec.structs.replace(one.ended if not large else _without_outcome(one.ended), parts=())
    return Tombed(one.id, ended, one.done_ms, large)


def is_large(one: EndedWorkflow) -> bool:
    """Return whether the outcome of a workflow is too large for a tomb."""
    return bool(one.large) or size_of(one.ended.outcome) > LARGE_BYTES


def _without_outcome(ended: Ended) -> Ended:
    """Return an end without its outcome. Of a failure the class and the beginning of the message stay, so that lists show it as failed."""
    error = ended.outcome.error
    short = None if error is None else Failure(error.type, error.message[:MESSAGE_CHARS], known_by=error.known_by)
    return msgspec.structs.replace(ended, outcome=Outcome(None, short))


def batches(several: Iterable[tuple[EndedWorkflow, Tombed]]) -> list[list[tuple[EndedWorkflow, Tombed]]]:
    """Divide tombs, in order, into as few records as can have them: up to 254 tombs of one partition in a record."""
    found: Batches[tuple[EndedWorkflow, Tombed], None] = Batches(RECORD_BYTES, RECORD_TAGS, RECORD_EXPECTATIONS)
    partitions: set[int] = set()
    for one, event in several:
        size, tags = size_of(event), 1 + len(one.ended.attributes)
        if not found.fits(size, tags + (one.partition not in partitions), 1):
            partitions.clear()  # it begins a batch, which has no stream of a partition yet
        found.add((one, event), size, tags + (one.partition not in partitions), 1)
        partitions.add(one.partition)
    return [batch.items for batch in found if batch.items]


class TrimMarks:
    """Places below which the partitions' streams of ends may be trimmed; filled while the streams are read in order."""

    def __init__(self) -> None:
        self._marks: dict[int, int] = {}
        self._kept: dict[int, int] = {}

    def dropped(self, partition: int, seqnum: int) -> None:
        """Note that a record is not needed any more."""
        self._marks[partition] = max(self._marks.get(partition, 0), seqnum + 1)

    def kept(self, partition: int, seqnum: int) -> None:
        """Note that a record is needed: nothing from it on is trimmed."""
        self._kept[partition] = min(self._kept.get(partition, seqnum), seqnum)

    def all(self) -> list[tuple[int, int]]:
        """Return each partition with a trim mark, and the first seqnum to keep."""
        found = {one: min(mark, self._kept.get(one, mark)) for one, mark in self._marks.items()}
        return sorted(found.items())
