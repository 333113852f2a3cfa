"""Attempts at partitions on a cluster in memory: reordered, killed, late, concurrent, and trimmed meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

import boki
from boki.testing import MemoryCluster
from boki_spark.errors import SinkBadRow, SinkFenced, SinkReplayDiffers, SinkStale, SinkTrimmed
from boki_spark.sink import sink_rules as rules
from boki_spark.sink.sink_rules import SinkRow
from boki_spark.sink.sink_writer import BatchCommit, EndedPartition, PartitionWriter

BOOK = "results"
QUERY = "q"

ROWS = [SinkRow(b"row %d" % number, ("even",) if number % 2 == 0 else ()) for number in range(20)]

Connect = Callable[[], Awaitable[boki.Book]]


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster() as one:
        yield one


@pytest.fixture
def connect(cluster: MemoryCluster) -> Connect:
    """Return the book in a session of its own, as another process has it."""

    async def book() -> boki.Book:
        return (await cluster.connect()).book(BOOK)

    return book


async def attempt(book: boki.Book, rows: Sequence[SinkRow], *, batch: int = 0, partition: int = 0) -> EndedPartition:
    writer = PartitionWriter(book, QUERY, batch, partition)
    await writer.begin()
    await writer.add(rows)
    return await writer.finish()


async def killed(book: boki.Book, rows: Sequence[SinkRow], *, batch: int = 0, partition: int = 0) -> PartitionWriter:
    """Write some rows, all of which arrive, and stop."""
    writer = PartitionWriter(book, QUERY, batch, partition)
    await writer.begin()
    await writer.add(rows)
    await writer._await_appends()
    return writer


async def rows_in(book: boki.Book) -> list[bytes]:
    """Return the data of all rows, sorted, without control records."""
    records = [record async for record in book.read() if isinstance(record, boki.Record)]
    own = [
        record.data
        for record in records
        if not any(str(tag).startswith("boki.sink/q") and "rows" not in str(tag) for tag in record.tags)
    ]
    return sorted(own)


def data(rows: Sequence[SinkRow]) -> list[bytes]:
    return sorted(row.data for row in rows)


async def test_a_batch_is_written_and_committed(connect: Connect) -> None:
    book = await connect()
    ended = [await attempt(book, ROWS[:12]), await attempt(book, ROWS[12:], partition=1)]
    await BatchCommit(book, ended).commit()
    assert await rows_in(book) == data(ROWS)
    commit = await book.check_tail("boki.sink/q")
    assert commit is not None
    assert rules.decode(commit.data) == rules.CommitRecord(0, ((0, ended[0].end, 12), (1, ended[1].end, 8)))


async def test_a_committed_batch_is_not_written_again(connect: Connect) -> None:
    await BatchCommit(await connect(), [await attempt(await connect(), ROWS)]).commit()
    await BatchCommit(await connect(), [await attempt(await connect(), ROWS[::-1])]).commit()
    assert await rows_in(await connect()) == data(ROWS)


@pytest.mark.parametrize(
    "rows",
    [ROWS[:-1], [*ROWS, SinkRow(b"one more")], [*ROWS[:-1], SinkRow(b"another")], []],
    ids=["fewer", "more", "other", "none"],
)
async def test_a_second_write_of_a_committed_batch_with_other_rows_is_an_error(
    connect: Connect, rows: list[SinkRow]
) -> None:
    await BatchCommit(await connect(), [await attempt(await connect(), ROWS)]).commit()
    with pytest.raises(SinkReplayDiffers, match=r"\[BOKI_SINK_REPLAY_DIFFERS\].*each write of a batch needs a writeId"):
        await attempt(await connect(), rows)
    assert await rows_in(await connect()) == data(ROWS)


async def test_a_second_write_of_a_committed_batch_with_other_partitions_is_an_error(connect: Connect) -> None:
    first = [await attempt(await connect(), ROWS, partition=partition) for partition in (0, 1)]
    await BatchCommit(await connect(), first).commit()
    with pytest.raises(SinkReplayDiffers, match="no partition 2"):
        await attempt(await connect(), [], partition=2)
    with pytest.raises(SinkReplayDiffers, match="with partitions 1, this write does not have them"):
        await BatchCommit(await connect(), [await attempt(await connect(), ROWS)]).commit()


async def test_of_a_committed_batch_whose_end_is_trimmed_the_number_of_rows_is_compared(
    connect: Connect, cluster: MemoryCluster
) -> None:
    await BatchCommit(await connect(), [await attempt(await connect(), ROWS)]).commit()
    commit = await (await connect()).check_tail("boki.sink/q")
    assert commit is not None
    cluster.trim(BOOK, before=commit.seqnum)
    await attempt(await connect(), ROWS[::-1])
    with pytest.raises(SinkReplayDiffers, match="20 rows in partition 0, this write has 19"):
        await attempt(await connect(), ROWS[1:])


async def test_a_batch_below_the_last_commit_is_stale(connect: Connect) -> None:
    ended = await attempt(await connect(), ROWS, batch=1)
    await BatchCommit(await connect(), [ended]).commit()
    with pytest.raises(SinkStale, match="found 1, which is committed"):
        await attempt(await connect(), ROWS)
    with pytest.raises(SinkStale):
        await BatchCommit(await connect(), [ended._replace(batch=0)]).commit()


async def test_a_killed_attempt_is_finished_by_one_with_the_rows_in_another_order(connect: Connect) -> None:
    await killed(await connect(), ROWS[:7])
    await killed(await connect(), ROWS[::-1][:9])
    await BatchCommit(await connect(), [await attempt(await connect(), ROWS[10:] + ROWS[:10])]).commit()
    assert await rows_in(await connect()) == data(ROWS)


async def test_equal_rows_are_kept_as_often_as_they_are_there(connect: Connect) -> None:
    rows = [SinkRow(b"same")] * 5
    await killed(await connect(), rows[:2])
    await attempt(await connect(), rows)
    assert await rows_in(await connect()) == data(rows)


async def test_more_rows_than_the_log_remembers_of_a_writer_are_there_once(connect: Connect) -> None:
    rows = [SinkRow(b"%d" % number) for number in range(2_500)]
    await killed(await connect(), rows[:2_000])
    await attempt(await connect(), rows[::-1])
    assert await rows_in(await connect()) == data(rows)


async def test_a_zombie_is_fenced_by_the_attempt_after_it(connect: Connect) -> None:
    zombie = await killed(await connect(), ROWS[:3])
    await attempt(await connect(), ROWS)
    await zombie.add(ROWS[3:6])
    with pytest.raises(SinkFenced, match=r"\[BOKI_SINK_FENCED\]"):
        await zombie.finish()
    assert await rows_in(await connect()) == data(ROWS)


async def test_a_zombie_writes_nothing_after_the_commit(connect: Connect) -> None:
    zombie = await killed(await connect(), ROWS[:3])
    await BatchCommit(await connect(), [await attempt(await connect(), ROWS)]).commit()
    await BatchCommit(await connect(), [await attempt(await connect(), ROWS[:1], batch=1)]).commit()
    await zombie.add(ROWS)
    with pytest.raises(SinkFenced):
        await zombie.finish()
    assert await rows_in(await connect()) == data(ROWS + ROWS[:1])


async def test_a_speculative_attempt_and_the_first_leave_each_row_once(connect: Connect) -> None:
    first = await killed(await connect(), ROWS[:5])
    second = await attempt(await connect(), ROWS)
    third = await attempt(await connect(), ROWS[::-1])
    assert third.end == second.end, "who finds an END compares its rows, and writes nothing"
    with pytest.raises(SinkFenced):
        await first.add(ROWS[5:])
        await first.finish()
    assert await rows_in(await connect()) == data(ROWS)


@pytest.mark.parametrize(
    "rows",
    [ROWS[:-1], [*ROWS, SinkRow(b"one more")], [*ROWS[:-1], SinkRow(b"another")]],
    ids=["fewer", "more", "other"],
)
async def test_a_replay_with_other_rows_is_an_error(connect: Connect, rows: list[SinkRow]) -> None:
    await attempt(await connect(), ROWS)
    with pytest.raises(SinkReplayDiffers, match=r"\[BOKI_SINK_REPLAY_DIFFERS\]"):
        await attempt(await connect(), rows)
    assert await rows_in(await connect()) == data(ROWS)


async def test_rows_that_only_a_killed_attempt_had_are_an_error(connect: Connect) -> None:
    await killed(await connect(), ROWS[:3])
    with pytest.raises(SinkReplayDiffers, match="wrote 1 rows that this one does not have"):
        await attempt(await connect(), ROWS[1:])


async def test_a_batch_with_fewer_partitions_than_before_is_an_error(connect: Connect) -> None:
    await killed(await connect(), ROWS[:3], partition=2)
    ended = [await attempt(await connect(), ROWS, partition=partition) for partition in (0, 1)]
    with pytest.raises(SinkReplayDiffers, match="had partitions 2"):
        await BatchCommit(await connect(), ended).commit()


async def test_a_task_of_an_earlier_batch_is_stale(connect: Connect) -> None:
    await killed(await connect(), ROWS[:3], batch=7)
    with pytest.raises(SinkStale):
        await attempt(await connect(), ROWS, batch=6)


async def test_two_drivers_commit_a_batch_once(connect: Connect) -> None:
    ended = await attempt(await connect(), ROWS)
    again = await attempt(await connect(), ROWS)
    books = [await connect(), await connect()]
    await BatchCommit(books[0], [ended]).commit()
    await BatchCommit(books[1], [again]).commit()
    commits = [record async for record in (await connect()).read("boki.sink/q")]
    assert len(commits) == 2, "that of no batch, which a query begins with, and this one"
    assert await rows_in(await connect()) == data(ROWS)


async def test_rows_lose_the_tag_of_their_partition_once_committed_and_stay(connect: Connect) -> None:
    book = await connect()
    await BatchCommit(book, [await attempt(book, ROWS)]).commit()
    assert [record async for record in book.read(rules.rows_tag(QUERY, 0))] == []
    assert [record.data async for record in book.read("even")] == [row.data for row in ROWS[::2]]
    assert [record.data async for record in book.read("boki.sink/q/rows")] == [row.data for row in ROWS[1::2]]


async def test_writers_that_the_log_forgot_leave_each_row_once(connect: Connect, cluster: MemoryCluster) -> None:
    zombie = await killed(await connect(), ROWS[:4])
    cluster.forget_writers()
    await attempt(await connect(), ROWS[::-1])
    await zombie.add(ROWS[4:])
    with pytest.raises(boki.BokiError):
        await zombie.finish()
    assert await rows_in(await connect()) == data(ROWS)


async def test_answers_that_are_lost_leave_each_row_once(connect: Connect, cluster: MemoryCluster) -> None:
    book = await connect()
    writer = PartitionWriter(book, QUERY, 0, 0)
    await writer.begin()
    with cluster.losing_answers():
        await writer.add(ROWS)
    await BatchCommit(book, [await writer.finish()]).commit()
    assert await rows_in(await connect()) == data(ROWS)


async def test_a_trim_of_the_whole_book_below_the_last_commit_disturbs_nothing(
    connect: Connect, cluster: MemoryCluster
) -> None:
    await BatchCommit(await connect(), [await attempt(await connect(), ROWS[:5])]).commit()
    commit = await (await connect()).check_tail("boki.sink/q")
    assert commit is not None
    cluster.trim(BOOK, before=commit.seqnum)
    await BatchCommit(await connect(), [await attempt(await connect(), ROWS[5:], batch=1)]).commit()
    assert await rows_in(await connect()) == data(ROWS[5:])


async def test_a_trim_of_the_whole_book_above_the_last_commit_ends_the_query(
    connect: Connect, cluster: MemoryCluster
) -> None:
    book = await connect()
    await BatchCommit(book, [await attempt(book, ROWS[:5])]).commit()
    cluster.trim(BOOK, before=await book.append(b"the end") + 1)
    for batch in (0, 1):
        with pytest.raises(SinkTrimmed, match=r"\[BOKI_SINK_TRIMMED\].*another checkpoint"):
            await attempt(await connect(), ROWS, batch=batch)


async def test_a_trim_of_rows_between_two_attempts_is_an_error(connect: Connect, cluster: MemoryCluster) -> None:
    book = await connect()
    await killed(book, ROWS[:5])
    cluster.trim(BOOK, before=await book.append(b"the end"), tag=rules.rows_tag(QUERY, 0))
    with pytest.raises(SinkTrimmed, match="rows of batch 0"):
        await attempt(await connect(), ROWS)


async def test_a_book_that_was_trimmed_before_takes_a_new_query(connect: Connect, cluster: MemoryCluster) -> None:
    book = await connect()
    cluster.trim(BOOK, before=await book.append(b"old") + 1)
    await BatchCommit(book, [await attempt(book, ROWS)]).commit()
    assert await rows_in(book) == data(ROWS)


@pytest.mark.parametrize(
    "row",
    [SinkRow(b"", ("",)), SinkRow(b"x" * (2 << 20)), SinkRow(b"x", tuple(map(str, range(255))))],
    ids=["tag", "size", "tags"],
)
async def test_a_row_that_can_be_no_record_is_named(connect: Connect, row: SinkRow) -> None:
    with pytest.raises(SinkBadRow, match=r"\[BOKI_SINK_BAD_ROW\] row 2 of partition 0"):
        await attempt(await connect(), [SinkRow(b"good"), row])
