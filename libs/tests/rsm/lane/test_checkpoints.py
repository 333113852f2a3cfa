"""Checkpoints of a lane: what is written, how much, and what lives after days."""

from __future__ import annotations

import asyncio

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.limits import MIB
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.records.events import encode_events, open_record
from bokilib.retention.carrier import Carrier
from bokirsm import (
    App,
    Ask,
    Event,
    Host,
    IdReused,
    Machine,
    NoSuchMachine,
    Ref,
    Register,
    Rsm,
    State,
    Table,
    carried,
)
from bokirsm.lane import lane
from bokirsm.model import parts
from bokirsm.model.events import PICKER, Checkpoint, Snapshot, is_head
from bokirsm.model.partition_state import Fresh
from libs.tests.conftest import SetClock
from libs.tests.rsm.conftest import NewHost
from libs.tests.rsm.upkeep import checkpoint, idle

DAY_S = 24 * 3_600


class Put(Event):
    key: int
    text: str


class Halt(Event):
    pass


class Size(Ask[int]):
    pass


class Later(Event):
    text: str


class Shelf(Machine[Put | Size | Halt | Later]):
    texts: Table[int, str] = Table()
    opened, closed = State(start=True, defer=(Later,)), State()
    last: Register[str] = Register("")

    @opened.on(Put)
    def put(self, e: Put) -> None:
        self.texts[e.key], self.last = e.text, e.text

    @opened.on(Size)
    def size(self, e: Size) -> None:
        self.reply(e, sum(len(text) for text in self.texts.values()))

    @opened.on(Halt)
    def end(self, e: Halt) -> None:
        self.halt()


SHELVES = App("shelves", [Shelf])


async def all_of(book: boki.Book) -> list[boki.Record]:
    return [item async for item in book.read() if isinstance(item, boki.Record)]


async def heads_of(book: boki.Book) -> list[Snapshot | Checkpoint]:
    """Return the heads of snapshots and checkpoints in a book."""
    found: list[Snapshot | Checkpoint] = []
    for item in await all_of(book):
        for event in PICKER.of(item.seqnum, open_record(item.seqnum, item.data)):
            if isinstance(event, (Snapshot, Checkpoint)) and is_head(event):
                found.append(event)
    return found


async def test_a_part_that_did_not_change_is_not_written_again(
    new_host: NewHost, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 4_096)
    monkeypatch.setattr(parts, "LEAST_BYTES", 1_024)
    book = (await cluster.connect()).book("b")
    async with await new_host(SHELVES, name="h") as host:
        shelf = await host.create(Shelf, key="s")
        await host.send_many([(shelf, Put(key, "x" * 100)) for key in range(400)])
        assert await host.ask(Size().to(shelf)) == 40_000
        sizes = []
        for number in range(20):
            await host.send(shelf, Put(200, "y" * 100))
            assert await host.ask(Size().to(shelf)) == 40_000
            before = (await book.check_tail()).seqnum  # type: ignore[union-attr]
            host.lane._begin_checkpoint()
            host.lane._states[shelf.partition].fresh = Fresh(1_000)
            await idle(host)
            written = [item for item in await all_of(book) if item.seqnum > before]
            sizes.append(sum(len(item.data) for item in written))
            del number
    assert sizes[0] > 40_000 and max(sizes[1:]) < 20_000, "one part, and about as many bytes of old ones"
    live = sum(len(item.data) for item in await all_of(book) if f"rsm/m/shelves/{shelf.name}" in item.tags)
    assert live < 150_000, "what is kept is a small multiple of the state"
    async with await new_host(SHELVES, name="i") as host:
        assert await host.ask(Size().to(shelf)) == 40_000


async def test_a_copy_by_a_carrier_is_noticed_before_its_parts_are_referred_to(
    new_host: NewHost, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 512)
    monkeypatch.setattr(parts, "LEAST_BYTES", 64)
    async with await new_host(SHELVES, name="h") as host:
        shelf = await host.create(Shelf, key="s")
        for number in range(6):
            await host.send_many([(shelf, Put(key, "x" * 50)) for key in range(number * 10, number * 10 + 10)])
            assert await host.ask(Size().to(shelf)) == 500 * (number + 1)
            await checkpoint(host, shelf.partition)
            if number in (1, 3):
                log = Log((await cluster.connect()).book("b"))
                done = await Carrier(log, [carried(log)], who="c", carry_ms=0).round()
                assert done.carried == 1
        await checkpoint(host, shelf.partition)
    async with await new_host(SHELVES, name="i") as host:
        assert await host.ask(Size().to(shelf)) == 3_000


async def test_a_long_inbox_that_waits_is_not_written_again_and_again(
    new_host: NewHost, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "BYTES_BETWEEN", MIB // 16)
    book = (await cluster.connect()).book("b")
    sent = 0
    async with await new_host(SHELVES, name="h") as host:
        shelf, other = await host.create(Shelf, key="s"), await host.create(Shelf, key="t")
        del other
        appended = 0
        append = host.lane._writer._append

        async def counted(part: Contribution) -> int:
            nonlocal appended
            appended += len(encode_events(part.events))
            return await append(part)

        host.lane._writer._append = counted  # type: ignore[misc]
        for _ in range(64):
            await host.send_many([(shelf, Later("x" * 1_000)) for _ in range(32)])
            sent += 32 * 1_000
            await idle(host)
        assert len([one for one in await heads_of(book) if isinstance(one, Checkpoint)]) >= 1
        assert appended < sent // 2
    async with await new_host(SHELVES, name="i") as host:
        await host.send(shelf, Put(1, "a"))
        assert await host.ask(Size().to(shelf)) == 1
        assert len(host.lane._machines[str(shelf)].deferred) == 64 * 32


@pytest.mark.timeout(300)
@in_virtual_time
async def test_after_days_no_more_records_live() -> None:
    """Machines that work, that wait, that are idle and that halt, for ten days: a term older than two days has nothing that is needed."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        book = (await cluster.connect()).book("b")
        counts: list[int] = []
        client = Rsm(SHELVES, (await cluster.connect()).book("b"))
        async with Host(
            SHELVES, (await cluster.connect()).book("b"), name="h", lease_s=3_600.0, stuck_after_s=None
        ) as host:
            busy, still, dead = [await host.create(Shelf, key=key) for key in ("busy", "idle", "dead")]
            await host.send_many([(still, Put(1, "a")), (dead, Halt()), (still, Later("b"))])
            for day in range(10):
                for _ in range(12):
                    brief = await host.create(Shelf)
                    await host.send_many([(busy, Put(day, "x" * 100)), (brief, Put(1, "a")), (brief, Halt())])
                    await let_pass(7_200.0)
                counts.append(len(await all_of(book)))
                now_ms = max(item.time_ms for item in await all_of(book))
                oldest_ms = min(item.time_ms for item in await all_of(book))
                assert now_ms - oldest_ms < 2 * DAY_S * 1_000 + 8 * 3_600_000, (day, oldest_ms)
            assert max(counts[5:]) <= max(counts[:5]) + 10, counts
            assert await host.ask(Size().to(still)) == 1
            assert len(host.lane._machines[str(still)].deferred) == 1
            assert await client.create(Shelf, key="busy") == busy
            made = await host.create(Shelf, Put(1, "again"), key="dead")
            assert made == dead and await host.ask(Size().to(made)) == 5, "the key is free after its retention"


async def test_a_key_of_a_machine_that_halted_is_not_used_again(new_host: NewHost, clock: SetClock) -> None:
    async with await new_host(SHELVES, name="h") as host:
        shelf = await host.create(Shelf, key="s")
        await host.send(shelf, Halt())
        await idle(host)
        await checkpoint(host, shelf.partition)
        tag = tags.rsm_machine("shelves", "s")
        (only,) = [item async for item in host._log.book.read(tag)]
        assert isinstance(only, boki.Record)
        (tomb,) = PICKER.of(only.seqnum, open_record(only.seqnum, only.data), about="shelves/s")
        assert isinstance(tomb, Snapshot) and tomb.halted and tomb.kind == "Shelf"
        clock.ms += 3 * DAY_S * 1_000
        assert await host.create(Shelf, key="s") == shelf, "the same creation is that of the machine that ended"
        with pytest.raises(IdReused, match="found a machine of Shelf"):
            await host.create(Shelf, Put(1, "a"), key="s")


async def test_a_copy_between_two_records_of_a_snapshot_trims_no_part_of_it(
    new_host: NewHost, cluster: MemoryCluster, clock: SetClock
) -> None:
    """A carrier copies the old head, and trims what is below its copy: parts of the snapshot that the owner is writing."""
    async with await new_host(SHELVES, name="h") as host:
        shelf = await host.create(Shelf, key="s")
        await host.send(shelf, Put(0, "x"))
        assert await host.ask(Size().to(shelf)) == 1
        await checkpoint(host, shelf.partition)
        clock.ms += 2 * DAY_S * 1_000
        log, append, records = Log((await cluster.connect()).book("b")), host.lane._writer._append, 0

        async def meanwhile(part: Contribution) -> int:
            nonlocal records
            records += 1
            if records == 2:
                assert (await Carrier(log, [carried(log)], who="c").round()).carried == 1
            return await append(part)

        host.lane._writer._append = meanwhile  # type: ignore[misc]
        for key in range(30):
            await host.send(shelf, Put(key, "y" * 50_000))
        assert await host.ask(Size().to(shelf)) == 1_500_000
        for _ in range(2):
            await checkpoint(host, shelf.partition)
        assert records > 2
    async with await new_host(SHELVES, name="i") as host:
        assert await host.ask(Size().to(shelf)) == 1_500_000


async def test_a_machine_that_halts_while_its_checkpoint_is_written_stays_halted(new_host: NewHost) -> None:
    async with await new_host(SHELVES, name="h") as host:
        shelf = await host.create(Shelf, key="s")
        await host.send(shelf, Put(0, "x"))
        assert await host.ask(Size().to(shelf)) == 1
        append = host.lane._writer._append

        async def meanwhile(part: Contribution) -> int:
            await host.send(shelf, Halt())
            while not host.lane._machines[str(shelf)].is_over:
                await asyncio.sleep(0)
            return await append(part)

        host.lane._writer._append = meanwhile  # type: ignore[misc]
        await checkpoint(host, shelf.partition)
        host.lane._writer._append = append  # type: ignore[misc]
        for _ in range(2):
            with pytest.raises(NoSuchMachine):
                await host.ask(Size().to(shelf))
            await checkpoint(host, shelf.partition)
    async with await new_host(SHELVES, name="i") as host:
        with pytest.raises(NoSuchMachine):
            await host.ask(Size().to(shelf))


async def test_a_reference_with_another_partition_wakes_no_second_machine(new_host: NewHost) -> None:
    async with await new_host(SHELVES, name="h") as host:
        shelf = await host.create(Shelf, key="s", near=Ref("shelves", 7, "y"))
        await host.send(shelf, Put(0, "x"))
        assert await host.ask(Size().to(shelf)) == 1
        await checkpoint(host, shelf.partition)
        with pytest.raises(NoSuchMachine):
            await host.ask(Size().to(Ref("shelves", 5, "s")))
        assert await host.ask(Size().to(shelf)) == 1
