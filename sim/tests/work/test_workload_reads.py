"""Clients find what is planted in seeks, aux data and what is forgotten."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from boki_logbook.index.index import Index
from boki_logbook.index.places import Places
from boki_logbook.read.cache import BatchCache
from boki_logbook.upkeep import aux_rules
from boki_logbook.upkeep.expiry import Expiry
from boki_logbook.writers.verdict import Verdicts
from boki_sim.clusters.shape import FAST, Shape
from boki_sim.faults.faults import Fault
from boki_sim.run import _Run, run_seed
from boki_sim.work.operations import AT, AUX, BOOKS, OK, SEEK, TRIM

pytestmark = [pytest.mark.blocking_allowed, pytest.mark.timeout(300)]  # the guard stands in; machines may be busy

WEIGHTS = {"append": 3.0, AUX: 2.0, SEEK: 2.0, AT: 2.0, "tail": 1.0, "lock": 3.0, TRIM: 0.2}


@pytest.fixture
def curious(planted: Any) -> None:
    planted.clients(WEIGHTS, books=BOOKS[:1], pause_s=0.02, forget=0.5)


def fast(drawn: Shape) -> Shape:
    engine = replace(drawn.engine, session_writer_age_s=FAST * 3_600.0, append_age_s=FAST * drawn.engine.append_age_s)
    return replace(drawn, clock_rate=FAST, engine=engine)


def slow(drawn: Shape) -> Shape:
    return replace(drawn, clock_rate=1.0)


@pytest.mark.usefixtures("curious")
def test_clients_seek_leave_aux_data_and_have_streams_forgotten(planted: Any, calls_of: Any) -> None:
    did: Counter[str] = Counter()
    judged, forgotten = calls_of(_Run, "_judge"), calls_of(Index, "forget")
    planted.shape(fast)
    assert [text for seed in (1, 2) for text in run_seed(seed, "calm", script=[], work_s=3).violations] == []
    for one in (one for call in judged for one in call.arguments[0].history.operations):
        did[one.how or one.kind] += one.outcome == OK
        did["aux seen"] += one.aux != b"" and one.kind != AUX
    did["forgotten"] = sum(call.answer > 0 for call in forgotten)
    assert min(did[kind] for kind in (AUX, SEEK, AT, "aux seen", "forgotten")) > 3, did


@pytest.mark.usefixtures("curious")
def test_a_seek_that_passes_by_a_record_is_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Places.seek
    monkeypatch.setattr(Places, "seek", lambda self, book, time_ms: before(self, book, time_ms + 200))
    planted.shape(slow)
    assert planted.found("passing by").violations


@pytest.mark.usefixtures("curious")
def test_a_seek_that_stops_too_early_is_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Places.seek
    monkeypatch.setattr(Places, "seek", lambda self, book, time_ms: before(self, book, max(0, time_ms - 300)))
    planted.shape(slow)
    outcome = planted.found("which was known, is of")
    assert any("sought" in text for text in outcome.violations)


@pytest.mark.usefixtures("curious")
def test_aux_data_of_another_record_is_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = BatchCache.aux_rows
    monkeypatch.setattr(BatchCache, "aux_rows", lambda self, seqnums: before(self, [one + 1 for one in seqnums]))
    assert planted.found("with aux data that nobody left there").violations


@pytest.mark.usefixtures("curious")
def test_aux_data_that_comes_back_wrong_from_its_backup_is_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = aux_rules.decode_chunk
    planted.shape(lambda drawn: replace(slow(drawn), engine=replace(drawn.engine, aux_backup_s=0.2)))
    again = [Fault(1.0, "kill", f"engine-{number}", 0.1) for number in (1, 2, 3)]
    assert run_seed(1, "calm", script=again, work_s=3).ok
    monkeypatch.setattr(aux_rules, "decode_chunk", lambda chunk: [(one + 1, data) for one, data in before(chunk)])
    assert planted.found("with aux data that nobody left there", faults=again, work_s=3).violations


@pytest.mark.usefixtures("curious")
def test_streams_that_are_forgotten_too_young_are_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that asks for them to be forgotten whatever their age."""
    monkeypatch.setattr(Expiry, "forget_before_ms", lambda self, book: 2**62)
    planted.shape(slow)
    assert any("lock-" in text for text in planted.found("to end at None, but it had").violations)


@pytest.mark.usefixtures("curious")
def test_a_condition_on_what_was_forgotten_that_is_let_through_is_found(
    planted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Verdicts, "raise_floor", lambda self, book, seqnum: None)
    planted.shape(fast)
    assert any("lock-" in text for text in planted.found("but it had", seeds=range(1, 30)).violations)
