"""The records that the sink writes, and the steps that one attempt of a partition may take, so that each row appears once. Pure.

    tag                            records that carry it
    boki.sink/QUERY                COMMIT: a batch is complete
    boki.sink/QUERY/attempts       every ATTEMPT of the query
    boki.sink/QUERY/PARTITION      ATTEMPT, END of one partition: the newest ATTEMPT fences all earlier ones
    boki.sink/QUERY/PARTITION/rows rows, until their batch is committed (an id without a name, since each row carries it)
    boki.sink/QUERY/rows           rows without tags of their own, so that they outlive the trim of the tag above

- An attempt reads the newest records of query and partition, and appends ATTEMPT on condition that both are still the newest. Each row,
  and END, is appended on condition that the newest record of the partition is this ATTEMPT and that of the query is unchanged. Appends of
  an abandoned attempt that arrive late therefore fail once another attempt began or the batch was committed.
- A query begins with a COMMIT of no batch, so everything it writes follows a COMMIT.
- Rows that earlier attempts of the batch wrote are skipped, as a multiset, so order does not matter. If some of them are not rows of this
  attempt, the frame changed between two runs, and the batch fails instead of keeping both.
- COMMIT is appended on condition that no other COMMIT was, and that no other partition of the batch began. A batch that is run again with
  other partitions is an error and is not repaired.
- A batch that is committed is not written again, but its partitions and rows are compared: a second write in foreachBatch with the same
  `writeId` looks like the first one run again. A batch below the last commit is stale, since its rows are compared with nothing.
- A control record that was trimmed is a lost fact. Only one is not needed: the record that a partition had before the last COMMIT.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec
import xxhash

from boki_common.ids import tag_hash
from boki_spark.errors import SinkReplayDiffers, SinkStale, SinkTrimmed

VERSION: Final = 1
NO_BATCH: Final = -1
"""The batch of the COMMIT that a query begins with."""
SUM_MASK: Final = 2**128 - 1
PREFIX: Final = "boki.sink/"

Tag: TypeAlias = str | int


class SinkRow(NamedTuple):
    """A record to append."""

    data: bytes
    tags: tuple[Tag, ...] = ()


class AttemptRecord(msgspec.Struct, frozen=True, tag="attempt", tag_field="kind"):
    """The begin of an attempt of a partition. `first` is the seqnum of the batch's first ATTEMPT, or 0 if it is this one."""

    batch: int
    partition: int
    first: int
    v: int = VERSION


class EndRecord(msgspec.Struct, frozen=True, tag="end", tag_field="kind"):
    """The end of a partition: its number of rows, and the sum of their hashes, which does not depend on their order."""

    batch: int
    partition: int
    rows: int
    sum: str
    v: int = VERSION


class CommitRecord(msgspec.Struct, frozen=True, tag="commit", tag_field="kind"):
    """The commit of a batch. `ends` has (partition, seqnum of its END, rows) of each partition."""

    batch: int
    ends: tuple[tuple[int, int, int], ...]
    v: int = VERSION


Control: TypeAlias = AttemptRecord | EndRecord | CommitRecord

_decoder: Final[msgspec.json.Decoder[Control]] = msgspec.json.Decoder(AttemptRecord | EndRecord | CommitRecord)


def encode(control: Control) -> bytes:
    """Return the data of a control record."""
    return msgspec.json.encode(control)


def decode(data: bytes) -> Control:
    """Parse a control record.

    Raises:
        SinkTrimmed: the record is not one of a sink, or of a later version.
    """
    try:
        found = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise SinkTrimmed(
            f"expected a record of a sink, found {data[:80]!r}: another program appends with its tags"
        ) from error
    if found.v != VERSION:
        raise SinkTrimmed(
            f"expected version {VERSION} of a sink's records, found {found.v}: a later program wrote to this query"
        )
    return found


class SinkTags(NamedTuple):
    """The tags of one query and partition."""

    query: str
    attempts: str
    partition: str
    rows: int
    untagged: str


def names_of(query: str, partition: int) -> SinkTags:
    """Return the tags that a partition of a query uses."""
    root = f"{PREFIX}{query}"
    return SinkTags(root, f"{root}/attempts", f"{root}/{partition}", rows_tag(query, partition), f"{root}/rows")


def rows_tag(query: str, partition: int) -> int:
    """Return the id that rows carry until their batch is committed."""
    return tag_hash(f"{PREFIX}{query}/{partition}/rows".encode())


class NewestRecord(NamedTuple):
    """The newest record of a stream. `control` is None if it was trimmed: only its existence is known."""

    seqnum: int
    control: Control | None


class SkipBatch(NamedTuple):
    """The step of a batch that is committed: write nothing, and check that this attempt has the same rows. `end` is None if unknown."""

    commit: CommitRecord
    end: EndRecord | None = None


class CompareRows(NamedTuple):
    """The step after an attempt that ended: check that this one has the same rows."""

    end: EndRecord
    seqnum: int


class OpenQuery(NamedTuple):
    """The first step of a query: append the COMMIT of no batch on condition that the query has no record, then decide again."""


class BeginAttempt(NamedTuple):
    """The step that begins to write: append ATTEMPT on condition of these seqnums, None where a stream has no record."""

    first: int
    partition: int | None
    query: int


Step: TypeAlias = SkipBatch | CompareRows | OpenQuery | BeginAttempt


def next_step(batch: int, query: NewestRecord | None, partition: NewestRecord | None) -> Step:
    """Return the first step of an attempt.

    Args:
        query: newest record of the query; None if there never was one.
        partition: newest record of the partition; None if there never was one.

    Raises:
        SinkStale: a later batch of the query is committed, or one of the partition has begun.
        SinkTrimmed: a record that is needed was trimmed.
    """
    if query is None:
        return OpenQuery()
    if not isinstance(query.control, CommitRecord):
        raise SinkTrimmed(
            "the record of the last committed batch was trimmed, so rows of this batch may be there already; "
            "start again with another checkpoint, and trim only below the last commit",
            seqnum=query.seqnum,
        )
    if query.control.batch > batch:
        raise SinkStale(
            f"expected no batch after {batch}, found {query.control.batch}, which is committed: another run of this query is ahead, or its "
            "checkpoint is an older copy; start again with another checkpoint",
            found=query.control.batch,
        )
    if query.control.batch == batch:
        end = None if partition is None else partition.control
        return SkipBatch(query.control, end if isinstance(end, EndRecord) and end.batch == batch else None)
    committed = query.seqnum
    if partition is None:
        return BeginAttempt(0, None, committed)
    found = partition.control
    if found is None:
        if partition.seqnum > committed:
            raise SinkTrimmed(
                f"the newest record of the partition, {partition.seqnum}, was trimmed before its batch was committed, so rows of this "
                "batch may be there already; start again with another checkpoint",
                seqnum=partition.seqnum,
            )
        return BeginAttempt(0, partition.seqnum, committed)
    assert not isinstance(found, CommitRecord), "a partition has no commits"
    if found.batch > batch:
        raise SinkStale(
            f"expected no batch after {batch}, found {found.batch}: another run of this query is ahead",
            found=found.batch,
        )
    if found.batch < batch:
        return BeginAttempt(0, partition.seqnum, committed)
    if isinstance(found, EndRecord):
        return CompareRows(found, partition.seqnum)
    return BeginAttempt(found.first or partition.seqnum, partition.seqnum, committed)


class RowTally:
    """The number of rows of one attempt and the sum of their hashes, and the rows that an earlier attempt already wrote."""

    def __init__(self, there: Iterable[SinkRow] = ()) -> None:
        """Begin a tally.

        Args:
            there: rows that earlier attempts of the batch wrote.
        """
        self._there = Counter(map(row_hash, there))
        self.rows = 0
        self._sum = 0

    def take(self, row: SinkRow) -> bool:
        """Count a row. Return whether it must be written."""
        found = row_hash(row)
        self.rows += 1
        self._sum = (self._sum + found) & SUM_MASK
        if self._there[found] > 0:
            self._there[found] -= 1
            return False
        return True

    @property
    def sum(self) -> str:
        return f"{self._sum:032x}"

    def check_all_taken(self) -> None:
        """Raise SinkReplayDiffers if the log has rows of this batch that this attempt does not have."""
        left = self._there.total()
        if left:
            raise SinkReplayDiffers(
                f"an earlier run of this batch wrote {left} rows that this one does not have: the frame must give the same rows when it "
                "is run again (no rand(), no current_timestamp(), no limit without order)",
                left=left,
            )

    def check_same(self, end: EndRecord) -> None:
        """Raise SinkReplayDiffers if an earlier attempt ended with other rows."""
        if (self.rows, self.sum) != (end.rows, end.sum):
            raise SinkReplayDiffers(
                f"an earlier run of this batch ended with {end.rows} rows, this one has {self.rows}"
                f"{'' if self.rows != end.rows else ', and others'}: the frame must give the same rows when it is run again",
                expected=end.rows,
                found=self.rows,
            )


SAME_WRITE_ID: Final = (
    "the frame must give the same rows when it is run again, and each write of a batch needs a writeId of its own"
)


def check_committed(commit: CommitRecord, partition: int, tally: RowTally, end: EndRecord | None) -> None:
    """Compare a partition with what its batch was committed with.

    Args:
        end: the END of the partition; None if it was trimmed. Then only the number of rows is compared.

    Raises:
        SinkReplayDiffers: the partition had other rows, or did not exist.
    """
    rows = {number: count for number, _, count in commit.ends}.get(partition)
    if rows != tally.rows or (end is not None and tally.sum != end.sum):
        found = "others" if rows == tally.rows else str(tally.rows)
        raise SinkReplayDiffers(
            f"batch {commit.batch} is committed with {'no partition' if rows is None else f'{rows} rows in partition'} {partition}, this "
            f"write has {found}: {SAME_WRITE_ID}",
            expected=rows,
            found=tally.rows,
        )


def check_same_partitions(commit: CommitRecord, ended: Iterable[int]) -> None:
    """Check that a write has all partitions that its batch was committed with. Raises SinkReplayDiffers."""
    others = sorted({number for number, _, _ in commit.ends} - set(ended))
    if others:
        raise SinkReplayDiffers(
            f"batch {commit.batch} is committed with partitions {_few(others)}, this write does not have them: {SAME_WRITE_ID}",
            partitions=others[:16],
        )


def row_hash(row: SinkRow) -> int:
    """Return a hash of 128 bits of a row's tags, in order, and its data."""
    digest = xxhash.xxh3_128()
    for tag in row.tags:
        text = tag.encode() if isinstance(tag, str) else b"\0%d" % tag
        digest.update(b"%d:%b" % (len(text), text))
    digest.update(b"|")
    digest.update(row.data)
    return digest.intdigest()


def check_partitions(batch: int, began: Iterable[int], ended: Iterable[int]) -> None:
    """Check that every partition that began in any run of a batch ended in this one. Raises SinkReplayDiffers."""
    others = sorted(set(began) - set(ended))
    if others:
        raise SinkReplayDiffers(
            f"an earlier run of batch {batch} had partitions {_few(others)}, this one does not: a batch that is run again must have the "
            "same partitions (the same spark.sql.shuffle.partitions)",
            partitions=others[:16],
        )


def _few(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers[:8]))
    return listed if len(numbers) <= 8 else f"{listed} and {len(numbers) - 8} more"


def expected(names: SinkTags, partition: int | None, query: int) -> Mapping[Tag, int | None]:
    """Return the conditions of a record of an attempt: the newest records of its partition and its query."""
    return {names.partition: partition, names.query: query}


def tags_of(row: SinkRow, names: SinkTags) -> tuple[Tag, ...]:
    """Return the tags of the record that a row becomes."""
    return (*row.tags, names.rows) if row.tags else (names.untagged, names.rows)


def row_of(tags: Sequence[Tag], data: bytes, names: SinkTags) -> SinkRow:
    """Return the row that a record was made from."""
    own = tuple(tag for tag in tags if tag != names.rows)
    return SinkRow(data, () if own == (names.untagged,) else own)
