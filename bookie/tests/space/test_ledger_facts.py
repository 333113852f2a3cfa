"""What a read of the metadata proves, and when nothing is believed."""

from __future__ import annotations

from typing import Any

import pytest

from boki_bookie.space.gc_rules import Fact
from boki_bookie.space.ledger_facts import REPAIR_LOCKS, Reading
from boki_common.bookkeeper import layout
from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.errors import MetadataUnavailable


async def test_a_read_says_gone_elsewhere_or_keep(collected: Any) -> None:
    await collected.ledger(1)
    await collected.ledger(2, state=LedgerState.OPEN, here=False)
    await collected.ledger(3)
    await collected.close_elsewhere(3)
    facts = [await collected.facts.read(ledger_id) for ledger_id in (1, 2, 3, 4)]
    assert facts == [
        Reading(Fact.KEEP, 0),
        Reading(Fact.KEEP, 0),
        Reading(Fact.ELSEWHERE, 1),
        Reading(Fact.GONE, -1),
    ]
    assert await collected.facts.listed() == {1, 2, 3}


async def test_metadata_that_cannot_be_read_keeps_its_ledger(collected: Any) -> None:
    await layout.create_ledger(collected.store, 1, b"no metadata")
    assert await collected.facts.read(1) == Reading(Fact.KEEP, 0)


async def test_a_store_that_is_away_says_nothing(collected: Any) -> None:
    collected.store.disconnect()
    with pytest.raises(MetadataUnavailable):
        await collected.facts.read(1)
    with pytest.raises(MetadataUnavailable):
        await collected.facts.is_trusted()
    collected.store.reconnect()
    assert await collected.facts.is_trusted()


async def test_a_lost_session_counts(collected: Any) -> None:
    assert collected.facts.session == 0
    collected.store.expire_session()
    assert collected.facts.session == 1


async def test_the_lock_of_repair_is_held_by_one(collected: Any) -> None:
    async with collected.facts.repair_lock(7) as ours:
        assert ours
        assert await collected.store.children(REPAIR_LOCKS) == ["urL0000000007"]
        async with collected.facts.repair_lock(7) as again:
            assert not again
        assert await collected.store.children(REPAIR_LOCKS) == ["urL0000000007"]
    assert await collected.store.children(REPAIR_LOCKS) == []
