"""Finding a sequencer, and asking it directly."""

from __future__ import annotations

from typing import Any

import pytest

from boki_common.errors import CorruptData, Unreachable
from boki_common.metadata.membership import Membership
from boki_metalog.sequencer_member import address_of, ask_sequencer, sequencer_path


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


async def test_the_direct_call(cluster: Any) -> None:
    sequencer = await cluster.sequencer()
    await sequencer.serving()
    welcome = await ask_sequencer(sequencer.address, timeout_s=2.0)
    assert (welcome.incarnation, welcome.term, welcome.serving) == (sequencer.incarnation, 1, True)
    await sequencer.close()
    with pytest.raises(Unreachable):
        await ask_sequencer(sequencer.address, timeout_s=2.0)
