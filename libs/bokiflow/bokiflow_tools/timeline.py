"""The life of a workflow (start, workers, history, end), and its timeline: what it did or awaited, and when. Pure; `reading` reads the log.

A timeline follows from the history alone:

- The record of a step says how long its body took. Commands of the code (timers, children, signals to others) have the time of the
  delivery before them, since the code of a workflow runs at no other time.
- The time of a delivery is when the code received it, and never falls; an incoming event has the time of its record.
- A `recv` has no record until its signal comes. A step has none until it ends, unless it runs at most once.
- That the code cancelled a timer is not recorded: a timer that has not fired may be over. It is left out if the workflow has ended,
  since nothing waited for it. A schedule waits for one thing at a time: setting a timer, or a command that comes, ends the one before.
- A launched workflow (a firing of a schedule) is no child, and the history does not say how it ends. The span's `value` is its status, if
  that is known.

"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

from bokiflow.history.instance_state import InstanceState, LockWait, Status, status_of
from bokiflow.model import flow_events as events
from bokiflow.model import schedule_rules
from bokiflow.model.delivery_order import Own, RecordedEvents, counts_uniques, in_order, start_ms
from bokiflow.model.flow_events import Cancelled, Claimed, Ended, Started
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
"""Kinds of spans that have no duration."""


OPEN: Final = frozenset({"step", "timer", "child"})
"""Kinds of spans that `Life.open` has."""


class Span(NamedTuple):
    """An entry of a timeline: a step, a timer, a child, a signal and the like.

    Attributes:
        kind: the kind of entry.
        name: the name of the step, the child's function, the lock or topic, or the worker that took over.
        key: the key of the call in the workflow's code.
        begin_ms: milliseconds since 1970 UTC.
        end_ms: milliseconds since 1970 UTC; None if it has not ended, or the workflow no longer waits for it.
        outcome: the outcome of a step, transaction, child or workflow.
        child: the id of another workflow that the entry is about.
        due_ms: when a timer fires.
        value: the value of a signal or an emitted event, the status of a launched workflow, the LockWait of an awaited lock.
        attempts: the attempts of a step.
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
    """The spans of a workflow, and when it began and ended; `end_ms` is None while it runs."""

    spans: list[Span]
    begin_ms: int
    end_ms: int | None

    def last_ms(self, now_ms: int) -> int:
        """Return the end of the picture: the end of the workflow or, while it runs, now or the latest time of a span."""
        if self.end_ms is not None:
            return self.end_ms
        times = [span.begin_ms if span.end_ms is None else span.end_ms for span in self.spans]
        return max([self.begin_ms, now_ms, *times])


def timeline(
    started: Started, records: Iterable[RecordedEvents], claims: Iterable[tuple[int, Claimed]], ended: Ended | None
) -> Timeline:
    """Build the timeline of a workflow, its spans in the order in which they began.

    Args:
        started: its start.
        records: the history of its newest run.
        claims: its claims in order, each with its time.
        ended: its end; None while it runs.
    """
    reader = _Reader(started.at_ms, waits_once=started.name == schedule_rules.NAME)
    for one in in_order(records):
        reader.read(one.event, one.time_ms)
    if ended is not None:
        reader.end(ended.at_ms)
    spans = [*reader.spans, *reader.open.values(), *_takeovers(started.owner, claims)]
    if started.origin:
        spans.append(Span("fork", started.origin, "", start_ms(started), start_ms(started)))
    spans.sort(key=lambda span: span.begin_ms)
    if ended is None:
        return Timeline(spans, started.at_ms, None)
    # Older programs recorded the time of the last delivery, which may be before a takeover.
    end_ms = max([ended.at_ms, reader.now_ms, *(span.begin_ms for span in spans)])
    spans.append(Span("end", ended.name, "", end_ms, end_ms, ended.outcome))
    return Timeline(spans, started.at_ms, end_ms)


def is_launch(event: events.Invoked) -> bool:
    """Return whether an invoked workflow was launched and is no child: the id of a child ends with the key of its call."""
    return not event.child.endswith(f"/{event.key}")


def _takeovers(owner: str, claims: Iterable[tuple[int, Claimed]]) -> list[Span]:
    found: list[Span] = []
    for time_ms, claim in claims:
        if claim.blocked:
            found.append(Span("blocked", claim.blocked, "", time_ms, time_ms))
        elif owner or found:  # the first claim of a workflow without a worker is no takeover
            found.append(Span("takeover", claim.owner, "", time_ms, time_ms, value=owner))
        owner = claim.owner
    return found


class _Reader:
    """The reader of a history: it keeps open spans by key, and moves them to `spans` when they end."""

    def __init__(self, begin_ms: int, *, waits_once: bool = False) -> None:
        """Begin at a time. `waits_once`: the code waits for one thing at a time, so a later timer or a signal cancels a timer."""
        self._waits_once = waits_once
        self.spans: list[Span] = []
        self.open: dict[str, Span] = {}
        self.now_ms = begin_ms

    def read(self, event: Own | events.Incoming, time_ms: int) -> None:
        """Apply one event; `time_ms` is the time of its record."""
        if isinstance(event, (*events.DELIVERED,)):
            self.now_ms = max(self.now_ms, event.at_ms)
            self._delivered(event)
        elif isinstance(event, (*events.INCOMING,)):
            self.now_ms = max(self.now_ms, time_ms)
            self._came(event)
        else:
            self._did(event)

    def end(self, ended_ms: int) -> None:
        """End the spans of locks and of lock queue entries when the workflow ends, and drop its timers."""
        self._drop_timers()
        for key, span in list(self.open.items()):
            if span.kind in ("lock", "queued"):
                self.spans.append(self.open.pop(key)._replace(end_ms=max(self.now_ms, ended_ms)))

    def _drop_timers(self) -> None:
        """Drop open timers, of which it is not recorded that they were cancelled."""
        self.open = {key: span for key, span in self.open.items() if span.kind != "timer"}

    def _delivered(self, event: events.Delivered) -> None:
        begun = self.open.pop(event.key, None)
        now_ms = self.now_ms
        for key in [key for key, span in self.open.items() if span.kind == "child" and key.startswith(f"{event.key} ")]:
            self.spans.append(self.open.pop(key)._replace(end_ms=now_ms))  # children of the transaction that ended
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
            if self._waits_once:
                self._drop_timers()
            self.spans.append(Span("signal", event.topic, "", now_ms, now_ms, value=event.value))
        else:
            self.spans.append(Span("cancel", event.reason, "", now_ms, now_ms))

    def _did(self, event: events.Effect | events.Note) -> None:
        now_ms = self.now_ms
        if isinstance(event, events.Sleeping):
            if self._waits_once:
                self._drop_timers()
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
        elif isinstance(event, events.Abandoned):
            part = self.open.pop(f"{event.key} {event.child}", None)
            if part is not None:
                self.spans.append(part._replace(end_ms=now_ms))
        elif isinstance(event, events.Sent):
            kind: Kind = "send" if event.topic else "cancel"
            self.spans.append(Span(kind, event.topic, event.key, now_ms, now_ms, child=event.to))
        elif isinstance(event, events.Emitted):
            self.spans.append(Span("emit", event.topic, event.key, now_ms, now_ms, value=event.value))
        elif not counts_uniques(event):
            self.spans.append(Span("patch", event.name, event.key, now_ms, now_ms))


class Axis(NamedTuple):
    """A mapping between moments of a timeline and places from 0 to `WIDTH` in a picture, linear between known pairs.

    Attributes:
        moments: known moments, ascending.
        places: the place of each known moment, ascending.
        bent: long stretches are drawn shorter than they are.
    """

    moments: Sequence[int]
    places: Sequence[float]
    bent: bool

    def place(self, ms: int) -> float:
        """Return the place of a moment."""
        return _between(ms, self.moments, self.places)

    def moment(self, place: float) -> float:
        """Return the moment of a place."""
        return _between(place, self.places, self.moments)


WIDTH: Final = 1000.0
FAR: Final = 60
"""The axis is bent if its longest stretch is more than this many times the median: the others would be invisible."""
BENT: Final = 0.3
"""On a bent axis the drawn length of a stretch is its duration to this power."""


def axis(line: Timeline, last_ms: int) -> Axis:
    """Return the axis of a timeline: linear, unless some stretches are so long that the others would be invisible."""
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
    """Interpolate linearly between known pairs; a value outside of them maps to the nearer end."""
    number = bisect_left(xs, at)
    if number == 0:
        return ys[0]
    if number == len(xs):
        return ys[-1]
    left, right = xs[number - 1], xs[number]
    return ys[number - 1] + (at - left) / (right - left) * (ys[number] - ys[number - 1])


Use: TypeAlias = Literal["step", "transaction", "child", "timer", "nothing"]
USES: Final[tuple[Use, ...]] = ("step", "transaction", "child", "timer", "nothing")
"""Uses of a workflow's time by precedence: if a step and a timer run side by side, the time counts for the step."""


class Stretch(NamedTuple):
    """A stretch of time with one use; "nothing" is time in which the workflow waited for others."""

    use: Use
    begin_ms: int
    end_ms: int


def stretches(line: Timeline, last_ms: int) -> list[Stretch]:
    """Divide the time of a workflow, from its beginning to its end, into stretches by their use.

    A span without an end lasts until now if the workflow still runs, and a timer until it is due. If the workflow has ended, the duration
    is unknown and the span does not count.
    """
    changes: list[tuple[int, int, int]] = []
    for span in line.spans:
        if span.kind not in USES or (span.end_ms is None and line.end_ms is not None):
            continue
        rank = USES.index(span.kind)
        end_ms = span.end_ms
        if end_ms is None:
            end_ms = max(span.begin_ms, span.due_ms) if span.due_ms else last_ms
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


class Life(NamedTuple):
    """The life of a workflow as of a position of the log.

    Attributes:
        id: the workflow.
        started: the start of its newest run. Without a history, the start as its end records it; None if no record has it.
        claims: the claims of the workflow, each with its time in the log.
        ended: its end; None while it runs.
        records: the history of its newest run; None if the history is not kept any more.
        position: the position of the log.
        blocked: the error that blocks it, with its stack; "" if it is not blocked.
        held: the newest state of its stream.
        origin: the workflow that it is a fork of; "" if it is no fork, or its history is not kept any more.
        result_kept: False if it ended and its outcome is not kept any more.
        idle_claims: takeovers since it last recorded anything.
        waits_for: the locks that it waits for.
        holds: the names of the locks that it holds.
        launched: the status of each workflow that it launched, by id, as far as the log keeps it.
    """

    id: str
    started: Started | None
    claims: list[tuple[int, Claimed]]
    ended: Ended | None
    records: list[RecordedEvents] | None
    position: int
    blocked: str = ""
    held: InstanceState = InstanceState(0)
    origin: str = ""
    result_kept: bool = True
    idle_claims: int = 0
    waits_for: tuple[LockWait, ...] = ()
    holds: tuple[str, ...] = ()
    launched: Mapping[str, Status] = MappingProxyType({})

    @property
    def group(self) -> str:
        """The name of its app; "" if no record has it."""
        return self.started.group if self.started is not None else self.ended.group if self.ended is not None else ""

    @property
    def status(self) -> Status:
        return status_of(self.ended, self.blocked)

    @property
    def name(self) -> str:
        """The name of its function; "" if no record has it."""
        return self.started.name if self.started is not None else self.ended.name if self.ended is not None else ""

    @property
    def owner(self) -> str:
        """The worker that runs it; "" if none does."""
        if self.ended is not None:
            return ""
        if self.claims:
            return self.claims[-1][1].owner
        return self.started.owner if self.started is not None else ""

    @property
    def outcome(self) -> Outcome | None:
        """The result or error that it ended with; None while it runs, or if that is not kept any more."""
        return self.ended.outcome if self.ended is not None and self.result_kept else None

    @property
    def history_kept(self) -> bool:
        return self.records is not None

    @property
    def not_kept(self) -> str:
        """The clause that its history is not kept, with the setting of workers that says for how long it is."""
        setting = "failed_history_s" if self.status == "failed" else "history_s"
        return f"its history is not kept any more ({setting})"

    @property
    def cancels(self) -> list[str]:
        """The reasons of requests to cancel it, in the order of the log."""
        return [event.reason for one in self.records or () for event in one.incoming if isinstance(event, Cancelled)]

    @property
    def timeline(self) -> Timeline | None:
        """The timeline of its newest run; None if its history is not kept any more."""
        if self.started is None or self.records is None:
            return None
        made = timeline(self.started, self.records, self.claims, self.ended)
        return made._replace(spans=[self._now(span) for span in made.spans])

    @property
    def open(self) -> list[Span]:
        """The timers, children and begun steps without an end, while it has not ended; other steps are recorded when they end."""
        line = self.timeline if self.ended is None else None
        return [] if line is None else [span for span in line.spans if span.kind in OPEN and span.end_ms is None]

    def _now(self, span: Span) -> Span:
        """Return a span with the state of its lock or launched workflow, which other streams of the log have."""
        if span.kind == "queued" and span.end_ms is None:
            return span._replace(value=next((one for one in self.waits_for if one.name == span.name), None))
        return span._replace(value=self.launched.get(span.child)) if span.kind == "launch" else span
