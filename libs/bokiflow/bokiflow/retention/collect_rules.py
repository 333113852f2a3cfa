"""What of workflows that ended may go, and when; when a partition is checkpointed. Pure. All times are of the log's clock.

- Its history, and what it emitted, goes a day after the end; that of a workflow that failed after a week (`Histories`). What is kept
  for longer than a term lives is rewritten together with the end, within a bound in bytes.
- Its end stays for as long as its result is kept (`retention`). Storage goes by whole terms, so before a term is a day old the end is
  repeated, many to a record (`Tombed`), and its older records are trimmed. A tomb names when the workflow ended, else retention
  would begin anew with each; once retention is over there are no more.
- Then all of the id is forgotten, together, when the newest of it is so old that the log can forget it. Till that is *seen*, its end in
  the partition's stream stays: whoever comes next finds it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from boki_common.limits import MIB, RECORD_EXPECTATIONS, RECORD_TAGS
from bokiflow.model.flow_events import AnyFlowEvent, Ended, Tombed
from bokiflow.model.flush import RECORD_BYTES, size_of
from bokiflow.model.outcomes import Failure, Outcome
from bokilib.records.tags import partition_of
from bokilib.retention.checkpoint_rules import Ages

AGES: Final = Ages()
MINUTE_MS: Final = 60_000
STARTS_BETWEEN: Final = 1_000
"""Of a partition, at least, from one checkpoint to the next."""
LARGE_BYTES: Final = 4_096
"""A result that is larger is not in the tomb, but apart."""
MESSAGE_CHARS: Final = 200
"""Of the message of a failure that is apart, the tomb has so much."""


class Histories(NamedTuple):
    """For how long histories of ended workflows are kept, by the clock of the log, and how much of them.

    Attributes:
        ms: of workflows that returned, or were cancelled. failed_ms: of those that failed.
        rewritten_bytes: most that a worker rewrites while a term lives; what is beyond that goes.
        bytes: most that a worker keeps, until it rewrites it, of its partitions; of what is beyond that the oldest goes.
    """

    ms: int = AGES.carry_ms
    failed_ms: int = AGES.retention_ms
    rewritten_bytes: int = 256 * MIB
    bytes: int = 1_024 * MIB

    def kept_ms(self, ended: Ended) -> int:
        """Return for how long the history of a workflow is kept after its end."""
        outcome = ended.outcome
        return self.ms if outcome.error is None or outcome.cancelled else self.failed_ms


HISTORIES: Final = Histories()


class Over(NamedTuple):
    """A workflow that ended, by its partition's stream.

    Attributes:
        seqnum, time_ms: of the record. done_ms: when it ended. large: where its outcome is, if that is not here.
    """

    id: str
    partition: int
    seqnum: int
    time_ms: int
    done_ms: int
    ended: Ended
    large: int = 0


class _Minute(NamedTuple):
    """Histories of workflows of one partition that ended within a minute. first, last: seqnums of the records of their ends."""

    bytes: int
    first: int
    last: int


class Measured:
    """Histories of one partition that are kept and not yet rewritten, by the minute in which their workflows ended.

    Attributes:
        last: the place up to which ends were counted.
    """

    def __init__(self) -> None:
        self.last = 0
        self._minutes: dict[int, _Minute] = {}

    def ended(self, one: Over) -> None:
        """Count the history of a workflow, by the record of its end."""
        if one.time_ms == one.done_ms:  # else it is repeated, and its history rewritten or gone
            minute = one.done_ms // MINUTE_MS
            known = self._minutes.get(minute, _Minute(0, one.seqnum, one.seqnum))
            self._minutes[minute] = _Minute(known.bytes + one.ended.history_bytes, known.first, one.seqnum)

    def by_minute(self) -> dict[int, int]:
        """Return bytes by minutes since 1970."""
        return {minute: found.bytes for minute, found in self._minutes.items()}

    def cut(self, since_ms: int) -> tuple[int, int] | None:
        """Forget what ended before; return the first and the last place of these ends, None if there are none."""
        gone = [self._minutes.pop(one) for one in sorted(self._minutes) if (one + 1) * MINUTE_MS <= since_ms]
        return (gone[0].first, gone[-1].last) if gone else None


def kept_since(several: Iterable[Measured], most_bytes: int) -> int:
    """Return the time since which workflows ended whose histories together are within a bound, in ms; 0: all of them are."""
    minutes: dict[int, int] = {}
    for one in several:
        for minute, size in one.by_minute().items():
            minutes[minute] = minutes.get(minute, 0) + size
    total = 0
    for minute in sorted(minutes, reverse=True):
        total += minutes[minute]
        if total > most_bytes:
            return (minute + 1) * MINUTE_MS
    return 0


class Own(NamedTuple):
    """What is in a workflow's fence.

    Attributes:
        newest: seqnum of the newest record, 0 for none. emptied: there was one, and the log knows it. start: of what ended, if it did.
        oldest: seqnum of the oldest record that is there. over: its end, if it ended.
    """

    newest: int = 0
    emptied: bool = False
    start: int = 0
    oldest: int = 0
    over: Over | None = None

    @property
    def gone(self) -> bool:
        """Whether it is as if there had never been anything."""
        return not self.newest and not self.emptied


Fate: TypeAlias = Literal["drop", "trim", "tomb", "forget", "keep"]


def over(seqnum: int, time_ms: int, event: AnyFlowEvent) -> Over | None:
    """The end that an event of a partition's stream is of; None: it is of none."""
    if isinstance(event, Ended):
        return Over(event.id, partition_of(event.id), seqnum, time_ms, time_ms, event)
    if isinstance(event, Tombed):
        return Over(event.id, partition_of(event.id), seqnum, time_ms, event.done_ms, event.ended, event.large)
    return None


def fate(one: Over, own: Own, now_ms: int, ages: Ages, *, pressing: bool) -> Fate:
    """What is to be done about a workflow that ended.

    Args:
        pressing: something of the partitions is as old as a term: what will be so soon goes with it.

    Returns:
        drop: nothing, and its place in the partition's stream is not needed. trim: it was repeated since. tomb: repeat it. forget: all
        of it. keep: nothing yet.
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
    """At which age an end is repeated."""
    return ages.carry_ms // 2 if pressing else ages.carry_ms


def looked_at(ages: Ages, *, pressing: bool) -> int:
    """From which age on anything may be due."""
    return min(carried_at(ages, pressing=pressing), max(ages.retention_ms, ages.forget_ms + 1))


def fate_of_history(over: Over, now_ms: int, histories: Histories, ages: Ages) -> Literal["trim", "keep", "pass"]:
    """Return what becomes of the history of a workflow that ended, by a record of its end in its partition's stream.

    Returns:
        keep: it is looked at again, at this record. pass: not at this one: it is gone already, or it is kept for longer than a term
        lives and goes by the records that repeat its end (`outlives`).
    """
    kept_ms = histories.kept_ms(over.ended)
    if kept_ms > ages.carry_ms or over.time_ms - over.done_ms >= max(kept_ms, 1):
        return "pass"
    return "trim" if now_ms - over.done_ms >= kept_ms else "keep"


def outlives(over: Over, now_ms: int, histories: Histories, ages: Ages) -> Literal["rewrite", "trim", "pass"]:
    """Return what becomes of the history of a workflow whose end is repeated now. pass: `fate_of_history` decides."""
    kept_ms = histories.kept_ms(over.ended)
    if kept_ms <= ages.carry_ms:
        return "pass"
    if now_ms - over.done_ms < kept_ms:
        return "rewrite"
    return "trim" if over.time_ms - over.done_ms < kept_ms else "pass"


def fate_of_sent(
    own: Own, seqnum: int, time_ms: int, now_ms: int, histories: Histories, ages: Ages
) -> Literal["pass", "trim", "forget", "hold"]:
    """What becomes of something that was sent to a workflow that is not alive; see `Fate`.

    Returns:
        pass: it goes with the workflow's history. hold: it is looked at again later, so the partition's stream stays.
    """
    if own.newest and own.over is None:
        return "pass"
    if own.over is not None:
        kept_ms = histories.kept_ms(own.over.ended)
        before_end = seqnum < own.newest and own.over.time_ms == own.over.done_ms
        if before_end or (kept_ms > ages.carry_ms and now_ms - own.over.done_ms < kept_ms):
            return "pass"
        due_ms = max(own.over.done_ms + kept_ms, time_ms + ages.grace_ms)
        return "trim" if now_ms >= due_ms else "hold"
    return "forget" if now_ms - time_ms > ages.forget_ms else "hold"


def is_due(starts: int, unfinished: int, oldest_ms: int, now_ms: int, carry_ms: int) -> bool:
    """Whether a partition is to be checkpointed: so many began since, or its oldest record is as old as a term."""
    return starts >= max(STARTS_BETWEEN, unfinished) or bool(oldest_ms and now_ms - oldest_ms >= carry_ms)


def tomb(one: Over, large: int) -> Tombed:
    """The end, repeated. `large`: where its outcome is, 0: here."""
    ended = msgspec.structs.replace(one.ended if not large else _without_outcome(one.ended), parts=())
    return Tombed(one.id, ended, one.done_ms, large)


def is_large(one: Over) -> bool:
    """Whether its outcome does not go into a tomb."""
    return bool(one.large) or size_of(one.ended.outcome) > LARGE_BYTES


def _without_outcome(ended: Ended) -> Ended:
    """Return an end whose outcome is apart. A failure leaves its class and the beginning of its message, so that lists call it one."""
    error = ended.outcome.error
    short = None if error is None else Failure(error.type, error.message[:MESSAGE_CHARS], known_by=error.known_by)
    return msgspec.structs.replace(ended, outcome=Outcome(None, short))


def batches(several: Iterable[tuple[Over, Tombed]]) -> Iterator[list[tuple[Over, Tombed]]]:
    """As few records as take all tombs, in order: up to 254 of one partition."""
    batch: list[tuple[Over, Tombed]] = []
    size = tags = 0
    partitions: set[int] = set()
    for one, event in several:
        more_tags = 1 + len(one.ended.attributes) + (one.partition not in partitions)
        more = size_of(event)
        full = tags + more_tags > RECORD_TAGS or len(batch) + 1 > RECORD_EXPECTATIONS or size + more > RECORD_BYTES
        if batch and full:
            yield batch
            batch, size, tags, partitions = [], 0, 0, set()
            more_tags = 2 + len(one.ended.attributes)
        batch.append((one, event))
        size, tags = size + more, tags + more_tags
        partitions.add(one.partition)
    if batch:
        yield batch


class Marks:
    """Below what partitions' streams of ends may be trimmed, while they are read in order."""

    def __init__(self) -> None:
        self._marks: dict[int, int] = {}
        self._kept: dict[int, int] = {}

    def dropped(self, partition: int, seqnum: int) -> None:
        """It is not needed."""
        self._marks[partition] = max(self._marks.get(partition, 0), seqnum + 1)

    def kept(self, partition: int, seqnum: int) -> None:
        """It is."""
        self._kept[partition] = min(self._kept.get(partition, seqnum), seqnum)

    def all(self) -> list[tuple[int, int]]:
        """(partition, first seqnum to keep)."""
        found = {one: min(mark, self._kept.get(one, mark)) for one, mark in self._marks.items()}
        return sorted(found.items())
