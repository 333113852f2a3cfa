"""Models of what an engine depends on, for tests: a log whose cuts and failures are given by hand, over model ledgers.

    ledgers = model_ledgers()                   # data ledgers, in memory
    log = ScriptedLog()                         # see testing_logs, for several logs too
    core = EngineCore(ledgers=ledgers, incarnation="…", …)
    await log.join(core)                        # replays the past, as a follower would, then is live

Nothing sleeps, nothing is random; what happens by itself happens in the next turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from boki_common.engine.answers import AnswerRow, Answers, decode_answers
from boki_common.engine.engine_protocol import Consistency, Direction, Query, Token, Verdict
from boki_common.engine.read_reply import ReadReply, decode_read_reply
from boki_common.errors import (
    BokiError,
)
from boki_common.ids import Position
from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.record_batch import RUN_NAMED, RecordBatch
from boki_common.records.tag_names import NO_NAMES, split_payload
from boki_ledger.testing.model_ledgers import ModelLedger, ModelLedgers
from boki_logbook.append.shard import Shard
from boki_logbook.core import EngineCore
from boki_logbook.index.places import TermPlaces
from boki_logbook.testing.logs import ScriptedLog as ScriptedLog
from boki_logbook.testing.logs import ScriptedLogs as ScriptedLogs
from boki_logbook.writers.verdict import Span


def model_ledgers() -> ModelLedgers:
    """Data ledgers whose recovery keeps everything that was sent."""
    return ModelLedgers(keep_unacked=1_000_000)


def batches(ledgers: ModelLedgers, ledger_id: int) -> list[RecordBatch]:
    """What the entries of a ledger hold."""
    return [RecordBatch.parse(memoryview(payload)) for payload in ledgers[ledger_id].entries]


class RecordingSource:
    """An `AppendSource` that keeps what it is answered, by (book, writer, number)."""

    def __init__(self) -> None:
        self.rows: list[AnswerRow] = []
        self.tokens: list[dict[int, Position]] = []
        self.pushes = 0
        self.refusals: list[tuple[int, BokiError]] = []
        self._pushed = asyncio.Event()

    async def pushed(self) -> None:
        """Waits for the next push of answers."""
        self._pushed.clear()
        await self._pushed.wait()

    def answered(self, token: Token, answers: Answers) -> None:
        (body,) = answers.encode(token)
        seen, rows = decode_answers(memoryview(body))
        self.pushes += 1
        self.tokens.append(seen)
        self.rows.extend(rows)
        self._pushed.set()

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


def numbers(ledgers: ModelLedgers, ledger_id: int) -> list[list[tuple[int, int]]]:
    """(first number, count) of the runs of each entry."""
    return [[(run.first, run.count) for run in batch.runs] for batch in batches(ledgers, ledger_id)]


def ledger_of(shard: Shard) -> ModelLedger:
    """The data ledger that a shard writes."""
    assert isinstance(shard.writer, ModelLedger)
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
            await source.pushed()
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
        and a.verdicts.writers.past.by_slot == b.verdicts.writers.past.by_slot
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


class ModelStreams:
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
