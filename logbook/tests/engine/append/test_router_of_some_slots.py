"""Appends to an engine that indexes some slots, and so may not know of all logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import pytest
from tests.engine.scripted import QUICK, Scripted

from boki_common.ids import slot_of
from boki_logbook.core import EngineCore
from boki_logbook.testing.cluster import RecordingSource, RunSpec, append, plain_records

WRITER: Final = bytes(15) + b"w"
BOOK: Final = next(book for book in range(1, 100) if slot_of(book) < 512)
"""Of the first of two logs."""


@pytest.fixture
async def core() -> AsyncIterator[EngineCore]:
    """It has met the first of two logs, and has no reason to follow the other."""
    world = Scripted(2)
    await world.logs.begin()
    core = world.core(replace(QUICK, index_slots="0-511"))
    core.log_found(0)
    core.view_changed(world.logs.view)
    world.logs.members.append(core)
    await world.log.join(core, live=True)
    yield core
    await world.close()


async def test_appends_join_the_only_log_that_it_knows(core: EngineCore) -> None:
    append(core, RecordingSource(), RunSpec(BOOK, WRITER, 1, plain_records("a")))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not core.failed.done()
    shard = core.logs[0].appender.shard
    assert shard is not None
    assert shard.submitted_records == 1


async def test_a_slot_that_its_log_does_not_have_waits(core: EngineCore) -> None:
    """It moved away a moment ago, to a log that is not followed yet: that log decides its records, no other."""
    elsewhere = next(book for book in range(1, 100) if slot_of(book) >= 512)
    append(core, RecordingSource(), RunSpec(elsewhere, WRITER, 1, plain_records("a")))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not core.failed.done()
    assert core.appender.waiting()["batches"] == 1
