"""Long polls over a storage, without a connection: when they are answered, with what, and what they leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple

import pytest

from boki_bookie.serve import long_polls
from boki_bookie.serve.lac import LacWatchers, StoredLacs
from boki_bookie.serve.long_polls import LongPolls
from boki_bookie.storage.storage import Storage
from boki_bookie.storage.storage_reads import Found
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v3_messages import ReadRequest
from boki_common.runtime.memory_disk import MemoryDisk

OK = V2Status.OK


class Reply(NamedTuple):
    """One answer: entry -1 where none comes along."""

    status: V2Status
    entry_id: int
    lac: int | None
    lac_time_ms: int | None


class Polled:
    """Polls of one ledger, 1, and what they were answered."""

    def __init__(self, storage: Storage, world: Any) -> None:
        self.closed = False
        self.replies: list[Reply] = []
        self.changed = asyncio.Event()
        self.watchers = LacWatchers()
        self.storage = storage
        self._world = world
        self._tasks: list[asyncio.Task[None]] = []
        self.polls = LongPolls(
            storage,
            self,
            stored_lacs=StoredLacs(),
            watchers=self.watchers,
            clock=world.clock,
            spawn=self._spawn,
        )

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    def answer(
        self,
        request: ReadRequest,
        status: V2Status,
        body: memoryview | None,
        lac: int | None,
        lac_time_ms: int | None = None,
    ) -> None:
        self.replies.append(Reply(status, request.entry_id, lac, lac_time_ms))
        self.changed.set()

    def answer_loaded_later(self, request: ReadRequest, found: Found, lac: int, lac_time_ms: int | None) -> None:
        self.answer(request, found.status, None, lac, lac_time_ms)

    def ask(self, previous_lac: int, timeout_ms: int = 600_000) -> None:
        self.polls.begin(ReadRequest(1, None, 1, -1, None, True, previous_lac, timeout_ms))

    async def add(self, entry_id: int) -> None:
        """Each entry carries the LAC of the one before it."""
        assert await self._world.put(self.storage, self._world.add(1, entry_id)) == [OK]
        self.watchers.changed(1)


@pytest.fixture
async def polled(world: Any, disk: MemoryDisk) -> Polled:
    made = Polled(await world.open(disk), world)
    await made.add(0)
    return made


async def test_a_poll_is_answered_when_the_lac_passes_what_it_names(polled: Polled, world: Any) -> None:
    polled.ask(2)
    for entry_id in (1, 2, 3):  # the LAC rises to 2
        await polled.add(entry_id)
    assert polled.replies == []
    await polled.add(4)
    assert polled.replies == [Reply(OK, 3, 3, world.clock.now_ms())]
    assert not polled.watchers


async def test_what_is_known_already_is_answered_at_once(polled: Polled) -> None:
    await polled.add(1)
    polled.ask(-1)
    assert polled.replies == [Reply(OK, 0, 0, None)]
    assert not polled.watchers


async def test_the_time_out_is_answered_with_the_lac(polled: Polled) -> None:
    polled.ask(0, timeout_ms=0)
    assert polled.replies == [Reply(OK, -1, -1, None)]
    polled.changed.clear()
    polled.ask(0, timeout_ms=1)
    assert len(polled.replies) == 1
    await polled.changed.wait()
    assert polled.replies[1] == Reply(OK, -1, -1, None)
    assert not polled.watchers


async def test_a_stored_last_entry_is_loaded_before_the_wait(polled: Polled) -> None:
    await polled.storage.checkpoint()
    polled.ask(0)
    while not polled.watchers:
        await asyncio.sleep(0)
    await polled.add(1)
    await polled.add(2)
    assert [one.lac for one in polled.replies] == [1]


async def test_a_fence_ends_the_wait_and_an_unknown_ledger_begins_none(polled: Polled, world: Any) -> None:
    polled.ask(0)
    assert await world.fence(polled.storage, 1) is OK
    polled.watchers.changed(1, fenced=True)
    polled.ask(0)
    assert polled.replies == [Reply(OK, -1, -1, None)] * 2
    polled.polls.begin(ReadRequest(1, None, 99, -1, None, True, 0, 1_000))
    assert polled.replies[2].status is V2Status.NO_LEDGER


async def test_a_connection_that_ended_leaves_nobody_waiting(polled: Polled) -> None:
    polled.ask(0)
    polled.ask(1)
    polled.polls.connection_lost()
    assert not polled.watchers
    await polled.add(1)
    await polled.add(2)
    assert polled.replies == []


async def test_polls_of_a_connection_are_bounded(polled: Polled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polls, "LONG_POLLS_LIMIT", 2)
    polled.ask(0)
    assert not polled.polls.are_full
    polled.ask(0)
    assert polled.polls.are_full
    polled.polls.connection_lost()
    assert not polled.polls.are_full
