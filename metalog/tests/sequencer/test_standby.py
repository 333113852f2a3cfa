"""Which log a standby takes, and when; with real sequencers beside it."""

from __future__ import annotations

import asyncio
from typing import Any

from boki_metalog.sequencer.standby import Standby
from boki_metalog.sequencer.standby_rules import Step
from boki_metalog.settings import SequencerSettings
from boki_metalog.terms.metadata_tree import ensure_view
from boki_metalog.terms.view import NewTerm, View

ME = "aa" * 16


async def standby(cluster: Any, only: int | None = None, **settings: float) -> Standby:
    chosen = {"standby_check_s": 0.02, "over_grace_s": 60.0, "backoff_first_s": 60.0} | settings
    return Standby(
        await cluster.store(),
        ME,
        only=only,
        settings=SequencerSettings(**chosen),  # type: ignore[arg-type]
        rng=cluster.rng,
        on_change=lambda: None,
    )


async def until_due(one: Standby, view: View) -> int:
    async with asyncio.timeout(10):
        while True:
            step = await one.look(view)
            if step.log is not None:
                return step.log
            await asyncio.sleep(0)


async def test_a_log_without_term_is_due_at_once(cluster: Any) -> None:
    view = (await ensure_view(await cluster.store())).view
    one = await standby(cluster)
    assert await one.look(view) == Step(0, 0.0)
    other = await standby(cluster, only=1)
    assert await other.look(view) == Step(None, 0.02), "there is no log 1"
    assert await other.look(view.with_logs([1])) == Step(1, 0.0)


async def test_a_dead_sequencer_is_replaced_and_a_log_is_not_suspected_again_at_once(cluster: Any) -> None:
    await ensure_view(await cluster.store())
    view = (await ensure_view(await cluster.store())).view
    dead = view.with_terms({0: NewTerm(5, "dd" * 16, 0)}, token="t")
    one = await standby(cluster)
    assert await until_due(one, dead) == 0
    one.changed(0)
    dead_again = dead.with_terms({0: NewTerm(6, "dd" * 16, 0)}, token="t")
    while (step := await one.look(dead_again)).pause_s == 0.02:
        await asyncio.sleep(0)
    assert step.log is None and step.pause_s is not None and step.pause_s > 50.0
    await one.close()


async def test_our_own_full_term_is_replaced_at_once_another_end_after_the_grace(cluster: Any) -> None:
    view = (await ensure_view(await cluster.store())).view.with_logs([1])
    mine = view.with_terms({0: NewTerm(5, ME, 0)}, token="t")
    one = await standby(cluster)
    step = await one.look(mine)
    assert step.log is None and step.pause_s is not None and step.pause_s > 50.0, "and log 1 is not ours meanwhile"
    one.replace_at_once(0, 1)
    assert await one.look(mine) == Step(0, 0.0)
    one.rest()
    assert (await one.look(mine)).log is None
