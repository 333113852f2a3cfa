"""A model of signals to a workflow while it is taken over: signals join its history and its partition's stream; the new worker reads the
history up to its claim, and later signals from the partition's stream, which may be trimmed below. Each signal is delivered once, in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from libs.tests.models.search import search


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off.

    Attributes:
        drop: signals at or below the place up to which the history was read are skipped.
        keep: signals that arrive while the history is read are kept.
        again: after a gap the history is read again above that place.
    """

    drop: bool = True
    keep: bool = True
    again: bool = True


@dataclass(frozen=True)
class TakeOver:
    """A workflow, a worker that takes it over, and a trimmer of the partition's stream."""

    rules: Rules
    signals: int
    trims: int
    log: tuple[str, ...] = ()
    trimmed: int = 0
    cursor: int = 0
    state: str = "idle"
    claim: int = 0
    position: int = 0
    kept: tuple[int, ...] = ()
    delivered: tuple[int, ...] = ()

    def all_signals(self) -> tuple[int, ...]:
        return tuple(at for at, kind in enumerate(self.log, 1) if kind == "signal")

    def fault(self) -> str | None:
        if list(self.delivered) != sorted(set(self.delivered)):
            return f"twice, or out of order: {self.delivered}"
        if self.state == "runs" and not any(True for _ in self.moves()) and self.delivered != self.all_signals():
            return f"delivered {self.delivered} of {self.all_signals()}"
        return None

    def _deliver(self, seqnum: int) -> TakeOver:
        if self.rules.drop and seqnum <= self.position:
            return self
        return replace(self, delivered=(*self.delivered, seqnum), position=max(self.position, seqnum))

    def moves(self) -> Iterator[tuple[str, TakeOver]]:
        if self.signals:
            yield "a signal lands", replace(self, signals=self.signals - 1, log=(*self.log, "signal"))
        if self.trims and self.log:
            yield "the stream is trimmed", replace(self, trims=self.trims - 1, trimmed=len(self.log))
        if self.state == "idle":
            yield "it claims", replace(self, state="reads", claim=len(self.log) + 1, log=(*self.log, "claim"))
        if self.state == "reads":
            after = replace(self, state="runs", position=self.claim, kept=())
            after = replace(after, delivered=tuple(at for at in self.all_signals() if at <= self.claim))
            for seqnum in self.kept:
                after = after._deliver(seqnum)
            yield "it has read the history", after
        coming = [at for at in self.all_signals() if at > self.cursor]
        if coming:
            yield "it follows", self._followed(coming[0])

    def _followed(self, seqnum: int) -> TakeOver:
        if seqnum <= self.trimmed:
            after = replace(self, cursor=self.trimmed)
            if self.state == "runs" and self.rules.again:
                for at in self.all_signals():
                    if self.position < at <= self.trimmed:
                        after = after._deliver(at)
            elif self.state == "reads" and self.rules.again:
                missed = tuple(at for at in self.all_signals() if at <= self.trimmed)
                after = replace(after, kept=(*self.kept, *missed))
            return after
        after = replace(self, cursor=seqnum)
        if self.state == "runs":
            return after._deliver(seqnum)
        if self.state == "reads" and self.rules.keep:
            return replace(after, kept=(*self.kept, seqnum))
        return after


def test_each_signal_is_delivered_once_in_order_whenever_it_lands() -> None:
    found = search(TakeOver(Rules(), signals=4, trims=2))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 500


@pytest.mark.parametrize("rule", ["drop", "keep", "again"])
def test_without_a_rule_one_is_lost_or_delivered_twice(rule: str) -> None:
    found = search(TakeOver(replace(Rules(), **{rule: False}), signals=2, trims=1))
    assert found.fault is not None and found.path
