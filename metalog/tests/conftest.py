"""What every test of a running cluster needs: metadata, model ledgers, sequencers, followers and their connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import BokiError, CorruptData
from boki_common.ids import Position
from boki_common.metadata.memory import MemoryStore, MemoryTree
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer, connect_messages
from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.record_batch import RecordBatch
from boki_common.records.tag_names import NO_NAMES
from boki_common.testing.machine import CountingRandom, ManualClock
from boki_ledger.testing.model_ledgers import ModelLedger, ModelLedgers
from boki_metalog.control import handing_over, log_changes
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.metalog_entry import MetalogEntry
from boki_metalog.entries.permissions import OF_EARLIER_VERSION
from boki_metalog.entries.progress import Order, ProgressVector, ShardRange
from boki_metalog.follow.follower import EntryRefused, LogFollower
from boki_metalog.follow.sequencer_link import SequencerLink
from boki_metalog.sequencer.sequencer import Sequencer
from boki_metalog.sequencer.term_server import TermServer
from boki_metalog.settings import FollowerSettings, SequencerSettings
from boki_metalog.terms.metadata_tree import read_view
from boki_metalog.terms.term_info import TermInfo
from boki_metalog.terms.term_record import TermRecord
from boki_metalog.terms.view import View

T = TypeVar("T")


def batch_body(term: int, shard: int, first_record: int, count: int, word: bytes = b"") -> bytes:
    """An entry of a shard: a record batch of `count` records with these data."""
    builder = BatchBuilder()
    builder.start_run(1, bytes(15) + b"w", first_record + 1, 1)
    for _ in range(count):
        builder.add(b"", 0, NO_NAMES, word)
    batch = RecordBatch.parse(memoryview(b"".join(builder.finish())))
    return b"".join(batch.at(term, shard, first_record))


@pytest.fixture
def recorder_of() -> Callable[[], Recorder]:
    return Recorder


@pytest.fixture
def body_of() -> Callable[..., bytes]:
    return batch_body


class Recorder:
    """A listener that keeps what it gets, checks it with `ProgressVector`, and lets tests wait for it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.infos: list[TermInfo] = []
        self.entries: dict[int, list[MetalogEntry]] = {}
        self.ranges: dict[int, list[ShardRange]] = {}
        self.vector = ProgressVector()
        self.link: SequencerLink | None = None
        self.fault: Exception | None = None
        """Raised once, by the next `entries_ordered`."""
        self.stops: list[tuple[Position, str | None]] = []
        """Where the log stopped, and why; None: it went on."""
        self._changed = asyncio.Event()

    async def until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._changed.clear()
            await self._changed.wait()

    async def linked(self, term: int) -> SequencerLink:
        await self.until(lambda: self.link is not None and self.link.term == term)
        assert self.link is not None
        return self.link

    def count(self, term: int) -> int:
        return len(self.entries.get(term, []))

    def _event(self, event: str) -> None:
        self.events.append(event)
        self._changed.set()

    async def term_started(self, info: TermInfo) -> None:
        await asyncio.sleep(0)
        self.vector = ProgressVector()
        self.entries.setdefault(info.term, [])
        self.infos.append(info)
        self._event(f"started {info.term}")

    def entries_ordered(self, term: int, first_entry: int, entries: Sequence[MetalogEntry]) -> None:
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        assert self.events[-1] != f"ended {term}" and f"started {term}" in self.events
        assert first_entry == len(self.entries[term]), "each entry once, in order"
        assert entries
        for number, entry in enumerate(entries, first_entry):
            try:
                ranges = self.vector.apply(entry)
            except CorruptData as error:
                raise EntryRefused(str(error), entry=number) from error
            self.entries[term].append(entry)
            self.ranges.setdefault(term, []).extend(ranges)
        self._event(f"ordered {term}:{first_entry}+{len(entries)}")

    async def caught_up(self) -> None:
        await asyncio.sleep(0)
        self._event("caught up")

    async def term_ended(self, record: TermRecord) -> None:
        assert len(self.entries[record.term]) == record.last_entry + 1
        assert self.vector.end_pos == record.end_pos
        self._event(f"ended {record.term}")

    def sequencer_up(self, link: SequencerLink) -> None:
        self.link = link
        self._event(f"up {link.term}")

    def sequencer_down(self) -> None:
        self.link = None
        self._event("down")

    def stopped(self, position: Position, error: BokiError | None) -> None:
        self.stops.append((position, None if error is None else str(error)))
        self._event(f"{'goes on' if error is None else 'stopped'} {position.term}:{position.entry}")

    def idle(self) -> None:
        self._event("idle")

    def complete(self) -> None:
        self._event("complete")


class Participant:
    """A bare connection: what comes is kept."""

    def __init__(self) -> None:
        self.peer: MessagePeer
        self.received: list[tuple[int, memoryview]] = []
        self.lost = asyncio.Event()
        self.got = asyncio.Event()

    async def close(self) -> None:
        self.peer.close()
        await asyncio.sleep(0)

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        self.received.append((opcode, body))
        self.got.set()

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        self.lost.set()

    async def pushed(self, opcode: int) -> memoryview:
        """The next push of that kind."""
        while True:
            for position, (found, body) in enumerate(self.received):
                if found == opcode:
                    del self.received[position]
                    return body
            self.got.clear()
            await self.got.wait()

    async def open(self, term: int, incarnation: str, ledger_id: int) -> int:
        return protocol.decode_shard(
            await self.peer.call(protocol.OP_OPEN, protocol.encode_open(term, incarnation, ledger_id))
        )

    async def close_shard(self, term: int, shard: int) -> None:
        await self.peer.call(protocol.OP_CLOSE, protocol.encode_close(term, shard))

    async def subscribe(self, term: int, next_entry: int = 0) -> protocol.Subscribed:
        return protocol.decode_subscribed(
            await self.peer.call(protocol.OP_SUBSCRIBE, protocol.encode_subscribe(term, next_entry))
        )

    def report(self, term: int, **ends: tuple[int, int]) -> None:
        rows = {int(name.removeprefix("s")): end for name, end in ends.items()}
        self.peer.push(protocol.OP_REPORT, protocol.encode_report(term, rows))

    def carry(self, term: int, shard: int, records_end: int, entries_end: int, body: bytes) -> None:
        self.peer.push(protocol.OP_CARRY, protocol.encode_carry(term, shard, records_end, entries_end), body)

    async def order(self, term: int, command: Order) -> Position:
        return protocol.decode_position(await self.peer.call(protocol.OP_ORDER, protocol.encode_order(term, command)))

    async def barrier(self, term: int = 1) -> Position:
        return protocol.decode_position(await self.peer.call(protocol.OP_BARRIER, protocol.encode_term(term)))

    async def entries(self) -> protocol.Entries:
        return protocol.decode_entries(await self.pushed(protocol.OP_ENTRIES))

    async def round_trip(self) -> None:
        """Everything sent before has been handled at the other end."""
        await self.peer.call(protocol.OP_STATUS)


class Cluster:
    """Metadata, ledgers, sequencers and followers on loopback; everything it started it also stops.

    By default no grace, stagger or time-out of a sequencer runs out, however long the machine stands still. Pauses before the next
    attempt are short: whatever they delay happens all the same.
    """

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.ledgers = ModelLedgers()
        self.clock = ManualClock()
        self.rng = CountingRandom()
        self._closing: list[Callable[[], Awaitable[object]]] = []
        self._reader: MemoryStore | None = None

    async def store(self) -> MemoryStore:
        store = MemoryStore(self.tree)
        await store.start()
        self._closing.append(store.close)
        return store

    async def sequencer(
        self,
        *,
        address: str = "127.0.0.1:0",
        take_over: bool = False,
        store: MemoryStore | None = None,
        log: int | None = None,
        token: ClusterToken = NO_TOKEN,
        **settings: float,
    ) -> Sequencer:
        chosen = {
            "retry_first_s": 0.005, "retry_limit_s": 0.02, "standby_check_s": 0.02, "backoff_first_s": 0.01,
            "engine_grace_s": 60.0, "over_grace_s": 60.0, "standby_stagger_s": 60.0, "confirm_timeout_s": 60.0,
        }  # fmt: skip
        sequencer = await Sequencer(
            metadata=store or await self.store(),
            ledgers=self.ledgers,
            clock=self.clock,
            rng=self.rng,
            settings=SequencerSettings(**(chosen | settings)),  # type: ignore[arg-type]
            take_over=take_over,
            log=log,
            token=token,
        ).start(Address.parse(address))
        self._closing.append(sequencer.close)
        return sequencer

    async def serving(self, **given: Any) -> Sequencer:
        """A sequencer that orders a log."""
        sequencer = await self.sequencer(**given)
        await sequencer.serving()
        return sequencer

    async def served(self, **given: Any) -> tuple[Sequencer, Participant]:
        """A sequencer that orders a log, and a connection that has said HELLO to it."""
        sequencer = await self.serving(**given)
        return sequencer, await self.participant(sequencer.address)

    async def replace(self) -> Sequencer:
        """A new sequencer that has taken the term over."""
        return await self.serving(take_over=True)

    async def stranger(self, address: Address) -> Participant:
        """A connection that has not said HELLO."""
        participant = Participant()
        participant.peer = await connect_messages(address, participant)
        self._closing.append(participant.close)
        return participant

    async def participant(
        self, address: Address, *incarnations: str, token: ClusterToken = NO_TOKEN, role: str = OF_EARLIER_VERSION
    ) -> Participant:
        """A connection that has said HELLO."""
        participant = await self.stranger(address)
        await participant.peer.call(protocol.OP_HELLO, protocol.encode_hello(incarnations, token=token, role=role))
        return participant

    async def follow(
        self, *, start: Position | None = None, store: MemoryStore | None = None, **settings: float
    ) -> Following:
        chosen = {"retry_first_s": 0.005, "retry_limit_s": 0.02}
        following = Following(
            store or await self.store(),
            self.ledgers,
            start,
            FollowerSettings(**(chosen | settings)),  # type: ignore[arg-type]
        )
        self._closing.append(following.stop)
        return following

    async def up_to(self, term: int, **given: Any) -> Following:
        """A follower that has reached a term that runs."""
        following = await self.follow(**given)
        await following.seen.linked(term)
        return following

    async def linked(self, term: int, **given: Any) -> tuple[Following, SequencerLink]:
        """A follower that has reached a term that runs, and its link to the sequencer."""
        following = await self.follow(**given)
        return following, await following.seen.linked(term)

    async def stopped(self, **given: Any) -> Following:
        """A follower that had to stop."""
        following = await self.follow(**given)
        await following.seen.until(lambda: bool(following.seen.stops))
        return following

    async def until(self, reached: Callable[[], object]) -> None:
        """Waits for what no recorder is told of."""
        while not reached():
            await asyncio.sleep(0)

    async def view(self) -> View:
        if self._reader is None:
            self._reader = await self.store()
        return (await read_view(self._reader)).view

    def metalog(self, sequencer: Sequencer) -> ModelLedger:
        """Of the term that it serves."""
        return self.ledgers.ledgers[sequencer.status()["term"]["metalog_ledger"]]

    def hold(self, sequencer: Sequencer) -> ModelLedger:
        """Holds acknowledgements back from now on; the metalog to give them for."""
        self.ledgers.hold_acks = True
        return self.metalog(sequencer)

    def server_of(self, sequencer: Sequencer) -> TermServer:
        assert sequencer.term_server is not None
        return sequencer.term_server

    async def close(self) -> None:
        for close in reversed(self._closing):
            await close()


class Following:
    """A follower that runs, and its recorder."""

    def __init__(
        self, store: MemoryStore, ledgers: ModelLedgers, start: Position | None, settings: FollowerSettings
    ) -> None:
        self.store = store
        self.seen = Recorder()
        self.follower = LogFollower(metadata=store, ledgers=ledgers, listener=self.seen, start=start, settings=settings)
        self.task = asyncio.get_running_loop().create_task(self.follower.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(log_changes, "YIELD_TIMEOUT_S", 60.0)
    monkeypatch.setattr(handing_over, "LIMIT_S", 60.0)
    made = Cluster()
    async with asyncio.timeout(50):
        yield made
        await made.close()


@pytest.fixture
async def sequencer(cluster: Cluster) -> Sequencer:
    """It orders log 0 in term 1."""
    return await cluster.serving()


@pytest.fixture
async def engine(cluster: Cluster, sequencer: Sequencer) -> Participant:
    """Has said HELLO to the sequencer."""
    return await cluster.participant(sequencer.address)


@pytest.fixture
def model_ledgers() -> ModelLedgers:
    return ModelLedgers()


@pytest.fixture
def rng() -> CountingRandom:
    return CountingRandom()
