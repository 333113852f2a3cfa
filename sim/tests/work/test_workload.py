"""Clients find what is planted in trims, in numbers of writers and in linearizable reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import boki
from boki_common.ids import Position
from boki_common.records.record_batch import RUN_NAMED
from boki_logbook.core import EngineCore
from boki_logbook.index.index import Index
from boki_logbook.index.sorted_run import SortedRun
from boki_logbook.sequencer_calls import SequencerCalls
from boki_logbook.state.state import DecisionState
from boki_logbook.upkeep.clock_rules import ClockReading
from boki_logbook.writers.verdict import Verdicts
from boki_logbook.writers.writer_table import WRITER_KEY
from boki_metalog.entries.metalog_entry import Trim
from boki_sim.campaign import rules_of
from boki_sim.clusters.shape import Shape
from boki_sim.faults.faults import Fault
from boki_sim.run import _Run, run_seed
from boki_sim.work.operations import AUX, BOOKS, LINEARIZABLE, OK, SEEK, SESSION, TRIM

pytestmark = [pytest.mark.blocking_allowed, pytest.mark.timeout(300)]  # the guard stands in; machines may be busy


@pytest.fixture
def busy(planted: Any) -> None:
    """Clients do all of it, often, in one book."""
    weights = {"append": 3.0, "numbered": 3.0, "scan": 1.0, "tail": 3.0, TRIM: 0.5}
    planted.clients(weights, books=BOOKS[:1], conditional=0.2, pause_s=0.02, consistencies=(SESSION, LINEARIZABLE))


@pytest.mark.usefixtures("busy")
def test_clients_trim_number_by_name_and_read_linearizably(calls_of: Any) -> None:
    did: Counter[str] = Counter()
    judged = calls_of(_Run, "_judge")
    again = [Fault(1.0, "crash", "client-1", 0.1, 3.0)]
    assert all(run_seed(seed, "calm", script=again, work_s=3).ok for seed in (1, 2))
    for one in (one for call in judged for one in call.arguments[0].history.operations if one.outcome == OK):
        did[one.how or one.kind] += 1
        did["numbered"] += one.writer != ""
        did[one.consistency] += one.kind == "read"
        did["trimmed"] += one.trimmed > 0
    assert min(did[kind] for kind in ("append", "next", "tail", TRIM, "numbered", LINEARIZABLE, "trimmed")) > 3, did


@pytest.mark.usefixtures("busy")
def test_an_engine_that_trims_elsewhere_is_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = DecisionState._trim
    states: dict[int, int] = {}

    def trim(self: DecisionState, command: Trim, time_ms: int) -> None:
        if states.setdefault(id(self), len(states)) == 1:
            command = command._replace(pairs=tuple((tag, max(1, mark - 5)) for tag, mark in command.pairs))
        before(self, command, time_ms)

    monkeypatch.setattr(DecisionState, "_trim", trim)
    assert "7 index" in rules_of(planted.found("[7 index]", seeds=range(1, 20)).violations)


@pytest.mark.usefixtures("busy")
def test_trims_that_take_more_than_they_name_are_found_by_the_answers_to_clients(
    planted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Index.trim

    def trim(self: Index, book: int, pairs: Sequence[tuple[int, int]]) -> Any:
        return before(self, book, [(tag, mark + 3) for tag, mark in pairs])

    monkeypatch.setattr(Index, "trim", trim)
    violations = planted.found("lost:", seeds=range(1, 20)).violations
    assert any("lost:" in text and "[history]" in text for text in violations), violations


@pytest.mark.usefixtures("busy")
def test_a_number_that_is_accepted_twice_is_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Verdicts.decide

    def decide(self: Verdicts, runs: Sequence[Any], *rest: Any) -> Any:
        for run in runs:
            state = self.writers.state(WRITER_KEY.pack(run.book, run.writer))
            if state is not None and run.flags & RUN_NAMED and run.first == state.last:
                state.last -= 1
        return before(self, runs, *rest)

    monkeypatch.setattr(Verdicts, "decide", decide)
    assert "history" in rules_of(planted.found("was answered differently").violations)
    assert planted.found("duplicate:").violations


@pytest.mark.usefixtures("busy")
def test_a_linearizable_read_of_an_engines_own_position_is_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def barrier(self: EngineCore, book: int) -> tuple[int, Position]:
        log = self.log_of(book)
        return log, self.positions.get(log, Position(0, 0))

    monkeypatch.setattr(EngineCore, "barrier", barrier)
    monkeypatch.setattr(SequencerCalls, "link_of", lambda self, log: None)  # asked the long way
    behind = [
        Fault(at, "clog", f"sequencer-1>engine-{engine}", 0.3)
        for at, engine in ((0.8, 1), (1.2, 2), (1.6, 1), (2.0, 2))
    ]
    outcome = planted.found("(linearizable)", seeds=range(1, 40), faults=behind, work_s=2.5)
    assert any("which was known" in text for text in outcome.violations), outcome.violations


def all_index_all(drawn: Shape) -> Shape:
    return replace(drawn, engines=2, index_slots=())


BEHIND = [
    Fault(at, "clog", f"sequencer-1>engine-{engine}", 0.25)
    for at, engine in ((0.6, 1), (1.0, 2), (1.4, 1), (1.8, 2), (2.2, 1), (2.6, 2))
]
"""Engines that do not hear of cuts, one after the other."""


@pytest.mark.parametrize("planted_in", ["merge", "session"])
def test_positions_that_are_not_handed_over_between_caller_and_child_are_found(
    planted: Any, monkeypatch: pytest.MonkeyPatch, planted_in: str
) -> None:
    planted.clients(
        {"append": 1.0, "call": 3.0, "tail": 1.0}, books=BOOKS[:1], pause_s=0.01, consistencies=(SESSION,), tasks=1
    )
    planted.shape(all_index_all)
    assert run_seed(1, "calm", script=BEHIND, work_s=3).ok
    before = boki.Client.session
    if planted_in == "merge":
        monkeypatch.setattr(boki.Client, "merge", lambda self, token: None)
    else:
        monkeypatch.setattr(boki.Client, "session", lambda self, token=None: before(self))
    outcome = planted.found("which was known", seeds=range(4, 30), faults=BEHIND, work_s=3)
    assert any("(session)" in text for text in outcome.violations)


def test_engines_that_answer_for_slots_they_do_not_index_are_found(
    planted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.clients({"append": 3.0, "tail": 3.0, "scan": 1.0, AUX: 1.0, SEEK: 1.0}, books=BOOKS)
    planted.shape(lambda drawn: replace(drawn, engines=2, index_slots=("0-511", "512-1023")))
    assert run_seed(1, "calm", script=[], work_s=2).ok
    monkeypatch.setattr("boki_logbook.server.indexed", lambda book, slots: True)
    assert "history" in rules_of(planted.found("[history]", seeds=range(1, 10)).violations)


def test_rows_that_are_wrong_in_a_file_are_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.clients({"append": 1.0, "burst": 3.0, "scan": 3.0, "tail": 1.0}, burst=20)
    planted.shape(
        lambda drawn: replace(
            all_index_all(drawn),
            index_files=True,
            engine=replace(drawn.engine, housekeeping_s=0.2, snapshot_records=50),
        )
    )
    assert run_seed(1, "calm", script=[], work_s=3).ok
    before = SortedRun.move

    def move(self: SortedRun, books: Any, tags: Any, offsets: Any, seqnums: Any) -> None:
        shifted = seqnums.copy()
        shifted[len(shifted) // 2] -= 1
        before(self, books, tags, offsets, shifted)

    monkeypatch.setattr(SortedRun, "move", move)
    assert rules_of(planted.found("", seeds=range(1, 10), work_s=3).violations) & {"history", "7 index", "crash"}


def test_engines_compare_their_clocks_with_the_sequencers(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[ClockReading] = []

    def warning(reading: ClockReading, bound_ms: int) -> str | None:
        readings.append(reading)
        return None

    monkeypatch.setattr("boki_logbook.upkeep.clock_watch.warning", warning)
    planted.shape(lambda drawn: replace(drawn, clock_rate=1.0, engine=replace(drawn.engine, clock_check_s=0.3)))
    ahead = [Fault(0.0, "clock", f"sequencer-{number}", 0.0, 60_000.0) for number in (1, 2, 3)]
    assert run_seed(1, "calm", script=ahead, work_s=3).ok
    assert readings
    assert all(abs(one.ahead_ms - 60_000) <= one.uncertain_ms + 1 for one in readings[-3:])
