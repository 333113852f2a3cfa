"""What the observer of the metadata store holds against ledgers and views that move backwards."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState, encode
from boki_common.ids import BookieId
from boki_logbook.index.places import ShardPlace
from boki_logbook.state.state import DecisionState
from boki_logbook.writers.writers import WriterState
from boki_metalog.terms.term_record import IN_LEDGERS, Location, TermRecord, encode_record
from boki_metalog.terms.view import SlotRange, View, encode_view, first_view
from boki_sim.clusters.invariants import VIOLATIONS_KEPT, Invariants, Violation
from boki_sim.faults.faults import Fault
from boki_sim.run import run_seed

LEDGER = "/ledgers/00/0000/L0007"
OPEN = LedgerMetadata(2, 2, 1, ((0, (BookieId("a"), BookieId("b"))),))
CLOSED = replace(OPEN, state=LedgerState.CLOSED, last_entry=9, length=100)
RECORD = TermRecord(1, 1, 0, (SlotRange(0, 1023),), 7, 9, 50, 1, Location(IN_LEDGERS, ""))


class Watched:
    """Invariants, and a store that is changed step by step."""

    def __init__(self) -> None:
        self.found: list[Violation] = []
        self.invariants = Invariants(lambda: 1.5, self.found.append)
        self._values: dict[str, bytes] = {}

    def put(self, path: str, value: bytes | None) -> None:
        before = self._values.get(path)
        if value is not None:
            self._values[path] = value
        self.invariants.metadata_changed(path, before, value)

    @property
    def rules(self) -> list[str]:
        return [violation.rule for violation in self.found]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def installed(view: View, ledger: int) -> View:
    return view.with_term(0, ledger_id=ledger, sequencer="s", token=f"t{ledger}", start_time_ms=0)


def test_a_ledgers_ordinary_life_is_fine(watched: Watched) -> None:
    watched.put(LEDGER, encode(OPEN))
    watched.put(LEDGER, encode(replace(OPEN, state=LedgerState.IN_RECOVERY)))
    watched.put(LEDGER, encode(CLOSED))
    watched.put(LEDGER, None)
    assert watched.rules == []


@pytest.mark.parametrize(
    "after",
    [replace(CLOSED, last_entry=8), replace(CLOSED, length=99), replace(OPEN, state=LedgerState.IN_RECOVERY), OPEN],
)
def test_a_closed_ledger_stays_as_it_is(watched: Watched, after: LedgerMetadata) -> None:
    watched.put(LEDGER, encode(CLOSED))
    watched.put(LEDGER, encode(after))
    assert "2 closed" in watched.rules


def test_recovery_is_not_taken_back(watched: Watched) -> None:
    watched.put(LEDGER, encode(replace(OPEN, state=LedgerState.IN_RECOVERY)))
    watched.put(LEDGER, encode(OPEN))
    assert watched.rules == ["2 state"]


def test_no_ledger_closes_below_what_its_writer_acknowledged(watched: Watched) -> None:
    watched.put(LEDGER, encode(OPEN))
    watched.invariants.ledgers[7].acked = 10
    watched.put(LEDGER, encode(CLOSED))
    assert watched.rules == ["1 acked"]
    assert "closes at 9" in str(watched.found[0])
    assert "acknowledged 10" in str(watched.found[0])


def test_a_term_follows_one_that_is_sealed(watched: Watched) -> None:
    first = installed(first_view(), 7)
    watched.put(LEDGER, encode(CLOSED))
    watched.put("/boki/terms/1", encode_record(RECORD))
    watched.put("/boki/view", encode_view(first_view()))
    watched.put("/boki/view", encode_view(first))
    watched.put("/boki/view", encode_view(installed(first, 8)))
    assert watched.rules == []


def test_a_term_whose_predecessor_is_not_sealed_is_found(watched: Watched) -> None:
    first = installed(first_view(), 7)
    watched.put("/boki/view", encode_view(first))
    watched.put("/boki/view", encode_view(installed(first, 8)))
    assert watched.rules == ["4 sealed"]


def test_a_sealed_term_whose_metalog_is_open_or_elsewhere_is_found(watched: Watched) -> None:
    first = installed(first_view(), 7)
    watched.put(LEDGER, encode(OPEN))
    watched.put("/boki/terms/1", encode_record(RECORD))
    watched.put("/boki/view", encode_view(first))
    watched.put("/boki/view", encode_view(installed(first, 8)))
    assert watched.rules == ["4 sealed"]
    other = Watched()
    other.put(LEDGER, encode(replace(CLOSED, last_entry=12)))
    other.put("/boki/terms/1", encode_record(RECORD))
    other.put("/boki/view", encode_view(first))
    other.put("/boki/view", encode_view(installed(first, 8)))
    assert other.rules == ["3 sealed"]


def test_the_view_and_term_records_only_move_forward(watched: Watched) -> None:
    watched.put("/boki/view", encode_view(installed(installed(first_view(), 7), 8)))
    watched.put("/boki/view", encode_view(installed(first_view(), 7)))
    watched.put("/boki/terms/1", encode_record(RECORD))
    other = TermRecord(1, 1, 0, (SlotRange(0, 1023),), 7, 8, 50, 1, Location(IN_LEDGERS, ""))
    watched.put("/boki/terms/1", encode_record(other))
    watched.put("/boki/terms/1", None)
    watched.put("/boki/view", None)
    assert watched.rules == ["4 view", "4 view", "4 sealed", "3 sealed", "3 sealed", "4 view"]


def test_ledgers_of_ended_shards_are_closed_unless_their_term_is_to_be_deleted(watched: Watched) -> None:
    """Harsh seed 501164: an engine began behind a term without live records, whose ledgers wait to be deleted."""
    watched.put(LEDGER, encode(OPEN))
    state = DecisionState()
    state.begin_term(3, 0, ())
    shard = ShardPlace(3, 0, 7, "0" * 32)
    state.places.terms[3].shards[0] = shard
    engines: Any = {"engine-1": SimpleNamespace(core=SimpleNamespace(state=state))}
    assert watched.invariants.unclosed(engines) == [], "its shard goes on"
    shard.close()
    assert watched.invariants.unclosed(engines) == [7], "its term goes on"
    state.end_term(3)
    assert watched.invariants.unclosed(engines) == [], "and is over, and nobody needs it"
    state.places.terms[3].live = 1
    assert watched.invariants.unclosed(engines) == [7]
    watched.put(LEDGER, encode(CLOSED))
    assert watched.invariants.unclosed(engines) == []


def test_what_cannot_be_read_is_a_violation(watched: Watched) -> None:
    watched.put("/boki/view", b"{}")
    assert watched.rules == ["format"]


def test_violations_are_bounded(watched: Watched) -> None:
    for _ in range(2 * VIOLATIONS_KEPT):
        watched.invariants.violated("x", "y")
    assert len(watched.invariants.violations) == VIOLATIONS_KEPT


def test_an_acknowledged_entry_has_one_content(watched: Watched) -> None:
    watched.put(LEDGER, encode(OPEN))
    ledger = watched.invariants.ledgers[7]
    for name, body in (("bookie-1", b"h" * 36 + b"this"), ("bookie-2", b"H" * 36 + b"this")):
        watched.invariants._same_content(7, ledger, 0, name, body)
    assert watched.rules == []
    watched.invariants._same_content(7, ledger, 0, "bookie-3", b"h" * 36 + b"that")
    assert watched.rules == ["3 content"]


@pytest.mark.blocking_allowed  # the simulator's guard stands in for it
def test_a_fence_that_lifts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Storage.is_fenced
    ledgers: list[int] = []

    def is_fenced(self: Storage, ledger_id: int) -> bool:
        if before(self, ledger_id):
            ledgers.append(ledger_id)
        return before(self, ledger_id) and len(ledgers) < 60

    monkeypatch.setattr(Storage, "is_fenced", is_fenced)
    apart = [Fault(1.5, "clog", pair, 8.0) for pair in ("sequencer-1>sequencer-2", "sequencer-2>sequencer-1")]
    outcome = run_seed(4, "calm", script=apart, work_s=6)
    assert any("[2 fence]" in text for text in outcome.violations)


@pytest.mark.blocking_allowed  # the simulator's guard stands in for it
def test_engines_that_decide_differently_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before = WriterState.decided
    calls: list[int] = []

    def decided(self: WriterState, first: int, count: int, first_seqnum: int, verdict: int, *actual: Any) -> None:
        calls.append(first)
        before(self, first, count, first_seqnum + (len(calls) % 20 == 0), verdict, *actual)

    monkeypatch.setattr(WriterState, "decided", decided)
    runs = (run_seed(seed, "calm", work_s=1.5) for seed in range(1, 10))
    assert any("[5 verdict]" in text for outcome in runs for text in outcome.violations)
