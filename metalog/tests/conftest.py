"""A model of ledgers for the metalog's tests, and the few things every test of a running cluster needs.

`ModelLedgers` keeps entries in memory. Acknowledgements come by themselves, one turn of the loop later, or by hand
(`hold_acks`, then `ack`). Recovery fences, drops what was not acknowledged (or keeps `keep_unacked` of it, both are
allowed to a real one) and closes. Who reads an open ledger sees only what the LAC of a later entry proves acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import pytest

from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.errors import BokiError, EntryUnknown, LedgerFenced, NoSuchEntry, NoSuchLedger
from boki_common.ids import Position
from boki_common.metadata.memory import MemoryStore, MemoryTree
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer, connect_messages
from boki_common.runtime.ports import Buffer
from boki_metalog import sequencer_protocol as protocol
from boki_metalog.follower import LogFollower, TermInfo
from boki_metalog.metalog_entry import MetalogEntry
from boki_metalog.progress import ProgressVector, ShardRange
from boki_metalog.sequencer import Sequencer
from boki_metalog.sequencer_link import SequencerLink
from boki_metalog.settings import FollowerSettings, SequencerSettings
from boki_metalog.term_record import TermRecord

T = TypeVar("T")


class ModelLedger:
    """One ledger, as its bookies have it."""

    def __init__(self, ledger_id: int, custom: Mapping[str, bytes] | None = None) -> None:
        self.ledger_id = ledger_id
        self.custom = tuple((custom or {}).items())
        self.entries: list[bytes] = []
        self.proven = -1
        """The LAC that the newest entry carries."""
        self.acked = 0
        self.fenced = False
        self.closed = False
        self.closed_by_writer = False
        self.writer: ModelWriter | None = None

    @property
    def last_entry(self) -> int:
        return len(self.entries) - 1 if self.closed else -1

    @property
    def state(self) -> LedgerState:
        return LedgerState.CLOSED if self.closed else LedgerState.OPEN


class ModelWriter:
    """Port `LedgerWriter`."""

    def __init__(self, cluster: ModelLedgers, ledger: ModelLedger) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._acked: Callable[[int], None] = lambda _: None
        self._failed: Callable[[BokiError], None] = lambda _: None
        self.abandoned = False
        self.waited: list[int] = []
        """Entries that were left to the end of the turn."""

    @property
    def ledger_id(self) -> int:
        return self._ledger.ledger_id

    def submit(self, *payload: Buffer, now: bool = False) -> int:
        ledger = self._ledger
        assert not self.abandoned
        if ledger.fenced:
            asyncio.get_running_loop().call_soon(
                self._failed, LedgerFenced(f"ledger {ledger.ledger_id} is fenced", ledger_id=ledger.ledger_id)
            )
            return len(ledger.entries)
        if not now:
            self.waited.append(len(ledger.entries))
        ledger.entries.append(b"".join(payload))
        ledger.proven = ledger.acked - 1
        if not self._cluster.hold_acks:
            asyncio.get_running_loop().call_soon(self._cluster.ack, ledger.ledger_id)
        return len(ledger.entries) - 1

    def ask_unfenced(self, told: Callable[[bool], None]) -> bool:
        ledger, cluster = self._ledger, self._cluster
        if not cluster.proves or not ledger.acked:
            return False
        loop = asyncio.get_running_loop()
        if ledger.fenced:
            loop.call_soon(
                self.tell_failed, LedgerFenced(f"ledger {ledger.ledger_id} is fenced", ledger_id=ledger.ledger_id)
            )
        elif cluster.hold_proofs:
            cluster.asked.append(told)
        else:
            loop.call_soon(told, True)
        return True

    def listen(self, acked: Callable[[int], None], failed: Callable[[BokiError], None]) -> None:
        self._acked, self._failed = acked, failed

    async def close(self) -> int:
        await self._cluster._step("close")
        ledger = self._ledger
        if ledger.fenced:
            raise LedgerFenced(f"ledger {ledger.ledger_id} is fenced", ledger_id=ledger.ledger_id)
        del ledger.entries[ledger.acked :]
        ledger.fenced = ledger.closed = ledger.closed_by_writer = True
        return ledger.acked - 1

    def abandon(self) -> None:
        assert not self._ledger.closed_by_writer
        self.abandoned = True

    def tell_acked(self, lac: int) -> None:
        if not self.abandoned:
            self._acked(lac)

    def tell_failed(self, error: BokiError) -> None:
        if not self.abandoned:
            self._failed(error)


class ModelReader:
    """Port `LedgerReader`."""

    def __init__(self, ledger: ModelLedger) -> None:
        self._ledger = ledger
        self._known = len(ledger.entries) - 1 if ledger.closed else ledger.proven

    @property
    def closed(self) -> bool:
        return self._ledger.closed

    @property
    def last_entry(self) -> int:
        return self._known

    async def read(self, first: int, last: int) -> list[memoryview]:
        await asyncio.sleep(0)
        if last > self._known or last >= len(self._ledger.entries):
            raise EntryUnknown(f"entry {last} is not proven acknowledged", ledger_id=self._ledger.ledger_id)
        return [memoryview(entry) for entry in self._ledger.entries[first : last + 1]]

    async def read_unconfirmed(self, first: int, last: int) -> list[memoryview]:
        await asyncio.sleep(0)
        if last >= len(self._ledger.entries):
            raise NoSuchEntry(f"nobody has entry {last}", ledger_id=self._ledger.ledger_id)
        return [memoryview(entry) for entry in self._ledger.entries[first : last + 1]]

    def confirm(self, entry_id: int) -> None:
        if not self._ledger.closed:
            self._known = max(self._known, entry_id)

    async def close(self) -> None:
        await asyncio.sleep(0)


class ModelLedgers:
    """Port `Ledgers`. See the module."""

    def __init__(self) -> None:
        self.ledgers: dict[int, ModelLedger] = {}
        self.made = 0
        self.hold_acks = False
        self.keep_unacked = 0
        self.proves = False
        """Whether bookies can be asked if a ledger is fenced."""
        self.hold_proofs = False
        self.asked: list[Callable[[bool], None]] = []
        """Who waits for a proof that is held."""
        self.faults: list[tuple[str, BokiError]] = []
        """(operation, error): raised once, by the next call of that operation."""

    async def create(
        self, *, replicas: int = 3, acks: int = 2, custom: Mapping[str, bytes] | None = None
    ) -> ModelWriter:
        await self._step("create")
        ledger = ModelLedger(self.made, custom)
        self.made += 1
        self.ledgers[ledger.ledger_id] = ledger
        ledger.writer = ModelWriter(self, ledger)
        return ledger.writer

    async def open(self, ledger_id: int, *, recover: bool) -> ModelReader:
        await self._step("recover" if recover else "open")
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            raise NoSuchLedger(f"no ledger {ledger_id}", ledger_id=ledger_id)
        if recover:
            ledger.fenced = True
            await self._step("recovery fenced")
            if not ledger.closed:
                del ledger.entries[ledger.acked + self.keep_unacked :]
                ledger.closed = True
            await self._step("recovery closed")
        return ModelReader(ledger)

    async def list(self) -> list[int]:
        await self._step("list")
        return sorted(self.ledgers)

    async def metadata_of(self, ledger_id: int) -> ModelLedger:
        """The ledger itself: it has `state` and `custom`."""
        await self._step("metadata")
        if ledger_id not in self.ledgers:
            raise NoSuchLedger(f"no ledger {ledger_id}", ledger_id=ledger_id)
        return self.ledgers[ledger_id]

    async def delete(self, ledger_id: int) -> None:
        await self._step("delete")
        if self.ledgers.pop(ledger_id, None) is None:
            raise NoSuchLedger(f"no ledger {ledger_id}", ledger_id=ledger_id)

    def ack(self, ledger_id: int) -> None:
        """The ack quorum has everything submitted, unless the ledger was fenced before."""
        ledger = self.ledgers[ledger_id]
        if not ledger.fenced and ledger.acked < len(ledger.entries):
            ledger.acked = len(ledger.entries)
            assert ledger.writer is not None
            ledger.writer.tell_acked(ledger.acked - 1)

    async def _step(self, operation: str) -> None:
        await asyncio.sleep(0)
        for position, (named, error) in enumerate(self.faults):
            if named == operation:
                del self.faults[position]
                raise error


class ManualClock:
    """Port `Clock`."""

    def __init__(self, now_ms: int = 1_000) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms


class CountingRandom:
    """Port `Random`: different tokens, the same in each run."""

    def __init__(self) -> None:
        self._count = 0

    def token(self, size: int) -> bytes:
        self._count += 1
        return self._count.to_bytes(size, "big")

    def below(self, bound: int) -> int:
        return 0

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return list(items)


class Recorder:
    """A listener that keeps what it is told, checks it with `ProgressVector`, and lets tests wait for it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.entries: dict[int, list[MetalogEntry]] = {}
        self.ranges: dict[int, list[ShardRange]] = {}
        self.vector = ProgressVector()
        self.link: SequencerLink | None = None
        self.fault: Exception | None = None
        """Raised once, by the next `entries_ordered`."""
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
        self._event(f"started {info.term}")

    def entries_ordered(self, term: int, first_entry: int, entries: Sequence[MetalogEntry]) -> None:
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        assert self.events[-1] != f"ended {term}" and f"started {term}" in self.events
        assert first_entry == len(self.entries[term]), "each entry once, in order"
        assert entries
        for entry in entries:
            self.entries[term].append(entry)
            self.ranges.setdefault(term, []).extend(self.vector.apply(entry))
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

    def idle(self) -> None:
        self._event("idle")


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

    async def entries(self) -> protocol.Entries:
        return protocol.decode_entries(await self.pushed(protocol.OP_ENTRIES))

    async def round_trip(self) -> None:
        """Everything sent before has been handled at the other end."""
        await self.peer.call(protocol.OP_STATUS)


class Cluster:
    """Metadata, ledgers, sequencers and followers on loopback; everything it started it also stops."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.ledgers = ModelLedgers()
        self.clock = ManualClock()
        self.rng = CountingRandom()
        self._closing: list[Callable[[], Awaitable[object]]] = []

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
        **settings: float,
    ) -> Sequencer:
        chosen = {
            "retry_first_s": 0.005, "retry_limit_s": 0.02, "standby_check_s": 0.02, "engine_grace_s": 0.02,
            "over_grace_s": 0.02, "standby_stagger_s": 0.01, "backoff_first_s": 0.01,
        }  # fmt: skip
        sequencer = await Sequencer.start(
            metadata=store or await self.store(),
            ledgers=self.ledgers,
            address=Address.parse(address),
            clock=self.clock,
            rng=self.rng,
            settings=SequencerSettings(**(chosen | settings)),  # type: ignore[arg-type]
            take_over=take_over,
            log=log,
        )
        self._closing.append(sequencer.close)
        return sequencer

    async def replace(self) -> Sequencer:
        """A new sequencer that has taken the term over."""
        sequencer = await self.sequencer(take_over=True)
        await sequencer.serving()
        return sequencer

    async def stranger(self, address: Address) -> Participant:
        """A connection that has not said HELLO."""
        participant = Participant()
        participant.peer = await connect_messages(address, participant)
        self._closing.append(participant.close)
        return participant

    async def participant(self, address: Address, *incarnations: str) -> Participant:
        """A connection that has said HELLO."""
        participant = await self.stranger(address)
        await participant.peer.call(protocol.OP_HELLO, protocol.encode_hello(incarnations))
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
        self.follower = LogFollower(
            metadata=store,
            ledgers=ledgers,
            listener=self.seen,
            start=start,
            settings=settings,
        )
        self.task = asyncio.get_running_loop().create_task(self.follower.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    async with asyncio.timeout(20):
        yield made
        await made.close()


@pytest.fixture
def model_ledgers() -> ModelLedgers:
    return ModelLedgers()


@pytest.fixture
def rng() -> CountingRandom:
    return CountingRandom()
