"""What an engine's status says about those who wait, in sentences."""

from __future__ import annotations

from typing import Any

import pytest

from boki_common.engine.engine_waits import waits_of

SHARD: dict[str, Any] = {"submitted_entries": 5, "acked_entries": 5, "cut_entries": 5, "ledger_id": 9}
UP: dict[str, Any] = {"log": 0, "term": 3, "sequencer": True, "shard": SHARD, "lag_entries": 0}
QUEUED = {"batches": 4, "oldest_s": 2.5}
OLDEST = "; 4 batches of appends wait, the oldest for 2.5 s"


def of_log(**facts: Any) -> dict[str, Any]:
    return {"ready": True, "logs": [{**UP, **facts}]}


@pytest.mark.parametrize(
    ("status", "waits_for", "message"),
    [
        (
            of_log(sequencer=False, sequencer_away_s=7.25, queued=QUEUED, shard=None),
            "sequencer",
            "e (term 3) is connected to no sequencer since 7.2 s: is one up, and has it enough bookies?" + OLDEST,
        ),
        (
            of_log(sequencer=False, term_over=True),
            "term",
            "e (term 3) waits for the next term: the last one is over, and the view names no other yet",
        ),
        (
            of_log(shard=None),
            "sequencer",
            "e (term 3) has no shard open: it waits for a sequencer, or for bookies to open one",
        ),
        (
            of_log(
                shard={**SHARD, "acked_entries": 4, "cut_entries": 4, "unacked_s": 3.0, "failing_bookies": ["b1", "b2"]}
            ),
            "bookies",
            "e (term 3) waits for bookies to acknowledge entries of ledger 9, the oldest sent 3.0 s ago; failing: b1, b2",
        ),
        (
            of_log(shard={**SHARD, "failing_bookies": ["b1"]}),
            "bookies",
            "e (term 3) writes ledger 9 without failing bookies: b1",
        ),
        (
            of_log(unreadable=[{"ledger_id": 5, "first": 1, "last": 2, "error": "no"}]),
            "bookies",
            "e (term 3) cannot read entries 1 to 2 of ledger 5, which are ordered: no",
        ),
        (
            of_log(stopped={"term": 3, "entry": 7, "error": "no entry"}),
            "engine",
            "e (term 3) stops at entry 7 of the metalog of term 3, which it cannot apply: no entry",
        ),
        (
            of_log(waits_for_terms=[1, 2], lag_entries=4),
            "term",
            "e (term 3) indexes on when it has all of term 1, 2, which had its slots before",
        ),
        (of_log(lag_entries=4), "engine", "e (term 3) is 4 metalog entries behind"),
        (
            {**of_log(), "between_terms": QUEUED},
            "term",
            "e has appends whose slots no term orders now: they are moving" + OLDEST,
        ),
        (
            {**of_log(), "reads": {"positions": {"0": {"term": 4, "entry": 7}}}},
            "position",
            "e has reads that wait for log 0 to be indexed up to term 4 entry 7",
        ),
        ({"ready": False}, "engine", "e is still reading what was ordered before it started"),
    ],
)
def test_each_thing_to_wait_for(status: dict[str, Any], waits_for: str, message: str) -> None:
    (wait,) = waits_of("e", status)
    assert (wait.waits_for, wait.message) == (waits_for, message)


def test_several_logs_are_listed_apart_and_what_is_missing_comes_first() -> None:
    behind, alone = {**UP, "lag_entries": 2}, {**UP, "log": 1, "term": 4, "sequencer": False, "shard": None}
    waits = waits_of("e", {"ready": False, "logs": [behind, alone]})
    assert [(wait.waits_for, wait.log) for wait in waits] == [("sequencer", 1), ("engine", None), ("engine", 0)]
    assert waits[0].message.startswith("e (log 1, term 4) is connected to no sequencer:")


def test_nothing_waits_where_all_is_up_or_nothing_is_said() -> None:
    assert waits_of("e", of_log()) == waits_of("e", {}) == []
    assert waits_of("e", of_log(idle=True, sequencer=False, shard=None)) == [], "a log without slots waits for nothing"
