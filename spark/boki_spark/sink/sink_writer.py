"""Appends the rows of a partition and commits batches. `sink_rules` has the rules and their reasons. Runs in an event loop."""

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
"""Tries of a conditional append that another attempt may win."""
TRIM_PAIRS: Final = 4_096
"""Marks of one trim, a limit of the log."""
IN_FLIGHT_BYTES: Final = 4 << 20
"""Data of rows that wait for their answers. The SDK limits their number to a few thousand."""

Expect: TypeAlias = Mapping[Tag, int | None]


class EndedPartition(NamedTuple):
    """The outcome of a partition. `end` is the seqnum of its END, or 0 if the batch had been committed before."""

    query: str
    batch: int
    partition: int
    end: int
    rows: int
    committed: int
    """The seqnum of the COMMIT before the batch; 0 for none."""


class PartitionWriter:
    """An attempt of one partition of one batch. Call `begin`, then `add` any number of times, then `finish`."""

    def __init__(self, book: boki.Book, query: str, batch: int, partition: int) -> None:
        self._book = book
        self._query = query
        self._batch = batch
        self._partition = partition
        self._names = rules.names_of(query, partition)
        self._tally = RowTally()
        self._step: Step = OpenQuery()
        self._expect: Expect = {}
        self._tickets: list[boki.Ticket] = []
        self._bytes = 0

    async def begin(self) -> None:
        """Fence all earlier attempts, unless one of them wrote all rows.

        Raises:
            SinkStale: a later batch has begun.
            SinkTrimmed: a record that is needed was trimmed.
            SinkFenced: other attempts began again and again.
            BokiError: as the SDK's reads and appends.
        """
        known: dict[str, int] = {}
        for _ in range(ATTEMPTS):
            query, partition = await read_newest(self._book, [self._names.query, self._names.partition], known)
            step = self._step = rules.next_step(self._batch, query, partition)
            try:
                if isinstance(step, BeginAttempt):
                    await self._begin(step)
                elif isinstance(step, OpenQuery):
                    await open_query(self._book, self._names)
                    continue
                return
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
        """Return the rows that earlier attempts of the batch wrote."""
        rows = []
        async for record in self._book.read(self._names.rows, start=first, stop=own):
            if isinstance(record, boki.Gap):
                raise SinkTrimmed(
                    f"rows of batch {self._batch} that earlier attempts wrote were trimmed, from {record.first} to {record.last}: "
                    "it is unknown which are missing; start again with another checkpoint"
                ) from record.error()
            rows.append(rules.row_of(record.tags, record.data, self._names))
        return rows

    async def add(self, rows: Sequence[SinkRow]) -> None:
        """Append the rows that are not there yet, or compare them. Returns before all of them are durable.

        Raises:
            SinkFenced: another attempt began.
            SinkBadRow: a row cannot become a record.
            BokiError: as the SDK's appends.
        """
        writes = isinstance(self._step, BeginAttempt)
        for row in rows:
            if self._tally.take(row) and writes:
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
        """Wait for all submitted appends."""
        tickets, self._tickets, self._bytes = self._tickets, [], 0
        try:
            for ticket in tickets:
                await ticket
        except boki.Conflict as conflict:
            raise _fenced(self._batch, self._partition) from conflict

    async def finish(self) -> EndedPartition:
        """End the partition once all its rows are durable.

        Raises:
            SinkReplayDiffers: an earlier run of the batch had other rows.
            SinkFenced: another attempt began.
            BokiError: as the SDK's appends.
        """
        step, tally = self._step, self._tally
        assert not isinstance(step, OpenQuery), "begin was called"
        if isinstance(step, SkipBatch):
            rules.check_committed(step.commit, self._partition, tally, step.end)
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
    """Append the COMMIT of no batch that a query begins with. Raises boki.Conflict if another attempt did."""
    await book.append(rules.encode(CommitRecord(rules.NO_BATCH, ())), tags=[names.query], expect={names.query: None})


def _fenced(batch: int, partition: int) -> PipelineError:
    return SinkFenced(
        f"another attempt of partition {partition} of batch {batch} began and writes the remaining rows; this attempt ends",
        retryable=True,
    )


def newest_known(conflict: boki.Conflict) -> dict[str, int]:
    """Return the newest seqnums that a failed condition reports, for streams that have a record."""
    actual: Mapping[Any, int | None] = conflict.facts.get("actual", {})
    return {tag: seqnum for tag, seqnum in actual.items() if isinstance(tag, str) and seqnum is not None}


async def read_newest(book: boki.Book, tags: Sequence[str], known: Mapping[str, int]) -> list[NewestRecord | None]:
    """Return the newest record of each stream, or None where there never was one.

    Args:
        known: newest seqnums that a conflict reported. A record that is in it and cannot be read was trimmed.
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
    """The commit of a batch whose partitions have ended."""

    def __init__(self, book: boki.Book, ended: Sequence[EndedPartition]) -> None:
        """Prepare the commit.

        Args:
            ended: the outcome of every partition; at least one.
        """
        self._book = book
        self._ended = ended
        self._query, self._batch = ended[0].query, ended[0].batch
        self._names: Final[SinkTags] = rules.names_of(self._query, ended[0].partition)

    async def commit(self) -> None:
        """Append COMMIT unless the batch is committed, then trim the temporary tag of its rows.

        Raises:
            SinkReplayDiffers: another run of the batch, or another write with its name, had more partitions.
            SinkTrimmed, SinkStale, BokiError: as `PartitionWriter.begin`.
        """
        known: dict[str, int] = {}
        for _ in range(ATTEMPTS):
            query, newest = await read_newest(self._book, [self._names.query, self._names.attempts], known)
            step = rules.next_step(self._batch, query, None)
            if isinstance(step, SkipBatch):
                assert query is not None
                rules.check_same_partitions(step.commit, (one.partition for one in self._ended))
                await self._release(query.seqnum)
                return
            try:
                if isinstance(step, BeginAttempt):
                    await self._check_attempts(step.query)
                    await self._append(step.query, newest)
                else:  # no partition wrote a record, or a trim removed them all
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
                    f"records of attempts of batch {self._batch} were trimmed before it was committed; start again with another checkpoint"
                ) from record.error()
            control = rules.decode(record.data)
            if isinstance(control, AttemptRecord) and control.batch == self._batch:
                began.append(control.partition)
        rules.check_partitions(self._batch, began, (one.partition for one in self._ended))

    async def _release(self, commit: int) -> None:
        """Remove the partition tags from rows up to the commit, so that trims by users can delete these rows."""
        marks: list[tuple[Tag | None, int]] = [
            (rules.rows_tag(self._query, partition), commit)
            for partition in sorted({one.partition for one in self._ended})
        ]
        for at in range(0, len(marks), TRIM_PAIRS):
            await self._book.trim(marks[at : at + TRIM_PAIRS])
