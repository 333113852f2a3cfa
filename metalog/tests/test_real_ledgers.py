"""The same scenarios on the real ledger client, with bookies in memory: the port means what the model says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_common.bookkeeper import layout
from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.errors import BokiError, TermEndedMeanwhile, TermOver
from boki_common.ids import Position
from boki_ledger.client import LedgerClient
from boki_ledger.ledgers import Ledgers
from boki_ledger.testing.ledgers import make_cookie
from boki_ledger.testing.scripted_bookies import ScriptedBookies
from boki_metalog.control.log_changes import LogChanges
from boki_metalog.control.policies import DATA, Cluster, GiveUpSpares, _has_entries
from boki_metalog.entries.metalog_entry import Expire, Trim
from boki_metalog.entries.progress import ShardRange
from boki_metalog.errors import ShardNotOpen
from boki_metalog.sequencer.sequencer_watch import SequencerWatch
from boki_metalog.sequencer.spare_offer import INCARNATION, ROLE
from boki_metalog.settings import ControllerSettings, SequencerSettings

A = "aa" * 16


@pytest.fixture
async def bookies(cluster: Any) -> ScriptedBookies:
    """Three bookies, used by everything that the cluster starts."""
    store = await cluster.store()
    await layout.init_cluster(store)
    bookies = ScriptedBookies(["b1", "b2", "b3"])
    for bookie in bookies.bookies:
        await make_cookie(store, bookie)
    client = LedgerClient(metadata=store, rng=cluster.rng, bookies=bookies)
    await client.start()
    cluster._closing.append(client.close)
    ledgers: Ledgers = client
    cluster.ledgers = ledgers
    return bookies


async def test_terms_on_real_ledgers(cluster: Any, bookies: ScriptedBookies) -> None:
    engine = await cluster.follow()
    for term in (1, 2, 3):
        sequencer = await cluster.replace()
        assert sequencer.term == term
        link = await engine.seen.linked(term)
        shard = await link.open_shard(A, 1_000 + term)
        link.report(shard, 4, 1)
        link.report(shard, 7, 2)
        await engine.seen.until(lambda: engine.seen.vector.end_pos == 7)
        await link.close_shard(shard)
        with pytest.raises(ShardNotOpen):
            await link.open_shard(A, 1_000 + term)
    late = await cluster.up_to(3, read_entries=1)
    assert late.seen.entries == engine.seen.entries
    assert engine.seen.ranges[2] == [ShardRange(0, 0, 7, 0, 2, 0)]


async def test_a_bookie_dies_in_the_middle_of_a_term(cluster: Any, bookies: ScriptedBookies) -> None:
    engine = await cluster.follow()
    await cluster.replace()
    link = await engine.seen.linked(1)
    await link.open_shard(A, 1_001)
    bookies.crash("b3")
    link.report(0, 4, 1)
    await engine.seen.until(lambda: engine.seen.vector.end_pos == 4)
    await cluster.replace()
    link = await engine.seen.linked(2)
    assert engine.seen.count(1) == 2
    await link.open_shard(A, 1_002)


async def test_what_one_bookie_has_is_never_seen_before_its_quorum_or_recovery(
    cluster: Any, bookies: ScriptedBookies
) -> None:
    engine = await cluster.follow()
    await cluster.replace()
    link = await engine.seen.linked(1)
    await link.open_shard(A, 1_001)
    held = [bookies.hold(bookie=name, kind="add") for name in ("b2", "b3")]
    link.report(0, 4, 1)
    late = await cluster.up_to(1)
    assert late.seen.count(1) == engine.seen.count(1) == 1
    for hold in held:
        hold.release()
    await engine.seen.until(lambda: engine.seen.vector.end_pos == 4)


async def test_old_entries_come_from_a_ledger_that_is_still_written(cluster: Any, bookies: ScriptedBookies) -> None:
    await cluster.serving(recent_entries=1)
    engine, link = await cluster.linked(1)
    for ledger in range(5):
        await link.open_shard(A, 1_000 + ledger)
    late = await cluster.up_to(1)
    assert late.seen.entries == engine.seen.entries and "caught up" in late.seen.events
    await link.open_shard(A, 2_000)
    await late.seen.until(lambda: late.seen.count(1) == 6)


async def test_commands_and_barriers_reach_every_follower_and_the_ledger(
    cluster: Any, bookies: ScriptedBookies
) -> None:
    engine = await cluster.follow()
    await cluster.replace()
    link = await engine.seen.linked(1)
    commands = (Trim(1, ((0, 99), (7, 3)), True), Expire(1, bytes(16), 4))
    assert [await link.order(command) for command in commands] == [Position(1, 1), Position(1, 2)]
    assert await link.barrier() == Position(1, 2), "what was ordered, for which the bookies vouch without an entry"
    await cluster.replace()
    late = await cluster.up_to(2)
    assert [entry.commands for entry in late.seen.entries[1]] == [(commands[0],), (commands[1],)]
    assert late.seen.entries[1] == engine.seen.entries[1]


async def test_a_sequencer_whose_metalog_was_recovered_behind_its_back_proves_nothing(
    cluster: Any, bookies: ScriptedBookies
) -> None:
    engine = await cluster.follow()
    sequencer = await cluster.replace()
    link = await engine.seen.linked(1)
    assert await link.barrier() == Position(1, 1)
    reader = await cluster.ledgers.open(sequencer.status()["term"]["metalog_ledger"], recover=True)
    assert sequencer.term == 1, "it does not know"
    asked = await asyncio.gather(link.barrier(), link.order(Trim(1, ((0, 9),), False)), return_exceptions=True)
    assert [type(one) for one in asked] == [TermOver, TermEndedMeanwhile], (
        "the order was in an entry, perhaps on some bookies"
    )
    assert reader.last_entry == 0
    await reader.close()


async def test_a_sequencer_whose_metalog_was_recovered_learns_it_from_the_bookies(
    cluster: Any, bookies: ScriptedBookies
) -> None:
    """As above, and nothing was to be ordered: the bookies refuse to hold an entry again for a ledger that is fenced."""
    engine = await cluster.follow()
    sequencer = await cluster.replace()
    link = await engine.seen.linked(1)
    assert [await link.barrier() for _ in range(3)] == [Position(1, 1)] * 3
    reader = await cluster.ledgers.open(sequencer.status()["term"]["metalog_ledger"], recover=True)
    assert sequencer.term == 1, "it does not know"
    with pytest.raises(TermOver) as caught:
        await link.barrier()
    assert caught.value.definite and reader.last_entry == 0
    await reader.close()


async def test_a_planned_term_is_not_fenced(cluster: Any, bookies: ScriptedBookies) -> None:
    sequencer = await cluster.serving()
    engine, link = await cluster.linked(1)
    link.report(await link.open_shard(A, 1_001), 4, 1)
    await engine.seen.until(lambda: engine.seen.vector.end_pos == 4)
    metalog = sequencer.status()["term"]["metalog_ledger"]
    await LogChanges(await cluster.store(), cluster.ledgers, cluster.rng, retry_first_s=0.005).roll(0)
    await engine.seen.linked(2)
    metadata = await cluster.ledgers.metadata_of(metalog)
    assert (metadata.state, metadata.last_entry) == (LedgerState.CLOSED, 1)
    assert not any(bookie.fenced.get(metalog) for bookie in bookies.bookies.values())


async def test_empty_data_ledgers_of_the_dead_are_deleted_and_others_not_disturbed(
    cluster: Any, bookies: ScriptedBookies
) -> None:
    store = await cluster.store()
    custom = {ROLE: DATA, INCARNATION: A.encode()}
    empty, written = [await cluster.ledgers.create(custom=custom) for _ in range(2)]
    await written.append(b"records")
    assert not await _has_entries(cluster.ledgers, empty.ledger_id)
    assert await _has_entries(cluster.ledgers, written.ledger_id)
    changes = LogChanges(store, cluster.ledgers, cluster.rng)
    watch = SequencerWatch(store, SequencerSettings(), on_change=lambda: None)
    given = Cluster(store, cluster.ledgers, ControllerSettings(absent_s=0.0), changes, watch)
    await GiveUpSpares().run(given)
    assert await cluster.ledgers.list() == [written.ledger_id]
    assert await written.append(b"more") == 1, "nobody fenced it"
    with pytest.raises(BokiError):
        await empty.append(b"late")
    await watch.close()
