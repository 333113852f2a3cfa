"""Whole clusters under seeds: they hold, the same seed is the same run, and what is broken on purpose is found."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pytest

from boki_bookie.journal.journal import Journal
from boki_bookie.storage.storage import Storage
from boki_common import limits
from boki_ledger.client import LedgerClient
from boki_ledger.read.reader import LedgerReader
from boki_ledger.recover.write_back import WriteBack
from boki_logbook.read.carried_entries import CarriedEntries
from boki_logbook.writers.verdict import Verdicts
from boki_metalog.metric_definitions import SequencerMetrics
from boki_metalog.sequencer.term_server import TermServer
from boki_sim.clusters.shape import Shape, draw_shape
from boki_sim.faults.faults import Fault, unaware
from boki_sim.run import run_seed
from boki_sim.work.call_mix import ONE
from boki_sim.work.operations import BOOKS, LINEARIZABLE, TAIL
from boki_sim.work.recorder import Recorder
from boki_sim.world.errors import Refused
from boki_sim.world.randomness import stream
from boki_sim.world.steps import BARRIER_ANSWERED, BARRIER_ASKED, ENTRY_CARRIED
from itests.support.two_processes import lines_of_two

pytestmark = [pytest.mark.blocking_allowed, pytest.mark.timeout(300)]  # the guard stands in; machines may be busy

NOT_OK = ("conflict", "never", "unknown", "pending")

DIGESTS = """
import boki_sim.work.recorder as recorder
from boki_sim.run import run_seed
for seed, profile in ((3, "harsh"), (11, "disk"), (5, "metadata")):
    outcome = run_seed(seed, profile, work_s=1.5)
    assert outcome.ok, outcome.violations
    print(seed, profile, outcome.digest, outcome.operations, outcome.messages)
recorder.Recorder.tags = lambda self: tuple(set(self.numbers.sample(recorder.TAGS, 3)))
print("leak", run_seed(1, "calm", work_s=1.0).digest)
"""
"""Three runs, and one with a set's order in its messages."""


@pytest.fixture(scope="module")
def digests() -> list[list[str]]:
    """The lines of two processes with different hash seeds."""
    return list(lines_of_two(DIGESTS))


def test_a_seed_is_the_same_run_in_every_process(digests: list[list[str]]) -> None:
    one, other = digests
    assert len(one) == 4
    assert one[:3] == other[:3]


def test_an_order_that_depends_on_hashes_is_caught(digests: list[list[str]]) -> None:
    one, other = digests
    assert one[3] != other[3]


def test_a_look_at_the_wall_clock_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Verdicts.decide

    def decide(self: Verdicts, *arguments: Any) -> Any:
        with suppress(Refused):
            time.time()
        return before(self, *arguments)

    monkeypatch.setattr(Verdicts, "decide", decide)
    outcome = run_seed(1, "calm", work_s=1)
    assert any("time.time() by" in text and "test_run.py" in text for text in outcome.violations)


@pytest.mark.parametrize("profile", ["calm", "network", "disk", "metadata", "harsh"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_clusters_hold(seed: int, profile: str) -> None:
    outcome = run_seed(seed, profile, work_s=2)
    assert outcome.ok, f"{outcome.replay}\n" + "\n".join(outcome.violations)
    assert outcome.outcomes["ok"] == outcome.operations - sum(outcome.outcomes.get(one, 0) for one in NOT_OK)
    assert outcome.outcomes["ok"] > (6 if profile == "calm" else 5), "the last client's own, if nobody else got through"
    assert outcome.looks > 20


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("profile", ["network", "disk", "metadata", "harsh"])
def test_many_clusters_hold(profile: str) -> None:
    for seed in range(100, 200):
        outcome = run_seed(seed, profile)
        assert outcome.ok, f"{outcome.replay}\n" + "\n".join(outcome.violations)


def test_two_runs_in_one_process_are_equal_but_for_the_wall_clock() -> None:
    first, second = (run_seed(21, "harsh", work_s=2) for _ in range(2))
    assert (first.digest, first.callbacks, first.messages) == (second.digest, second.callbacks, second.messages)
    assert first.digest != run_seed(22, "harsh", work_s=2).digest


def test_bookies_that_acknowledge_before_they_flush_are_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "when_durable", lambda self, done: done(None))
    cuts = [Fault(at, "power", f"bookie-{number}", 0.3) for at in (0.8, 1.3, 1.8) for number in (1, 2, 3, 4, 5)]
    planted.found("[1 copies]", seeds=range(3, 40), faults=cuts)


SPLIT = [Fault(1.5, "clog", pair, 8.0) for pair in ("sequencer-1>sequencer-2", "sequencer-2>sequencer-1")]
"""A sequencer that nobody could ask goes on acknowledging what its successor closed without."""
CUT_OFF = [Fault(1.4, "cut-off", one, 6.0) for one in ("engine-1", "sequencer-1")]
"""Nor does it hear of its successor, nor the engine that tells its clients so."""
ENGINES_DIE = [Fault(4.5, "kill", f"engine-{number}", 0.5) for number in (1, 2, 3)]
"""Whoever has what was acknowledged forgets it: then all read what the successor has."""


def test_recovery_that_does_not_fence_is_found_by_who_looks_at_ledgers(planted: Any) -> None:
    planted.unfenced(-1)
    planted.found("[1 acked]", seeds=(4, 11, 14), faults=SPLIT, work_s=6)


def test_and_by_the_checker_of_what_clients_were_answered(planted: Any) -> None:
    """Both ways: call by call, and by the checkers of histories."""
    planted.unfenced(-1)
    outcome = planted.found("lost:", seeds=(11, 42), faults=[*CUT_OFF, *SPLIT, *ENGINES_DIE], work_s=6)
    assert any("[history]" in text and "lost:" in text for text in outcome.violations)
    assert any("[lost]" in text for text in outcome.violations)


ENGINES_DIE_WITH_CARRIED: Final = [
    Fault(0.3 * nth, "power", "engine-1", 0.5, step=ENTRY_CARRIED) for nth in range(1, 8)
]


def carrying(drawn: Shape) -> Shape:
    """Records are small, and so are the entries that are carried."""
    return replace(drawn, engine=replace(drawn.engine, carried_entry_bytes=limits.CARRIED_ENTRY_BYTES))


def test_half_of_the_seeds_have_entries_carried() -> None:
    carried = {draw_shape(stream(seed, "shape")).engine.carried_entry_bytes for seed in range(1, 20)}
    assert carried == {0, limits.CARRIED_ENTRY_BYTES}
    assert 70 < sum(draw_shape(stream(seed, "shape")).carrying for seed in range(1, 200)) < 130


def test_what_engines_that_die_had_carried_is_written_by_who_closes_their_ledgers(planted: Any, calls_of: Any) -> None:
    planted.shape(carrying)
    made = calls_of(WriteBack, "_made")
    outcome = run_seed(3, "calm", script=ENGINES_DIE_WITH_CARRIED, work_s=4)
    assert outcome.ok, outcome.violations
    assert made


def test_closing_ledgers_below_a_cut_is_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.shape(carrying)
    before = LedgerClient.open

    async def without_floor(self: LedgerClient, ledger_id: int, *, recover: bool, **_: Any) -> LedgerReader:
        return await before(self, ledger_id, recover=recover)

    monkeypatch.setattr(LedgerClient, "open", without_floor)
    planted.found("[1 cut]", faults=ENGINES_DIE_WITH_CARRIED, work_s=4)


def test_a_carried_entry_that_becomes_another_one_is_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.shape(carrying)
    before = CarriedEntries.find

    async def another(self: CarriedEntries, *where: int) -> dict[int, bytes]:
        return {entry: bytes(len(payload)) for entry, payload in (await before(self, *where)).items()}

    monkeypatch.setattr(CarriedEntries, "find", another)
    planted.found("[3 content]", seeds=range(3, 5), faults=ENGINES_DIE_WITH_CARRIED, work_s=4)


def test_a_ledger_that_nobody_closes_is_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.shape(carrying)

    async def nothing(*_: Any) -> dict[int, bytes]:
        return {}

    monkeypatch.setattr(CarriedEntries, "find", nothing)
    planted.found("nobody closes the data ledgers", seeds=range(3, 5), faults=ENGINES_DIE_WITH_CARRIED, work_s=4)


def test_linearizable_reads_are_proven_by_repeats_or_else_by_entries(calls_of: Any) -> None:
    """Both in runs of a few seconds: neither way is left to long ones."""
    proven, by_entry = calls_of(SequencerMetrics, "proven"), calls_of(TermServer, "_prove_by_entry")
    outcomes = [run_seed(seed, "harsh", work_s=4) for seed in range(1, 6)]
    assert all(one.ok for one in outcomes), [one.replay for one in outcomes if not one.ok]
    assert len(proven) > 50 and len(by_entry) >= 4
    answered = sum(one.steps[BARRIER_ANSWERED] for one in outcomes)
    assert 50 < answered <= sum(one.steps[BARRIER_ASKED] for one in outcomes)


def test_bookies_that_take_repeats_though_they_are_fenced_are_found(
    planted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run in ten or so has who asks the deaf engine while others append; the first of these seeds were some."""
    planted.clients({ONE: 1.0, TAIL: 1.0}, consistencies=(LINEARIZABLE,), books=BOOKS[:1], tasks=4, pause_s=0.02)
    before = Storage.add

    def add(self: Storage, request: Any, answers: Any) -> Any:
        ledger = self.ledger(request.ledger_id)
        if ledger is not None and ledger.holds(request.entry_id):
            return self._repeats.judge(ledger, request, answers)
        return before(self, request, answers)

    monkeypatch.setattr(Storage, "add", add)

    def script(seed: int) -> list[Fault]:
        targets = draw_shape(stream(seed, "shape")).targets(stream(seed, "targets"))
        return unaware(stream(seed, "unaware"), 12, targets)

    planted.found("[history]", seeds=(34, 37, 16, *range(60, 100)), faults=script, work_s=12)


def test_engines_that_forget_conditions_are_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boki_logbook.writers.verdict.Verdicts.expectations_hold", lambda *_arguments: True)
    outcome = planted.found("but it had", seeds=range(1, 10))
    assert any("expected" in text for text in outcome.violations)


def test_a_client_that_lies_about_its_answers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Recorder.appended
    monkeypatch.setattr(Recorder, "appended", lambda self, operation, seqnum: before(self, operation, seqnum + 1))
    assert any("lost:" in text for text in run_seed(1, "calm", work_s=1).violations)
