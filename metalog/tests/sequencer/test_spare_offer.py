"""A sequencer offers one ledger of its own at a time, listed; what was taken or dropped is not offered again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from boki_common.errors import NotEnoughBookies
from boki_common.metadata.membership import members
from boki_metalog.sequencer.spare_offer import SpareOffer
from boki_metalog.settings import SequencerSettings
from boki_metalog.terms.metadata_tree import ensure_view

ME = "5e" * 16


async def listed(cluster: Any) -> list[int]:
    return list((await members(await cluster.store(), "sequencer"))[ME]["spares"])


@pytest.fixture
async def offers(cluster: Any) -> Any:
    store = await cluster.store()
    await ensure_view(store)
    made = SpareOffer(cluster.ledgers, ME, SequencerSettings(), lambda spares: msgspec.json.encode({"spares": spares}))
    await made.join(store)
    yield made
    await made.membership.leave()


async def test_a_spare_is_made_once_and_listed_until_it_is_taken(cluster: Any, offers: SpareOffer) -> None:
    assert await listed(cluster) == [] and offers.ledger_id is None
    first = await offers.offer()
    assert tuple(first) == (ME, offers.ledger_id) and await offers.offer() == first
    assert await listed(cluster) == [first.ledger_id]
    assert dict(cluster.ledgers.ledgers[first.ledger_id].custom)["boki.incarnation"] == ME.encode()
    assert offers.take().ledger_id == first.ledger_id and offers.writer is None
    second = await offers.offer()
    assert second.ledger_id != first.ledger_id and await listed(cluster) == [second.ledger_id]


async def test_what_is_dropped_is_left_as_it_is_and_another_one_offered(cluster: Any, offers: SpareOffer) -> None:
    first = await offers.offer()
    offers.drop()
    offers.drop()
    assert offers.writer is None and not cluster.ledgers.ledgers[first.ledger_id].closed
    assert (await offers.offer()).ledger_id != first.ledger_id


async def test_without_bookies_nothing_is_listed_and_the_next_offer_tries_again(
    cluster: Any, offers: SpareOffer
) -> None:
    cluster.ledgers.faults.append(("create", NotEnoughBookies("two of three are down")))
    with pytest.raises(NotEnoughBookies):
        await offers.offer()
    assert await listed(cluster) == []
    assert await listed(cluster) == [] and (await offers.offer()).ledger_id == offers.ledger_id
