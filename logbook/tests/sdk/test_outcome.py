"""Outcomes as values, and what the status of an engine says about those who wait."""

from __future__ import annotations

from typing import Any

import pytest

import boki
from boki._outcome import why_of

SHARD = {"submitted_entries": 5, "acked_entries": 5, "cut_entries": 5, "ledger_id": 9}


@pytest.mark.parametrize(
    ("status", "waits_for", "word"),
    [
        ({"ready": False, "shard": None}, "engine", "started"),
        ({"ready": False, "logs": [{"sequencer": False}]}, "sequencer", "no sequencer"),
        ({"ready": True, "term": 3, "shard": None}, "sequencer", "term 3"),
        ({"ready": True, "shard": {**SHARD, "acked_entries": 4}}, "bookies", "ledger 9"),
        ({"ready": True, "shard": {**SHARD, "cut_entries": 4}}, "sequencer", "not ordered"),
        ({"ready": True, "shard": SHARD, "lag_entries": 7}, "engine", "7 metalog entries"),
        ({"ready": True, "shard": SHARD, "lag_entries": 0}, "order", "on its way"),
        ({}, "order", "the engine"),
    ],
)
def test_what_an_engine_waits_for(status: dict[str, Any], waits_for: str, word: str) -> None:
    why = why_of("the engine", status)
    assert why.waits_for == waits_for
    assert word in str(why)
    assert why.engine == status


def test_outcomes_are_values() -> None:
    assert boki.Committed(5) == boki.Committed(5) != boki.Committed(6)
    assert boki.Never() == boki.Never()
    assert len({boki.Committed(5), boki.Committed(5), boki.Never()}) == 2
