"""Records of one workflow as a model, read back by the library's own order of delivery (`bokiflow.model.delivery_order`): results,
signals from outside, records that land late, takeover at any time. The history that a replay gets continues the one from which bodies were
started, unless a rule is turned off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from bokiflow.model.delivery_order import RecordedEvents, in_order
from bokiflow.model.flow_events import Signalled, Stepped
from bokiflow.model.outcomes import Outcome
from libs.tests.models.search import search


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off.

    Attributes:
        close: before a signal is delivered, the open record is closed with its old `seen`; else `seen` is that of when it is sent.
        one: a record is sent when the one before is in the log; else at once, and the first may fail by itself.
    """

    close: bool = True
    one: bool = True


@dataclass(frozen=True)
class Batch:
    seen: int
    events: tuple[str, ...] = ()


@dataclass(frozen=True)
class Life:
    """An executor, its workflow's stream, and what bodies outside were started from."""

    rules: Rules
    results: int
    signals: int
    failures: int = 1
    log: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """(seen, own events) or (-1, signal): the place is the index + 2, below it is the claim"""
    delivered: tuple[str, ...] = ()
    seen: int = 1
    open: Batch = Batch(1)
    closed: tuple[Batch, ...] = ()
    flying: tuple[Batch, ...] = ()
    outside: tuple[str, ...] = ()

    def replayed(self) -> tuple[str, ...]:
        records = []
        for seqnum, (seen, events) in enumerate(self.log, 2):
            if seen < 0:
                records.append(RecordedEvents(seqnum, 0, 0, incoming=(Signalled("x", "t", events[0]),)))
            else:
                own = tuple(Stepped("x", one, "s", "", 0, Outcome()) for one in events)
                records.append(RecordedEvents(seqnum, 0, seen, own=own))
        delivered = [one.event for one in in_order(records)]
        return tuple(
            str(event.value) if isinstance(event, Signalled) else str(getattr(event, "key", "")) for event in delivered
        )

    def fault(self) -> str | None:
        if self.replayed()[: len(self.outside)] != self.outside:
            return f"a replay is given {self.replayed()}, bodies were started from {self.outside}"
        if not any(True for _ in self.moves()) and self.replayed() != self.delivered:
            return f"live, {self.delivered} was delivered, a replay is given {self.replayed()}"
        return None

    def moves(self) -> Iterator[tuple[str, Life]]:
        if self.signals:
            name = f"s{self.signals}"
            yield f"{name} lands", replace(self, signals=self.signals - 1, log=(*self.log, (-1, (name,))))
        if self.results:
            name = f"r{self.results}"
            opened = Batch(self.open.seen if self.open.events else self.seen, (*self.open.events, name))
            yield (
                f"{name} is delivered",
                replace(self, results=self.results - 1, delivered=(*self.delivered, name), open=opened),
            )
        coming = [at for at, (seen, _) in enumerate(self.log, 2) if seen < 0 and at > self.seen]
        if coming:
            after = replace(self, seen=coming[0], delivered=(*self.delivered, self.log[coming[0] - 2][1][0]))
            if self.open.events and self.rules.close:
                after = replace(after, closed=(*self.closed, self.open), open=Batch(coming[0]))
            yield "a signal is delivered", after
        if not self.flying or not self.rules.one:
            if self.closed:
                yield "it is sent", replace(self, flying=(*self.flying, self.closed[0]), closed=self.closed[1:])
            elif self.open.events:
                sent = self.open if self.rules.close else replace(self.open, seen=self.seen)
                yield "it is sent", replace(self, flying=(*self.flying, sent), open=Batch(self.seen))
        if self.flying:
            yield "it lands", self._landed(0)
        if len(self.flying) > 1 and self.failures:
            yield "the first fails, the second lands", replace(self._landed(1), failures=0)

    def _landed(self, which: int) -> Life:
        batch, rest = self.flying[which], self.flying[:which] + self.flying[which + 1 :]
        last = self.delivered.index(batch.events[-1]) + 1
        outside = max(self.outside, self.delivered[:last], key=len)
        return replace(self, flying=rest, log=(*self.log, (batch.seen, batch.events)), outside=outside)


def test_whatever_lands_when_a_replay_continues_what_was_begun() -> None:
    found = search(Life(Rules(), results=3, signals=2))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 500


@pytest.mark.parametrize("rule", ["close", "one"])
def test_without_a_rule_a_replay_is_delivered_something_else(rule: str) -> None:
    found = search(Life(replace(Rules(), **{rule: False}), results=2, signals=1))
    assert found.fault is not None and found.path
