"""Appends the rows of a partition, and commits batches. The rules, and why each is needed, are in `sink_rules`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import boki
from boki_spark.errors import PipelineError, SinkBadRow, SinkFenced, SinkTrimmed
from boki_spark.sink import sink_rules as rules
from boki_spark.sink.sink_rules import (
    AttemptRecord,
    BeginAttempt,
    CommitRecord,
    CompareRows,
    EndRecord,
    NewestRecord,
    OpenQuery,
    RowTally,
    SinkRow,
    SinkTags,
    SkipBatch,
    Step,
    Tag,
)

ATTEMPTS: Final = 8
"""Times that a condition may fail because another attempt was faster."""
TRIM_PAIRS: Final = 4_096
"""Marks of one trim: a limit of the log."""
IN_FLIGHT_BYTES: Final = 4 << 20
"""Of rows that wait for their answers; a few thousand of them may, whatever their size."""

Expect: TypeAlias = Mapping[Tag, int | None]


class EndedPartition(NamedTuple):
    """What became of a partition. `end` is 0 when its batch had been committed before."""

    query: str
    batch: int
    partition: int
    end: int
    rows: int
    committed: int
    """The seqnum of the COMMIT it stands on, 0 for none."""


class PartitionWriter:
    """One attempt of one partition of one batch. `begin`, `add` any number of times, `finish`."""

    def __init__(self, book: boki.Book, query: str, batch: int, partition: int) -> None:
        self._book = book
        self._query = query
        self._batch = batch
        self._partition = partition
        self._names = rules.names_of(query, partition)
        self._tally = RowTally()
        self._step: Step = SkipBatch()
        self._expect: Expect = {}
        self._tickets: list[boki.Ticket] = []
        self._bytes = 0

    async def begin(self) -> bool:
        """Fences all attempts before. Returns whether `add` has anything to do.

        Raises:
            SinkStale, SinkTrimmed. SinkFenced: others began, again and again. What `boki` raises.
        """
        known: dict[str, int] = {}
        for _ in range(ATTEMPTS):
            query, partition = await read_newest(self._book, [self._names.query, self._names.partition], known)
            step = self._step = rules.next_step(self._batch, query, partition)
            try:
                if isinstance(step, BeginAttempt):
                    await self._begin(step)
                    return True
                if not isinstance(step, OpenQuery):
                    return isinstance(step, CompareRows)
                await open_query(self._book, self._names)
            except boki.Conflict as conflict:
                known = newest_known(conflict)
        raise _fenced(self._batch, self._partition)

    async def _begin(self, step: BeginAttempt) -> None:
        names = self._names
        record = rules.encode(AttemptRecord(self._batch, self._partition, step.first))
        own = await self._book.append(
            record, tags=[names.partition, names.attempts], expect=rules.expected(names, step.partition, step.query)
        )
        self._expect = rules.expected(names, own, step.query)
        if step.first:
            self._tally = RowTally(await self._rows_between(step.first, own))

    async def _rows_between(self, first: int, own: int) -> list[SinkRow]:
        """Rows that earlier attempts of the batch left."""
        rows = []
        async for record in self._book.read(self._names.rows, start=first, stop=own):
            if isinstance(record, boki.Gap):
                raise SinkTrimmed(
                    f"rows of batch {self._batch} that earlier attempts wrote were trimmed, from {record.first} to {record.last}: "
                    "which of them are missing, nobody can know; begin anew with another checkpoint"
                ) from record.error()
            rows.append(rules.row_of(record.tags, record.data, self._names))
        return rows

    async def add(self, rows: Sequence[SinkRow]) -> None:
        """Appends those rows that are not there yet; returns before all are durable.

        Raises:
            SinkFenced: another attempt began. SinkBadRow: a row can be no record. What `boki` raises.
        """
        compare = isinstance(self._step, CompareRows)
        for row in rows:
            if self._tally.take(row) and not compare:
                await self._submit(row)

    async def _submit(self, row: SinkRow) -> None:
        tags = rules.tags_of(row, self._names)
        while True:
            try:
                ticket = self._book.submit(row.data, tags=tags, expect=self._expect)
            except boki.WindowFull:
                await self._await_appends()
                continue
            except boki.InvalidArgument as error:
                raise SinkBadRow(f"row {self._tally.rows} of partition {self._partition}: {error}") from error
            break
        self._tickets.append(ticket)
        self._bytes += len(row.data)
        if self._bytes > IN_FLIGHT_BYTES:
            await self._await_appends()

    async def _await_appends(self) -> None:
        """Waits for all that was submitted."""
        tickets, self._tickets, self._bytes = self._tickets, [], 0
        try:
            for ticket in tickets:
                await ticket
        except boki.Conflict as conflict:
            raise _fenced(self._batch, self._partition) from conflict

    async def finish(self) -> EndedPartition:
        """Ends the partition, once all its rows are durable.

        Raises:
            SinkReplayDiffers: an earlier run of the batch had other rows. SinkFenced. What `boki` raises.
        """
        step, tally = self._step, self._tally
        if isinstance(step, SkipBatch):
            return self._ended(0)
        if isinstance(step, CompareRows):
            tally.check_same(step.end)
            return self._ended(step.seqnum)
        await self._await_appends()
        tally.check_all_taken()
        record = rules.encode(EndRecord(self._batch, self._partition, tally.rows, tally.sum))
        try:
            end = await self._book.append(record, tags=[self._names.partition], expect=self._expect)
        except boki.Conflict as conflict:
            raise _fenced(self._batch, self._partition) from conflict
        return self._ended(end)

    def _ended(self, end: int) -> EndedPartition:
        return EndedPartition(
            self._query, self._batch, self._partition, end, self._tally.rows, self._expect.get(self._names.query) or 0
        )


async def open_query(book: boki.Book, names: SinkTags) -> None:
    """Appends the COMMIT of no batch, which a query begins with. Raises boki.Conflict: somebody did."""
    await book.append(rules.encode(CommitRecord(rules.NO_BATCH, ())), tags=[names.query], expect={names.query: None})


def _fenced(batch: int, partition: int) -> PipelineError:
    return SinkFenced(
        f"another attempt of partition {partition} of batch {batch} began, and writes what is left; this one ends",
        retryable=True,
    )


def newest_known(conflict: boki.Conflict) -> dict[str, int]:
    """Streams of a failed condition that have a record, with the seqnum of their newest."""
    actual: Mapping[Any, int | None] = conflict.facts.get("actual", {})
    return {tag: seqnum for tag, seqnum in actual.items() if isinstance(tag, str) and seqnum is not None}


async def read_newest(book: boki.Book, tags: Sequence[str], known: Mapping[str, int]) -> list[NewestRecord | None]:
    """The newest record of each stream; None where there never was one.

    Args:
        known: seqnums of newest records, as a conflict names them: one that cannot be read was trimmed.
    """
    records = await book.read_prev_many([(tag, None) for tag in tags], consistency="linearizable")
    found: list[NewestRecord | None] = []
    for tag, record in zip(tags, records, strict=True):
        if record is not None:
            found.append(NewestRecord(record.seqnum, rules.decode(record.data)))
        else:
            found.append(NewestRecord(known[tag], None) if tag in known else None)
    return found


class BatchCommit:
    """Commits a batch whose partitions have ended."""

    def __init__(self, book: boki.Book, ended: Sequence[EndedPartition]) -> None:
        """`ended`: of every partition, at least one."""
        self._book = book
        self._ended = ended
        self._query, self._batch = ended[0].query, ended[0].batch
        self._names: Final[SinkTags] = rules.names_of(self._query, ended[0].partition)

    async def commit(self) -> None:
        """Appends COMMIT, or finds that the batch is committed; then trims the tag that its rows had meanwhile.

        Raises:
            SinkReplayDiffers: another run of the batch had more partitions. SinkTrimmed. SinkStale. What `boki` raises.
        """
        known: dict[str, int] = {}
        for _ in range(ATTEMPTS):
            query, newest = await read_newest(self._book, [self._names.query, self._names.attempts], known)
            step = rules.next_step(self._batch, query, None)
            if isinstance(step, SkipBatch):
                assert query is not None
                await self._release(query.seqnum)
                return
            try:
                if isinstance(step, BeginAttempt):
                    await self._check_attempts(step.query)
                    await self._append(step.query, newest)
                else:  # every partition was empty of tasks, or a trim took what they wrote
                    await open_query(self._book, self._names)
            except boki.Conflict as conflict:
                known = newest_known(conflict)
        raise _fenced(self._batch, self._ended[0].partition)

    async def _append(self, query: int, attempts: NewestRecord | None) -> None:
        names = self._names
        ends = tuple((one.partition, one.end, one.rows) for one in sorted(self._ended, key=lambda one: one.partition))
        await self._book.append(
            rules.encode(CommitRecord(self._batch, ends)),
            tags=[names.query],
            expect={
                names.query: query,
                names.attempts: None if attempts is None else attempts.seqnum,
            },
        )

    async def _check_attempts(self, query: int) -> None:
        began: list[int] = []
        async for record in self._book.read(self._names.attempts, start=query + 1):
            if isinstance(record, boki.Gap):
                raise SinkTrimmed(
                    f"records of attempts of batch {self._batch} were trimmed before it was committed; begin anew with another checkpoint"
                ) from record.error()
            control = rules.decode(record.data)
            if isinstance(control, AttemptRecord) and control.batch == self._batch:
                began.append(control.partition)
        rules.check_partitions(self._batch, began, (one.partition for one in self._ended))

    async def _release(self, commit: int) -> None:
        """Takes the tag of partitions off the rows up to the commit: records that users trim go then."""
        marks: list[tuple[Tag | None, int]] = [
            (rules.rows_tag(self._query, partition), commit)
            for partition in sorted({one.partition for one in self._ended})
        ]
        for at in range(0, len(marks), TRIM_PAIRS):
            await self._book.trim(marks[at : at + TRIM_PAIRS])
