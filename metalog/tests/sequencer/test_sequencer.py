"""The life of a sequencer: first start, stand by, take over, fenced, full, restarted."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from boki_common import limits
from boki_common.cluster_token import NO_TOKEN
from boki_common.errors import NotEnoughBookies, ProtocolError, TermOver
from boki_common.metadata.membership import members
from boki_common.metadata.memory import Fault
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.metalog_entry import decode
from boki_metalog.entries.permissions import PARTICIPANT
from boki_metalog.errors import SpareTaken
from boki_metalog.follow.sequencer_member import sequencer_members
from boki_metalog.terms import term_plan
from boki_metalog.terms.metadata_tree import ensure_view, read_record, read_view
from boki_metalog.terms.term_change import change_term, change_terms
from boki_metalog.terms.term_plan import Candidate
from boki_metalog.terms.view import VIEW_PATH, View, encode_view

A, B = "aa" * 16, "bb" * 16


async def test_first_start_creates_view_and_term(cluster: Any) -> None:
    sequencer = await cluster.sequencer()
    assert await sequencer.serving() == 1 and sequencer.term == 1
    store = await cluster.store()
    installed = (await cluster.view()).installed(0)
    assert installed is not None and installed.sequencer == sequencer.incarnation
    found: dict[str, Any] = {}
    while not found.get(sequencer.incarnation, {}).get("spares"):
        found = await members(store, "sequencer")
    assert found[sequencer.incarnation]["address"] == str(sequencer.address)
    assert installed.metalog_ledger not in found[sequencer.incarnation]["spares"]
    assert sequencer.status()["term"]["metalog_ledger"] == installed.metalog_ledger


async def test_a_restarted_sequencer_replaces_the_term_of_its_dead_predecessor(cluster: Any) -> None:
    store = await cluster.store()
    first, engine = await cluster.served(store=store)
    cluster.clock.ms = 9_000
    await engine.open(1, A, 50)
    address = str(first.address)
    await first.close()
    cluster.clock.ms = 10
    second = await cluster.sequencer(address=address)
    assert await second.serving() == 2
    record = await read_record(store, 1)
    assert (record.last_entry, record.last_time_ms, record.end_pos) == (0, 9_000, 0)
    engine = await cluster.participant(second.address)
    await engine.subscribe(2)
    await engine.open(2, A, 60)
    assert decode((await engine.entries()).payloads[0]).time_ms == 9_000, "time never runs back, over terms"


async def test_a_predecessor_that_is_still_listed_but_gone(cluster: Any) -> None:
    """Killed, not closed: its ephemeral node lingers, its port answers for the new process."""
    store = await cluster.store()
    first = await cluster.serving(store=store)
    await first._process._server.close()
    second = await cluster.sequencer(address=str(first.address))
    assert await second.serving() == 2
    assert first.incarnation in await members(store, "sequencer")


async def test_a_standby_waits_for_a_sequencer_that_answers(cluster: Any) -> None:
    first = await cluster.serving()
    second = await cluster.sequencer()
    waiting = asyncio.ensure_future(second.serving())
    participant = await cluster.participant(second.address)
    welcome = protocol.decode_welcome(
        await participant.peer.call(protocol.OP_HELLO, protocol.encode_hello(token=NO_TOKEN, role=PARTICIPANT))
    )
    assert (welcome.term, welcome.serving) == (0, False)
    with pytest.raises(TermOver, match="stands by"):
        await participant.subscribe(1)
    assert not waiting.done() and first.term == 1
    await first.close()
    assert await waiting == 2


async def test_taking_over_ends_a_living_sequencer(cluster: Any) -> None:
    first, engine = await cluster.served()
    await engine.open(1, A, 50)
    second = await cluster.sequencer(take_over=True)
    assert await second.serving() == 2
    assert protocol.decode_term(await engine.pushed(protocol.OP_TERM_OVER)) == 1
    with pytest.raises(TermOver):
        await engine.open(1, A, 51)
    assert first.term == 0 and not first.failed.done()
    await second.close()
    assert await first.serving() == 3, "it stood by, and offers a ledger that it made since"


async def test_a_fenced_sequencer_acknowledges_nothing(cluster: Any) -> None:
    """It cannot see the view, only its ledger; the entry that it submits after the fence is pushed to nobody."""
    store = await cluster.store()
    first, engine = await cluster.served(store=store)
    await engine.open(1, A, 50)
    await engine.subscribe(1, 1)
    store.disconnect()
    second = await cluster.serving(take_over=True)
    assert first.term == 1, "it does not know"
    engine.report(1, s0=(5, 1))
    await engine.pushed(protocol.OP_TERM_OVER)
    assert engine.received == []
    await cluster.until(lambda: not first.term)
    store.reconnect()
    await second.close()
    assert await first.serving() == 3


async def test_a_full_term_is_replaced_by_its_own_sequencer(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "POSITION_MAX", 10)
    sequencer, engine = await cluster.served()
    await engine.open(1, A, 50)
    engine.report(1, s0=(8, 1))
    engine.report(1, s0=(16, 2))
    await engine.pushed(protocol.OP_TERM_OVER)
    while sequencer.term != 2:
        await engine.round_trip()
    record = await read_record(await cluster.store(), 1)
    assert record.end_pos == 8
    assert await engine.open(2, A, 51) == 0
    assert not sequencer.failed.done()


async def test_full_terms_follow_each_other_without_a_pause(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What slows down suspicions does not slow down a sequencer that goes on by itself."""
    monkeypatch.setattr(limits, "POSITION_MAX", 10)
    sequencer, engine = await cluster.served(backoff_first_s=60.0)
    for term in range(1, 6):
        while sequencer.term != term:
            await asyncio.sleep(0)
        shard = await engine.open(term, A, 50 + term)
        engine.report(term, **{f"s{shard}": (16, 2)})


async def test_bookies_that_come_later(cluster: Any) -> None:
    cluster.ledgers.faults += [("create", NotEnoughBookies("1 of 2 bookies are up"))] * 3
    sequencer = await cluster.sequencer()
    assert await sequencer.serving() == 1


async def test_a_metadata_store_that_is_away_for_a_while(cluster: Any) -> None:
    store = await cluster.store()
    sequencer, engine = await cluster.served(store=store)
    await engine.open(1, A, 50)
    store.disconnect()
    engine.report(1, s0=(2, 1))
    await engine.subscribe(1)
    await engine.round_trip()
    store.reconnect()
    await engine.open(1, B, 51)
    assert sequencer.term == 1 and sequencer.status()["term"]["end_pos"] == 2


async def test_hello_comes_first(cluster: Any, sequencer: Any) -> None:
    engine = await cluster.stranger(sequencer.address)
    with pytest.raises(ProtocolError, match="HELLO"):
        await engine.peer.call(protocol.OP_STATUS)
    await engine.lost.wait()


async def test_stopping_while_the_metadata_store_is_away(cluster: Any) -> None:
    store = await cluster.store()
    sequencer = await cluster.serving(store=store)
    store.disconnect()
    await sequencer.close()
    await sequencer.close()
    second = await cluster.sequencer()
    assert await second.serving() == 2


async def test_a_listing_that_its_keeper_writes_at_the_same_time(cluster: Any) -> None:
    """Both write the same value; whose swap loses is no reason to stop."""
    store = await cluster.store()
    first: list[str] = []

    def plan(operation: str, path: str) -> Fault:
        if operation == "set" and path.startswith("/boki/members/sequencer/") and not first:
            first.append(path)
            cluster.tree.set(path, b"{}", cluster.tree.get(path).version)
        return Fault.NONE

    store.faults = plan
    sequencer = await cluster.sequencer(store=store)
    assert await sequencer.serving() == 1 and first
    while not (await members(store, "sequencer"))[sequencer.incarnation].get("spares"):
        await asyncio.sleep(0)


async def test_a_spare_that_lost_a_race_but_never_was_a_metalog_is_offered_again(cluster: Any) -> None:
    """Another driver's swap comes first."""
    store = await cluster.store()
    view, version = await ensure_view(store)
    rival = (await cluster.ledgers.create()).ledger_id
    taken = view.with_term(0, ledger_id=rival, sequencer="ff" * 16, token="", start_time_ms=0)

    def plan(operation: str, path: str) -> Fault:
        if (operation, path) == ("set", VIEW_PATH) and cluster.tree.get(VIEW_PATH).version == version:
            cluster.tree.set(VIEW_PATH, encode_view(taken), version)
        return Fault.NONE

    store.faults = plan
    sequencer = await cluster.sequencer(store=store)
    assert await sequencer.serving() == 2
    assert (await read_record(store, 1)).metalog_ledger == rival
    assert sequencer.status()["term"]["metalog_ledger"] == rival + 1, "its first spare"


async def give(cluster: Any, log: int, incarnation: str) -> View:
    """A driver elsewhere installs the spare that a sequencer lists."""
    store = await cluster.store()
    members = await sequencer_members(store)
    view, _ = await change_term(
        metadata=store,
        ledgers=cluster.ledgers,
        rng=cluster.rng,
        log=log,
        suspect=(await cluster.view()).term_of(log),
        candidate=Candidate(incarnation, members[incarnation].spares[0]),
    )
    return view


async def spare_of(cluster: Any, incarnation: str) -> int:
    """Waits until the sequencer lists a spare that no view names."""
    store = await cluster.store()
    while True:
        members = await sequencer_members(store)
        view = await cluster.view()
        named = {one.metalog_ledger for one in view.logs.values() if one is not None}
        spares = [one for one in members[incarnation].spares if one not in named] if incarnation in members else []
        if spares:
            return spares[0]
        await asyncio.sleep(0)


async def test_a_spare_that_was_used_unnoticed_is_given_up(cluster: Any) -> None:
    """A driver installed it and another one replaced it, while this process could not see the view."""
    first = await cluster.serving()
    store = await cluster.store()
    second = await cluster.sequencer(store=store)
    spare = await spare_of(cluster, second.incarnation)
    store.disconnect()
    await give(cluster, 0, second.incarnation)
    await spare_of(cluster, first.incarnation)
    await give(cluster, 0, first.incarnation)
    await first.close()
    store.reconnect()
    assert await second.serving() == 4
    assert second.status()["term"]["metalog_ledger"] != spare


async def test_a_sequencer_is_given_its_own_next_term(cluster: Any, sequencer: Any, engine: Any) -> None:
    """A planned roll: it goes on, on the spare that it listed while it served."""
    await engine.open(1, A, 50)
    for term in (2, 3):
        await spare_of(cluster, sequencer.incarnation)
        view = await give(cluster, 0, sequencer.incarnation)
        assert view.term_of(0) == term
        while sequencer.term != term:
            await asyncio.sleep(0)
    assert await engine.open(3, A, 51) == 0
    assert not sequencer.failed.done()


async def test_a_term_that_somebody_ended_is_left_to_him(cluster: Any) -> None:
    """A driver fenced the metalog and has not swapped yet: neither the sequencer nor a standby comes in between."""
    sequencer = await cluster.serving()
    standby = await cluster.sequencer()
    await spare_of(cluster, standby.incarnation)
    engine = await cluster.participant(sequencer.address)
    await engine.open(1, A, 50)
    await (await cluster.ledgers.open(0, recover=True)).close()
    engine.report(1, s0=(5, 1))
    await engine.pushed(protocol.OP_TERM_OVER)
    for _ in range(100):
        await engine.round_trip()
    assert (sequencer.term, standby.term) == (0, 0)
    assert (await give(cluster, 0, standby.incarnation)).term_of(0) == 2
    assert await standby.serving() == 2


async def test_nobody_lives_to_end_what_he_began(cluster: Any) -> None:
    """The driver that fenced the metalog is gone: after the grace the term is replaced."""
    sequencer, engine = await cluster.served(over_grace_s=0.05)
    await engine.open(1, A, 50)
    await (await cluster.ledgers.open(0, recover=True)).close()
    engine.report(1, s0=(5, 1))
    await engine.pushed(protocol.OP_TERM_OVER)
    await cluster.until(lambda: sequencer.term == 2)


async def add_logs(cluster: Any, *logs: int) -> None:
    store = await cluster.store()
    view, version = await ensure_view(store)
    await store.set(VIEW_PATH, encode_view(view.with_logs(logs)), version=version)


async def test_standbys_for_any_log_take_one_each(cluster: Any) -> None:
    sequencers = [await cluster.sequencer(standby_stagger_s=0.0) for _ in range(3)]
    await add_logs(cluster, 1)
    await cluster.until(lambda: sum(one.term > 0 for one in sequencers) == 2)
    serving = {one.log: one for one in sequencers if one.term}
    (standby,) = [one for one in sequencers if one not in serving.values()]
    assert sorted(serving) == [0, 1] and standby.log is None
    lost = serving[1]
    await lost.close()
    await standby.serving()
    assert standby.log == 1 and serving[0].term


async def test_one_process_orders_one_log_at_a_time(cluster: Any, sequencer: Any) -> None:
    await add_logs(cluster, 1)
    store = await cluster.store()
    for _ in range(100):
        await read_view(store)
    assert (await cluster.view()).installed(1) is None
    with pytest.raises(SpareTaken):
        await give(cluster, 1, sequencer.incarnation)


async def test_a_sequencer_of_one_log_leaves_the_others_alone(cluster: Any) -> None:
    await add_logs(cluster, 1)
    sequencer = await cluster.serving(log=1)
    assert sequencer.log == 1
    await sequencer.close()
    await cluster.serving(log=0)
    view = await cluster.view()
    assert view.term_of(1) == 1 and view.term_of(0) == 2


async def test_a_log_that_left_the_view_sets_its_sequencer_free(cluster: Any) -> None:
    await add_logs(cluster, 1)
    first, second = await cluster.sequencer(log=0), await cluster.sequencer()
    await first.serving()
    await second.serving()
    await spare_of(cluster, first.incarnation)
    store = await cluster.store()

    async def nobody(_view: View, logs: tuple[int, ...]) -> dict[int, Candidate]:
        assert logs == (), "a log without slots leaves nothing to anybody"
        return {}

    view, _ = await change_terms(
        metadata=store,
        ledgers=cluster.ledgers,
        rng=cluster.rng,
        decide=partial(term_plan.remove, log=1),
        choose=nobody,
    )
    assert sorted(view.logs) == [0]
    await cluster.until(lambda: not second.term)
    await asyncio.sleep(0)
    assert not second.failed.done() and first.term == view.term_of(0)
