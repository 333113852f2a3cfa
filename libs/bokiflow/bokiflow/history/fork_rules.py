"""The point at which a fork parts from its origin. Pure.

A fork is a new workflow with its origin's call. Its history begins with the deliveries to the origin before some step; that step and all
later ones run in the fork. At that point the origin may have no running child and no lock: children report to the origin, and its locks
are not the fork's.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from boki_common.errors import InvalidArgument
from bokiflow.model.delivery_order import OrderedEvent, RecordedEvents, in_order
from bokiflow.model.flow_events import (
    EFFECTS,
    INCOMING,
    PASSED,
    Abandoned,
    Attempted,
    Cancelled,
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
    names = _names(history, sum(not isinstance(one.event, PASSED) for one in kept))
    cursors = _cursors(history, kept)
    started = msgspec.structs.replace(started, origin=history.started.id, names=names, cursors=cursors)
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
