"""Somebody who sends what no engine can read: the cluster holds, goes on, and has lost nothing of anybody else."""

from __future__ import annotations

from typing import Any

import pytest

from boki_common.errors import CorruptData, ProtocolError
from boki_common.records.record_batch import RecordBatch
from boki_logbook.apply.header_feed import HeaderFeed
from boki_logbook.state.state import DecisionState
from boki_metalog.control.log_changes import LogChanges
from boki_metalog.errors import UnfitCarry
from boki_metalog.sequencer import term_server
from boki_metalog.sequencer.term_server import TermServer
from boki_sim.faults.faults import PROFILES, Fault, from_text, to_text
from boki_sim.nemesis import poison
from boki_sim.nemesis.poison import ENTRIES, KINDS, LAST, MESSAGES, MOST, PUSHES, draw_poison
from boki_sim.outcome import Outcome
from boki_sim.run import run_seed
from boki_sim.world.randomness import stream

pytestmark = [pytest.mark.blocking_allowed, pytest.mark.timeout(300)]  # the guard stands in; machines may be busy

SEQUENCERS = ("sequencer-1", "sequencer-2")


def poisoned(seed: int, amount: int, *, times: int = 2) -> Outcome:
    script = [Fault(1.0 + 1.5 * at, "poison", "sequencer-1", amount=float(amount)) for at in range(times)]
    return run_seed(seed, "calm", script=script, work_s=4)


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_one_run_of_four_is_poisoned_where_everything_is_allowed(profile: str) -> None:
    drawn = [draw_poison(stream(seed, "p"), profile, SEQUENCERS, seconds=20) for seed in range(300)]
    assert drawn == [draw_poison(stream(seed, "p"), profile, SEQUENCERS, seconds=20) for seed in range(300)]
    struck = [script for script in drawn if script]
    if profile != "harsh":
        assert not struck
        return
    assert 40 < len(struck) < 110 and all(len(script) <= MOST for script in struck)
    faults = [fault for script in struck for fault in script]
    assert {int(fault.amount) for fault in faults} == {*KINDS} and {fault.target for fault in faults} == {*SEQUENCERS}
    assert all(fault.kind == "poison" and 0 <= fault.at < 20 for fault in faults)
    assert from_text(to_text(faults)) == sorted(faults, key=lambda fault: fault.at)


def test_entries_that_nobody_can_read_are_waited_for_and_given_up(calls_of: Any) -> None:
    given_up, refused = calls_of(poison.Poisoner, "_give_up"), calls_of(TermServer, "_refuse")
    for seed in (2, 3):
        outcome = poisoned(seed, ENTRIES)
        assert outcome.ok, outcome.violations
    assert sum(len(call.arguments[-1]) for call in given_up) > 4
    assert any(isinstance(call.arguments[-1], UnfitCarry) for call in refused)


def test_messages_with_anything_in_them_are_refused_and_change_nothing(calls_of: Any) -> None:
    refused = calls_of(TermServer, "_refuse")
    outcome = poisoned(3, MESSAGES)
    assert outcome.ok, outcome.violations
    assert refused


def test_what_a_sequencer_pushes_badly_is_read_from_bookies(calls_of: Any) -> None:
    pushed = calls_of(poison, "_unparsable")
    outcome = poisoned(1, PUSHES)
    assert outcome.ok and pushed, outcome.violations


def test_a_cluster_that_orders_what_it_has_not_read_and_trusts_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: one body that is no record batch ends every engine at that metalog entry, after each start."""

    def carried(self: HeaderFeed, ledger_id: int, entry: int, body: bytes) -> RecordBatch:
        try:
            batch = self._ready[ledger_id, entry] = RecordBatch.parse(memoryview(body))
        except ProtocolError as error:
            raise CorruptData("the metalog carries what is no record batch") from error
        return batch

    monkeypatch.setattr(term_server, "check_carried", lambda carry, known: None)
    monkeypatch.setattr(HeaderFeed, "carried", carried)
    for seed in range(1, 6):
        outcome = poisoned(seed, ENTRIES)
        if not outcome.ok:
            assert all("[crash] engine-" in text for text in outcome.violations[:3])
            return
    pytest.fail("five seeds were poisoned, and nobody noticed")


STRIKES = [Fault(1.0 + 0.5 * at, "poison", "sequencer-1", amount=float(ENTRIES)) for at in range(6)]
MANY_STRIKES = [Fault(0.5 + 0.5 * at, "poison", SEQUENCERS[at % 2], amount=float(ENTRIES)) for at in range(20)]


def test_entries_of_a_book_in_a_log_that_does_not_order_it_join_nothing_anywhere(
    calls_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines that did not hold entries to the slots of their term would differ: logs know no order between each other."""
    looked = calls_of(DecisionState, "_foreign")
    outcome = run_seed(2, "calm", script=STRIKES, work_s=4)
    assert outcome.ok, outcome.violations
    assert sum(call.answer is not None for call in looked) > 4
    monkeypatch.setattr(DecisionState, "_guard", lambda self, places: None)
    for seed in (8, 13, *range(14, 40)):  # clusters in which logs overtake each other are few: these two have been such
        outcome = run_seed(seed, "calm", script=MANY_STRIKES, work_s=10)
        if not outcome.ok:
            assert "[5 verdict]" in outcome.violations[0] or "[7 index]" in outcome.violations[0]
            return
    pytest.fail("all these seeds had records in foreign logs, and nobody noticed")


def test_ends_that_nobody_can_read_are_given_up_and_nothing_acknowledged_is_lost(calls_of: Any) -> None:
    given_up = calls_of(LogChanges, "give_up")
    for seed in (1, 2):
        script = [Fault(1.0 + 2 * at, "poison", SEQUENCERS[at % 2], amount=float(LAST)) for at in range(3)]
        outcome = run_seed(seed, "calm", script=script, work_s=6)
        assert outcome.ok, outcome.violations
    assert len(given_up) > 2
