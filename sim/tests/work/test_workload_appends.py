"""Clients find what is planted in what becomes of appends that were given up, and in what they wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import boki
from boki import _calls
from boki_common.records.record_batch import RUN_VOID
from boki_logbook.writers.verdict import Verdicts
from boki_logbook.writers.writers import NEVER
from boki_sim.faults.faults import Fault
from boki_sim.run import _Run, run_seed
from boki_sim.work.operations import BOOKS, OK, WHY

pytestmark = [pytest.mark.blocking_allowed, pytest.mark.timeout(300)]  # the guard stands in; machines may be busy

CUT_OFF = [Fault(at, "isolate", f"client-{client}", 0.4, 1.0) for at in (0.6, 1.3, 2.0, 2.7) for client in (1, 2, 3)]
"""Clients hear no answers to what they have sent, for longer than they wait for them."""


@pytest.fixture(autouse=True)
def short_timeouts(planted: Any) -> None:
    planted.clients(
        {"ticket": 3.0, "burst": 1.0, "append": 1.0},
        books=BOOKS[:1],
        give_up_s=0.2,
        timeout_s=0.1,
        burst=20,
        pause_s=0.02,
    )


def test_appends_that_were_given_up_are_asked_for(calls_of: Any) -> None:
    did: Counter[str] = Counter()
    judged = calls_of(_Run, "_judge")
    assert all(run_seed(seed, "calm", script=CUT_OFF, work_s=3.5).ok for seed in (1, 2, 3))
    for one in (one for call in judged for one in call.arguments[0].history.operations):
        did[one.answer] += one.kind == WHY
        did["never"] += one.outcome == "never" and one.error == "never"
        did["found out"] += one.outcome == OK and one.error.startswith("OutcomeUnknown")
    assert did["never"] > 0, did
    assert did["found out"] > 0, did
    assert len(did) > 4, did


def test_a_void_that_is_answered_never_whatever_stands_is_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Verdicts.decide

    def decide(self: Verdicts, runs: Sequence[Any], *rest: Any) -> Any:
        decision = before(self, runs, *rest)
        decision.answers[:] = [
            answer._replace(verdict=NEVER, first_seqnum=0) if runs[answer.run].flags & RUN_VOID else answer
            for answer in decision.answers
        ]
        return decision

    monkeypatch.setattr(Verdicts, "decide", decide)
    assert planted.found("was refused (never), and is at", seeds=range(1, 30), faults=CUT_OFF, work_s=3.5).violations


def test_an_undecided_append_that_waits_for_nothing_is_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def why(self: Any) -> boki.Why:
        return boki.Why("nothing", "")

    monkeypatch.setattr(_calls.Calls, "why", why)
    assert planted.found("nothing, and is not decided", seeds=range(1, 5)).violations
