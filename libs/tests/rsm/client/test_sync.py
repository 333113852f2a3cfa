"""Machines without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import Thread

import pytest

import boki.sync
import bokirsm.sync
import bokistore.sync
from boki_cli.testing.commands import memory_cluster
from boki_common.errors import ClosedError, Conflict
from bokilib.errors import WrongBook
from bokirsm import App, Host, IdReused, MachineFaulted, NoSuchMachine, Ref, Rsm
from bokirsm.machine.values import Question
from bokirsm.sync import Rsm as BlockingRsm
from libs.tests.rsm.operated import Divide, Divider
from libs.tests.rsm.words import Best, Counter, Freq, Init, Max, Word

APP = App("words", [Counter, Max, Divider])


@pytest.fixture
def client() -> Iterator[boki.sync.Client]:
    with memory_cluster() as url, boki.sync.connect(url) as opened:
        yield opened


@pytest.fixture
def book(client: boki.sync.Client) -> Iterator[boki.sync.Book]:
    """Yield a book whose machines a host runs, in the thread of the client."""
    opened = client.book("b")

    async def started(found: boki.Book) -> Host:
        return await Host(APP, found, name="h", stuck_after_s=None).__aenter__()

    host = opened.using(started)
    yield opened
    opened.run(host.__aexit__(None, None, None))


def answered(rsm: BlockingRsm, question: Question[float]) -> float:
    """Ask until the host has read that the event of the fault is skipped."""
    while True:
        try:
            return rsm.ask(question)
        except MachineFaulted:
            pass


def test_create_send_ask_and_decide(book: boki.sync.Book) -> None:
    with BlockingRsm(APP, book) as rsm:
        top = rsm.create(Max, key="max")
        counter = rsm.create(Counter, Init(top), key="c")
        assert (
            rsm.create(Counter, Init(top), key="c") == counter and rsm.create(Max, near=top).partition == top.partition
        )
        for _ in range(2):
            assert rsm.send(counter, Word("to"), dedup_id="once") > 0
        assert rsm.send_many([(counter, Word("be")), (counter, Word("be"))]) > 0
        assert [rsm.ask(Word(text).to(counter)) for text in ("to", "be")] == [2, 3]
        assert rsm.send_many((rsm.create(Max), Freq("a", 1)) for _ in range(2)) > 0
        assert rsm.ask(Best().to(top), timeout_s=30.0) == "be 3"
        with pytest.raises(IdReused):
            rsm.create(Max, key="c")
        with pytest.raises(NoSuchMachine):
            rsm.ask(Best().to(Ref("words", 5, "nowhere")))
        divider = rsm.create(Divider)
        with pytest.raises(MachineFaulted, match="ZeroDivisionError"):
            rsm.ask(Divide(0).to(divider))
        rsm.resume(divider)
        with pytest.raises(MachineFaulted, match="ZeroDivisionError"):
            rsm.ask(Divide(4).to(divider))
        rsm.skip(divider)
        assert answered(rsm, Divide(4).to(divider)) == 0.25
        rsm.close()


def test_parts_of_a_record_of_a_store(book: boki.sync.Book, client: boki.sync.Client) -> None:
    store = bokistore.sync.BokiStore(book)
    rsm = bokirsm.sync.Rsm(APP, book, log=store.store.log)
    with store.transaction() as tx:
        part, top = rsm.creating(Max, Freq("a", 5), key="max")
        tx.add(part)
        tx.add(rsm.sending(top, Freq("b", 7)))
        tx["sent"].inc("n")
    assert rsm.ask(Best().to(top)) == "b 7" and store.object("sent").get("n") == 1
    with pytest.raises(Conflict), store.transaction() as tx:
        tx.add(rsm.creating(Max, key="max")[0])
        tx["sent"].inc("n")
    assert store.object("sent").get("n") == 1
    with pytest.raises(WrongBook):
        BlockingRsm(APP, client.book("another"), log=store.store.log)
    rsm.close()
    store.close()


def test_threads_share_a_client(book: boki.sync.Book) -> None:
    with BlockingRsm(APP, book) as rsm:
        top = rsm.create(Max)
        counter = rsm.create(Counter, Init(top))
        got: list[int] = []

        def work() -> None:
            got.extend(rsm.ask(Word("a").to(counter)) for _ in range(5))

        threads = [Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert sorted(got) == list(range(1, 21))


def test_questions_fail_once_the_client_is_closed() -> None:
    with memory_cluster() as url:
        with boki.sync.connect(url) as client:
            rsm = BlockingRsm(APP, client.book("b"))
            top = rsm.create(Max, key="max")
            with pytest.raises(TimeoutError):
                rsm.ask(Best().to(top), timeout_s=0.05)
        with pytest.raises(ClosedError):
            rsm.ask(Best().to(top))


async def test_it_is_refused_in_the_loop_of_its_own_client() -> None:
    def script() -> None:
        with memory_cluster() as url, boki.sync.connect(url) as client:
            book = client.book("b")

            async def inside(_: boki.Book) -> None:
                with pytest.raises(ClosedError, match="use the asynchronous classes there"):
                    BlockingRsm(APP, book)

            book.using(inside)

    await asyncio.to_thread(script)


def test_it_has_the_names_of_the_asynchronous_one() -> None:
    ours, theirs = ({one for one in vars(kind) if not one.startswith("_")} for kind in (BlockingRsm, Rsm))
    assert ours == theirs | {"close"}
