"""The history of a workflow, folded from its start, its newest checkpoint or its last restart. Pure.

- A checkpoint (`Checkpointed`, in parts that count once all are read) has the records of the history as of its `covers`, so records at or
  below that are not needed. The order of delivery follows from the records in it (`delivery_order.in_order`).
- Events that older programs skip (`flow_events.PASSED`) are not in the rows of a checkpoint but in a list at its end, which a decoder of
  an older version skips too. A checkpoint without such events has no list.
- A fork begins with a checkpoint, whose last part is in the record of its Started; other parts may be before it. Without a Started there
  is no fork.
- A restart (`Restarted`) begins a new history. Of older records only messages of other processes above its `seen` count, for the new run.
- Unreceived signals that do not fit the record of a restart are in parts (`Unreceived`) before it, the last one, which is empty, in it.
  Parts without a restart are of a worker that died before it: the next one appends them again. In memory, and so in checkpoints,
  `Restarted` has all signals.
- A history with a gap that no checkpoint or restart covers is not whole; no part of it is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from bokiflow.model.delivery_order import Own, RecordedEvents
from bokiflow.model.flow_events import (
    PASSED,
    Checkpointed,
    Delivered,
    Effect,
    Emitted,
    Incoming,
    Note,
    Restarted,
    Started,
    Unreceived,
)
from bokiflow.model.record_batcher import AROUND_BYTES, EVENT_BYTES, size_of
from bokilib.errors import ForeignRecord, UnknownEvent
from bokilib.retention.checkpoint_rules import PART_BYTES, CheckpointPart, WholeCheckpoint, newest_first, split

PART_DATA_BYTES: Final = PART_BYTES - 32_768
"""Bytes of a part's data; the rest of the part is for the record's header and the streams that it joins."""
PART_TOPICS: Final = 200
"""Streams of emitted topics that one part joins."""


class _CheckpointRecord(msgspec.Struct, array_like=True, frozen=True):
    """A record of the history in a checkpoint."""

    seqnum: int
    time_ms: int
    seen: int
    own: tuple[Delivered | Effect | Note, ...]
    incoming: tuple[Incoming, ...]


class _CheckpointData(msgspec.Struct, array_like=True, frozen=True):
    """The contents of a checkpoint.

    Attributes:
        passed: the events that older programs skip: (index of the row, number of the row's other events before it, the event). Checkpoints
            that are older than this list have such events in the rows.
    """

    started: Started
    start: int
    restarted: Restarted | None
    rows: tuple[_CheckpointRecord, ...]
    passed: tuple[tuple[int, int, msgspec.Raw], ...] = ()
    restarted_at: int = 0


class _EventTag(msgspec.Struct, array_like=True):
    kind: str


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_CheckpointData)
_signals: Final = msgspec.msgpack.Decoder(tuple[tuple[str, Any], ...])
_heads: Final = msgspec.msgpack.Decoder(_EventTag)
_passed: Final[dict[str, msgspec.msgpack.Decoder[Own]]] = {
    str(kind.__struct_config__.tag): msgspec.msgpack.Decoder(kind) for kind in PASSED
}


class HistoryRecord(NamedTuple):
    """A record of a history's stream. `by` names its writer."""

    recorded: RecordedEvents
    by: str
    restarted: Restarted | None = None
    checkpoints: tuple[Checkpointed, ...] = ()
    unreceived: tuple[Unreceived, ...] = ()


class History(NamedTuple):
    """A workflow's history.

    Attributes:
        started: the start of the workflow.
        restarted: the last restart; None if there is none.
        records: the records since the start or last restart, ascending.
        covers: the place at or below which all needed records are in `records`.
        carried_ms: when the oldest needed record was written.
        restarted_at: the seqnum of the last restart; 0 if there is none, or if an older program wrote the checkpoint that has it.
        restart_from: the seqnum of the first record of the last restart; 0 if it is in a checkpoint.
    """

    started: Started
    start: int
    restarted: Restarted | None
    records: Sequence[RecordedEvents]
    covers: int
    carried_ms: int
    restarted_at: int = 0
    restart_from: int = 0

    @property
    def begins(self) -> Started:
        """The start with the arguments of the current run."""
        return self.started if self.restarted is None else self.restarted.started

    @property
    def topics(self) -> list[str]:
        """The topics under which the workflow ever emitted a value."""
        before = [] if self.restarted is None else list(self.restarted.topics)
        emitted = [event.topic for one in self.records for event in one.own if isinstance(event, Emitted)]
        return list(dict.fromkeys([*before, *emitted]))


def _encode(history: History) -> bytes:
    rows: list[_CheckpointRecord] = []
    passed: list[tuple[int, int, Own]] = []
    for at, one in enumerate(history.records):
        own: list[Own] = []
        for event in one.own:
            if isinstance(event, PASSED):
                passed.append((at, len(own), event))
            else:
                own.append(event)
        rows.append(_CheckpointRecord(one.seqnum, one.time_ms, one.seen, tuple(own), one.incoming))
    data = (history.started, history.start, history.restarted, rows)
    if history.restarted_at:
        return _encoder.encode((*data, passed, history.restarted_at))
    return _encoder.encode((*data, passed) if passed else data)


def _decode(whole: WholeCheckpoint) -> tuple[_CheckpointData, list[RecordedEvents]]:
    """Return the contents of a checkpoint and its records. Raises UnknownEvent, ForeignRecord."""
    passed: dict[int, list[tuple[int, Own]]] = {}
    try:
        data = _decoder.decode(whole.data)
        for at, before, raw in data.passed:
            kind = _heads.decode(raw).kind
            if kind in _passed:
                passed.setdefault(at, []).append((before, _passed[kind].decode(raw)))
            elif not kind.endswith("?"):
                raise _unknown(whole.seqnum, f"an event {kind!r}")
    except msgspec.ValidationError as fault:
        raise _unknown(whole.seqnum, str(fault)) from fault
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise ForeignRecord(
            f"the checkpoint of a history in record {whole.seqnum} is damaged: {fault}", seqnum=whole.seqnum
        ) from fault
    rows = []
    for at, row in enumerate(data.rows):
        own = list(row.own)
        for before, event in reversed(passed.get(at, ())):
            own.insert(before, event)
        rows.append(RecordedEvents(row.seqnum, row.time_ms, row.seen, tuple(own), row.incoming))
    return data, rows


def _unknown(seqnum: int, found: str) -> UnknownEvent:
    return UnknownEvent(
        f"the checkpoint of a history in record {seqnum} was written by a later version: found {found}; upgrade this program",
        seqnum=seqnum,
        found=found,
    )


def split_data(history: History) -> list[bytes]:
    """Return a checkpoint's data, split into parts."""
    return split(_encode(history), PART_DATA_BYTES)


def encode(history: History) -> list[bytes]:
    """Return a checkpoint's data, split into enough parts to join the streams of all topics."""
    data = _encode(history)
    parts = split(data, PART_DATA_BYTES)
    wanted = -(-len(history.topics) // PART_TOPICS)
    return parts if len(parts) >= wanted else split(data, max(1, len(data) // wanted))


def fold(stream: Sequence[HistoryRecord], gap: int) -> History | None:
    """Return the history that records of its stream, in order, have; None if it is not whole.

    Args:
        gap: the last place at which a record may be missing; 0 if none is.

    Raises:
        UnknownEvent: a later version wrote the checkpoint.
        ForeignRecord: the checkpoint is damaged.
    """
    begun = next((one for one in reversed(stream) if one.recorded.started is not None), None)
    start = 0 if begun is None else begun.recorded.seqnum
    # Older records are of a forgotten workflow that had this id.
    after = [one for one in stream if one.recorded.seqnum >= start]
    whole = next((one for one in newest_first(_parts(stream, begun)) if one.seqnum >= start), None)
    restart = next((one for one in reversed(after) if one.restarted is not None), None)
    records = [one.recorded for one in after]
    if whole is not None:
        base = _from_checkpoint(whole, records)
    elif begun is not None and begun.recorded.started is not None:
        base = History(begun.recorded.started, start, None, records, start, begun.recorded.time_ms)
    elif restart is not None and restart.restarted is not None:
        base = History(
            restart.restarted.started, restart.restarted.start, None, records, 0, restart.restarted.carried_ms
        )
    else:
        return None
    trimmed = base.covers
    if restart is not None and (whole is None or restart.recorded.seqnum > whole.covers):
        found = _with_unreceived(restart, after)
        if found is None:
            return None
        base = _since_restart(base, *found)
        trimmed = restart.recorded.seqnum  # a trim up to there spares undelivered messages (`history_checkpoint`)
    return _with_fork_time(base, begun) if gap <= trimmed else None


def _with_fork_time(base: History, begun: HistoryRecord | None) -> History:
    """Return a fork's history with the time of the record that started it, which the checkpoint in that record lacks."""
    forked_ms = 0 if begun is None or begun.recorded.started is None else begun.recorded.started.forked_ms
    if not forked_ms:
        return base
    started = msgspec.structs.replace(base.started, forked_ms=forked_ms)
    restarted = base.restarted
    if restarted is not None:
        again = msgspec.structs.replace(restarted.started, forked_ms=forked_ms)
        restarted = msgspec.structs.replace(restarted, started=again)
    return base._replace(started=started, restarted=restarted)


def _parts(stream: Sequence[HistoryRecord], begun: HistoryRecord | None) -> list[CheckpointPart]:
    """Return the parts of checkpoints, newest first. Parts before the start count only if a fork begins with them."""
    start = 0 if begun is None else begun.recorded.seqnum
    before = begun is not None and any(event.parts > 1 for event in begun.checkpoints)
    return [
        CheckpointPart(
            one.recorded.seqnum, one.recorded.time_ms, event.covers, event.part, event.parts, one.by, event.data
        )
        for one in reversed(stream)
        for event in one.checkpoints
        if before or one.recorded.seqnum >= start
    ]


def _from_checkpoint(whole: WholeCheckpoint, records: Sequence[RecordedEvents]) -> History:
    data, rows = _decode(whole)
    above = [one for one in records if one.seqnum > whole.covers]
    start = data.start or whole.seqnum  # a fork begins with a checkpoint, in the record of its start
    covers = max(whole.covers, start)
    return History(
        data.started, start, data.restarted, [*rows, *above], covers, whole.time_ms, restarted_at=data.restarted_at
    )


def restart_events(restarted: Restarted) -> tuple[list[Unreceived], Restarted, Unreceived | None]:
    """Return the events of a restart: those of the records before it, its own, and the one that is in its record too."""
    if not restarted.unreceived or size_of(restarted) <= EVENT_BYTES:
        return [], restarted, None
    data = [*split(_encoder.encode(restarted.unreceived), PART_DATA_BYTES), b""]
    *before, last = (Unreceived(restarted.id, at, len(data), part) for at, part in enumerate(data))
    return before, msgspec.structs.replace(restarted, unreceived=()), last


def _with_unreceived(restart: HistoryRecord, stream: Sequence[HistoryRecord]) -> tuple[HistoryRecord, int] | None:
    """Return a restart with all signals that it hands on, and the seqnum of its first record; None if a part is missing.

    Its parts are the last ones before it: a worker appends one record of a workflow at a time, under its claim.
    """
    place = restart.recorded.seqnum
    if not restart.unreceived or restart.restarted is None:
        return restart, place
    parts = [(one.recorded.seqnum, event) for one in stream if one.recorded.seqnum <= place for event in one.unreceived]
    *before, (_, last) = parts
    several = before[1 - last.parts :]
    if [event.part for _, event in several] != list(range(last.parts - 1)):
        return None
    try:
        unreceived = _signals.decode(b"".join(event.data for _, event in several))
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise ForeignRecord(f"signals of the restart in record {place} are damaged: {fault}", seqnum=place) from fault
    whole = msgspec.structs.replace(restart.restarted, unreceived=unreceived)
    return restart._replace(restarted=whole), several[0][0]


def _since_restart(base: History, restart: HistoryRecord, restart_from: int) -> History:
    """Return the history from a restart on."""
    place, seen = restart.recorded.seqnum, restart.recorded.seen
    records = []
    for one in base.records:
        own = one.own if one.seqnum > place else ()
        incoming = one.incoming if one.seqnum > seen else ()
        if own or incoming:
            records.append(one._replace(own=own, incoming=incoming, started=None))
    return base._replace(
        restarted=restart.restarted,
        records=records,
        covers=max(base.covers, seen),
        restarted_at=place,
        restart_from=restart_from,
    )


def bytes_of(history: History) -> int:
    """Return the approximate number of bytes of a history in the log."""
    events = [event for one in history.records for event in (*one.own, *one.incoming)]
    return sum(size_of(event) + AROUND_BYTES for event in (history.begins, *events))
