"""What the sink writes, and what one attempt of a partition may do: rows appear once, whoever writes them how often. Pure.

    tag                            records that carry it
    boki.sink/QUERY                COMMIT: a batch is whole
    boki.sink/QUERY/attempts       every ATTEMPT of the query
    boki.sink/QUERY/PARTITION      ATTEMPT, END of one partition: its newest fences all attempts before
    boki.sink/QUERY/PARTITION/rows rows, until their batch is committed (a number without a name: it is in every row)
    boki.sink/QUERY/rows           rows that have no tag of their own, so that they outlive the trim of the one before

- An attempt reads the newest of query and partition, and appends ATTEMPT on condition that both are still that. Each row, and END,
  has the condition that the newest of the partition is this ATTEMPT, and that of the query what was read. So whatever an attempt that was
  given up has still under way joins nothing once another began, or the batch is committed.
- A query begins with a COMMIT of no batch: whatever it ever wrote comes after one.
- What earlier attempts of the batch left is skipped, as a multiset: order does not matter. What is left over then is no row of this
  attempt: the frame changed between two runs, and the batch fails rather than have both.
- COMMIT has the condition that nobody committed, and that no other partition of the batch began: a batch that is run again with other
  partitions is an error, and is not repaired.
- A control record that a trim took was a fact that nobody knows any more. Only one is safe to miss: what a partition had before
  the last COMMIT.
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
    """One record to append."""

    data: bytes
    tags: tuple[Tag, ...] = ()


class AttemptRecord(msgspec.Struct, frozen=True, tag="attempt", tag_field="kind"):
    """An attempt of a partition begins. `first`: the seqnum of the batch's first one, 0: this is it."""

    batch: int
    partition: int
    first: int
    v: int = VERSION


class EndRecord(msgspec.Struct, frozen=True, tag="end", tag_field="kind"):
    """All rows of a partition are there: how many, and the sum of their hashes, which no order changes."""

    batch: int
    partition: int
    rows: int
    sum: str
    v: int = VERSION


class CommitRecord(msgspec.Struct, frozen=True, tag="commit", tag_field="kind"):
    """A batch is whole. `ends`: (partition, seqnum of its END, rows)."""

    batch: int
    ends: tuple[tuple[int, int, int], ...]
    v: int = VERSION


Control: TypeAlias = AttemptRecord | EndRecord | CommitRecord

_decoder: Final[msgspec.json.Decoder[Control]] = msgspec.json.Decoder(AttemptRecord | EndRecord | CommitRecord)


def encode(control: Control) -> bytes:
    """The data of a control record."""
    return msgspec.json.encode(control)


def decode(data: bytes) -> Control:
    """A control record. Raises SinkTrimmed: something else carries its tag."""
    try:
        found = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise SinkTrimmed(
            f"expected a record of a sink, found {data[:80]!r}: somebody else appends with its tags"
        ) from error
    if found.v != VERSION:
        raise SinkTrimmed(
            f"expected version {VERSION} of a sink's records, found {found.v}: a later program wrote to this query"
        )
    return found


class SinkTags(NamedTuple):
    """Tags of one query and partition."""

    query: str
    attempts: str
    partition: str
    rows: int
    untagged: str


def names_of(query: str, partition: int) -> SinkTags:
    """The tags that a partition of a query uses."""
    root = f"{PREFIX}{query}"
    return SinkTags(root, f"{root}/attempts", f"{root}/{partition}", rows_tag(query, partition), f"{root}/rows")


def rows_tag(query: str, partition: int) -> int:
    """The number that rows carry until their batch is committed."""
    return tag_hash(f"{PREFIX}{query}/{partition}/rows".encode())


class NewestRecord(NamedTuple):
    """The newest record of a stream. `control` is None when it was trimmed: only that there was one is known."""

    seqnum: int
    control: Control | None


class SkipBatch(NamedTuple):
    """The batch is committed: nothing is to be done."""


class CompareRows(NamedTuple):
    """An attempt has ended: its rows are there, and those of this one must be the same."""

    end: EndRecord
    seqnum: int


class OpenQuery(NamedTuple):
    """The query was never seen: append the COMMIT of no batch, on condition that it has no record; then look again."""


class BeginAttempt(NamedTuple):
    """Append ATTEMPT, with these conditions: seqnums, None where there never was a record."""

    first: int
    partition: int | None
    query: int


Step: TypeAlias = SkipBatch | CompareRows | OpenQuery | BeginAttempt


def next_step(batch: int, query: NewestRecord | None, partition: NewestRecord | None) -> Step:
    """What an attempt does first.

    Args:
        query, partition: the newest records of both streams; None: there never was one.

    Raises:
        SinkStale: a later batch of the partition has begun. SinkTrimmed: what must be known is gone.
    """
    if query is None:
        return OpenQuery()
    if not isinstance(query.control, CommitRecord):
        raise SinkTrimmed(
            "the record that says which batch was committed last was trimmed, so rows of this one may be there; "
            "begin anew with another checkpoint, and trim below the last commit only",
            seqnum=query.seqnum,
        )
    if query.control.batch >= batch:
        return SkipBatch()
    committed = query.seqnum
    if partition is None:
        return BeginAttempt(0, None, committed)
    found = partition.control
    if found is None:
        if partition.seqnum > committed:
            raise SinkTrimmed(
                f"the newest record of partition {partition.seqnum} was trimmed before its batch was committed: whether rows of this "
                "batch are there, nobody can know; begin anew with another checkpoint",
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
    """Rows of one attempt: how many, and the sum of their hashes; which of them an earlier attempt left in the log already."""

    def __init__(self, there: Iterable[SinkRow] = ()) -> None:
        """`there`: rows of earlier attempts of the batch."""
        self._there = Counter(map(row_hash, there))
        self.rows = 0
        self._sum = 0

    def take(self, row: SinkRow) -> bool:
        """Counts a row; whether it is to be written."""
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
        """Raises SinkReplayDiffers: the log has rows of this batch that this attempt has not."""
        left = self._there.total()
        if left:
            raise SinkReplayDiffers(
                f"an earlier run of this batch wrote {left} rows that this one does not have: the frame must give the same rows when it "
                "is run again (no rand(), no current_timestamp(), no limit without order)",
                left=left,
            )

    def check_same(self, end: EndRecord) -> None:
        """Raises SinkReplayDiffers: an earlier attempt ended with other rows."""
        if (self.rows, self.sum) != (end.rows, end.sum):
            raise SinkReplayDiffers(
                f"an earlier run of this batch ended with {end.rows} rows, this one has {self.rows}"
                f"{'' if self.rows != end.rows else ', and others'}: the frame must give the same rows when it is run again",
                expected=end.rows,
                found=self.rows,
            )


def row_hash(row: SinkRow) -> int:
    """128 bits of a row: its tags in order, and its data."""
    digest = xxhash.xxh3_128()
    for tag in row.tags:
        text = tag.encode() if isinstance(tag, str) else b"\0%d" % tag
        digest.update(b"%d:%b" % (len(text), text))
    digest.update(b"|")
    digest.update(row.data)
    return digest.intdigest()


def check_partitions(batch: int, began: Iterable[int], ended: Iterable[int]) -> None:
    """Of one batch: whether every partition that began in any run of it ended in this one. Raises SinkReplayDiffers."""
    others = sorted(set(began) - set(ended))
    if others:
        raise SinkReplayDiffers(
            f"an earlier run of batch {batch} had partitions {_few(others)} that this one has not: a batch that is run again must have the "
            "same partitions (the same spark.sql.shuffle.partitions)",
            partitions=others[:16],
        )


def _few(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers[:8]))
    return listed if len(numbers) <= 8 else f"{listed} and {len(numbers) - 8} more"


def expected(names: SinkTags, partition: int | None, query: int) -> Mapping[Tag, int | None]:
    """Conditions of a record of an attempt: the newest of its partition and of its query."""
    return {names.partition: partition, names.query: query}


def tags_of(row: SinkRow, names: SinkTags) -> tuple[Tag, ...]:
    """Tags of the record that a row becomes."""
    return (*row.tags, names.rows) if row.tags else (names.untagged, names.rows)


def row_of(tags: Sequence[Tag], data: bytes, names: SinkTags) -> SinkRow:
    """The row that a record was made from."""
    own = tuple(tag for tag in tags if tag != names.rows)
    return SinkRow(data, () if own == (names.untagged,) else own)
