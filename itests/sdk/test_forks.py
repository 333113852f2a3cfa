"""A forked child gets an error from its parent's clients; the parent goes on, and so does a client of the child's own."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import boki

if TYPE_CHECKING:
    from itests.sdk.conftest import Cluster

pytestmark = [pytest.mark.blocking_allowed, pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")]

TIMEOUT_S = 20


@pytest.fixture(autouse=True)
def _forking_with_threads() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that is what is tested
        yield


def in_child(work: Callable[[], Any]) -> Any:
    """What `work` returns in a forked child, or the error that it raises there; a child that hangs is killed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(TIMEOUT_S)
        try:
            result: Any = work()
        except BaseException as error:  # noqa: BLE001 - handed to the parent
            result = (type(error).__name__, str(error))
        os.write(writing, pickle.dumps(result))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = pipe.read()
    os.waitpid(pid, 0)
    assert found, "the child hung"
    return pickle.loads(found)


def refused(result: Any) -> bool:
    return result[0] == "ClosedError" and "opened in another process" in result[1]


async def test_a_blocking_client_is_refused_in_a_child_and_goes_on_in_its_parent(cluster: Cluster, name: str) -> None:
    def script() -> None:
        with boki.sync.connect(cluster.url) as client:
            book = client.book(name)
            first = book.append(b"1", tags=["t"])
            ticket = book.submit(b"2", tags=["t"])
            records = book.read("t")
            for call in (
                lambda: book.append(b"x"),
                lambda: book.append_many([(b"x", [])]),
                lambda: book.read_next("t", timeout=1),
                lambda: book.read_next("t", wait=1),
                lambda: next(records),
                lambda: ticket.result(timeout=1),
                lambda: client.book("another"),
                lambda: client.session_token(),
            ):
                assert refused(in_child(call)), call
            assert in_child(client.close) is None  # nothing of the child's own
            book.append(b"3", tags=["t"])
            assert [record.data for record in book.read("t")] == [b"1", b"2", b"3"]
            record = book.read_next("t")
            assert record is not None and record.seqnum == first

    await asyncio.to_thread(script)


async def test_a_client_of_an_event_loop_is_refused_in_a_child(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as client:
        book = client.book(name)
        await book.append(b"1", tags=["t"])
        undecided = [book.submit(b"2", tags=["t"]) for _ in range(3)]
        tried: list[Callable[[], Any]] = [
            lambda: book.append(b"x"),
            lambda: book.read_next("t", timeout=1),
            lambda: anext(book.read("t")),
            lambda: book.trim(before=1),
        ]

        def run(call: Callable[[], Any]) -> Any:
            async def main() -> Any:
                return await call()

            asyncio.set_event_loop(None)
            asyncio._set_running_loop(None)
            return asyncio.run(main())

        for call in tried:
            assert refused(in_child(partial(run, call)))
        await asyncio.gather(*undecided)
        await book.append(b"3", tags=["t"])
        assert len([record async for record in book.read("t")]) == 5


async def test_a_child_that_opens_its_own_client_uses_it(cluster: Cluster, name: str) -> None:
    if cluster.url.startswith("memory"):
        pytest.skip("a cluster in memory is in its process only")

    def work() -> list[bytes]:
        with boki.sync.connect(cluster.url) as client:
            client.book(name).append(b"of the child", tags=["t"])
            return [record.data for record in client.book(name).read("t")]

    def script() -> None:
        with boki.sync.connect(cluster.url) as client:
            client.book(name).append(b"of the parent", tags=["t"])
            assert in_child(work) == [b"of the parent", b"of the child"]
            client.book(name).append(b"again", tags=["t"])

    await asyncio.to_thread(script)


_client: boki.sync.Client | None = None


def _append_in_pool(name: str) -> str:
    assert _client is not None
    try:
        _client.book(name).append(b"x")
    except boki.ClosedError as error:
        return str(error)
    return "appended"


async def test_a_pool_of_forked_workers_is_refused(cluster: Cluster, name: str) -> None:
    """As Spark's workers, which its daemon forks."""

    def script() -> None:
        global _client
        with boki.sync.connect(cluster.url) as _client:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                said = pool.map_async(_append_in_pool, [name] * 4).get(TIMEOUT_S)
            assert all("opened in another process" in text for text in said)
            _client.book(name).append(b"of the parent")
        _client = None

    await asyncio.to_thread(script)
