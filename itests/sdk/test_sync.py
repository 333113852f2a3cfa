"""The blocking face of the SDK, on the same clusters."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

import pytest

import boki
from itests.support.sdk_client import collect, present

if TYPE_CHECKING:
    from itests.sdk.conftest import Cluster

T = TypeVar("T")
Script = Callable[[boki.sync.Client], T]


class RunScript(Protocol):
    """See `run`."""

    async def __call__(self, script: Script[T]) -> T: ...


@pytest.fixture
def run(cluster: Cluster) -> RunScript:
    """Runs a blocking script in a thread, as a program without an event loop would."""

    def script_with_client(script: Script[T]) -> T:
        with boki.sync.connect(cluster.url) as client:
            return script(client)

    async def now(script: Script[T]) -> T:
        return await asyncio.to_thread(script_with_client, script)

    return now


async def test_append_and_read(run: RunScript, name: str) -> None:
    def script(client: boki.sync.Client) -> None:
        book = client.book(name)
        assert book.position is None
        first = book.append(b"1", tags=["a"], expect={"a": None})
        second, third = book.append_many([(b"2", ["a"]), (b"3", ["b"])])
        assert book.position is not None
        assert book.position >= third
        assert [record.data for record in book.read()] == [b"1", b"2", b"3"]
        assert [record.seqnum for record in book.read("a", start=first + 1)] == [second]
        assert present(book.read_next("a")).seqnum == first
        assert book.read_prev("a") == book.check_tail("a") == book.read_at(second)
        assert book.read_prev_many([("b", None), ("c", None)]) == [book.read_at(third), None]
        assert book.read_since({"b": 0}).records == [book.read_at(third)]
        with pytest.raises(boki.Conflict):
            book.append(b"4", expect={"a": first})

    await run(script)


async def test_tickets(run: RunScript, name: str) -> None:
    def script(client: boki.sync.Client) -> None:
        book = client.book(name)
        tickets = [book.submit(str(number).encode()) for number in range(10)]
        book.ready()
        seqnums = [ticket.result(timeout=30) for ticket in tickets]
        assert all(ticket.done() for ticket in tickets)
        assert [record.seqnum for record in book.read()] == seqnums

    await run(script)


async def test_following(run: RunScript, client: boki.Client, name: str) -> None:
    def script(blocking: boki.sync.Client) -> list[bytes]:
        found = []
        for record in blocking.book(name).read(follow=True):
            found.append(record.data)
            if len(found) == 20:
                break
        return found

    following = asyncio.ensure_future(run(script))
    for number in range(20):
        await client.book(name).append(str(number).encode())
    assert await following == [str(number).encode() for number in range(20)]


async def test_sessions(run: RunScript, client: boki.Client, name: str) -> None:
    seqnum = await client.book(name).append(b"x")
    token = client.session_token()

    def script(blocking: boki.sync.Client) -> None:
        continued = blocking.session(token)
        record = present(continued.book(name).check_tail())
        assert record.seqnum == seqnum
        with continued:
            pass
        assert blocking.book(name).read_next() == record
        assert blocking.session_token().startswith("boki2.")

    await run(script)


async def test_threads_may_share_a_client(run: RunScript, client: boki.Client, name: str) -> None:
    def script(blocking: boki.sync.Client) -> int:
        return len(blocking.book(name).append_many([(b"x", [])] * 100))

    counts = await asyncio.gather(*(run(script) for _ in range(4)))
    assert counts == [100] * 4
    assert len(await collect(client.book(name).read())) == 400


async def test_errors_come_as_they_are(run: RunScript, name: str) -> None:
    def script(client: boki.sync.Client) -> None:
        with pytest.raises(boki.InvalidTag, match="from 1"):
            client.book(name).append(b"x", tags=[0])
        with pytest.raises(boki.InvalidArgument, match="consistency"):
            client.book(name).read(consistency="linear")  # type: ignore[call-overload]
        client.close()
        client.close()
        with pytest.raises(boki.ClosedError):
            client.book(name)

    await run(script)


async def test_everything_else(run: RunScript, name: str) -> None:
    def script(client: boki.sync.Client) -> None:
        book = client.book(name)
        writer = book.writer("w")
        first = writer.append(b"1", tags=["a"])
        (second,) = writer.append_many([(b"2", ["a"])])
        third = writer.submit(b"3", tags=["a"])
        assert third.outcome() == boki.Committed(third.result())
        assert third.why().waits_for == "nothing"
        writer.refresh()
        writer.ready()
        assert (writer.name, writer.last) == ("w", 3)
        assert writer.append_at(1, b"1", tags=["a"]) == first
        assert book.append(b"2", tags=["a"], writer=("w", 2)) == second
        assert book.set_aux_data(second, b"aux")
        assert present(book.read_at(second, consistency="linearizable")).aux_data == b"aux"
        assert book.seek(0) <= first
        book.trim(before=second)
        book.trim([("a", second)])
        items = list(book.read("a", start=first))
        assert isinstance(items[0], boki.Gap)
        assert [item.seqnum for item in items[1:]] == [second, third.result()]
        other = client.session(client.session_token())
        client.merge(other.session_token())

    await run(script)


async def test_threads_that_share_an_iterator_have_each_record_once_or_an_error(run: RunScript, name: str) -> None:
    def script(client: boki.sync.Client) -> None:
        book = client.book(name)
        seqnums = book.append_many([(b"%d" % number, ["t"]) for number in range(2_000)])
        records = book.read("t")
        found: list[int] = []
        ends: list[str] = []
        begin = threading.Barrier(4)

        def drain() -> None:
            begin.wait()
            try:
                for record in records:
                    assert isinstance(record, boki.Record)
                    found.append(record.seqnum)
                ends.append("end")
            except boki.IteratorBusy:
                ends.append("busy")

        threads = [threading.Thread(target=drain) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(ends) == 4 and "end" in ends
        assert sorted(found) == seqnums

    await run(script)


async def test_a_thread_is_refused_while_another_waits_for_the_next_record(run: RunScript, name: str) -> None:
    def script(client: boki.sync.Client) -> None:
        records = client.book(name).read("t", follow=True)
        first: list[boki.Record | boki.Gap] = []
        waiting = threading.Thread(target=lambda: first.append(next(records)))
        waiting.start()
        while not records._asking.locked():
            pass
        with pytest.raises(boki.IteratorBusy):
            next(records)
        client.book(name).append(b"x", tags=["t"])
        waiting.join()
        assert [record.seqnum for record in first if isinstance(record, boki.Record)] == [client.book(name).position]

    await run(script)


async def test_a_coroutine_of_a_library_runs_in_the_clients_loop(run: RunScript, name: str) -> None:
    async def appended(book: boki.Book) -> int:
        return await book.append(b"1")

    def script(client: boki.sync.Client) -> None:
        book = client.book(name)
        assert book.using(appended) == book.position

    await run(script)
