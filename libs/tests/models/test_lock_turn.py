"""A model of a workflow that waits for a lock with a time-out, may be cancelled, and dies at any step. It shows why the workflow's turn is
recorded before anything happens under the lock.

Every replay of its history asks for the same outside effects as its code did; otherwise an effect happened that, by the log, never did.
For two designs without that record the search finds an execution that leads there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import pytest

from libs.tests.models.search import search

How: TypeAlias = Literal["recorded", "seen", "by order"]
"""What is needed before a body runs under the lock: that the turn is in the log; that it was seen; that it was seen, and a replay delivers
it where the release is in the log (as signals are), which needs no record."""


@dataclass(frozen=True)
class Code:
    """The workflow as it is run. delivered: so far, "turn", "timer", "cancel", in order; the first one decides. body: it has begun."""

    delivered: tuple[str, ...] = ()
    body: bool = False

    @property
    def way(self) -> str:
        """The branch of the code: into the lock's block, or out of it."""
        return self.delivered[0] if self.delivered else ""


@dataclass(frozen=True)
class Turn:
    """The log (of the workflow, and of the lock that another workflow releases), and the running code.

    Attributes:
        log: "place", "release", "cancel", "turn", "timer", "result", in order; and up to where its writer had seen the log, if
            it is of the workflow itself. code: None if no process runs it.
        happened: the body began, outside. crashes: how many more there may be. reads: how far what comes from others was read.
    """

    how: How
    crashes: int
    log: tuple[tuple[str, int], ...] = (("place", 0),)
    code: Code | None = Code()
    happened: bool = False
    cancels: int = 1
    reads: int = 1

    def fault(self) -> str | None:
        replayed = self._replayed()
        if self.happened and replayed.way not in ("turn", ""):
            return f"the body ran, and by {self.log} it came to {replayed.way}"
        return None

    def _replayed(self) -> Code:
        """The code after its history, in the order of `delivery_order`: what came from others where it was seen, or at the end."""
        others = {"cancel": "cancel", **({"release": "turn"} if self.how == "by order" else {})}
        coming = [(place, others[kind]) for place, (kind, _) in enumerate(self.log, 1) if kind in others]
        delivered: list[str] = []
        for kind, seen in self.log:
            if kind in ("turn", "timer"):
                delivered += [what for place, what in coming if place <= seen]
                coming = [(place, what) for place, what in coming if place > seen]
                delivered.append(kind)
        return Code((*delivered, *(what for _, what in coming)))

    def has(self, kind: str) -> bool:
        return any(one == kind for one, _ in self.log)

    def _and(self, *kinds: str) -> tuple[tuple[str, int], ...]:
        return (*self.log, *((kind, self.reads) for kind in kinds))

    def moves(self) -> Iterator[tuple[str, Turn]]:
        if not self.has("release"):
            yield "somebody releases it", replace(self, log=self._and("release"))
        if self.cancels:
            yield "somebody cancels", replace(self, log=self._and("cancel"), cancels=0)
        code = self.code
        if code is None:
            yield "somebody takes over", replace(self, code=self._replayed(), reads=len(self.log))
            return
        if self.crashes:
            yield "it dies", replace(self, code=None, crashes=self.crashes - 1)
        if self.reads < len(self.log):
            event = self.log[self.reads][0]
            delivered = (*code.delivered, event) if event == "cancel" else code.delivered
            yield f"it reads {event}", replace(self, reads=self.reads + 1, code=replace(code, delivered=delivered))
        if not code.way:
            yield from self._waits(code)
        elif code.way == "turn" and not code.body and not self.has("result"):
            yield "the body begins", replace(self, code=replace(code, body=True), happened=True)
        elif code.body and not self.has("result"):
            ended = ("result",) if self.has("turn") or self.how == "by order" else ("turn", "result")
            yield "the body ends", replace(self, log=self._and(*ended))

    def _waits(self, code: Code) -> Iterator[tuple[str, Turn]]:
        """The lock's stream is read apart from what is sent to the workflow; either may be read first."""
        if self.has("release"):
            log = self._and("turn") if self.how == "recorded" else self.log
            yield "it has its turn", replace(self, log=log, code=replace(code, delivered=("turn",)))
        yield "its time is over", replace(self, log=self._and("timer"), code=replace(code, delivered=("timer",)))


def test_what_happened_under_a_lock_is_in_the_history_of_who_had_it() -> None:
    found = search(Turn("recorded", crashes=2))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 50


@pytest.mark.parametrize(
    ("how", "came_to"),
    [("seen", "timer"), ("by order", "cancel")],
)
def test_without_a_record_of_the_turn_a_body_ran_that_nobody_asked_for(how: How, came_to: str) -> None:
    found = search(Turn(how, crashes=1, cancels=int(how == "by order")))
    assert found.fault is not None and f"came to {came_to}" in found.fault, found
    assert any("dies" in step for step in found.path) or how == "by order"
