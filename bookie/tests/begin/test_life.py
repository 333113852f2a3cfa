"""A bookie's lives, from directory and cookie: crashes and lost answers at every step, copies, and what becomes of those."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from tests.storage.crashes import crash_at
from tests.turns import turns

from boki_bookie.begin.identity import Identity, establish
from boki_bookie.begin.life import Life
from boki_bookie.begin.life_file import LIFE_NAME, read_life
from boki_bookie.bookie import Bookie
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.layout import (
    Cookie,
    CookieLife,
    cookie_path,
    decode_cookie,
    encode_cookie,
    register_bookie,
)
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BokiError, MetadataUnknown, NodeExists, WrongDirectory
from boki_common.metadata.memory import Fault
from boki_common.net.connection import Address
from boki_common.runtime.memory_disk import MemoryDisk

LOCAL = Address("127.0.0.1", 0)
OLDER = "is an older copy.*salvage only"


class Machine:
    """Starts lives on directories: each draws a token of its own."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.starts = 0

    async def identity(self, disk: MemoryDisk) -> Identity:
        self.starts += 1
        rng = self.world.seeded(self.starts)

        async def format_store(disk: Any, raw: bytes) -> None:
            await Storage.format(disk, raw, rng, self.world.settings)

        return await establish(
            [disk], self.world.store, host="here", rng=rng, replace_lost_disk=False, format_store=format_store
        )

    async def live(self, disk: MemoryDisk) -> Life:
        return await self.begin(disk, await self.identity(disk))

    async def begin(self, disk: MemoryDisk, identity: Identity, *, timeout_s: float = 60.0) -> Life:
        """The second half of a start: its writes are those of the life."""
        rng = self.world.seeded(1_000 + self.starts)
        return await Life.begin([disk], self.world.store, identity, rng=rng, checkpoints=[0], timeout_s=timeout_s)


@pytest.fixture
def machine(world: Any) -> Machine:
    return Machine(world)


@pytest.fixture
async def identity(machine: Machine, disk: MemoryDisk) -> Identity:
    """Of a bookie that has not lived yet."""
    return await machine.identity(disk)


def copied(disk: MemoryDisk, world: Any) -> MemoryDisk:
    """A backup, or a snapshot."""
    return disk.crash(world.seeded(0))


async def test_each_start_is_a_life_that_directory_and_cookie_agree_on(world: Any, machine: Machine) -> None:
    disk = MemoryDisk("/data/one")
    identity = await machine.identity(disk)
    tokens = set()
    for number in range(1, 5):
        await machine.live(disk)
        cookie = decode_cookie((await world.store.get(cookie_path(identity.bookie_id))).value)
        assert cookie.life is not None
        assert (cookie.life.number, cookie.life.checkpoints) == (number, (0,))
        assert bytes.fromhex(cookie.life.token) in disk.contents(LIFE_NAME)
        tokens.add(cookie.life.token)
        assert (cookie.ours, cookie.journal_dir) == (True, "here:/data/one")
    assert len(tokens) == 4


async def test_a_copy_made_before_the_last_start_is_refused_as_an_older_copy(world: Any, machine: Machine) -> None:
    disk = MemoryDisk("/data/one")
    await machine.live(disk)
    older = copied(disk, world)
    await machine.live(disk)
    for _ in range(2):
        with pytest.raises(WrongDirectory, match=rf"/data/one {OLDER}") as caught:
            await machine.live(older)
        assert not caught.value.retryable
    await machine.live(disk)


async def test_the_original_is_refused_once_a_copy_of_it_has_served(world: Any, machine: Machine) -> None:
    disk = MemoryDisk()
    await machine.live(disk)
    other = copied(disk, world)
    await machine.live(other)
    with pytest.raises(WrongDirectory, match=OLDER):
        await machine.live(disk)
    await machine.live(other)


async def test_a_copy_made_before_a_checkpoint_that_was_registered_is_refused(world: Any, machine: Machine) -> None:
    disk = MemoryDisk()
    await machine.identity(disk)
    older = copied(disk, world)
    life = await machine.live(disk)
    older.put(LIFE_NAME, disk.contents(LIFE_NAME))  # made within the life
    await life.record([3])
    with pytest.raises(
        WrongDirectory, match=r"expected start 1 \(checkpoints \(3,\)\).*found start 1 \(checkpoint 0\)"
    ):
        await machine.live(older)


async def test_a_directory_whose_lives_nobody_knows_any_more_is_refused(world: Any, machine: Machine) -> None:
    disk = MemoryDisk()
    identity = await machine.identity(disk)
    path = cookie_path(identity.bookie_id)
    first = (await world.store.get(path)).value
    for _ in range(2):
        await machine.live(disk)
    known = await world.store.get(path)
    await world.store.set(path, first, version=known.version)
    with pytest.raises(WrongDirectory, match="something else wrote the cookie"):
        await machine.live(disk)


async def test_a_directory_that_is_ahead_of_the_metadata_is_refused(world: Any, machine: Machine) -> None:
    disk = MemoryDisk()
    identity = await machine.identity(disk)
    path = cookie_path(identity.bookie_id)
    await machine.live(disk)
    backup = (await world.store.get(path)).value
    for _ in range(2):
        await machine.live(disk)
    await world.store.set(path, backup, version=(await world.store.get(path)).version)
    with pytest.raises(WrongDirectory, match="an older copy of the metadata"):
        await machine.live(disk)


@pytest.mark.parametrize("lives", [0, 1, 2])
async def test_a_crash_at_any_step_of_the_disk_locks_nobody_out(world: Any, machine: Machine, lives: int) -> None:
    disk = MemoryDisk()
    await machine.identity(disk)
    for _ in range(lives):
        await machine.live(disk)
    steps = 0
    while (crashed := await crash_at(world, disk, steps, steps, machine.live(disk))) is not None:
        disk = crashed
        steps += 1
    assert steps > 8
    await machine.live(disk.crash(world.seeded(1)))


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.DELAYED])
@pytest.mark.parametrize("nth", [0, 1])
@pytest.mark.parametrize("dies", [False, True])
async def test_a_lost_answer_at_any_write_of_the_cookie_locks_nobody_out(
    world: Any, machine: Machine, disk: MemoryDisk, fault: Fault, nth: int, dies: bool
) -> None:
    """Also when the process dies before it knows, and its write lands later."""
    await machine.live(disk)
    identity = await machine.identity(disk)
    world.store.fail_next_write(Fault.NONE, count=nth)
    world.store.fail_next_write(fault)
    living = asyncio.ensure_future(machine.begin(disk, identity))
    if dies:
        await turns(300)
        living.cancel()
    try:
        await living
    except (BokiError, asyncio.CancelledError):
        pass
    for turn in range(3):
        await machine.live(disk)
        if turn == 0:
            world.tree.deliver_delayed()


@pytest.mark.parametrize("nth", [0, 1])
async def test_a_write_of_a_dead_process_that_lands_during_a_start_locks_nobody_out(
    world: Any, machine: Machine, disk: MemoryDisk, identity: Identity, nth: int
) -> None:
    """It lands when the next life is in the directory, and not yet in the cookie."""
    await machine.live(disk)
    world.store.fail_next_write(Fault.NONE, count=nth)
    world.store.fail_next_write(Fault.DELAYED)
    dying = asyncio.ensure_future(machine.begin(disk, identity))
    while not world.tree._delayed:
        await asyncio.sleep(0)
    dying.cancel()
    await asyncio.wait([dying])
    disk.hold("sync", under=LIFE_NAME)
    before = await read_life(disk, identity.raw)
    starting = asyncio.ensure_future(machine.live(disk))
    while await read_life(disk, identity.raw) == before:
        await asyncio.sleep(0)
    assert not starting.done()
    world.tree.deliver_delayed()
    disk.release("sync")
    await asyncio.wait([starting])
    await machine.live(disk)


async def test_two_copies_that_start_at_once_are_never_both_started(world: Any, machine: Machine) -> None:
    disk = MemoryDisk()
    await machine.live(disk)
    for _ in range(5):
        both = disk, copied(disk, world)
        outcomes = await asyncio.gather(*map(machine.live, both), return_exceptions=True)
        started = [one for one, outcome in zip(both, outcomes, strict=True) if isinstance(outcome, Life)]
        assert len(started) == 1
        assert any(isinstance(outcome, WrongDirectory | MetadataUnknown) for outcome in outcomes)
        (disk,) = started


async def test_nobody_begins_a_life_while_another_process_is_registered_under_the_id(
    world: Any, machine: Machine, disk: MemoryDisk, identity: Identity
) -> None:
    await machine.live(disk)
    other = await register_bookie(world.store, identity.bookie_id, LOCAL._replace(port=1), read_only=True)
    with pytest.raises(NodeExists, match="Stop it first"):
        await machine.begin(copied(disk, world), identity, timeout_s=0.0)
    await other.leave()
    await machine.live(disk)


async def test_a_start_on_a_full_disk_takes_no_space(world: Any, machine: Machine, disk: MemoryDisk) -> None:
    await machine.identity(disk)
    disk.capacity_bytes = sum(disk.size_of(name) for name in disk.all_names())
    older = copied(disk, world)
    await machine.live(disk)
    await machine.live(disk)
    with pytest.raises(WrongDirectory, match=OLDER):
        await machine.live(older)


async def test_a_directory_of_an_earlier_version_has_its_first_life_when_there_is_space(
    world: Any, machine: Machine, disk: MemoryDisk, identity: Identity
) -> None:
    await disk.remove(LIFE_NAME)
    disk.capacity_bytes = 0
    life = await machine.live(disk)
    await life.record([1])
    assert decode_cookie((await world.store.get(cookie_path(identity.bookie_id))).value).life is None
    disk.capacity_bytes = 2**40
    await machine.live(disk)
    assert decode_cookie((await world.store.get(cookie_path(identity.bookie_id))).value).life is not None


async def test_a_cookie_without_life_is_taken_up_and_one_of_another_host_keeps_its_life(
    world: Any, machine: Machine
) -> None:
    disk = MemoryDisk("/data/one")
    identity = await machine.identity(disk)
    await machine.live(disk)
    path = cookie_path(identity.bookie_id)
    found = await world.store.get(path)
    life = decode_cookie(found.value).life
    moved = Cookie(identity.bookie_id, "there:/a", ("there:/a",), identity.instance_id, ours=True, life=life)
    await world.store.set(path, encode_cookie(moved), version=found.version)
    assert await machine.identity(disk) == identity
    cookie = decode_cookie((await world.store.get(path)).value)
    assert (cookie.journal_dir, cookie.life) == ("here:/data/one", life)


# -- a bookie as a whole


Start = Callable[..., Awaitable[Bookie]]


@pytest.fixture
def start(start: Start) -> Start:
    """What is wrong with a disk is noticed at once."""
    return partial(start, disk_check_interval_s=0.01)


async def cookie_life(world: Any, bookie: Bookie) -> CookieLife:
    life = decode_cookie((await world.store.get(cookie_path(bookie.bookie_id))).value).life
    assert life is not None
    return life


async def recorded(world: Any, bookie: Bookie) -> int:
    return (await cookie_life(world, bookie)).checkpoints[0]


async def test_an_older_copy_comes_back_by_salvage_alone_and_then_denies_nothing(world: Any, start: Start) -> None:
    """The copy has neither the second entry nor the fence, and would say so."""
    disk = MemoryDisk()
    bookie = await start(disk)
    await world.ledger(1, bookie.bookie_id)
    assert await world.put(bookie.storage, world.add(1, 0)) == [V2Status.OK]
    older = copied(disk, world)
    assert await world.put(bookie.storage, world.add(1, 1)) == [V2Status.OK]
    assert await world.fence(bookie.storage, 1) is V2Status.OK
    assert isinstance(bookie.storage, Storage)
    await bookie.storage.checkpoint()
    while await recorded(world, bookie) < bookie.storage.checkpoint_number:
        await asyncio.sleep(0)
    await bookie.close()
    for _ in range(2):
        with pytest.raises(WrongDirectory, match=OLDER):
            await start(older.reopen())
    salvaged = await start(older.reopen(), salvage=True)
    for life in range(2):
        assert isinstance(salvaged.storage, Storage)
        assert await world.read(salvaged.storage, 1, 0) == bytes(world.body(1, 0))
        assert await world.read(salvaged.storage, 1, 1) is V2Status.UNKNOWN_LEDGER_STATE
        assert await world.put(salvaged.storage, world.add(1, 1, b"another")) == [V2Status.FENCED]
        await salvaged.close()
        if not life:
            salvaged = await start(older.reopen())
    with pytest.raises(WrongDirectory, match=OLDER):
        await start(disk.reopen())


async def test_a_salvage_of_an_older_copy_that_is_cut_short_is_no_start_yet(world: Any, start: Start) -> None:
    """Until the cookie names the salvage's life; a crash after that is a crash of a bookie that has started."""
    start = partial(start, disk_check_interval_s=3_600.0)
    disk = MemoryDisk()
    bookie = await start(disk)
    await world.ledger(1, bookie.bookie_id)
    await world.put(bookie.storage, world.add(1, 0))
    older = copied(disk, world)
    await bookie.close()
    await (await start(disk.reopen())).close()
    served = await cookie_life(world, bookie)
    for steps in range(1_000):
        part = copied(older, world)
        crashed = await crash_at(world, part, steps, steps, start(part, salvage=True))
        if await cookie_life(world, bookie) != served:
            break
        assert crashed is not None
        with pytest.raises(WrongDirectory, match="comes back by salvage only"):
            await start(crashed)
    else:
        raise AssertionError("the salvage never ended")
    assert steps > 20
    if crashed is not None:
        await start(crashed)


async def test_a_bookie_of_which_a_copy_was_started_elsewhere_ends(world: Any, start: Start) -> None:
    bookie = await start(MemoryDisk())
    path = cookie_path(bookie.bookie_id)
    found = await world.store.get(path)
    cookie = decode_cookie(found.value)
    theirs = dataclasses.replace(cookie, life=CookieLife(2, "ab" * 16, (0,)))
    await world.store.set(path, encode_cookie(theirs), version=found.version)
    await bookie.storage.of(1).checkpoint()
    assert "was started elsewhere" in str(await bookie.failed)
