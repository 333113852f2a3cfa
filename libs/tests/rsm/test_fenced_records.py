"""Records that come late, twice or not at all: of a lane, of checkpoints and snapshots, of a carrier. No event is lost or handled twice.

In most tests a record is held on its way to the log, and another host works meanwhile. `docs/acceptance.md` names the rule that each of
them needs; `itests/mutations` takes it out.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Counted
from collections.abc import Iterator

import pytest

import boki
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.records.events import Envelope
from bokilib.records.events import Event as LogEvent
from bokilib.retention.carrier import Carrier
from bokilib.testing import crash_everywhere, while_alive
from bokirsm import App, Ask, Event, Host, Machine, Ref, Register, Rsm, State, carried
from bokirsm.lane import checkpoints, lane
from bokirsm.model.events import PICKER, Checkpoint, Commit, Snapshot
from libs.tests.rsm.test_host import kill
from libs.tests.rsm.traces import ARCHIVE, archive_trims, records_of, traces_of
from libs.tests.rsm.two_hosts import Held, hosts, of, started_on, take_over, traces
from libs.tests.rsm.upkeep import checkpoint


class Go(Event):
    text: str


class Link(Event):
    to: Ref[Go]


class Seen(Ask[list[str]]):
    pass


class Relay(Machine[Go | Link | Seen]):
    """A machine that notes each event, and passes it on."""

    to: Register[Ref[Go] | None] = Register(None)
    seen: Register[list[str]] = Register([])
    run = State(start=True)

    @run.on(Link)
    def link(self, e: Link) -> None:
        self.to = e.to

    @run.on(Go)
    def go(self, e: Go) -> None:
        self.seen.append(e.text)
        if self.to is not None:
            self.send(self.to, e)

    @run.on(Seen)
    def tell(self, e: Seen) -> None:
        self.reply(e, self.seen)


class Kept(Event):
    text: str


class Open(Event):
    pass


class Box(Machine[Kept | Open | Go | Seen]):
    """A machine that defers what it keeps until it is opened, and counts in its state what comes meanwhile."""

    seen: Register[list[str]] = Register([])
    closed, opened = State(start=True, defer=(Kept,)), State()

    @closed.on(Go)
    def go(self, e: Go) -> None:
        self.seen.append(e.text)

    @closed.on(Open)
    def open(self, e: Open) -> None:
        self.jump(self.opened)

    @opened.on(Kept)
    def kept(self, e: Kept) -> None:
        self.seen.append(e.text[:9])

    @closed.on(Seen)
    @opened.on(Seen)
    def tell(self, e: Seen) -> None:
        self.reply(e, self.seen)


@pytest.fixture(autouse=True)
def trims(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep what hosts trim, for `traces_of`."""
    archive_trims(monkeypatch)
    yield
    ARCHIVE.clear()


APP = App("g", [Relay, Box])
FIRST, SECOND = Ref[Go]("g", 1, "near"), Ref[Go]("g", 2, "near")


async def seen_by(host: Host, ref: Ref[Go | Seen]) -> list[str]:
    return await host.ask(Seen().to(ref), timeout_s=20.0)


@in_virtual_time
async def test_an_event_of_a_lost_record_is_handled_by_no_machine_before_it_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sender's partition has another owner while its record is on its way; the receiver's partition stays."""
    monkeypatch.setattr(lane, "SLICE", 1)  # the receiver handles the event after the sender's record was sealed
    async with hosts(APP, 2) as (cluster, (one, two)):
        receiver = await one.create(Relay, key="receiver", near=SECOND)
        sender = await one.create(Relay, Link(receiver), key="sender", near=FIRST)
        assert await seen_by(one, sender) == await seen_by(one, receiver) == []
        held = Held(one._log, of(Commit))
        await one.send(sender, Go("a"))
        await held.waiting.wait()
        while not one.lane._records[0]:
            await asyncio.sleep(0)  # until the receiver has handled the event that the record sends
        assert [event.id for part in held.parts for event in part.events if isinstance(event, Commit)] == [str(sender)]
        await take_over(two, sender.partition)
        held.go.set()
        assert await seen_by(two, sender) == ["a"]
        while await seen_by(two, receiver) != ["a"]:
            await let_pass(0.01)
        assert (await traces(cluster))[str(receiver)].count("Go") == 1
        assert one.failed is None and receiver.partition in one.partitions


@pytest.mark.parametrize("kind", [Checkpoint, Snapshot])
@in_virtual_time
async def test_of_two_owners_the_checkpoint_of_the_older_one_comes_too_late(
    kind: type[LogEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It arrives once the successor has made another one, and has trimmed what that covers."""
    monkeypatch.setattr(checkpoints._Record, "fits", lambda record, item, fence: not record.items)
    async with hosts(APP, 2) as (cluster, (one, two)):
        relay = await one.create(Relay, key="r")
        await one.send_many([(relay, Go(text)) for text in "ab"])
        assert await seen_by(one, relay) == ["a", "b"]
        held = Held(one._log, of(kind))
        late = asyncio.create_task(checkpoint(one, relay.partition))
        await held.waiting.wait()
        await take_over(two, relay.partition)
        await two.send_many([(relay, Go(text)) for text in "cd"])
        assert await seen_by(two, relay) == ["a", "b", "c", "d"]
        await checkpoint(two, relay.partition)
        held.go.set()
        await late
        third = await started_on(cluster, APP, "h3")
        await take_over(third, relay.partition)
        assert await seen_by(third, relay) == ["a", "b", "c", "d"]
        await third.__aexit__(None, None, None)


@in_virtual_time
async def test_a_carriers_copy_comes_too_late_if_the_owner_wrote_a_snapshot_meanwhile() -> None:
    async with hosts(APP, 1) as (cluster, (one,)):
        relay = await one.create(Relay, Go("a"), key="r")
        assert await seen_by(one, relay) == ["a"]
        await checkpoint(one, relay.partition)
        log = Log((await cluster.connect()).book("b"))
        held = Held(log, of(Snapshot))
        rewriting = asyncio.create_task(Carrier(log, [carried(log)], who="c", carry_ms=0).round())
        await held.waiting.wait()
        await one.send(relay, Go("b"))
        assert await seen_by(one, relay) == ["a", "b"]
        await checkpoint(one, relay.partition)
        held.go.set()
        assert (await rewriting).carried == 0
        await kill(one)
        two = await started_on(cluster, APP, "h0")  # the name of the one that died: it waits for no lease
        assert await seen_by(two, relay) == ["a", "b"]
        await two.__aexit__(None, None, None)


@in_virtual_time
async def test_nothing_is_trimmed_before_the_checkpoint_that_covers_it_is_in_the_log() -> None:
    """The host dies while its checkpoint is on its way."""
    async with hosts(APP, 1) as (cluster, (one,)):
        relay = await one.create(Relay, Go("a"), key="r")
        assert await seen_by(one, relay) == ["a"]
        held = Held(one._log, of(Snapshot))
        making = asyncio.create_task(checkpoint(one, relay.partition))
        await held.waiting.wait()
        await kill(one)
        await asyncio.gather(making, return_exceptions=True)
        two = await started_on(cluster, APP, "h0")
        assert await seen_by(two, relay) == ["a"]
        await two.__aexit__(None, None, None)
        assert (await traces(cluster))[str(relay)] == ["Go", "Seen", "Seen"]


@in_virtual_time
async def test_a_snapshot_that_is_copied_and_trimmed_between_two_reads_is_found() -> None:
    """A host that died while it wrote a large snapshot has left a part of it above the snapshot that counts."""
    async with hosts(APP, 1) as (cluster, (one,)):
        relay = await one.create(Relay, Go("a"), key="r")
        assert await seen_by(one, relay) == ["a"]
        await checkpoint(one, relay.partition)
        await kill(one)
        log = Log((await cluster.connect()).book("b"))
        left = Snapshot("g/r", 3, 0, 2, b"a part without a head", partition=relay.partition)
        await log.append(Contribution((tags.rsm_machine("g", relay.name),), {}, (left,)))
        two = await started_on(cluster, APP, "h0")
        copied: list[int] = []
        opened = two._log.open

        async def copy_then_open(record: boki.Record) -> Envelope:
            envelope = await opened(record)
            if not copied and any(isinstance(one, Snapshot) for one in PICKER.of(record.seqnum, envelope, about="g/r")):
                copied.append((await Carrier(log, [carried(log)], who="c", carry_ms=0).round()).carried)
            return envelope

        two._log.open = copy_then_open  # type: ignore[method-assign]
        assert await seen_by(two, relay) == ["a"] and copied == [1]
        await two.__aexit__(None, None, None)


@in_virtual_time
async def test_commits_that_a_snapshot_has_are_not_applied_again() -> None:
    """The checkpoint stays below an event that waits; the snapshot has commits above it, of which some are read again."""
    async with hosts(APP, 1) as (cluster, (one,)):
        box = await one.create(Box, key="box")
        await one.send(box, Kept("x" * 20_000))
        await one.send_many([(box, Go(text)) for text in "abc"])
        assert await seen_by(one, box) == ["a", "b", "c"]
        await checkpoint(one, box.partition)
        state = one.lane._states[box.partition]
        assert state.head and [id.seqnum > state.covers for id in state.pending] == [True]
        await kill(one)
        two = await started_on(cluster, APP, "h0")
        await two.send_many([(box, Go("d")), (box, Open())])
        assert await seen_by(two, box) == ["a", "b", "c", "d", "x" * 9]
        await checkpoint(two, box.partition)
        await two.__aexit__(None, None, None)
        third = await started_on(cluster, APP, "h3")
        assert await seen_by(third, box) == ["a", "b", "c", "d", "x" * 9]
        await third.__aexit__(None, None, None)
        assert (await traces(cluster))[str(box)].count("Go") == 4


@in_virtual_time
async def test_a_checkpoint_has_the_events_that_wait_below_it() -> None:
    async with hosts(APP, 1) as (cluster, (one,)):
        box = await one.create(Box, key="box")
        await one.send(box, Kept("kept"))
        await one.send_many([(box, Go("x" * 1_000)), (box, Go("a"))])
        assert len(await seen_by(one, box)) == 2
        await checkpoint(one, box.partition)
        state = one.lane._states[box.partition]
        assert [id.seqnum <= state.covers for id in state.pending] == [True], "it is covered, and trimmed"
        await kill(one)
        two = await started_on(cluster, APP, "h0")
        await two.send(box, Open())
        assert (await seen_by(two, box))[1:] == ["a", "kept"]
        await two.__aexit__(None, None, None)


async def asked_once(book: BookPort) -> None:
    """Run a host until the question is answered."""
    async with Host(APP, book, name="h", lease_s=1.0, stuck_after_s=None) as host:
        while await host.rsm.log.book.read_prev(tags.rsm_replies("someone")) is None:
            await let_pass(0.02)


async def asking(book: boki.Book) -> None:
    """Ask a machine, as a process that stays: its answers are not trimmed."""
    rsm = Rsm(APP, book)
    relay = await rsm.create(Relay, Go("a"), key="r")
    await rsm.send(relay, Seen(asker="someone/1"))


async def answered_once(book: boki.Book) -> None:
    found: Counted[str] = Counted()
    async for seqnum, envelope in records_of(book):
        for event in PICKER.of(seqnum, envelope):
            found.update(one.asker for one in (event.replies if isinstance(event, Commit) else ()))
    assert found == {"someone/1": 1}
    assert set(map(tuple, (await traces_of(book)).values())) == {("Go", "Seen")}


@in_virtual_time
async def test_a_question_is_answered_once_wherever_its_host_dies() -> None:
    async def run(book: BookPort) -> None:
        await while_alive(book, asked_once(book))

    explored = await crash_everywhere(run, run, answered_once, clock=LoopClock(), before=asking)
    assert explored.operations > 8 and explored.runs > 16
