"""Queues without an event loop."""

from __future__ import annotations

import pickle
import re
import signal
from collections.abc import Coroutine, Iterator
from threading import Thread
from typing import Any, cast

import pytest

import boki.sync
import bokiqueue.sync
import bokistore.sync
from boki_cli.testing.commands import memory_cluster
from boki_common.testing.cut_off import cut_off
from bokiqueue import QueueEmpty, StaleReceipt


@pytest.fixture
def book() -> Iterator[boki.sync.Book]:
    with memory_cluster() as url, boki.sync.connect(url) as client:
        yield client.book("shop")


def test_push_consume_and_decide(book: boki.sync.Book) -> None:
    queue = bokiqueue.sync.Queue.open(book, "jobs", str, shards=1, max_deliveries=2, dead_letter="jobs.dead")
    queue.push_many(["a", "b"])
    queue.push("c", key="k")
    with queue.consume(who="me") as messages:
        first = next(messages)
        assert (first.body, first.attempt, first.key, first.source) == ("a", 1, None, None)
        first.extend(60)
        first.ack()
        with pytest.raises(StaleReceipt):
            first.ack()
        next(messages).nack()
        with pytest.raises(ValueError, match="no"), next(messages).within(0):
            raise ValueError("no")
        with next(messages) as again:
            assert again.attempt == 2
        next(messages).give_up("enough")
        assert messages.shards == [0]
        assert queue.stats().depth == 0
    dead = bokiqueue.sync.Queue.open(book, "jobs.dead", str)
    assert len(dead.peek()) == 1
    assert dead.redrive() == 1
    queue.pause()
    queue.resume()
    queue.purge()
    queue.register("audit")
    assert queue.groups == ["audit", "default"]
    queue.drop("audit")


def test_consumed_in_the_record_of_a_transaction(book: boki.sync.Book) -> None:
    store = bokistore.sync.BokiStore(book)
    queue = bokiqueue.sync.Queue.open(book, "jobs", int, log=store.store.log)
    queue.push(5)
    with queue.consume() as messages, next(messages) as message, store.transaction() as tx:
        tx["sum"].inc("n", message.body)
        tx.add(message.acked())
        tx.add(queue.pushed(6))
    assert store.object("sum").get("n") == 5
    assert [one.body for one in queue.peek()] == [6]


def test_threads_iterate_together(book: boki.sync.Book) -> None:
    queue = bokiqueue.sync.Queue.open(book, "jobs", int)
    queue.push_many(list(range(20)))
    got: list[int] = []

    def work(messages: bokiqueue.sync.Consumer[int]) -> None:
        for _ in range(5):
            with next(messages) as message:
                got.append(message.body)

    with queue.consume() as messages:
        threads = [Thread(target=work, args=(messages,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert sorted(got) == list(range(20))


def test_no_face_is_pickled(book: boki.sync.Book) -> None:
    queue, store = bokiqueue.sync.Queue.open(book, "jobs", str), bokistore.sync.BokiStore(book)
    for what in (
        book,
        queue,
        store,
        store.object("x"),
        queue.queue,
        queue.queue.log,
        store.store,
        store.store.object("x"),
    ):
        with pytest.raises(
            boki.UsageError, match=f"found {re.escape(repr(what))} .*: connect and open it in the process"
        ):
            pickle.dumps(what)
    with pytest.raises(boki.UsageError, match="Collection 'user'"):
        pickle.dumps([store.store.collection("user", dict)])


def test_pop(book: boki.sync.Book) -> None:
    queue = bokiqueue.sync.Queue.open(book, "jobs", int, mode="pop", shards=1)
    with pytest.raises(QueueEmpty):
        queue.pop()
    queue.push(1)
    queue.push(2)
    assert (queue.pop(timeout=1), queue.pop_from(0)) == (1, 2)


def test_a_wait_that_is_cut_off_loses_no_message(book: boki.sync.Book) -> None:
    jobs = bokiqueue.sync.Queue.open(book, "jobs", int, shards=1)
    popped = bokiqueue.sync.Queue.open(book, "popped", int, mode="pop", shards=1)
    with jobs.consume() as messages:
        with cut_off(book.run):
            next(messages)
        jobs.push(1)
        with next(messages) as message:
            assert (message.body, message.attempt) == (1, 1)
    with cut_off(book.run):
        popped.pop(timeout=3_600)
    popped.push(2)
    assert popped.pop(timeout=3_600) == 2


def test_a_message_of_a_thread_that_was_cut_off_holds_up_no_drain(book: boki.sync.Book) -> None:
    jobs = bokiqueue.sync.Queue.open(book, "jobs", int, shards=1)
    jobs.push(1)
    with jobs.consume() as messages:
        messages._messages._taken.extend(book.run(messages._take()))  # it came when its thread had gone
        assert messages.drain(3_600)
    with jobs.consume() as messages, next(messages) as message:
        assert (message.body, message.attempt) == (1, 1)


def test_a_signal_that_interrupts_a_block_as_ctrl_c_does_is_no_failed_attempt(book: boki.sync.Book) -> None:
    queue = bokiqueue.sync.Queue.open(book, "jobs", str, shards=1, max_deliveries=1, dead_letter="jobs.dead")
    queue.push("a")
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), queue.consume() as messages, next(messages) as message:
            assert message.attempt == 1
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    with queue.consume() as messages, next(messages) as message:
        assert (message.body, message.attempt) == ("a", 1)


def test_a_consumer_whose_entry_is_cut_off_leaves_no_member_behind(book: boki.sync.Book) -> None:
    jobs = bokiqueue.sync.Queue.open(book, "jobs", int, shards=1)
    messages = jobs.consume(who="cut off")

    class Interrupted:
        """A book whose first wait is interrupted when its coroutine has just ended."""

        waits = 0

        def run(self, routine: Coroutine[Any, Any, object]) -> object:
            self.waits += 1
            result = book.run(routine)
            if self.waits == 1:
                raise KeyboardInterrupt
            return result

    messages._book = cast(boki.sync.Book, Interrupted())
    with pytest.raises(KeyboardInterrupt):
        messages.__enter__()
    assert [member.leaves for member in jobs.stats().members] == [True]
