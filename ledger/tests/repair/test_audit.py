"""What an audit says of a few ledgers."""

from __future__ import annotations

import json

from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.ids import BookieId
from boki_ledger.repair.audit import LISTED, audit_of, describe
from boki_ledger.repair.plan import FOR_GOOD

A, B, C, D = map(BookieId, "abcd")
CLOSED = LedgerMetadata(3, 3, 2, ((0, (A, B, C)),), LedgerState.CLOSED, last_entry=9, length=100)
EMPTY = LedgerMetadata(3, 3, 2, ((0, (A, B, C)),), LedgerState.CLOSED)
OPEN = LedgerMetadata(3, 3, 2, ((0, (A, B, C)),))
CHANGED = LedgerMetadata(3, 3, 2, ((0, (A, B, C)), (4, (D, B, C))))


def test_what_is_missing_and_what_is_due() -> None:
    ledgers = {1: CLOSED, 2: EMPTY, 3: OPEN, 4: CHANGED, 5: None, 6: LedgerMetadata(1, 1, 1, ((0, (D,)),))}
    audit = audit_of(ledgers, {A: 700.0}, 4, grace_s=600.0)
    assert [one.urgency.ledger_id for one in audit.missing] == [4, 1, 2, 3]
    assert [one.urgency.ledger_id for one in audit.due] == [4, 1, 2], "an open ledger is its writer's"
    found = describe(audit)
    assert json.loads(json.dumps(found)) == found
    assert found["unreadable_ledgers"] == [5]
    assert (found["missing_entries"], found["missing_bytes"], found["due_ledgers"]) == (14, 100, 3)
    assert {one["ledger_id"]: one["written"] for one in found["most_urgent"]} == {4: False, 1: False, 2: False, 3: True}


def test_within_the_grace_nothing_is_due_and_what_is_retired_always_is() -> None:
    assert not audit_of({1: CLOSED}, {A: 599.0}, 4, grace_s=600.0).due
    assert audit_of({1: CLOSED}, {A: FOR_GOOD}, 4, grace_s=600.0).due
    assert describe(audit_of({1: CLOSED}, {A: FOR_GOOD}, 4, grace_s=600.0))["away"] == [
        {"bookie": "a", "retired": True, "away_s": None}
    ]


def test_a_report_names_some_of_very_many() -> None:
    found = describe(audit_of(dict.fromkeys(range(3 * LISTED), CLOSED), {A: 0.0}, 9, grace_s=1.0))
    assert (found["missing_ledgers"], len(found["most_urgent"])) == (3 * LISTED, LISTED)
