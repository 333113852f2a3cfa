"""What a workflow did and waited for, on an axis of time, from its history alone. Pure.

- A step's record has how long its body took; what the code did (timers, children, signals to others) it did at the
  delivery before, since code of a workflow runs at no other time.
- Times are those of deliveries to the workflow's code, so they never fall; of what came from others, that of its record.
- What is only awaited (`recv`) has no record until it comes; a step has none until it ends, unless it runs at most once.
- A timer that had not fired when the workflow ended is left out: nothing waits for it.
- A workflow that it launched (a schedule's firing) is no child: nothing tells it how that ends. `value` is its status, if that is known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple, TypeAlias

from bokiflow.model import flow_events as events
from bokiflow.model.flow_events import Claimed, Ended, Started
from bokiflow.model.history import Own, Recorded, in_order, start_ms
from bokiflow.model.outcomes import Outcome

Kind: TypeAlias = Literal[
    "step",
    "transaction",
    "timer",
    "child",
    "launch",
    "queued",
    "lock",
    "signal",
    "cancel",
    "send",
    "emit",
    "patch",
    "fork",
    "takeover",
    "blocked",
    "end",
]
MARKS: Final = frozenset({"launch", "signal", "cancel", "send", "emit", "patch", "fork", "takeover", "blocked", "end"})
"""Kinds of what takes no time."""


class Span(NamedTuple):
    """One thing, from when to when.

    Attributes:
        name: of a step, a child's function, a lock, a topic, who took over. key: of the call. child: id of a workflow that it is about.
        begin_ms, end_ms: milliseconds since 1970 UTC; without an end it is under way, or nobody waits for it any more.
        due_ms: of a timer. value: of a signal, or of what was emitted; the LockWait of a lock that it waits for. attempts: of a step.
    """

    kind: Kind
    name: str
    key: str
    begin_ms: int
    end_ms: int | None
    outcome: Outcome | None = None
    child: str = ""
    due_ms: int = 0
    value: object = None
    attempts: int = 1


class Timeline(NamedTuple):
    """A workflow's life. `end_ms`: None while it runs."""

    spans: list[Span]
    begin_ms: int
    end_ms: int | None

    def last_ms(self, now_ms: int) -> int:
        """Where the picture ends: for what runs, now."""
        if self.end_ms is not None:
            return self.end_ms
        times = [span.begin_ms if span.end_ms is None else span.end_ms for span in self.spans]
        return max([self.begin_ms, now_ms, *times])


def timeline(
    started: Started, records: Iterable[Recorded], claims: Iterable[tuple[int, Claimed]], ended: Ended | None
) -> Timeline:
    """All of it, in the order in which things began.

    Args:
        claims: who took it over, and when, in order.
    """
    reader = _Reader(started.at_ms)
    for one in in_order(records):
        reader.read(one.event, one.time_ms)
    if ended is not None:
        reader.give_back(ended.at_ms)
    spans = [*reader.spans, *reader.open.values(), *_takeovers(started.owner, claims)]
    if started.origin:
        spans.append(Span("fork", started.origin, "", start_ms(started), start_ms(started)))
    spans.sort(key=lambda span: span.begin_ms)
    if ended is None:
        return Timeline(spans, started.at_ms, None)
    # older programs recorded the time of the last delivery, which may be before it was taken over
    end_ms = max([ended.at_ms, reader.now_ms, *(span.begin_ms for span in spans)])
    spans.append(Span("end", ended.name, "", end_ms, end_ms, ended.outcome))
    return Timeline(spans, started.at_ms, end_ms)


def is_launch(event: events.Invoked) -> bool:
    """Return whether a workflow was launched by another one, and is nobody's child: the id of a child ends with the key of its call."""
    return not event.child.endswith(f"/{event.key}")


def _takeovers(owner: str, claims: Iterable[tuple[int, Claimed]]) -> list[Span]:
    found: list[Span] = []
    for time_ms, claim in claims:
        if claim.blocked:
            found.append(Span("blocked", claim.blocked, "", time_ms, time_ms))
        elif owner or found:  # the first claim of what nobody had is no change of hands
            found.append(Span("takeover", claim.owner, "", time_ms, time_ms, value=owner))
        owner = claim.owner
    return found


class _Reader:
    """Goes through deliveries, in order."""

    def __init__(self, begin_ms: int) -> None:
        self.spans: list[Span] = []
        self.open: dict[str, Span] = {}
        self.now_ms = begin_ms

    def read(self, event: Own | events.Incoming, time_ms: int) -> None:
        """One event."""
        if isinstance(event, (*events.DELIVERED,)):
            self.now_ms = max(self.now_ms, event.at_ms)
            self._delivered(event)
        elif isinstance(event, (*events.INCOMING,)):
            self.now_ms = max(self.now_ms, time_ms)
            self._came(event)
        else:
            self._did(event)

    def give_back(self, ended_ms: int) -> None:
        """Release its locks and its places in their queues, since it ended; drop its timers."""
        for key, span in list(self.open.items()):
            if span.kind == "timer":
                del self.open[key]
            elif span.kind in ("lock", "queued"):
                self.spans.append(self.open.pop(key)._replace(end_ms=max(self.now_ms, ended_ms)))

    def _delivered(self, event: events.Delivered) -> None:
        begun = self.open.pop(event.key, None)
        now_ms = self.now_ms
        for key in [key for key, span in self.open.items() if span.kind == "child" and key.startswith(f"{event.key} ")]:
            self.spans.append(self.open.pop(key)._replace(end_ms=now_ms))  # parts of a transaction that is over
        if isinstance(event, events.Queued):
            self.open[event.key] = Span("queued", event.name, event.key, now_ms, None)
        elif isinstance(event, events.Locked):
            if begun is not None:
                self.spans.append(begun._replace(end_ms=now_ms))
            self.open[event.key] = Span("lock", event.name, event.key, now_ms, None)
        elif isinstance(event, events.Fired):
            timer = begun or Span("timer", "", event.key, now_ms, None)
            self.spans.append(timer._replace(end_ms=now_ms))
        elif isinstance(event, events.Stepped):
            begin_ms = min(event.at_ms, now_ms) - event.took_ms
            self.spans.append(
                Span("step", event.name, event.key, begin_ms, now_ms, event.outcome, attempts=event.attempts)
            )
        else:
            self.spans.append(Span("transaction", event.name, event.key, now_ms, now_ms, event.outcome))

    def _came(self, event: events.Incoming) -> None:
        now_ms = self.now_ms
        if isinstance(event, events.ChildEnded):
            child = self.open.pop(event.key, None) or Span("child", "", event.key, now_ms, None, child=event.child)
            self.spans.append(child._replace(end_ms=now_ms, outcome=event.outcome))
        elif isinstance(event, events.Signalled):
            self.spans.append(Span("signal", event.topic, "", now_ms, now_ms, value=event.value))
        else:
            self.spans.append(Span("cancel", event.reason, "", now_ms, now_ms))

    def _did(self, event: events.Effect | events.Note) -> None:
        now_ms = self.now_ms
        if isinstance(event, events.Sleeping):
            self.open[event.key] = Span("timer", "", event.key, now_ms, None, due_ms=event.due_ms)
        elif isinstance(event, events.Withdrawn) and not event.again:
            self.open.pop(event.key, None)
        elif isinstance(event, events.Begun | events.Withdrawn):
            self.open[event.key] = Span("step", event.name, event.key, now_ms, None)
        elif isinstance(event, events.Unlocked):
            held = self.open.pop(event.key, None)
            if held is not None:
                self.spans.append(held._replace(end_ms=now_ms))
        elif isinstance(event, events.Invoked) and is_launch(event):
            self.spans.append(Span("launch", event.name, event.key, now_ms, now_ms, child=event.child))
        elif isinstance(event, events.Invoked):
            self.open[event.key] = Span("child", event.name, event.key, now_ms, None, child=event.child)
        elif isinstance(event, events.Attempted):
            key = f"{event.key} {event.child}"
            self.open[key] = Span("child", event.name, event.key, max(event.at_ms, now_ms), None, child=event.child)
        elif isinstance(event, events.Sent):
            kind: Kind = "send" if event.topic else "cancel"
            self.spans.append(Span(kind, event.topic, event.key, now_ms, now_ms, child=event.to))
        elif isinstance(event, events.Emitted):
            self.spans.append(Span("emit", event.topic, event.key, now_ms, now_ms, value=event.value))
        else:
            self.spans.append(Span("patch", event.name, event.key, now_ms, now_ms))


class Axis(NamedTuple):
    """Moments of a timeline → places from 0 to 1000 in a picture.

    Attributes:
        moments, places: where they stand, both ascending; between two of them it is proportional.
        bent: longer stretches are drawn shorter than they are.
    """

    moments: Sequence[int]
    places: Sequence[float]
    bent: bool

    def place(self, ms: int) -> float:
        """Where a moment is."""
        return _between(ms, self.moments, self.places)

    def moment(self, place: float) -> float:
        """What moment a place is."""
        return _between(place, self.places, self.moments)


WIDTH: Final = 1000.0
FAR: Final = 60
"""A stretch so many times as long as the usual one makes others invisible: then the axis is bent."""
BENT: Final = 0.3
"""A stretch of n times the length is drawn n to this power as long."""


def axis(line: Timeline, last_ms: int) -> Axis:
    """The axis of a timeline: in proportion, unless some stretches are so long that the others would not be seen."""
    times = {line.begin_ms, last_ms}
    for span in line.spans:
        times.update(at for at in (span.begin_ms, span.end_ms) if at is not None)
    moments = sorted(at for at in times if line.begin_ms <= at <= last_ms)
    steps = [b - a for a, b in pairwise(moments)]
    if not steps:
        return Axis((line.begin_ms, line.begin_ms + 1), (0.0, WIDTH), bent=False)
    bent = max(steps) > FAR * sorted(steps)[len(steps) // 2]
    lengths = [step**BENT for step in steps] if bent else [float(step) for step in steps]
    scale, places = WIDTH / sum(lengths), [0.0]
    for length in lengths:
        places.append(min(WIDTH, places[-1] + length * scale))
    return Axis(moments, places, bent)


def _between(at: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """Piecewise proportional; what is outside is at the ends."""
    number = bisect_left(xs, at)
    if number == 0:
        return ys[0]
    if number == len(xs):
        return ys[-1]
    left, right = xs[number - 1], xs[number]
    return ys[number - 1] + (at - left) / (right - left) * (ys[number] - ys[number - 1])


Use: TypeAlias = Literal["step", "transaction", "child", "timer", "nothing"]
USES: Final[tuple[Use, ...]] = ("step", "transaction", "child", "timer", "nothing")
"""What a workflow is busy with, the first that it is: with a step rather than with a timer beside it."""


class Stretch(NamedTuple):
    """From when to when it was busy with what; "nothing": it waited for others."""

    use: Use
    begin_ms: int
    end_ms: int


def stretches(line: Timeline, last_ms: int) -> list[Stretch]:
    """What a workflow was busy with, from its beginning to its end, without holes.

    What has no end was under way until the end only if the workflow runs still; else nobody knows for how long.
    """
    changes: list[tuple[int, int, int]] = []
    for span in line.spans:
        if span.kind not in USES or (span.end_ms is None and line.end_ms is not None):
            continue
        rank = USES.index(span.kind)
        end_ms = last_ms if span.end_ms is None else span.end_ms
        changes += [(max(line.begin_ms, span.begin_ms), rank, 1), (min(last_ms, end_ms), rank, -1)]
    found: list[Stretch] = []
    under_way = [0] * len(USES)
    at_ms = line.begin_ms
    for ms, rank, change in [*sorted(changes), (last_ms, len(USES) - 1, 0)]:
        if ms > at_ms:
            use = _first(under_way)
            if found and found[-1].use == use:
                found[-1] = found[-1]._replace(end_ms=ms)
            else:
                found.append(Stretch(use, at_ms, ms))
            at_ms = ms
        under_way[rank] += change
    return found


def _first(under_way: Sequence[int]) -> Use:
    for use, count in zip(USES, under_way, strict=True):
        if count:
            return use
    return "nothing"
