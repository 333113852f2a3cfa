"""`now`: a snapshot, sentence by sentence. What was forgotten below one is in `logbook/tests`: it takes an hour of the log's clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import boki
from itests.support.sdk_client import present

if TYPE_CHECKING:
    from itests.sdk.conftest import Cluster


async def test_a_snapshot_of_a_session_covers_all_that_it_appended_and_saw(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as mine, await cluster.connect() as other:
        appended = await mine.book(name).append(b"1")
        assert await mine.book(name).now() >= appended
        foreign = await other.book(name).append(b"2")
        mine.merge(other.session_token())
        assert await mine.book(name).now() >= foreign, "what a token has seen is seen"


async def test_a_linearizable_snapshot_covers_every_append_that_had_returned(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as mine, await cluster.connect() as other:
        for number in range(5):
            foreign = await other.book(name).append(b"%d" % number)
            assert await mine.book(name).now(consistency="linearizable") >= foreign


async def test_any_is_the_position_and_asks_nobody(client: boki.Client, book: boki.Book) -> None:
    await book.append(b"1")
    asking = book.now(consistency="any")
    with pytest.raises(StopIteration) as returned:
        asking.send(None)
    assert returned.value.value == book.position


async def test_a_book_that_has_nothing_has_a_snapshot_and_it_can_be_expected(book: boki.Book) -> None:
    assert await book.now(consistency="any") >= 1, "of a session that has asked nothing"
    snapshot = await book.now()
    assert await book.read_prev("a", at_most=snapshot) is None
    assert await book.append(b"1", tags=["a"], expect={"a": snapshot}) > snapshot
    with pytest.raises(boki.Conflict):
        await book.append(b"2", tags=["a"], expect={"a": snapshot})


async def test_a_snapshot_never_goes_back(client: boki.Client, book: boki.Book) -> None:
    snapshots = []
    for number in range(4):
        snapshots.append(await book.now())
        await book.append(b"%d" % number)
        snapshots += [await book.now(consistency="any"), await book.now(consistency="linearizable")]
    assert snapshots == sorted(snapshots)


async def test_what_is_read_and_expected_at_a_snapshot_taken_before_loses_no_update(
    cluster: Cluster, name: str
) -> None:
    """`position` taken after the reads does: the update of another, between them, is expected and was not seen."""
    async with await cluster.connect() as mine, await cluster.connect() as other:
        book = mine.book(name)
        first = await book.append(b"0", tags=["n", "other"])
        snapshot = await book.now()
        read = await book.read_prev("n", at_most=snapshot)
        await other.book(name).append(b"1", tags=["n"])
        await book.read_prev("other", consistency="linearizable")
        assert read is not None and read.seqnum == first
        assert book.position is not None and book.position > snapshot
        with pytest.raises(boki.Conflict):
            await book.append(b"lost", tags=["n"], expect={"n": snapshot})
        await book.append(b"lost", tags=["n"], expect={"n": book.position})


async def test_reads_at_a_snapshot_have_one_answer_whatever_comes_after(book: boki.Book) -> None:
    first = await book.append(b"1", tags=["a"])
    snapshot = await book.now()
    await book.append(b"2", tags=["a", "b"])
    for consistency in ("session", "linearizable", "any"):
        assert present(await book.read_prev("a", at_most=snapshot, consistency=consistency)).seqnum == first
        many = await book.read_prev_many([("a", snapshot), ("b", snapshot)], consistency=consistency)
        assert [record and record.seqnum for record in many] == [first, None]
        page = book.read("a", start=1, stop=snapshot + 1, consistency=consistency)
        assert [item.seqnum async for item in page] == [first]


async def test_what_lies_above_all_that_the_session_has_seen_is_no_snapshot(book: boki.Book) -> None:
    newest = await book.append(b"1", tags=["a"])
    snapshot = await book.now()
    for consistency in ("session", "linearizable", "any"):
        for above in (snapshot + 1, snapshot + 2**40):
            with pytest.raises(boki.InvalidArgument, match="at_most"):
                await book.read_prev("a", at_most=above, consistency=consistency)
            with pytest.raises(boki.InvalidArgument, match="at_most"):
                await book.read_prev_many([("a", None), ("a", above)], consistency=consistency)
    for everything in (None, 2**63 - 1, 2**64 - 1):
        assert present(await book.read_prev("a", at_most=everything)).seqnum == newest


async def test_what_another_session_appended_is_seen_by_who_reads_at_it(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as mine, await cluster.connect() as other:
        foreign = await other.book(name).append(b"1", tags=["a"])
        found = present(await mine.book(name).read_prev("a", at_most=foreign, consistency="linearizable"))
        assert found.seqnum == foreign


async def test_a_snapshot_below_a_trim_is_trimmed(book: boki.Book) -> None:
    await book.append(b"1", tags=["a"])
    snapshot = await book.now()
    second = await book.append(b"2", tags=["a"])
    await book.trim(before=second, tag="a")
    with pytest.raises(boki.Trimmed):
        await book.read_prev("a", at_most=snapshot)
    with pytest.raises(boki.Trimmed):
        await book.read_prev_many([("a", snapshot)])


async def test_snapshots_asked_for_at_once(book: boki.Book) -> None:
    appended = await book.append(b"1")
    kinds = ("session", "linearizable", "any") * 10
    asked = (book.now(consistency=consistency) for consistency in kinds)  # type: ignore[arg-type]
    assert min(await asyncio.gather(*asked)) >= appended


async def test_the_blocking_face_has_it(cluster: Cluster, name: str) -> None:
    def script() -> None:
        with boki.sync.connect(cluster.url) as client:
            book = client.book(name)
            appended = book.append(b"1", tags=["a"])
            assert book.now() >= appended
            assert book.now(consistency="linearizable", timeout=30) >= appended
            assert book.now(consistency="any") == book.position

    await asyncio.to_thread(script)


@pytest.mark.parametrize("consistency", ["soon", None, 1])
async def test_what_is_no_consistency(book: boki.Book, consistency: object) -> None:
    with pytest.raises(boki.InvalidArgument, match="consistency"):
        await book.now(consistency=consistency)  # type: ignore[arg-type]
