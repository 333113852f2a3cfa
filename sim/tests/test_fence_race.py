"""A race between a recovery and a writer that lives: our recovery wins it, one that fences only once loses it."""

from __future__ import annotations

from typing import Any

import pytest

from boki_ledger.recovery import LedgerRecovery
from boki_sim.faults import Fault
from boki_sim.run import Outcome, run_seed

pytestmark = [pytest.mark.blocking_allowed, pytest.mark.timeout(300)]  # the guard stands in; machines may be busy

SEEDS = (4, 8, 11, 15, 14, 20, 21, 23)


def race(seed: int) -> Outcome:
    """Sequencers cannot hear each other, so one takes the term of another that lives."""
    apart = [Fault(1.5, "clog", pair, 8.0) for pair in ("sequencer-1>sequencer-2", "sequencer-2>sequencer-1")]
    script = [Fault(1.5, "fence-race", "all", step="recovery begins asked"), *apart]
    return run_seed(seed, "calm", script=script, work_s=6)


def test_it_is_run_when_a_living_sequencer_is_replaced_and_won() -> None:
    outcome = race(SEEDS[0])
    assert outcome.ok, outcome.violations
    assert outcome.happened["fence-race × recovery begins asked"] == 1


def test_a_recovery_whose_later_reads_do_not_fence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """BookKeeper's #2614: one fence is lost, and what is asked afterwards does not fence."""
    before = LedgerRecovery.__init__

    class FencingOnce:
        """Bookies, fenced by the question for their last entry alone."""

        def __init__(self, transport: Any) -> None:
            self._transport = transport

        def __getattr__(self, name: str) -> Any:
            return getattr(self._transport, name)

        def read(self, bookie: Any, ledger_id: int, entry_id: int, **options: Any) -> Any:
            if entry_id >= 0:
                options = {**options, "fence_key": None}
            return self._transport.read(bookie, ledger_id, entry_id, **options)

    def fencing_once(self: LedgerRecovery, *arguments: Any, **options: Any) -> None:
        before(self, *arguments, **options)
        transport: Any = FencingOnce(self._transport)
        self._transport = transport

    monkeypatch.setattr(LedgerRecovery, "__init__", fencing_once)
    assert any("lost:" in text for seed in SEEDS for text in race(seed).violations)
