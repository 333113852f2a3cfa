"""What has to be true when a chaos run is over, from three sources: what callers wrote down, what a witness read of the log as it grew, and
what a program that begins now reads. Pure.

The log is the judge: callers must have been told nothing that it does not have, and it must have nothing twice. Effects are counted by
the records that made them, not by objects: a counter that is right by luck is not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple

from bokiflow.model import flow_events as flow
from bokilib.records.events import Envelope
from bokiqueue.model import events as queue
from bokiqueue.model.items import body_of
from bokistore.model import events as store
from bokistore.model.fold import View, after_event
from itests.chaos.app import ACCOUNTS, OPENING, SCHEDULE_S

SHOWN: Final = 200
"""Characters of an error that is shown."""
OWN: Final = "boki."
"""Names of workflows of the library's own begin with it."""
FIRING: Final = "schedule/tick/"
"""Ids of what the schedule starts: behind it is when it was due."""


@dataclass
class Told:
    """What callers were told, and what they were about to do. Each id is in `asked` before anything else happens."""

    asked: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """`push`, `start`, `signal`, `move`, `web`, `pay` → ids, in order."""
    acknowledged: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    keys: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    """Of appends through the gateway."""
    outcomes: dict[str, str] = field(default_factory=dict)
    """Of transfers of the bank."""

    def take(self, line: str) -> None:
        """One line of a process's notes; a line that was cut short is passed over."""
        word, *rest = line.split(" ")
        if word.endswith("?"):
            self.asked[word[:-1]].append(rest[0])
            if word == "push?" and rest[1] != "-":
                self.keys[rest[0]] = rest[1]
        elif word == "result!":
            self.results[rest[0]] = rest[1]
        elif word == "move-refused":
            self.refused.append(rest[0])
        elif word.endswith("!"):
            self.acknowledged[word[:-1]].append(rest[0])
            if word == "web!":
                self.places[rest[0]] = int(rest[1])
            elif word == "pay!":
                self.outcomes[rest[0]] = rest[1]


class Logged:
    """What the log has: folded record by record, in order."""

    def __init__(self) -> None:
        self.orders: Final[list[str]] = []
        """Handled orders, in order: one for each record that made the effect."""
        self.receipts: Final[list[str]] = []
        self.sales: Final[list[str]] = []
        self.moves: Final[Counter[str]] = Counter()
        self.started: Final[dict[str, str]] = {}
        self.ends: Final[dict[str, list[Any]]] = defaultdict(list)
        self.steps: Final[Counter[tuple[str, str]]] = Counter()
        self.views: Final[dict[str, View]] = {}
        self.records = 0

    def take(self, seqnum: int, envelope: Envelope) -> None:
        """The next record."""
        self.records += 1
        for event in store.PICKER.of(seqnum, envelope):
            if isinstance(event, (store.Ops, store.Commit, store.Deleted, store.Expires)):
                self.views[event.name] = after_event(self.views.get(event.name, View(event.name)), event)
                self._effect(event.name)
        for pushed in queue.PICKER.of(seqnum, envelope):
            if isinstance(pushed, queue.Pushed) and pushed.id.startswith("receipts/"):
                self.receipts.extend(str(body_of(object, item)) for item in pushed.items)
        for done in flow.PICKER.of(seqnum, envelope):
            if isinstance(done, flow.Started):
                self.started[done.id] = done.name
            elif isinstance(done, flow.Ended):
                self.ends[done.id].append(done.outcome)
            elif isinstance(done, (flow.Stepped, flow.Transacted)):
                self.steps[done.id, done.key] += 1

    def running(self) -> list[str]:
        """Workflows that did not end, but for the schedule, which never does, and what it started last."""
        return sorted(
            id
            for id, name in self.started.items()
            if id not in self.ends and not name.startswith(OWN) and not id.startswith(FIRING)
        )

    def _effect(self, name: str) -> None:
        kind, _, id = name.partition("/")
        if kind == "order":
            self.orders.append(id)
        elif kind == "sale":
            self.sales.append(id)
        elif kind == "move":
            self.moves[id] += 1


class Last(NamedTuple):
    """What a program that begins now reads.

    Attributes:
        objects: by name. waiting: messages that are not done. running: workflows that did not end.
    """

    objects: Mapping[str, Any]
    waiting: int
    running: Sequence[str]


def result_of(id: str) -> str:
    """What the workflow of an order returns."""
    order = id.removeprefix("deliver/")
    return f"box of {order} to address of {order}"


def check(told: Told, logged: Logged, web: Sequence[tuple[int, str]], last: Last) -> list[str]:
    """Sentences about what is wrong; none."""
    return [
        *_orders(told, logged),
        *_moves(told, logged),
        *_workflows(told, logged),
        *_web(told, web),
        *_last(logged, last),
    ]


def _once(what: str, counts: Mapping[str, int], asked: Iterable[str], acknowledged: Iterable[str]) -> list[str]:
    asked = set(asked)
    found = [f"{what} {id} happened {count} times" for id, count in counts.items() if count > 1]
    found += [f"{what} {id} was acknowledged, and did not happen" for id in acknowledged if not counts.get(id)]
    return found + [f"{what} {id} happened, and no caller asked for it" for id in counts if id not in asked]


def _orders(told: Told, logged: Logged) -> list[str]:
    found = _once("order", Counter(logged.orders), told.asked["push"], told.acknowledged["push"])
    if Counter(logged.receipts) != Counter(logged.orders):
        differ = Counter(logged.receipts) - Counter(logged.orders) | Counter(logged.orders) - Counter(logged.receipts)
        found.append(f"orders and receipts of one record differ: {sorted(differ)[:5]}")
    order = {id: number for number, id in enumerate(logged.orders)}
    newest: dict[str, str] = {}
    for id in told.asked["push"]:
        key = told.keys.get(id)
        if key is None or id not in order:
            continue
        before = newest.get(key)
        if before is not None and order[id] < order[before]:
            found.append(f"order {id} was handled before {before}, which was pushed before it under key {key}")
        newest[key] = id
    return found


def _moves(told: Told, logged: Logged) -> list[str]:
    found = _once("move", logged.moves, told.asked["move"], told.acknowledged["move"])
    found += [f"move {id} was refused, and happened" for id in told.refused if logged.moves[id]]
    cents = {name: logged.views[name].value.get("cents", 0) for name in ACCOUNTS if name in logged.views}
    total = sum(amount for amount in cents.values() if isinstance(amount, int))
    if cents and total != OPENING * len(ACCOUNTS):
        found.append(f"accounts have {total} together, expected {OPENING * len(ACCOUNTS)}: {cents}")
    return found


def _workflows(told: Told, logged: Logged) -> list[str]:
    found = [f"workflow {id} ended {len(ends)} times" for id, ends in logged.ends.items() if len(ends) > 1]
    found += [
        f"step {key} of workflow {id} has {count} outcomes" for (id, key), count in logged.steps.items() if count > 1
    ]
    for id in told.acknowledged["start"]:
        if id not in logged.started:
            found.append(f"workflow {id} was started, and is not in the log")
    found += [f"workflow {id} ({logged.started[id]}) did not end" for id in logged.running()]
    for id, ends in logged.ends.items():
        if logged.started.get(id) == "deliver" and (ends[0].error is not None or ends[0].value != result_of(id)):
            found.append(f"workflow {id} ended with {ends[0]}, expected {result_of(id)!r}"[:SHOWN])
    for id, result in told.results.items():
        if result != result_of(id).replace(" ", "_"):
            found.append(f"a caller was told that workflow {id} returned {result!r}")
    due = sorted(datetime.fromisoformat(id.removeprefix(FIRING)) for id in logged.started if id.startswith(FIRING))
    for one, following in pairwise(due):
        if (following - one).total_seconds() != SCHEDULE_S:
            found.append(
                f"the schedule started nothing between {one} and {following}, which it is due every {SCHEDULE_S} s"
            )
    delivered = [id.removeprefix("deliver/") for id in logged.ends if logged.started.get(id) == "deliver"]
    sales = Counter(logged.sales)
    found += [f"the sale of {order} happened {sales[order]} times" for order in delivered if sales[order] != 1]
    return found


def _web(told: Told, web: Sequence[tuple[int, str]]) -> list[str]:
    counts = Counter(text for _, text in web)
    found = _once("append", counts, told.asked["web"], told.acknowledged["web"])
    places = {text: seqnum for seqnum, text in web}
    for text, place in told.places.items():
        if text in places and places[text] != place:
            found.append(f"append {text} is at {places[text]}, its caller was told {place}")
    last: dict[str, int] = {}
    for _, text in web:
        name, _, number = text.rpartition("/")
        if int(number) != last.get(name, 0) + 1:
            found.append(f"append {text} comes after number {last.get(name, 0)} of its writer")
        last[name] = int(number)
    return found


def _last(logged: Logged, last: Last) -> list[str]:
    found = [f"{last.waiting} orders wait still"] if last.waiting else []
    found += [f"workflow {id} is still running" for id in last.running]
    for name, value in last.objects.items():
        view = logged.views.get(name)
        wanted = view.value if view is not None and view.exists else None
        if value != wanted:
            found.append(f"object {name} reads {value}, the log has {wanted}"[:SHOWN])
    return found
