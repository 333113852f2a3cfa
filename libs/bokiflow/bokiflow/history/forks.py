"""Forks: workflows that begin with a part of the history of an older one.

The history of a fork is a checkpoint, whose last part is in the record that starts it (`history_fold`):

- A history that does not fit one record is appended in several. Readers ignore the parts until the last one starts the fork.
- Each part expects the one before to be the newest record of the history, so a slow process conflicts with other forks and the collector.
- The parts of a fork that never started are deleted like messages to a workflow that never existed: they join the stream of messages to
  workers.

A fork has its origin's call. Its history begins with the deliveries to the origin before some step; that step and all
later ones run in the fork. At that point the origin may have no running child and no lock: children report to the origin, and its locks
are not the fork's.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

import msgspec

from boki_common.errors import Conflict, InvalidArgument
from boki_common.limits import RECORD_TAGS
from bokiflow.errors import IdReused
from bokiflow.history import history_checkpoint, inspection
from bokiflow.model import history_fold, records
from bokiflow.model.delivery_order import OrderedEvent, RecordedEvents, counts_uniques, in_order
from bokiflow.model.flow_events import (
    EFFECTS,
    INCOMING,
    PASSED,
    Abandoned,
    Attempted,
    Cancelled,
    Checkpointed,
    ChildEnded,
    Invoked,
    Locked,
    Queued,
    Sleeping,
    Started,
    Stepped,
    Transacted,
    Unlocked,
)
from bokiflow.model.history_fold import History
from bokiflow.model.record_batcher import RECORD_BYTES, size_of
from bokilib.append.log import Log
from bokilib.errors import AtomicTooLarge
from bokilib.pauses import pauses
from bokilib.records.contribution import Contribution, joined

CURSORS: Final = 4_096


def forked(history: History, started: Started, before: str | None) -> History:
    """Return the history of a fork.

    Args:
        before: the key of the first step that the fork runs itself; None for the first that failed.

    Raises:
        InvalidArgument: no delivery has that key, a child was running or a lock held, or the origin is a part of a transaction.
    """
    if history.started.within is not None:
        raise InvalidArgument(
            f"expected a workflow of its own, found {history.started.id!r}, a part of a transaction: fork {history.started.parent!r}",
            found=history.started.id,
            expected=history.started.parent,
        )
    delivered = _delivered(history)
    cut = _cut(delivered, before)
    kept = delivered[:cut]
    waiting = {event.key: event.child for event in (one.event for one in kept) if isinstance(event, Invoked)}
    for one in kept:
        if isinstance(one.event, ChildEnded):
            waiting.pop(one.event.key, None)
    for one in kept:
        if isinstance(one.event, Queued | Locked):
            waiting[one.event.key] = one.event.name
        elif isinstance(one.event, Unlocked):
            waiting.pop(one.event.key, None)
    if waiting:
        key, name = next(iter(waiting.items()))
        raise InvalidArgument(
            f"expected a place at which no child was running and no lock held, found {name!r}: fork before {key!r}, or let it end first",
            found=name,
            expected=key,
        )
    records = [_as_record(one, number, started.id) for number, one in enumerate(kept, 1)]
    own_uniques = any(counts_uniques(event) for one in history.records for event in one.own)
    names = _names(history, sum(not isinstance(one.event, PASSED) for one in kept))
    cursors = _cursors(history, kept)
    started = msgspec.structs.replace(
        started, origin=history.started.id, names=names, cursors=cursors, own_uniques=own_uniques
    )
    restarted = history.restarted
    if restarted is not None:
        begins = msgspec.structs.replace(started, args=restarted.started.args)
        restarted = msgspec.structs.replace(restarted, id=started.id, started=begins, start=0, topics=())
    return History(started, 0, restarted, records, 0, 0)


class CompletedCall(NamedTuple):
    """A step, transaction or child of an origin that succeeded. `name` is its function, or the child's id."""

    key: str
    name: str


class LeftBehind(NamedTuple):
    """Effects of an origin that its fork ignores.

    Attributes:
        ran: calls of the origin after the fork's point, which are not undone.
        first: the key of the origin's first call; a fork before it takes nothing over. "" if the fork takes nothing over already.
    """

    ran: tuple[CompletedCall, ...]
    first: str


def left_behind(history: History, before: str | None) -> LeftBehind:
    """Return what a fork (see `forked`) leaves behind. Raises InvalidArgument."""
    delivered = _delivered(history)
    cut = _cut(delivered, before)
    ran = []
    for one in delivered[cut:]:
        event = one.event
        if isinstance(event, Stepped | Transacted | ChildEnded) and event.outcome.error is None:
            ran.append(CompletedCall(event.key, event.child if isinstance(event, ChildEnded) else event.name))
    keys = [key for one in delivered[:cut] if (key := getattr(one.event, "key", ""))]
    return LeftBehind(tuple(ran), keys[0] if keys else "")


def _delivered(history: History) -> list[OrderedEvent]:
    return [one for one in in_order(history.records) if not isinstance(one.event, (Attempted, Abandoned))]


def _names(history: History, cut: int) -> tuple[tuple[str, int], ...]:
    """Return the ids whose unique numbers the code gets during its first `cut` deliveries, `PASSED` events not counted."""
    before = [(name, upto) for name, upto in history.begins.names if upto < cut]
    now = next((name for name, upto in history.begins.names if cut <= upto), history.started.id)
    return (*before, (now, cut))


def _cursors(history: History, kept: list[OrderedEvent]) -> tuple[int, ...]:
    """Return the positions as of which the origin read while the kept events were delivered: see `instance.Instance.replaying`.

    The cursors of a very long history do not fit the record: its fork reads as of its own start.
    """
    if len(kept) > CURSORS:
        return ()
    known, restarted = history.begins.cursors, history.restarted
    cursor = (restarted.cursor if restarted is not None else 0) or history.start
    found = [known[0] if known else cursor]
    for at, one in enumerate(one for one in kept if not isinstance(one.event, PASSED)):
        moves = not isinstance(one.event, (Sleeping, *EFFECTS))
        place = known[at + 1] if at + 1 < len(known) else one.seqnum
        found.append(max(found[-1], place) if moves else found[-1])
    return tuple(found)


def _cut(delivered: list[OrderedEvent], before: str | None) -> int:
    """Return the number of deliveries that the fork takes over."""
    key = before
    if key is None:
        for at, one in enumerate(delivered):
            event = one.event
            if isinstance(event, Cancelled):
                return at
            if isinstance(event, Stepped | Transacted | ChildEnded) and event.outcome.error is not None:
                key = event.key
                break
        else:
            return len(delivered)
    for at, one in enumerate(delivered):
        if getattr(one.event, "key", None) == key:
            return at
    raise InvalidArgument(f"expected the key of a delivered result, found {key!r}: `steps()` lists the keys", found=key)


def _as_record(one: OrderedEvent, number: int, id: str) -> RecordedEvents:
    """Return a delivery as a record of the fork, ordered by its number."""
    event = msgspec.structs.replace(one.event, id=id)
    if isinstance(event, Transacted):
        event = msgspec.structs.replace(event, seen=number - 1)
    if isinstance(event, INCOMING):
        return RecordedEvents(number, one.time_ms, 0, (), (event,))
    return RecordedEvents(number, one.time_ms, number - 1, (event,), ())


ATTEMPTS: Final = 8
"""Attempts to start a fork while other processes fork under the same id."""
OWN_TAGS: Final = 24
"""Streams that the record of a start joins beside those of emitted topics."""


async def begin(log: Log, history: History) -> int:
    """Start a fork with this history, or find it started already. Returns the seqnum of its start.

    Raises:
        IdReused: another workflow has the id.
        AtomicTooLarge: the history emits under too many topics.
        AppendUnknown: an append has an unknown outcome.
        Conflict: other processes fork under this id all the time.
    """
    streams = records.InstanceStreams(history.started.id, history.started.group)
    pause = pauses()
    for left in reversed(range(ATTEMPTS)):
        covers = await log.book.now()
        *before, last = _parts(history, covers)
        expect: dict[str, int | None] = {}
        try:
            for event in before:
                part = Contribution((streams.history, streams.to_workers), expect, (event,))
                expect = {streams.history: await log.append(part, seen=covers)}
            begins = Contribution((streams.history, *_outputs(history)), expect, (last,))
            return await log.append(joined([records.start(history.started, 0), begins]), seen=covers)
        except Conflict as conflict:
            if streams.fence in log.moved({streams.fence: None}, conflict):
                return await _begun(log, history.started, conflict)
            if not left:
                raise
        await asyncio.sleep(pause.next())
    raise AssertionError("expected at least one attempt")


async def _begun(log: Log, started: Started, conflict: Conflict) -> int:
    """Return the seqnum at which the same fork began. Raises IdReused."""
    began = await inspection.first(log, started.id)
    if began is None or (began[1].origin, began[1].digest) != (started.origin, started.digest):
        raise IdReused(
            f"expected a new id, found {started.id!r}, which another workflow has or had: choose a different id",
            id=started.id,
        ) from conflict
    return began[0]


def _parts(history: History, covers: int) -> list[Checkpointed]:
    data = history_fold.split_data(history)
    if len(data) > 1 or len(data[0]) + size_of(history.started) > RECORD_BYTES:
        data.append(b"")  # the arguments fill the record of the start
    return [Checkpointed(history.started.id, covers, at, len(data), part) for at, part in enumerate(data)]


def _outputs(history: History) -> list[str]:
    """Return the streams of the topics of the origin, whose emitted values count as the fork's too. Raises AtomicTooLarge."""
    limit = RECORD_TAGS - OWN_TAGS
    if len(history.topics) > limit:
        raise AtomicTooLarge(
            f"expected a fork's history with up to {limit} topics, found {len(history.topics)}: fork before an earlier step",
            expected=limit,
            found=len(history.topics),
        )
    return history_checkpoint.output_tags(history.started.id, history.topics)


def without_family(started: Started, id: str) -> Started:
    """Return the start of a fork: no child, under its own id, at the time of its record (`delivery_order.begun`)."""
    return msgspec.structs.replace(
        started, id=id, owner="", parent="", parent_key="", traceparent="", age=0, within=None, forked_ms=0
    )
