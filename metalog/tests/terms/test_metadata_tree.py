"""Reading and creating the view and the term records."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_common.errors import NoNode
from boki_metalog.errors import TermRecordConflict
from boki_metalog.terms.metadata_tree import (
    create_record,
    ensure_view,
    move_record,
    read_record,
    read_view,
)
from boki_metalog.terms.term_record import DELETED, IN_LEDGERS, RECLAIMED, Location, TermRecord
from boki_metalog.terms.view import SlotRange, first_view


def record(term: int, log: int = 0, location: Location | None = None) -> TermRecord:
    return TermRecord(1, term, log, (SlotRange(0, 1023),), 7, -1, 0, 0, location or Location())


async def test_one_of_many_processes_creates_the_view(cluster: Any) -> None:
    stores = [await cluster.store() for _ in range(3)]
    with pytest.raises(NoNode):
        await read_view(stores[0])
    found = await asyncio.gather(*(ensure_view(store) for store in stores))
    assert all(one == (first_view(), 0) for one in found)
    assert await read_view(stores[0]) == found[0]


async def test_a_record_that_exists_is_success_wherever_its_term_went(cluster: Any) -> None:
    store = await cluster.store()
    await ensure_view(store)
    with pytest.raises(NoNode):
        await read_record(store, 1)
    moved = record(1, location=Location("cold", "s3://bucket"))
    await create_record(store, moved)
    await create_record(store, record(1))
    assert await read_record(store, 1) == moved
    with pytest.raises(TermRecordConflict, match="do not go on"):
        await create_record(store, record(1, log=1))


async def test_a_record_is_moved_step_by_step(cluster: Any) -> None:
    store = await cluster.store()
    await ensure_view(store)
    await create_record(store, record(1))
    assert not await move_record(store, 1, DELETED, when=(RECLAIMED,))
    assert (await read_record(store, 1)).location.kind == IN_LEDGERS
    for _ in range(2):
        assert await move_record(store, 1, RECLAIMED, when=(IN_LEDGERS,))
    await create_record(store, record(1))
    assert await move_record(store, 1, DELETED, when=(RECLAIMED,))
    assert not await move_record(store, 1, RECLAIMED, when=(IN_LEDGERS,)), "what is deleted stays so"
    with pytest.raises(NoNode):
        await move_record(store, 2, RECLAIMED, when=(IN_LEDGERS,))
