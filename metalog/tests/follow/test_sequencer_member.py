"""Finding a sequencer, and asking it directly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_common.cluster_token import NO_TOKEN
from boki_common.errors import CorruptData, MetadataUnavailable, TermOver, Unreachable
from boki_common.metadata.membership import Membership
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.permissions import ADMINISTRATOR
from boki_metalog.follow.sequencer_member import address_of, ask_sequencer, ask_to_yield, sequencer_path


async def test_a_listed_sequencer(cluster: Any) -> None:
    store = await cluster.store()
    sequencer = await cluster.sequencer(store=store)
    assert await address_of(store, sequencer.incarnation) == sequencer.address
    assert await address_of(store, "00" * 16) is None


@pytest.mark.parametrize("value", [b"", b"{}", b'{"address": "nowhere", "spares": []}'])
async def test_a_listing_that_cannot_be_read(cluster: Any, value: bytes) -> None:
    store = await cluster.store()
    membership = await Membership.join(store, sequencer_path("aa"), value)
    with pytest.raises(CorruptData, match=sequencer_path("aa")):
        await address_of(store, "aa")
    await membership.leave()


async def test_the_direct_call(sequencer: Any) -> None:
    welcome = await ask_sequencer(sequencer.address, timeout_s=2.0, token=NO_TOKEN)
    assert (welcome.incarnation, welcome.term, welcome.serving) == (sequencer.incarnation, 1, True)
    await sequencer.close()
    with pytest.raises(Unreachable):
        await ask_sequencer(sequencer.address, timeout_s=2.0, token=NO_TOKEN)


async def test_a_term_that_is_asked_to_end_closes_its_metalog_after_the_entry_in_flight(cluster: Any) -> None:
    sequencer, engine = await cluster.served()
    cluster.ledgers.hold_acks = True
    opening = asyncio.create_task(engine.open(1, "aa" * 16, 50))
    await engine.round_trip()
    asking = asyncio.create_task(ask_to_yield(sequencer.address, 1, timeout_s=10.0, token=NO_TOKEN, role=ADMINISTRATOR))
    await cluster.until(lambda: sequencer.term_server._yields)
    metalog = cluster.metalog(sequencer)
    assert sequencer.term == 1 and not metalog.closed and not asking.done(), "an entry is in flight"
    metalog.ack()
    await asking
    assert await opening == 0, "what was in flight was ordered, and answered"
    assert metalog.closed_by_writer and metalog.acked == 1 and sequencer.term == 0
    assert protocol.decode_term(await engine.pushed(protocol.OP_TERM_OVER)) == 1
    with pytest.raises(TermOver):
        await ask_to_yield(sequencer.address, 1, timeout_s=10.0, token=NO_TOKEN, role=ADMINISTRATOR)


async def test_only_the_term_that_is_named_ends(sequencer: Any) -> None:
    with pytest.raises(TermOver):
        await ask_to_yield(sequencer.address, 2, timeout_s=10.0, token=NO_TOKEN, role=ADMINISTRATOR)
    assert sequencer.term == 1


async def test_who_asked_is_answered_that_the_metalog_is_open_still(cluster: Any) -> None:
    sequencer = await cluster.serving()
    cluster.ledgers.faults.append(("close", MetadataUnavailable("away")))
    with pytest.raises(MetadataUnavailable):
        await ask_to_yield(sequencer.address, 1, timeout_s=10.0, token=NO_TOKEN, role=ADMINISTRATOR)
    assert sequencer.term == 0 and not sequencer.failed.done(), "it stands by"
