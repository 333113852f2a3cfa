"""What a bad disk does to a bookie, one fault at a time: damage at rest, files that are gone, swapped or foreign, errors of
every operation, no space.

After each fault: the bookie refuses to start with a named error, or what was acknowledged is there byte for byte or
*unknown*; it is never denied. Nothing is there that was not sent, and no fence is forgotten. What refused to start is
salvaged, and the same holds of it.

The last journal group is left out (ledger `LAST`): a damaged one cannot be distinguished from the torn group of a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.storage.crashes import Recorded

from boki_bookie.begin.salvage import Salvage
from boki_bookie.entries.checkpoint import MARK_NAME
from boki_bookie.storage.limbo import Limbo
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BokiError, CorruptData, DiskFailed, DiskFull, StorageError
from boki_common.limits import KIB
from boki_common.runtime.memory_disk import MemoryDisk

LEDGERS: Final = (1, 2, 3, 4, 5)
ENTRIES: Final = range(16)
LAST: Final = 9
PAGE: Final = 4_096
NEGATIVE: Final = (V2Status.NO_ENTRY, V2Status.NO_LEDGER)
OK: Final = V2Status.OK


async def script(recorded: Recorded, storage: Storage) -> None:
    """Two checkpoints, then a tail in the journal alone; a fence before, between and after, two of them on nothing."""
    for entry in range(6):
        await asyncio.gather(*(recorded.add(storage, ledger_id, entry) for ledger_id in (1, 2)))
    await recorded.fence(storage, 4)
    await storage.checkpoint()
    await recorded.fence(storage, 1)
    await asyncio.gather(*(recorded.add(storage, 3, entry) for entry in range(6)))
    await storage.checkpoint()
    await recorded.add(storage, 1, 8, recovery=True)
    for entry in range(6, 10):
        await recorded.add(storage, 2, entry)
    await recorded.fence(storage, 5)
    await recorded.add(storage, LAST, 0)


@pytest.fixture(autouse=True)
def _small(world: Any) -> None:
    world.settings = world.tiny(write_cache_bytes=64 * KIB, entry_log_bytes=8 * KIB, journal_spare_segments=2)


async def killed(world: Any) -> tuple[MemoryDisk, Recorded]:
    """A directory as a kill leaves it."""
    disk, recorded = MemoryDisk(), Recorded(world, 800)
    await world.format(disk)
    await script(recorded, await world.open(disk))
    assert len(recorded.acknowledged) == 24
    return disk.crash(world.seeded(1)), recorded


def copied(world: Any, disk: MemoryDisk) -> MemoryDisk:
    return disk.crash(world.seeded(0))


async def check(world: Any, disk: MemoryDisk, recorded: Recorded) -> bool:
    """See the module; returns whether the start was refused."""
    refused = False
    try:
        storage = await world.open(disk)
    except StorageError:
        refused = True
        storage = await salvaged(world, disk)
    for ledger_id in LEDGERS:
        for entry_id in ENTRIES:
            found = await world.read(storage, ledger_id, entry_id)
            place = ledger_id, entry_id
            if isinstance(found, bytes):
                assert found == recorded.sent[place], f"phantom {place}"
            elif refused:
                assert found not in NEGATIVE, f"denied in limbo {place}"
            elif place in recorded.acknowledged:
                assert isinstance(found, StorageError), f"denied {place}: {found}"
    for ledger_id in LEDGERS if refused else recorded.fenced:
        assert await world.put(storage, world.add(ledger_id, 15)) == [V2Status.FENCED], ledger_id
    for ledger_id in recorded.fenced:
        assert await world.put(storage, world.add(ledger_id, 14, b"repair", recovery=True)) == [OK], ledger_id
    await storage.close()
    return refused


async def salvaged(world: Any, disk: MemoryDisk) -> Storage:
    limbo = await Limbo.begin(disk, world.raw_id, dict.fromkeys((*LEDGERS, LAST), True))
    await Salvage(
        disk,
        world.raw_id,
        rng=world.seeded(3),
        settings=world.settings,
        keys=dict.fromkeys((*LEDGERS, LAST), world.key),
        may_stay_open=lambda _: False,
    ).run()
    storage: Storage = await world.open(disk, limbo=limbo)
    return storage


def regions(disk: MemoryDisk, name: str) -> Iterator[int]:
    """Offsets in every page that is not empty: headers, lengths, checksums, numbers, bodies, padding."""
    data = disk.contents(name)
    for page in range(0, len(data), PAGE):
        if any(data[page : page + PAGE]):
            for at in (0, 5, 13, 17, 25, 33, 45, 90, 903, 2_600):
                if page + at < len(data):
                    yield page + at


# -- damage at rest


async def test_a_flipped_bit_in_any_region_is_refused_or_unknown_and_never_a_negative(world: Any) -> None:
    """apache/bookkeeper#2908: corruption is an error, never "no such entry"."""
    start, recorded = await killed(world)
    refusals: dict[str, int] = {}
    for name in start.all_names():
        for number, offset in enumerate(regions(start, name)):
            disk = copied(world, start)
            disk.flip_bit(name, offset, number % 8)
            refusals[name.partition("/")[0]] = refusals.get(name.partition("/")[0], 0) + await check(
                world, disk, recorded
            )
    assert min(refusals[folder] for folder in ("journal", "index", "entries", MARK_NAME)) > 0, refusals


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_every_flipped_byte_is_refused_or_unknown_and_never_a_negative(world: Any) -> None:
    """apache/bookkeeper#2908, at every byte that is not zero."""
    start, recorded = await killed(world)
    for name in start.all_names():
        for offset, byte in enumerate(start.contents(name)):
            if byte:
                disk = copied(world, start)
                disk.flip_bit(name, offset, offset % 8)
                await check(world, disk, recorded)


async def test_a_file_cut_short_anywhere_is_refused_or_unknown(world: Any) -> None:
    start, recorded = await killed(world)
    for name in start.all_names():
        data = start.contents(name)
        for end in {0, 1, len(data) - 1, *range(0, len(data), 3_000)}:
            disk = copied(world, start)
            disk.put(name, data[:end])
            await check(world, disk, recorded)


async def test_a_file_that_is_gone_is_refused_or_was_empty(world: Any) -> None:
    start, recorded = await killed(world)
    refused = []
    for name in start.all_names():
        disk = copied(world, start)
        await disk.remove(name)
        if await check(world, disk, recorded):
            refused.append(name)
    assert [name for name in refused if name.startswith("entries/")] == [
        name for name in start.all_names() if name.startswith("entries/")
    ]
    assert MARK_NAME in refused
    assert any(name.startswith("index/") for name in refused)
    assert any(name.startswith("journal/") for name in refused)


async def test_two_swapped_files_are_refused_or_unknown(world: Any) -> None:
    """Two generations of one folder, and files of two folders."""
    start, recorded = await killed(world)
    names = start.all_names()
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            disk = copied(world, start)
            disk.put(one, start.contents(other))
            disk.put(other, start.contents(one))
            await check(world, disk, recorded)


async def test_a_file_of_another_bookie_is_refused(world: Any) -> None:
    """The other bookie lived the same life, so that lengths and offsets agree."""
    start, recorded = await killed(world)
    theirs, other = MemoryDisk(), type(world)()
    other.raw_id, other.settings = bytes(16), world.settings
    await script(Recorded(other, 800), await other.open(theirs))
    foreign = theirs.crash(world.seeded(1))
    await other.close()
    for name in foreign.all_names():
        if name in start.all_names() and start.contents(name) != foreign.contents(name):
            disk = copied(world, start)
            disk.put(name, foreign.contents(name))
            assert await check(world, disk, recorded) or name.endswith(".spare"), name


async def test_a_page_that_was_written_to_the_wrong_place_is_refused_or_unknown(world: Any) -> None:
    """A misdirected write: one page is somewhere else, in its own or another file, and missing where it belongs."""
    start, recorded = await killed(world)
    pages = [
        (name, offset)
        for name in start.all_names()
        for offset in range(0, len(start.contents(name)) - PAGE + 1, PAGE)
        if any(start.contents(name)[offset : offset + PAGE])
    ]
    rng = world.seeded(4)
    for _ in range(60):
        (name, offset), (other, at) = pages[rng.below(len(pages))], pages[rng.below(len(pages))]
        disk = copied(world, start)
        page = start.contents(name)[offset : offset + PAGE]
        disk.overwrite(name, offset, bytes(PAGE))
        disk.overwrite(other, at, page)
        await check(world, disk, recorded)


# -- errors of operations


KINDS: Final = ("open", "write", "read", "sync", "replace", "rename", "remove", "size")


async def run_until_failed(world: Any, disk: MemoryDisk, recorded: Recorded) -> Storage | None:
    """The script, until the store or one of its operations fails."""
    try:
        storage: Storage = await world.open(disk)
    except StorageError:
        return None
    running = asyncio.ensure_future(script(recorded, storage))
    either: list[asyncio.Future[Any]] = [running, storage.failed]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        running.cancel()
    with contextlib.suppress(BokiError, asyncio.CancelledError):
        await running
    return storage


@pytest.mark.parametrize("kind", KINDS)
async def test_an_error_of_every_operation_costs_nothing_that_was_acknowledged(world: Any, kind: str) -> None:
    """EIO at the nth open, write, read, flush, rename: the store fails with a name, or goes on; the next start has it all."""
    start = MemoryDisk()
    await world.format(start)
    for nth in range(1, 60, 2 if kind in ("write", "sync") else 3):
        recorded, disk = Recorded(world, 800), copied(world, start)
        disk.fail(kind, nth=nth)
        storage = await run_until_failed(world, disk, recorded)
        survivor = disk.crash(world.seeded(nth))
        if storage is not None:
            if storage.failed.done():
                assert await recorded.add(storage, 2, 15) is V2Status.IO_ERROR or storage.journal.failed.done() is False
                recorded.sent[2, 15] = recorded.acknowledged.pop((2, 15), recorded.sent[2, 15])
            await storage.close()
        assert not await check(world, survivor, recorded), (kind, nth)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_error_while_it_starts_is_raised_and_the_next_start_has_everything(world: Any, kind: str) -> None:
    start, recorded = await killed(world)
    failures = 0
    for nth in range(1, 25):
        disk = copied(world, start)
        disk.fail(kind, nth=nth)
        try:
            await (await world.open(disk)).close()
        except DiskFailed:
            failures += 1
        assert not await check(world, disk.crash(world.seeded(nth)), recorded), (kind, nth)
    assert failures or kind not in ("open", "read", "write", "sync")


async def test_a_disk_that_gets_full_anywhere_costs_nothing_that_was_acknowledged(world: Any) -> None:
    start = MemoryDisk()
    await world.format(start)
    used = sum(len(start.contents(name)) for name in start.all_names())
    for room in range(0, 160 * KIB, 9 * KIB):
        recorded, disk = Recorded(world, 800), copied(world, start)
        disk.capacity_bytes = used + room
        opened: Storage | None = None
        with contextlib.suppress(DiskFull):
            opened = await world.open(disk)
        if opened is not None:
            running = asyncio.ensure_future(fill(recorded, opened))
            for _ in range(3_000):
                if running.done():
                    break
                await asyncio.sleep(0)
            running.cancel()
            with contextlib.suppress(DiskFull, asyncio.CancelledError):
                await running
        survivor = disk.crash(world.seeded(room))
        survivor.capacity_bytes = 2**60
        assert not await check(world, survivor, recorded), room
        if opened is not None:
            disk.capacity_bytes = 2**60
            await opened.close()


async def fill(recorded: Recorded, storage: Storage) -> None:
    """The script; a full disk ends only the checkpoint that met it."""
    with contextlib.suppress(DiskFull):
        await script(recorded, storage)
    storage.set_read_only(True)
    assert await recorded.add(storage, 2, 12) in (V2Status.READ_ONLY, V2Status.FENCED)
    await recorded.add(storage, 2, 13, recovery=True)


# -- anything, in any order


FAULTS: Final = ("flip", "cut", "zero", "remove", "swap")


def break_disk(disk: MemoryDisk, kind: str, one: int, two: int) -> None:
    names = disk.all_names()
    name, other = names[one % len(names)], names[two % len(names)]
    data = disk.contents(name)
    if kind == "flip" and data:
        disk.flip_bit(name, two % len(data), two % 8)
    elif kind == "cut":
        disk.put(name, data[: two % (len(data) + 1)])
    elif kind == "zero" and data:
        at = two % len(data)
        disk.overwrite(name, at, bytes(min(512, len(data) - at)))
    elif kind == "swap":
        disk.put(name, disk.contents(other))
        disk.put(other, data)


OPERATIONS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(LEDGERS), st.integers(0, 13)),
        st.tuples(st.just("recovery add"), st.sampled_from(LEDGERS), st.integers(0, 13)),
        st.tuples(st.just("fence"), st.sampled_from(LEDGERS), st.just(0)),
        st.tuples(st.just("checkpoint"), st.just(0), st.just(0)),
        st.tuples(st.just("kill"), st.just(0), st.integers(0, 100)),
    ),
    max_size=30,
)


async def live(world: Any, recorded: Recorded, operations: list[tuple[str, int, int]]) -> MemoryDisk:
    """Runs the operations and a last one that nobody asks about; returns what a kill leaves."""
    disk = MemoryDisk()
    await world.format(disk)
    storage: Storage = await world.open(disk)
    for kind, ledger_id, number in operations:
        if kind == "fence":
            await recorded.fence(storage, ledger_id)
        elif kind == "checkpoint":
            await storage.checkpoint()
        elif kind == "kill":
            survivor = disk.crash(world.seeded(number))
            await storage.close()
            disk = survivor
            storage = await world.open(disk)
        else:
            await recorded.add(storage, ledger_id, number, recovery=kind == "recovery add")
    await recorded.add(storage, LAST, 0)
    survivor = disk.crash(world.seeded(7))
    await storage.close()
    return survivor


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS, fault=st.sampled_from(FAULTS), one=st.integers(0, 10**6), two=st.integers(0, 10**6))
async def test_any_life_and_any_one_fault_lose_nothing_silently(
    world: Any, operations: list[tuple[str, int, int]], fault: str, one: int, two: int
) -> None:
    """Random operations against a plain model of what was sent, acknowledged and fenced; then one random fault."""
    recorded = Recorded(world, 800)
    disk = await live(world, recorded, operations)
    name = disk.all_names()[one % len(disk.all_names())]
    if fault == "remove":
        await disk.remove(name)
    else:
        break_disk(disk, fault, one, two)
    await check(world, disk, recorded)


async def test_a_damaged_last_group_costs_that_group_alone(world: Any) -> None:
    """The one place where damage looks like a crash: nothing follows that would prove that the group was durable."""
    start, recorded = await killed(world)
    segments = [name for name in start.all_names() if name.endswith(".segment")]
    places = [
        (name, page)
        for name in segments
        for page in range(PAGE, len(start.contents(name)), PAGE)
        if start.contents(name)[page : page + 4] == b"BKG1"
    ]
    name, page = max(
        places, key=lambda place: int.from_bytes(start.contents(place[0])[place[1] + 16 : place[1] + 24], "little")
    )
    disk = copied(world, start)
    disk.flip_bit(name, page + 300)
    assert not await check(world, disk, recorded)
    with pytest.raises(CorruptData):
        disk = copied(world, start)
        disk.flip_bit(places[0][0], places[0][1] + 300)
        await world.open(disk)
