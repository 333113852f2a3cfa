"""A sequencer that ends gives its log to one that stands by; without one it ends as it is."""

from __future__ import annotations

from typing import Any

from boki_common.cluster_token import NO_TOKEN
from boki_common.metadata.memory import Fault
from boki_metalog.control.handing_over import hand_over


async def handed_over(cluster: Any, sequencer: Any) -> bool:
    return await hand_over(
        sequencer, metadata=await cluster.store(), ledgers=cluster.ledgers, rng=cluster.rng, token=NO_TOKEN
    )


async def test_the_log_goes_to_the_standby_and_its_metalog_is_closed_by_its_writer(cluster: Any) -> None:
    first = await cluster.serving()
    second = await cluster.sequencer()
    await cluster.until(lambda: second.usable)
    metalog = cluster.metalog(first)
    assert await handed_over(cluster, first)
    view = await cluster.view()
    assert view.installed(0).sequencer == second.incarnation and view.term_of(0) == 2
    assert await second.serving() == 2
    assert metalog.closed_by_writer


async def test_with_nobody_to_take_it_the_log_keeps_its_term(cluster: Any) -> None:
    first = await cluster.serving()
    assert not await handed_over(cluster, first)
    assert first.term == 1
    second = await cluster.sequencer()
    await cluster.until(lambda: second.usable)
    assert await handed_over(cluster, second), "it stands by: there is nothing to hand over"


async def test_a_store_that_is_away_keeps_nobody_from_ending(cluster: Any) -> None:
    store = await cluster.store()
    first = await cluster.serving(store=store)
    store.faults = lambda operation, path: Fault.UNAVAILABLE
    assert not await hand_over(first, metadata=store, ledgers=cluster.ledgers, rng=cluster.rng, token=NO_TOKEN)
    assert first.term == 1
