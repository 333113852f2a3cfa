"""Settings: one record has all of them, and a faster change is not overwritten."""

from __future__ import annotations

import asyncio

import pytest

import boki
from boki_common.errors import InvalidArgument
from bokilib.records import tags
from bokiqueue import NoSuchGroup, NoSuchQueue, settings
from bokiqueue.model.events import Config, Limits
from bokiqueue.settings import DROPPED
from libs.tests.queue.conftest import Another, book_of


async def test_who_opens_at_the_same_time_opens_the_same(another: Another) -> None:
    queues = await asyncio.gather(*(another(f"q{number % 2}") for number in range(6)))
    assert {queue.name for queue in queues} == {"q0", "q1"}
    rows = [item async for item in book_of(queues[0]).read(tags.queue_config("q0"))]
    assert len([row for row in rows if isinstance(row, boki.Record)]) == 1


async def test_groups_that_are_registered_at_once_are_all_there(another: Another) -> None:
    queue = await another()
    others = [await another() for _ in range(4)]
    await asyncio.gather(*(other.register(f"g{number}") for number, other in enumerate(others)))
    found = await settings.existing(queue.log, "jobs")
    assert sorted(found.config.groups) == ["default", "g0", "g1", "g2", "g3"]
    with pytest.raises(NoSuchGroup, match="no group 'other'"):
        await queue.drop("other")
    with pytest.raises(NoSuchQueue):
        await settings.existing(queue.log, "other")
    with pytest.raises(NoSuchQueue):
        await settings.change_existing(queue.log, "other", lambda config: config)


async def test_appended_again_they_are_the_same_at_a_new_place(another: Another) -> None:
    queue = await another()
    found = await settings.existing(queue.log, "jobs")
    later = await settings.again(queue.log, found)
    assert (later.config, later.seqnum > found.seqnum) == (found.config, True)
    with pytest.raises(boki.Conflict):
        await settings.again(queue.log, found)


async def test_the_error_for_a_group_of_a_deleted_queue_names_the_queue(another: Another) -> None:
    queue = await another()
    config = settings.deleted((await settings.existing(queue.log, "jobs")).config)
    assert isinstance(settings.no_such_group(config, "default"), NoSuchQueue)


def test_dropped_records_are_kept_while_a_group_compares_them_and_there_is_room() -> None:
    config = Config("jobs", "consume", 1, 0, None, 300_000, Limits(), {"default": 1})
    for seqnum in range(2, DROPPED + 2):
        config = settings.with_dropped(config, seqnum)
    with pytest.raises(InvalidArgument, match="purge the queue's groups"):
        settings.with_dropped(config, 400)
    config = settings.purged(config, "default", 300)
    assert len(settings.with_dropped(config, DROPPED + 1).dropped) == DROPPED
    assert settings.with_dropped(config, 400).dropped == (400,)
