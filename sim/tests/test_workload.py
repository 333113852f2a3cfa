"""Clients find what is planted in trims, in numbers of writers and in linearizable reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from boki_common.ids import Position
from boki_common.record_batch import RUN_NAMED
from boki_logbook.core import EngineCore
from boki_logbook.index import Index
from boki_logbook.state import DecisionState
from boki_logbook.verdict import Verdicts
from boki_metalog.metalog_entry import Trim
from boki_sim import workload
from boki_sim.campaign import rules_of
from boki_sim.faults import Fault
from boki_sim.run import Outcome, _Run, run_seed
from boki_sim.workload import LINEARIZABLE, SESSION, TRIM, Habits

pytestmark = [pytest.mark.blocking_allowed, pytest.mark.timeout(300)]  # the guard stands in; machines may be busy


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients do all of it, often."""
    before = workload.draw_habits

    def draw_habits(numbers: Any) -> Habits:
        drawn = before(numbers)
        weights = {**drawn.weights, "append": 3.0, "numbered": 3.0, "scan": 1.0, "tail": 3.0, TRIM: 0.5}
        books = workload.BOOKS[:1]
        return replace(
            drawn, weights=weights, books=books, conditional=0.2, pause_s=0.02, consistencies=(SESSION, LINEARIZABLE)
        )

    monkeypatch.setattr("boki_sim.run.draw_habits", draw_habits)


def found(wanted: str, *, seeds: range, faults: Sequence[Fault] = (), work_s: float = 2) -> Outcome:
    """The first seed whose violations have what is wanted."""
    for seed in seeds:
        outcome = run_seed(seed, "calm", script=list(faults), work_s=work_s)
        if any(wanted in text for text in outcome.violations):
            return outcome
    raise AssertionError(f"no seed of {seeds} found {wanted!r}")


@pytest.mark.usefixtures("busy")
def test_clients_trim_number_by_name_and_read_linearizably(monkeypatch: pytest.MonkeyPatch) -> None:
    did: Counter[str] = Counter()
    before = _Run._judge

    def judge(self: _Run, books: Any) -> None:
        for one in self.history.operations:
            if one.outcome == workload.OK:
                did[one.kind] += 1
                did["numbered"] += one.writer != ""
                did[one.consistency] += one.kind in ("next", "prev", "tail")
                did["trimmed"] += one.mark > 0
        before(self, books)

    monkeypatch.setattr(_Run, "_judge", judge)
    again = [Fault(1.0, "crash", "client-1", 0.1, 3.0)]
    assert all(run_seed(seed, "calm", script=again, work_s=3).ok for seed in (1, 2))
    assert min(did[kind] for kind in ("append", "next", "tail", TRIM, "numbered", LINEARIZABLE, "trimmed")) > 3, did


@pytest.mark.usefixtures("busy")
def test_an_engine_that_trims_elsewhere_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before = DecisionState._trim
    states: dict[int, int] = {}

    def trim(self: DecisionState, command: Trim, time_ms: int) -> None:
        if states.setdefault(id(self), len(states)) == 1:
            command = command._replace(pairs=tuple((tag, max(1, mark - 5)) for tag, mark in command.pairs))
        before(self, command, time_ms)

    monkeypatch.setattr(DecisionState, "_trim", trim)
    assert "7 index" in rules_of(found("[7 index]", seeds=range(1, 20)).violations)


@pytest.mark.usefixtures("busy")
def test_trims_that_take_more_than_they_name_are_found_by_what_clients_were_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Index.trim

    def trim(self: Index, book: int, pairs: Sequence[tuple[int, int]]) -> Any:
        return before(self, book, [(tag, mark + 3) for tag, mark in pairs])

    monkeypatch.setattr(Index, "trim", trim)
    assert any("lost:" in text for text in found("[history]", seeds=range(1, 20)).violations)


@pytest.mark.usefixtures("busy")
def test_a_number_that_is_accepted_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Verdicts.decide

    def decide(self: Verdicts, runs: Sequence[Any], *rest: Any) -> Any:
        for run in runs:
            state = self.writers.get((run.book, run.writer))
            if state is not None and run.flags & RUN_NAMED and run.first == state.last:
                state.last -= 1
        return before(self, runs, *rest)

    monkeypatch.setattr(Verdicts, "decide", decide)
    outcome = found("was answered differently", seeds=range(1, 20))
    assert any("duplicate:" in text for text in outcome.violations), outcome.violations


@pytest.mark.usefixtures("busy")
def test_a_linearizable_read_of_an_engines_own_position_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def barrier(self: EngineCore, book: int) -> tuple[int, Position]:
        log = self.log_of(book)
        return log, self.positions.get(log, Position(0, 0))

    monkeypatch.setattr(EngineCore, "barrier", barrier)
    behind = [
        Fault(at, "clog", f"sequencer-1>engine-{engine}", 0.3)
        for at, engine in ((0.8, 1), (1.2, 2), (1.6, 1), (2.0, 2))
    ]
    outcome = found("(linearizable)", seeds=range(1, 40), faults=behind, work_s=2.5)
    assert any("which was known" in text for text in outcome.violations), outcome.violations
