"""Models of what an engine depends on, for tests: data ledgers and a log whose acks, cuts and failures are given by hand.

    ledgers = ScriptedLedgers()                 # entries in memory; `ack_by_itself = False` holds acknowledgements
    log = ScriptedLog()                         # see testing_logs, for several logs too
    core = EngineCore(ledgers=ledgers, incarnation="…", …)
    await log.join(core)                        # replays the past, as a follower would, then is live

Nothing sleeps, nothing is random; what happens by itself happens in the next turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from boki_common.batch_builder import BatchBuilder
from boki_common.engine_protocol import (
    AnswerRow,
    Answers,
    Consistency,
    Direction,
    Query,
    Token,
    Verdict,
    decode_answers,
)
from boki_common.errors import (
    BokiError,
    ClosedError,
    DigestMismatch,
    EntryUnknown,
    LedgerDataMissing,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
)
from boki_common.ids import Position
from boki_common.read_reply import ReadReply, decode_read_reply
from boki_common.record_batch import NO_NAMES, RUN_NAMED, RecordBatch, split_payload
from boki_common.runtime.ports import Buffer
from boki_logbook.core import EngineCore
from boki_logbook.places import TermPlaces
from boki_logbook.shard import Shard
from boki_logbook.testing_logs import ScriptedLog as ScriptedLog
from boki_logbook.testing_logs import ScriptedLogs as ScriptedLogs
from boki_logbook.verdict import Span


class ScriptedLedger:
    """One data ledger and its writer."""

    def __init__(self, ledgers: ScriptedLedgers, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self.entries: list[bytes] = []
        self.acked_end = 0
        self.closed_at: int | None = None
        self.fault: BokiError | None = None
        self.abandoned = False
        self._ledgers = ledgers
        self._acked: Callable[[int], None] = lambda _: None
        self._failed: Callable[[BokiError], None] = lambda _: None
        self._ack_due = False
        self._news = asyncio.Event()

    # -- LedgerWriter

    @property
    def failing_bookies(self) -> list[str]:
        return []

    def submit(self, *payload: Buffer) -> int:
        if self.fault is not None:
            raise self.fault
        if self.closed_at is not None or self.abandoned:
            raise ClosedError(f"ledger {self.ledger_id} is closed")
        self.entries.append(b"".join(payload))
        if self._ledgers.ack_by_itself and not self._ack_due:
            self._ack_due = True
            asyncio.get_running_loop().call_soon(self._ack_all)
        return len(self.entries) - 1

    def listen(self, acked: Callable[[int], None], failed: Callable[[BokiError], None]) -> None:
        self._acked, self._failed = acked, failed

    async def acknowledged(self, entry_id: int) -> None:
        assert entry_id < len(self.entries)
        while self.acked_end <= entry_id:
            if self.fault is not None:
                raise self.fault
            self._news.clear()
            await self._news.wait()

    async def close(self) -> int:
        if self.fault is not None:
            raise self.fault
        if self.closed_at is None:
            self.closed_at = self.acked_end
        return self.closed_at - 1

    def abandon(self) -> None:
        self.abandoned = True

    # -- the test's hand

    def ack(self, end: int | None = None) -> None:
        """Entries below `end` have their quorum; all without it."""
        end = len(self.entries) if end is None else end
        assert self.acked_end <= end <= len(self.entries)
        if end > self.acked_end and self.fault is None:
            self.acked_end = end
            self._news.set()
            self._acked(end - 1)

    def fail(self) -> None:
        """Somebody fenced the ledger."""
        if self.fault is None:
            self.fault = LedgerFenced(f"ledger {self.ledger_id} was fenced", ledger_id=self.ledger_id)
            self._news.set()
            self._failed(self.fault)

    def _ack_all(self) -> None:
        self._ack_due = False
        self.ack()


class ScriptedReader:
    """Reads what a ledger has; acknowledged or not is the reader's business, as it is with real bookies."""

    def __init__(self, ledgers: ScriptedLedgers, ledger: ScriptedLedger) -> None:
        self._ledgers = ledgers
        self._ledger = ledger
        self.closed = False
        self._confirmed = -1

    def confirm(self, entry_id: int) -> None:
        self._confirmed = max(self._confirmed, entry_id)

    async def read(self, first: int, last: int) -> list[memoryview]:
        assert not self.closed
        assert last <= self._confirmed, "an entry is read that nobody said is acknowledged"
        ledgers, ledger = self._ledgers, self._ledger
        ledgers.reads.append((ledger.ledger_id, first, last))
        gate = ledgers.gates.get((ledger.ledger_id, first))
        if gate is not None:
            await gate.wait()
        else:
            await asyncio.sleep(0)
        for entry in range(first, last + 1):
            if (ledger.ledger_id, entry) in ledgers.missing or entry >= len(ledger.entries):
                raise NoSuchEntry(f"ledger {ledger.ledger_id} has no entry {entry}")
            if (ledger.ledger_id, entry) in ledgers.damaged:
                raise DigestMismatch(f"all copies of entry {entry} of ledger {ledger.ledger_id} are damaged")
            if (ledger.ledger_id, entry) in ledgers.unknown:
                raise EntryUnknown(f"entry {entry} of ledger {ledger.ledger_id}: bookies are away")
        return [memoryview(payload) for payload in ledger.entries[first : last + 1]]

    async def close(self) -> None:
        self.closed = True


class ScriptedLedgers:
    """All data ledgers. `missing`, `unknown` and `damaged` entries cannot be read; a `gate` holds reads that begin at an entry."""

    def __init__(self) -> None:
        self.ack_by_itself = True
        self.up = True
        self.ledgers: dict[int, ScriptedLedger] = {}
        self.reads: list[tuple[int, int, int]] = []
        self.readers: list[ScriptedReader] = []
        self.recovered: list[tuple[int, int]] = []
        self.refusals = 0
        """How often a ledger could not be made, or not be closed."""
        self.missing: dict[tuple[int, int], None] = {}
        self.unknown: dict[tuple[int, int], None] = {}
        self.damaged: dict[tuple[int, int], None] = {}
        self.gates: dict[tuple[int, int], asyncio.Event] = {}
        self.metalog: Callable[[int], list[bytes] | None] = lambda ledger_id: None
        """The entries of a metalog ledger; a ScriptedLog has such a method."""
        self._next_id = 0

    def __getitem__(self, ledger_id: int) -> ScriptedLedger:
        return self.ledgers[ledger_id]

    async def create(
        self, *, replicas: int = 3, acks: int = 2, custom: Mapping[str, bytes] | None = None
    ) -> ScriptedLedger:
        await asyncio.sleep(0)
        if not self.up:
            self.refusals += 1
            raise NotEnoughBookies(f"expected {acks} bookies, found none")
        ledger = self.ledgers[self._next_id] = ScriptedLedger(self, self._next_id)
        self._next_id += 1  # an id is never used again, though its ledger was deleted
        return ledger

    async def open(
        self, ledger_id: int, *, recover: bool, floor: int = 0, carried: Mapping[int, Buffer] | None = None
    ) -> ScriptedReader:
        await asyncio.sleep(0)
        ledger = self.ledgers.get(ledger_id)
        metalog = self.metalog(ledger_id)
        if ledger is None and metalog is not None:
            ledger = ScriptedLedger(self, ledger_id)
            ledger.entries = metalog
        if ledger is None:
            raise NoSuchLedger(f"there is no ledger {ledger_id}")
        if recover and ledger.closed_at is None:
            while carried and len(ledger.entries) in carried:
                ledger.entries.append(bytes(carried[len(ledger.entries)]))
            if len(ledger.entries) < floor:
                self.refusals += 1
                raise LedgerDataMissing(f"ledger {ledger_id} has {len(ledger.entries)} entries, expected {floor}")
            ledger.fail()
            ledger.closed_at = len(ledger.entries)
            self.recovered.append((ledger_id, floor))
        reader = ScriptedReader(self, ledger)
        self.readers.append(reader)
        return reader

    async def delete(self, ledger_id: int) -> None:
        del self.ledgers[ledger_id]

    def batches(self, ledger_id: int) -> list[RecordBatch]:
        """What the entries of a ledger hold."""
        return [RecordBatch.parse(memoryview(payload)) for payload in self.ledgers[ledger_id].entries]


class RecordingSource:
    """An `AppendSource` that keeps what it hears, by (book, writer, number)."""

    def __init__(self) -> None:
        self.rows: list[AnswerRow] = []
        self.tokens: list[dict[int, Position]] = []
        self.pushes = 0
        self.refusals: list[tuple[int, BokiError]] = []
        self._heard = asyncio.Event()

    async def heard(self) -> None:
        """Waits for the next push of answers."""
        self._heard.clear()
        await self._heard.wait()

    def answered(self, token: Token, answers: Answers) -> None:
        told, rows = decode_answers(memoryview(b"".join(answers.encode(token))))
        self.pushes += 1
        self.tokens.append(told)
        self.rows.extend(rows)
        self._heard.set()

    def refused(self, request_id: int, error: BokiError) -> None:
        self.refusals.append((request_id, error))


class RecordSpec(NamedTuple):
    """One record of a batch under construction; `expect` maps tags to seqnums, 0 for none at all."""

    tags: tuple[int, ...] = ()
    data: bytes = b""
    expect: tuple[tuple[int, int], ...] = ()


class RunSpec(NamedTuple):
    """One run of a batch under construction."""

    book: int
    writer: bytes
    first: int
    records: tuple[RecordSpec, ...]
    low: int = 1
    flags: int = 0


def make_batch(*runs: RunSpec) -> RecordBatch:
    """A batch as an SDK sends it."""
    builder = BatchBuilder()
    for run in runs:
        builder.start_run(run.book, run.writer, run.first, run.low, run.flags)
        for record in run.records:
            builder.add(
                b"".join(tag.to_bytes(8, "little") for tag in record.tags), len(record.tags), NO_NAMES, record.data
            )
            for tag, seqnum in record.expect:
                builder.expect(tag, seqnum)
            if run.flags & RUN_NAMED:
                builder.checksum(0)
    return RecordBatch.parse(memoryview(b"".join(builder.finish())))


def send(core: EngineCore, source: RecordingSource, first: int, *, count: int = 1, data: bytes = b"x") -> None:
    """One frame of an SDK: `count` records of one writer of book 1 from number `first` on; data end with the number."""
    records = tuple(RecordSpec(data=data + str(first + at).encode()) for at in range(count))
    core.appender.append(make_batch(RunSpec(1, bytes(15) + b"w", first, records)), source, 0)


def numbers(ledgers: ScriptedLedgers, ledger_id: int) -> list[list[tuple[int, int]]]:
    """(first number, count) of the runs of each entry."""
    return [[(run.first, run.count) for run in batch.runs] for batch in ledgers.batches(ledger_id)]


def ledger_of(shard: Shard) -> ScriptedLedger:
    """The data ledger that a shard writes."""
    assert isinstance(shard.writer, ScriptedLedger)
    return shard.writer


def committed_numbers(source: RecordingSource) -> list[int]:
    """Numbers answered as committed, in the order of the answers; their seqnums ascend with them."""
    rows = [row for row in source.rows if row.verdict == Verdict.COMMITTED]
    firsts = [row.first_seqnum for row in sorted(rows, key=lambda row: row.first)]
    assert firsts == sorted(firsts)
    return [number for row in rows for number in range(row.first, row.first + row.count)]


def plain_records(*data: str, tags: tuple[int, ...] = ()) -> tuple[RecordSpec, ...]:
    """Records with these data, all with the same tags."""
    return tuple(RecordSpec(tags=tags, data=one.encode()) for one in data)


def append(core: EngineCore, source: RecordingSource, *runs: RunSpec) -> None:
    """Appends one batch, as a connection does."""
    core.appender.append(make_batch(*runs), source, 0)


async def committed(core: EngineCore, *runs: RunSpec) -> list[int]:
    """Appends one batch and waits for its verdicts; returns the seqnums."""
    source, count = RecordingSource(), sum(len(run.records) for run in runs)
    append(core, source, *runs)
    async with asyncio.timeout(10):
        while sum(row.count for row in source.rows) < count:
            await source.heard()
    return [row.first_seqnum + at for row in source.rows for at in range(row.count)]


def query(
    tag: int = 0,
    *,
    start: int = 0,
    stop: int = 2**63,
    direction: Direction = Direction.NEXT,
    book: int = 1,
    max_records: int = 100,
    max_bytes: int = 100_000,
    wait_ms: int = 0,
    consistency: Consistency = Consistency.SESSION,
) -> Query:
    """A query with what most tests want as defaults."""
    return Query(book, tag, start, stop, max_records, max_bytes, wait_ms, direction, consistency)


async def read(core: EngineCore, asked: Query, token: Token | None = None) -> ReadReply:
    """Reads as a connection does: at once if possible."""
    reply = core.reader.answer_now(token or {}, asked)
    if reply is None:
        reply = await core.reader.answer(token or {}, asked)
    return decode_read_reply(memoryview(b"".join(reply)))


def data_of(reply: ReadReply) -> list[bytes]:
    """The data of all records of a reply; empty for a row that says: no such record."""
    found, start = [], 0
    for length in reply.records.payload_lengths.tolist():
        found.append(bytes(split_payload(reply.records.payloads[start : start + length])[1]) if length else b"")
        start += length
    return found


def same_state(one: EngineCore, other: EngineCore) -> bool:
    """DESIGN §11.7: equal rows, verdicts, losers, writers and places at one position."""
    a, b = one.state, other.state
    return (
        one.frontier.positions == other.frontier.positions
        and one.frontier.covered == other.frontier.covered
        and a.index.streams() == b.index.streams()
        and a.verdicts.state() == b.verdicts.state()
        and a.places.terms.keys() == b.places.terms.keys()
        and all(_same_places(places, b.places.terms[term]) for term, places in a.places.terms.items())
    )


def _same_places(one: TermPlaces, other: TermPlaces) -> bool:
    return (
        one.end_pos == other.end_pos
        and (one.lost, one.passed, one.counts) == (other.lost, other.passed, other.counts)
        and one.losers() == other.losers()
        and all(one.locate(pos) == other.locate(pos) for pos in range(one.end_pos))
    )


class PlainStreams:
    """The model of `Streams`: a dict from (book, tag) to a sorted list, and a plain list of what was committed."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], list[int]] = {}
        self.committed: list[Span] = []
        self.batch: RecordBatch
        self.first_seqnum = 0

    def commit(self, first: int, stop: int) -> None:
        assert first < stop and (not self.committed or self.committed[-1][1] <= first)
        self.committed.append((first, stop))
        books = list(books_of(self.batch))
        for record in range(first, stop):
            seqnum = self.first_seqnum + record
            for tag in dict.fromkeys([0, *self.batch.record_tags(record).tolist()]):
                self.rows.setdefault((books[record], tag), []).append(seqnum)

    def newest(self, book: int, tag: int) -> int:
        return self.rows.get((book, tag), [0])[-1]

    def newest_before(self, book: int, tags: Sequence[int], records: Sequence[int]) -> list[int] | None:
        books = list(books_of(self.batch))
        for tag, record in zip(tags, records, strict=True):
            for before in range(record):
                if books[before] == book and tag in (0, *self.batch.record_tags(before).tolist()):
                    return None
        return [self.newest(book, tag) for tag in tags]


def books_of(batch: RecordBatch) -> Iterator[int]:
    """The book of each record."""
    for run in batch.runs:
        yield from [run.book] * run.count
