"""Terms are reclaimed in steps that may be repeated; whoever is behind one of them notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from boki_common.bookkeeper.layout import ledger_path
from boki_common.errors import MetadataUnavailable
from boki_common.ids import Position
from boki_ledger.testing.ledgers import Ledgers
from boki_logbook.index.places import ShardPlace
from boki_logbook.state.frontier import Frontier
from boki_logbook.state.snapshot_rules import NO_SNAPSHOT, SnapshotPoint
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RunSpec, make_batch, plain_records
from boki_logbook.upkeep import reclaim
from boki_logbook.upkeep.reclaim import Reclaimer, first_missed
from boki_metalog.entries.metalog_entry import Trim
from boki_metalog.follow.term_history import TermHistory
from boki_metalog.terms.metadata_tree import create_record, ensure_view, read_record
from boki_metalog.terms.term_record import DELETED, IN_LEDGERS, RECLAIMED, VERSION, Location, TermRecord, term_path
from boki_metalog.terms.view import SlotRange

SLOTS = (SlotRange(0, 1023),)
NODE = msgspec.structs.replace(NO_SNAPSHOT, ledgers=(99,), logs=(SnapshotPoint(0, 3, 0, False),))
FOR_EVER = 2**62


class Terms:
    """Terms 1 and 2 are over, with a record each; term 3 goes on."""

    def __init__(self) -> None:
        self.ledgers = Ledgers()
        self.state = DecisionState()
        self.frontier = Frontier()
        self.owned: dict[int, list[int]] = {}

    async def start(self) -> None:
        await self.ledgers.start()
        await ensure_view(self.ledgers.store)
        for term in (1, 2, 3):
            data, metalog = await self.ledgers.client.create(), await self.ledgers.client.create()
            self.owned[term] = [data.ledger_id, metalog.ledger_id]
            places = self.state.begin_term(term, 0, SLOTS)
            self.frontier.begin(term, 0, SLOTS, ())
            places.shards[0] = ShardPlace(term, 0, data.ledger_id, "ab" * 16)
            batch = make_batch(RunSpec(term, bytes(16), 1, plain_records("x")))
            self.state.apply_entry(places, batch, shard=0, entry=0, time_ms=0)
            if term < 3:
                self.state.end_term(term)
                self.frontier.end(term, 0)
                record = TermRecord(VERSION, term, 0, SLOTS, metalog.ledger_id, 0, 1, 0, Location())
                await create_record(self.ledgers.store, record)

    def trim(self, book: int) -> None:
        self.state.apply_command(self.state.places.terms[3], Trim(book, ((0, FOR_EVER),), False), time_ms=0)

    def reclaimer(self, grace_s: float = 0.0) -> Reclaimer:
        return Reclaimer(
            state=self.state,
            frontier=self.frontier,
            metadata=self.ledgers.store,
            ledgers=self.ledgers.client,
            grace_s=grace_s,
        )

    async def location(self, term: int) -> str:
        return (await read_record(self.ledgers.store, term)).location.kind

    async def left(self, term: int) -> set[int]:
        return set(self.owned[term]) & set(await self.ledgers.client.list())


@pytest.fixture
async def terms() -> AsyncIterator[Terms]:
    made = Terms()
    await made.start()
    yield made
    await made.ledgers.close()


async def test_only_dead_terms_that_a_snapshot_covers_are_due(terms: Terms) -> None:
    reclaimer = terms.reclaimer()
    assert reclaimer.due(NODE) == []
    for book in (1, 2, 3):
        terms.trim(book)
    assert reclaimer.due(NODE) == [1, 2], "the third is not over"
    assert reclaimer.due(NO_SNAPSHOT) == []
    behind = msgspec.structs.replace(NODE, logs=(SnapshotPoint(0, 2, 1, False),))
    assert reclaimer.due(behind) == [1]


async def test_a_term_goes_in_two_steps_with_a_grace_between(terms: Terms) -> None:
    terms.trim(1)
    reclaimer, slow = terms.reclaimer(), terms.reclaimer(grace_s=1_000.0)
    for _ in range(3):
        await slow.run(NODE)
    assert await terms.location(1) == RECLAIMED
    assert await terms.left(1) == set(terms.owned[1])
    await reclaimer.run(NODE)
    await reclaimer.run(NODE)
    assert (await terms.location(1), await terms.location(2)) == (DELETED, IN_LEDGERS)
    assert (await terms.left(1), await terms.left(2)) == (set(), set(terms.owned[2]))
    assert reclaimer.due(NODE) == []
    await slow.run(NODE)


async def test_another_engine_may_be_at_it_as_well_or_have_done_half(terms: Terms) -> None:
    terms.trim(1)
    one, two = terms.reclaimer(), terms.reclaimer()
    await one.run(NODE)
    await terms.ledgers.client.delete(terms.owned[1][0])
    await asyncio.gather(one.run(NODE), two.run(NODE))
    await asyncio.gather(one.run(NODE), two.run(NODE))
    assert await terms.location(1) == DELETED
    assert await terms.left(1) == set()
    await terms.reclaimer().run(NODE)


async def test_what_was_not_done_is_done_by_the_next_round(terms: Terms) -> None:
    terms.trim(1)
    reclaimer = terms.reclaimer()
    await reclaimer.run(NODE)
    terms.ledgers.tree.disconnect()
    with pytest.raises(MetadataUnavailable):
        await reclaimer.run(NODE)
    terms.ledgers.tree.reconnect()
    await reclaimer.run(NODE)
    assert await terms.location(1) == DELETED


def all_dead(terms: Terms) -> None:
    for book in (1, 2):
        terms.trim(book)


@pytest.mark.parametrize("which", [0, 1])
async def test_a_ledger_that_cannot_be_deleted_holds_up_no_other(
    terms: Terms, which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metadata is damaged, or of a later version; once it is mended, the rest of its term is deleted."""
    all_dead(terms)
    reclaimer, store = terms.reclaimer(), terms.ledgers.store
    ledger_id = terms.owned[1][which]
    path = ledger_path(ledger_id)
    whole, version = await store.get(path)
    version = await store.set(path, b"no metadata", version=version)
    for _ in range(3):
        await reclaimer.run(NODE)
    assert (await terms.location(1), await terms.location(2)) == (RECLAIMED, DELETED)
    assert ledger_id in await terms.left(1) and await terms.left(2) == set()
    await store.set(path, whole, version=version)
    await reclaimer.run(NODE)
    assert await terms.location(1) == RECLAIMED, "it is not tried each round"
    monkeypatch.setattr(reclaimer, "_retries", {})
    await reclaimer.run(NODE)
    assert (await terms.location(1), await terms.left(1)) == (DELETED, set())


async def test_a_term_record_that_cannot_be_read_holds_up_no_other(terms: Terms) -> None:
    all_dead(terms)
    reclaimer, store = terms.reclaimer(), terms.ledgers.store
    await store.set(term_path(1), b"no record", version=(await store.get(term_path(1))).version)
    for _ in range(3):
        await reclaimer.run(NODE)
    assert await terms.location(2) == DELETED and await terms.left(1) == set(terms.owned[1])


async def test_many_terms_that_fail_take_no_turns_from_others(terms: Terms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaim, "TERMS_PER_ROUND", 1)
    await test_a_term_record_that_cannot_be_read_holds_up_no_other(terms)


async def test_who_has_yet_to_apply_a_reclaimed_term_gets_an_error(terms: Terms) -> None:
    store, history = terms.ledgers.store, TermHistory(terms.ledgers.store)
    await history.refresh()
    behind, further = Frontier(), Frontier()
    behind.begin(1, 0, SLOTS, ())
    behind.passed(0, Position(1, 1), 1)
    further.begin(1, 0, SLOTS, ())
    further.end(1, 0)
    nothing = Frontier()
    for frontier in (behind, further, nothing):
        assert await first_missed(store, history, frontier, [0]) is None
    terms.trim(1)
    await terms.reclaimer().run(NODE)
    for frontier in (behind, nothing):
        missed = await first_missed(store, history, frontier, [0])
        assert missed is not None and missed.term == 1
    assert await first_missed(store, history, further, [0]) is None
    assert await first_missed(store, history, terms.frontier, [0, 1]) is None
