"""LACs of stored last entries: never another entry's, and bounded."""

from __future__ import annotations

from typing import Any

import pytest

from boki_bookie.serve import lac
from boki_common import limits


def test_a_lac_belongs_to_the_entry_that_carries_it(world: Any) -> None:
    lacs = lac.StoredLacs()
    assert lacs.of(1, 4) is None
    assert lacs.remember(1, 4, world.body(1, 4)) == lac.lac_of(world.body(1, 4)) == 3
    assert lacs.of(1, 4) == 3
    assert lacs.of(1, 5) is None
    assert lacs.remember(1, 5, world.body(1, 5, lac=-1)) == -1
    assert (lacs.of(1, 5), lacs.of(1, 4)) == (-1, None)


def test_watchers_are_notified_of_their_ledger_until_they_are_removed() -> None:
    watchers = lac.LacWatchers()
    notified: list[tuple[str, bool]] = []

    def once(fenced: bool) -> None:
        notified.append(("once", fenced))
        watchers.forget(1, once)

    def always(fenced: bool) -> None:
        notified.append(("always", fenced))

    assert not watchers
    watchers.watch(1, once)
    watchers.watch(1, always)
    watchers.changed(2)
    watchers.changed(1)
    watchers.changed(1, fenced=True)
    assert notified == [("once", False), ("always", False), ("always", True)]
    watchers.forget(1, once)
    watchers.forget(1, always)
    assert not watchers


def test_the_oldest_is_forgotten(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BOOKIE_LEDGERS_REMEMBERED", 2)
    lacs = lac.StoredLacs()
    for ledger_id in (1, 2, 1, 3):
        lacs.remember(ledger_id, 4, world.body(ledger_id, 4))
    assert [lacs.of(ledger_id, 4) for ledger_id in (1, 2, 3)] == [3, None, 3]
