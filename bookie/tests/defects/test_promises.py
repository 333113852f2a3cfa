"""Defects of the original bookie, each as what shows it. See docs/defects.md; what other modules assert is not repeated."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.turns import turns

from boki_bookie.entries.checkpoint import Checkpointer
from boki_bookie.entries.validation import LedgerValidation
from boki_bookie.journal.journal import JournalPosition
from boki_common import logs
from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.bookkeeper.status import V2Status
from boki_common.runtime.memory_disk import MemoryDisk

OLD, NEW = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000"

STEPS = ("add", "add", "add", "look", "hold", "release", "turns", "checkpoint")


# -- a bookie that was made anew


@pytest.mark.parametrize("state", [LedgerState.CLOSED, LedgerState.IN_RECOVERY, LedgerState.OPEN])
async def test_bookies_made_anew_take_nothing_from_a_writer_fenced_before(
    world: Any, disk: MemoryDisk, state: LedgerState
) -> None:
    """apache/bookkeeper#4812: both bookies were re-created at their addresses; the writer's next add succeeded there, on
    disks that never saw the fence, of a ledger that was closed lower. Here whoever is made anew has a new id, and takes
    the first normal add of a ledger only if the metadata names it."""
    await world.ledger(7, OLD, state, others=["33333333-0000-4000-8000-000000000000"])
    for seed in (1, 2):
        storage = await world.open(disk, validate=LedgerValidation(world.store, NEW, world.settings))
        for entry_id in (5, 0):
            assert await world.put(storage, world.add(7, entry_id)) == [V2Status.FENCED]
        assert storage.look_up(7, -1).status is V2Status.NO_LEDGER, "nothing was kept of it"
        assert await world.put(storage, world.add(7, 5, recovery=True)) == [V2Status.OK]
        assert await world.put(storage, world.add(7, 6)) == [V2Status.FENCED], "what recovery brought is no validation"
        disk = MemoryDisk() if seed == 1 else disk


async def test_a_writer_of_a_deleted_ledger_cannot_make_it_again(world: Any, disk: MemoryDisk) -> None:
    """apache/bookkeeper#4462: after collection the first add of a stale writer made the ledger anew, unfenced."""
    storage = await world.open(disk, validate=LedgerValidation(world.store, NEW, world.settings))
    assert await world.put(storage, *(world.add(7, entry_id) for entry_id in range(3))) == [V2Status.FENCED] * 3
    assert storage.look_up(7, -1).status is V2Status.NO_LEDGER


# -- a fence and adds at once


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a seed has no smaller one that means the same
)
@given(seed=st.integers(0, 2**32))
def test_no_normal_add_is_acknowledged_that_an_answered_fence_has_not_seen(seed: int) -> None:
    """apache/bookkeeper#4701: add and fence locked two objects of one ledger, and an entry was acknowledged after the fence
    had answered a lower LAC. Adds, validations, flushes, checkpoints and a fence in any order."""
    asyncio.run(fence_among_adds(seed))


async def fence_among_adds(seed: int) -> None:
    draw = random.Random(seed)
    world = WORLD()
    await world.store.start()
    disk = MemoryDisk()
    look = world.validate_after = asyncio.Event()
    storage = await world.open(disk)
    adds: dict[int, asyncio.Future[V2Status]] = {}
    seen: set[int] = set()
    fence_at = draw.randrange(2, 14)
    fenced: asyncio.Task[None] | None = None
    held = False

    async def fence() -> None:
        assert await world.fence(storage, 1) is V2Status.OK
        seen.update(storage.entry_ids(1) or [])

    for step in range(18):
        match "fence" if step == fence_at else draw.choice(STEPS):
            case "add":
                adds[len(adds)] = world.submit(storage, world.add(1, len(adds)))
            case "look":
                look.set()
            case "hold" if not held:
                disk.hold("sync")
                held = True
            case "release" if held:
                disk.release("sync")
                held = False
            case "checkpoint":
                storage._checkpoints.request()
            case "fence":
                fenced = asyncio.ensure_future(fence())
        await turns(draw.choice([0, 1, 3, 30]))
    look.set()
    if held:
        disk.release("sync")
    assert fenced is not None
    await fenced
    statuses = {entry_id: await added for entry_id, added in adds.items()}
    assert set(statuses.values()) <= {V2Status.OK, V2Status.FENCED}
    acknowledged = {entry_id for entry_id, status in statuses.items() if status is V2Status.OK}
    assert acknowledged <= seen, "whoever fenced did not see what was acknowledged"
    await world.close()
    await world.store.close()


WORLD: Any = None


@pytest.fixture(autouse=True)
def _world(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "WORLD", type(world))


# -- keys


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    with logs.configured(level="debug", stream=stream):
        yield stream


async def test_keys_are_in_no_log_line(world: Any, storage: Any, logged: io.StringIO) -> None:
    """Apache's bookie logs both keys in clear when they differ (`LedgerDescriptorImpl.checkAccess`)."""
    await world.put(storage, world.add(1, 0))
    assert await world.put(storage, world.add(1, 1, key=world.other_key)) == [V2Status.UNAUTHORIZED]
    assert await world.fence(storage, 1, world.other_key) is V2Status.UNAUTHORIZED
    assert await world.fence(storage, 1) is V2Status.OK
    lines = logged.getvalue()
    assert "ledger fenced" in lines
    for key in (world.key, world.other_key):
        assert key.hex() not in lines and repr(key)[2:-1] not in lines


# -- checkpoints


class GoingJournal:
    """A journal that goes on while a checkpoint waits for it."""

    def __init__(self) -> None:
        self.position = JournalPosition(2, 17)
        self.released: list[int] = []

    async def flushed(self) -> None:
        self.position = JournalPosition(3, 40)

    async def release(self, generation: int) -> None:
        self.released.append(generation)


async def test_the_mark_is_where_the_checkpoint_began(world: Any, disk: MemoryDisk) -> None:
    """apache/bookkeeper#4844, #3329: a checkpoint moved the journal's mark past what it had not stored."""
    await Checkpointer.format(disk, world.raw_id)
    checkpointer = await Checkpointer.load(disk, world.raw_id, world.settings)
    journal = GoingJournal()
    await checkpointer.run(journal)
    assert (checkpointer.mark.generation, checkpointer.mark.group) == (2, 17)
    assert journal.released == [2]


async def test_what_comes_during_a_checkpoint_survives_it(world: Any, disk: MemoryDisk, storage: Any) -> None:
    await world.put(storage, *(world.add(1, entry_id) for entry_id in range(3)))
    disk.hold("replace")
    running = asyncio.ensure_future(storage.checkpoint())
    await turns()
    assert await world.put(storage, world.add(1, 3)) == [V2Status.OK]
    assert await world.fence(storage, 2) is V2Status.OK
    disk.release("replace")
    await running
    later = await world.open(disk.crash(world.seeded(1)))
    assert later.entry_ids(1) == [0, 1, 2, 3]
    assert await world.put(later, world.add(2, 0)) == [V2Status.FENCED]


async def test_a_fence_of_a_stored_ledger_survives_checkpoints_with_no_entry_to_store(
    world: Any, disk: MemoryDisk, storage: Any
) -> None:
    """apache/bookkeeper#4843: with an empty write cache the checkpoint skipped the index, yet the mark passed the fence."""
    await world.put(storage, world.add(1, 0))
    await storage.checkpoint()
    assert await world.fence(storage, 1) is V2Status.OK
    for _ in range(3):
        await storage.checkpoint()
    later = await world.open(disk.crash(world.seeded(1)))
    assert await world.put(later, world.add(1, 1)) == [V2Status.FENCED]


async def test_an_entry_of_which_only_some_sectors_reached_the_disk_is_not_there(world: Any) -> None:
    """apache/bookkeeper#4659, `BookieJournalTest.testTruncatedInEntry`: a torn last entry was readable junk."""
    payload = bytes(range(1, 251)) * 14
    expected = bytes(world.body(1, 1, payload))
    outcomes = set()
    for seed in range(24):
        disk = MemoryDisk()
        storage = await world.open(disk)
        await world.put(storage, world.add(1, 0))
        disk.hold("sync")
        world.submit(storage, world.add(1, 1, payload))
        await turns()
        survivor = disk.crash(world.seeded(seed))
        disk.release("sync")
        later = await world.open(survivor)
        found = await world.read(later, 1, 1)
        assert found in (expected, V2Status.NO_ENTRY), "whole, or not there"
        outcomes.add(found)
    assert V2Status.NO_ENTRY in outcomes
