"""Following all logs: found in the view and in records, each with its own events, one history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from boki_common.errors import CorruptData
from boki_common.metadata.store import MetadataStore, ensure_path
from boki_metalog.entries.metalog_entry import MetalogEntry, Open, ShardEnd, encode
from boki_metalog.follow.follower import FollowerListener
from boki_metalog.follow.log_followers import LogFollowers
from boki_metalog.settings import FollowerSettings
from boki_metalog.terms.term_info import TermInfo
from boki_metalog.terms.term_order import ALL_SLOTS
from boki_metalog.terms.term_record import TERMS_PATH, VERSION, Location, TermRecord, encode_record, term_path
from boki_metalog.terms.view import VIEW_PATH, SlotRange, View

RecorderOf = Callable[[], Any]
QUICK = FollowerSettings(retry_first_s=0.005, retry_limit_s=0.02)


class Logs:
    """Keeps the events of each log."""

    def __init__(self, recorder_of: RecorderOf) -> None:
        self.recorder_of = recorder_of
        self.found: dict[int, Any] = {}
        self.views: list[View] = []
        self.all_needed = True

    def log_found(self, log: int) -> FollowerListener:
        assert log not in self.found
        self.found[log] = self.recorder_of()
        return self.found[log]  # type: ignore[no-any-return]

    def view_changed(self, view: View) -> None:
        assert view.logs.keys() <= self.found.keys() or not self.all_needed
        self.views.append(view)

    async def until(self, holds: Any) -> None:
        async with asyncio.timeout(10):
            while not holds():
                await asyncio.sleep(0)


class World:
    """A metadata store whose view and terms are written by hand."""

    def __init__(self, cluster: Any, store: MetadataStore, logs: Logs, slots: int) -> None:
        self.cluster = cluster
        self.store = store
        self.logs = logs
        self.logs.all_needed = slots == ALL_SLOTS
        self.followers = LogFollowers(
            metadata=store, ledgers=cluster.ledgers, listener=self.logs, settings=QUICK, slots=slots
        )
        self.task = asyncio.get_running_loop().create_task(self.followers.run())

    async def seal(self, term: int, log: int, *slots: tuple[int, int], records: int = 1) -> None:
        """A term whose second entry ordered `records`."""
        writer = await self.cluster.ledgers.create()
        opened = MetalogEntry(0, 0, 7, (ShardEnd(0, 0, 0),), (Open(0, "aa" * 16, 50 + term),))
        ledger = self.cluster.ledgers.ledgers[writer.ledger_id]
        ledger.entries = [encode(opened), encode(MetalogEntry(0, records, 7, (ShardEnd(0, records, 1),)))]
        ledger.closed_at = 2
        ranges = tuple(SlotRange(*one) for one in slots)
        record = TermRecord(VERSION, term, log, ranges, ledger.ledger_id, 1, records, 7, Location())
        await self.store.create(term_path(term), encode_record(record))

    async def view(self, next_term: int, slots: list[list[int]], logs: dict[int, Any]) -> None:
        value = msgspec.json.encode({"version": 1, "next_term": next_term, "slots": slots, "logs": logs})
        if await self.store.exists(VIEW_PATH):
            await self.store.set(VIEW_PATH, value, version=(await self.store.get(VIEW_PATH)).version)
        else:
            await self.store.create(VIEW_PATH, value)


@pytest.fixture
def slots() -> int:
    """Those that are needed."""
    return ALL_SLOTS


@pytest.fixture
async def world(cluster: Any, recorder_of: RecorderOf, slots: int) -> AsyncIterator[World]:
    store = await cluster.store()
    await ensure_path(store, TERMS_PATH)
    made = World(cluster, store, Logs(recorder_of), slots)
    yield made
    made.task.cancel()
    await asyncio.gather(made.task, return_exceptions=True)


async def test_logs_of_the_view_and_of_records_are_followed(world: World) -> None:
    await world.seal(1, 0, (0, 1023))
    await world.seal(2, 5, (0, 99))
    await world.seal(3, 0, (100, 1023))
    await world.seal(4, 1, (0, 1023))
    await world.view(5, [[0, 1023, 1]], {0: None, 1: None})
    found = world.logs.found
    await world.logs.until(
        lambda: all(log in found and f"ended {term}" in found[log].events for log, term in [(0, 3), (1, 4), (5, 2)])
    )
    assert [info.term for info in found[0].infos] == [1, 3]
    assert [(info.term, info.after, info.sealed) for info in found[1].infos] == [(4, (2, 3), True)]
    assert found[5].infos[0].after == (1,)
    sealed = world.followers.record(2)
    assert sealed is not None and (sealed.term, sealed.log, sealed.metalog_ledger) == (2, 5, 1)
    assert world.followers.record(5) is None, "a term that is not sealed"
    assert found[0].infos[1].after == ()
    await world.logs.until(lambda: found[0].events[-1] == found[5].events[-1] == "idle")
    assert "idle" not in found[1].events, "it has slots: its next term will come"
    world.task.cancel()
    await asyncio.gather(world.task, return_exceptions=True)


@pytest.mark.parametrize("slots", [(1 << 100) - 1])
async def test_only_logs_that_ever_had_a_needed_slot_are_followed(world: World) -> None:
    """Slots 0-99 are needed. Log 2 had them in a term that no view showed us, log 5 never."""
    found, followers = world.logs.found, world.followers
    await world.seal(1, 1, (0, 511))
    await world.seal(2, 5, (512, 1023))
    installed = {"term": 3, "metalog_ledger": 90, "sequencer": "ab" * 16, "token": "00" * 16, "start_time_ms": 1}
    await world.view(4, [[0, 511, 1], [512, 1023, 5]], {1: None, 5: installed})
    await world.logs.until(lambda: 1 in found and "ended 1" in found[1].events)
    await world.logs.until(lambda: followers.foreign(2))
    assert list(found) == [1]
    assert followers.foreign(3), "the view says so"
    assert not followers.foreign(1) and not followers.foreign(4), "needed, and not known"
    views = len(world.logs.views)
    await world.seal(4, 2, (0, 511))
    await world.seal(5, 1, (0, 511), (600, 700))
    await world.seal(6, 3, (600, 700))
    await world.view(7, [[0, 511, 1], [512, 1023, 5]], {1: None, 2: None, 3: None, 5: installed})
    await world.logs.until(lambda: 2 in found and "ended 4" in found[2].events and "ended 5" in found[1].events)
    assert list(found) == [1, 2]
    assert [info.after for info in found[1].infos] == [(), (4,)]
    assert followers.foreign(6) and len(world.logs.views) > views


async def test_a_log_that_is_added_is_found(world: World) -> None:
    await world.view(1, [[0, 1023, 0]], {0: None})
    await world.logs.until(lambda: world.logs.views)
    assert list(world.logs.found) == [0]
    await world.view(1, [[0, 1023, 0]], {0: None, 3: None})
    await world.logs.until(lambda: len(world.logs.views) == 2)
    assert list(world.logs.found) == [0, 3]


async def test_terms_sealed_while_a_log_has_none_are_delivered(world: World) -> None:
    await world.view(1, [[0, 1023, 0]], {0: None, 1: None})
    await world.logs.until(lambda: len(world.logs.found) == 2 and "idle" in world.logs.found[1].events)
    await world.seal(1, 1, (0, 99))
    await world.view(2, [[0, 1023, 0]], {0: None, 1: None})
    await world.logs.until(lambda: "ended 1" in world.logs.found[1].events)
    await world.seal(2, 1, (0, 9))
    await world.view(3, [[0, 1023, 0]], {0: None, 1: None})
    await world.logs.until(lambda: world.logs.found[1].events.count("idle") == 3)
    assert world.logs.found[1].infos[1] == TermInfo(2, 1, (SlotRange(0, 9),), 1, (), sealed=True)


async def test_what_cannot_be_right_in_one_log_stops_that_one_and_no_other(world: World) -> None:
    await world.seal(1, 0, (0, 511))
    await world.seal(2, 1, (512, 1023))
    ledger = world.cluster.ledgers.ledgers[0]
    good, ledger.entries[0] = ledger.entries[0], b"garbage"
    await world.view(3, [[0, 1023, 1]], {0: None, 1: None})
    found = world.logs.found
    await world.logs.until(lambda: 0 in found and "stopped 1:0" in found[0].events)
    await world.seal(3, 1, (512, 1023))
    await world.view(4, [[0, 1023, 1]], {0: None, 1: None})
    await world.logs.until(lambda: "ended 3" in found[1].events)
    ledger.entries[0] = good
    await world.logs.until(lambda: "ended 1" in found[0].events)
    assert found[0].events.index("goes on 1:2") < found[0].events.index("ended 1")


async def test_a_view_that_cannot_be_read_ends_it(world: World) -> None:
    await world.store.create(VIEW_PATH, b"{}")
    with pytest.raises(CorruptData):
        async with asyncio.timeout(10):
            await world.task
