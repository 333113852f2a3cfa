"""Queues for programs without an event loop.

    with boki.sync.connect("boki://127.0.0.1:7040") as client:
        queue = bokiqueue.sync.Queue.open(client.book("shop"), "emails", Email)
        queue.push(Email("ann@example.org"))
        with queue.consume() as messages:
            for message in messages:
                with message: ...

Names, arguments, results and errors are those of the asynchronous classes, whose docstrings are the reference. A
decision returns when the log has it. Any number of threads may use a queue and iterate over one consumer; each message
goes to one of them. A message that comes when its thread was interrupted (Ctrl-C, an alarm) goes to the next call.

A signal handler that calls `sys.exit` within a message's block fails the attempt, as the block's own `sys.exit` does. To stop
at SIGTERM without that, raise KeyboardInterrupt: `signal.signal(signal.SIGTERM, signal.default_int_handler)`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

import boki
import bokiqueue
from boki_common.errors import BokiError
from boki_common.unpickled import Unpickled
from bokilib.append.log import Log
from bokilib.follow import lease_rules
from bokilib.ports import PayloadHook
from bokilib.records.contribution import Contribution, Origin, check_in_book, identity_of
from bokilib.retention.checkpoint_rules import REWRITE_MS
from bokiqueue.consume.consumer import FINISH_S, LEASE_S, PREFETCH
from bokiqueue.manage.inspection import Peeked, Stats
from bokiqueue.model.events import Limits, Mode, Source
from bokiqueue.model.items import GROUP
from bokiqueue.push.copies import PushResult
from bokiqueue.queue import Redriven

__all__ = ["Consumer", "Message", "Queue"]

K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T")


class _Face(Unpickled):
    """A blocking face of an asynchronous object, which runs its coroutines."""

    def __init__(self, book: boki.sync.Book) -> None:
        self._book = book


class Message(_Face, Generic[T]):
    """A message."""

    def __init__(self, book: boki.sync.Book, found: bokiqueue.Message[T]) -> None:
        super().__init__(book)
        self.message: Final = found
        """The asynchronous message."""
        self.id: Final = found.id
        self.attempt: Final = found.attempt
        self.key: Final = found.key
        self.priority: Final = found.priority
        self.pushed_ms: Final = found.pushed_ms
        self.source: Final[Source | None] = found.source

    @property
    def body(self) -> T:
        return self.message.body

    def _decide(self, decision: Callable[[], asyncio.Future[None]]) -> None:
        """Decide in the thread of the client, and wait until the log has it."""

        async def decide() -> None:
            await decision()

        self._book.run(decide())

    def ack(self) -> None:
        self._decide(self.message.ack)

    def nack(self, delay_s: float = 0.0) -> None:
        self._decide(lambda: self.message.nack(delay_s))

    def give_up(self, reason: str) -> None:
        self._decide(lambda: self.message.give_up(reason))

    def extend(self, lease_s: float) -> None:
        self._book.call(lambda: self.message.extend(lease_s))

    def acked(self) -> Contribution:
        return self._book.call(self.message.acked)

    def within(self, again_s: float) -> Message[T]:
        self._book.call(lambda: self.message.within(again_s))
        return self

    def __enter__(self) -> Message[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._book.run(self.message.__aexit__(kind, error, trace))


class Consumer(_Face, Generic[T]):
    """A member of a group of consumers."""

    def __init__(self, book: boki.sync.Book, found: bokiqueue.Consumer[T]) -> None:
        super().__init__(book)
        self.consumer: Final = found
        """The asynchronous consumer."""
        self._messages = boki.sync.Handover[bokiqueue.Message[T]](book.run)

    @property
    def shards(self) -> list[int]:
        return self._book.call(lambda: self.consumer.shards)

    def __enter__(self) -> Consumer[T]:
        try:
            self._book.run(self.consumer.__aenter__())
        except BokiError:
            raise
        except BaseException as error:  # the thread was interrupted, perhaps when the consumer was a member already
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._book.run(self.consumer.__aexit__(kind, error, trace))

    def __iter__(self) -> Consumer[T]:
        return self

    def __next__(self) -> Message[T]:
        found = self._messages.next(self._take)
        if found is None:
            raise StopIteration
        return Message(self._book, found)

    async def _take(self) -> list[bokiqueue.Message[T]]:
        try:
            return [await anext(self.consumer)]
        except StopAsyncIteration:
            return []

    def drain(self, finish_s: float = FINISH_S) -> bool:
        while (message := self._messages.get()) is not None:  # its thread was interrupted and will not finish it
            self._book.run(message.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None))
        return self._book.run(self.consumer.drain(finish_s))


class Queue(_Face, Generic[T]):
    """A queue on the book of a blocking client. Made by `Queue.open`."""

    def __init__(self, book: boki.sync.Book, found: bokiqueue.Queue[T]) -> None:
        super().__init__(book)
        self.queue: Final = found
        """The asynchronous queue."""
        self._popped: Final = defaultdict[int | None, boki.sync.Handover[tuple[T]]](
            lambda: boki.sync.Handover(book.run, single=False)
        )
        """Messages that were popped, by the shard that was asked for, as tuples, since a body may be None."""
        self.name: Final = found.name
        self.pushed: Final = found.pushed

    @staticmethod
    def open(
        book: boki.sync.Book,
        name: str,
        kind: type[K],
        *,
        mode: Mode | None = None,
        shards: int | None = None,
        max_deliveries: int | None = None,
        dead_letter: str | None = None,
        dedup_s: float | None = None,
        limits: Limits | None = None,
        hook: PayloadHook | None = None,
        log: Log | None = None,
    ) -> Queue[K]:
        """Open a queue as `bokiqueue.Queue.open` does.

        Args:
            log: the log of a store on the same book (`store.store.log`), to commit together with it.

        Raises:
            WrongBook: the log is of another book. Others as `bokiqueue.Queue.open`.
        """

        async def opened(found: boki.Book) -> bokiqueue.Queue[K]:
            if log is not None:
                check_in_book("a log", log.identity, Origin(identity_of(found), f"queue {name!r}"))
            return await bokiqueue.Queue.open(
                found if log is None else log,
                name,
                kind,
                mode=mode,
                shards=shards,
                max_deliveries=max_deliveries,
                dead_letter=dead_letter,
                dedup_s=dedup_s,
                limits=limits,
                hook=hook,
            )

        return Queue(book, book.using(opened))

    def push(
        self,
        body: T,
        *,
        key: str | None = None,
        dedup_id: str | None = None,
        delay_s: float = 0.0,
        priority: int = 0,
    ) -> PushResult:
        return self._book.run(self.queue.push(body, key=key, dedup_id=dedup_id, delay_s=delay_s, priority=priority))

    def push_many(
        self, bodies: Sequence[T], *, key: str | None = None, delay_s: float = 0.0, priority: int = 0
    ) -> PushResult:
        return self._book.run(self.queue.push_many(bodies, key=key, delay_s=delay_s, priority=priority))

    def consume(
        self,
        *,
        group: str = GROUP,
        prefetch: int = PREFETCH,
        lease_s: float = LEASE_S,
        who: str | None = None,
        member_lease_s: float = lease_rules.LEASE_S,
        carry_s: float = REWRITE_MS / 1000,
    ) -> Consumer[T]:
        made = self._book.call(
            lambda: self.queue.consume(
                group=group,
                prefetch=prefetch,
                lease_s=lease_s,
                who=who,
                member_lease_s=member_lease_s,
                carry_s=carry_s,
            )
        )
        return Consumer(self._book, made)

    @property
    def groups(self) -> list[str]:
        return self.queue.groups

    def register(self, group: str) -> None:
        self._book.run(self.queue.register(group))

    def drop(self, group: str) -> None:
        self._book.run(self.queue.drop(group))

    def stats(self, group: str = GROUP, *, at_ms: int = 0) -> Stats:
        return self._book.run(self.queue.stats(group, at_ms=at_ms))

    def peek(self, most: int = 10, *, group: str = GROUP) -> list[Peeked]:
        return self._book.run(self.queue.peek(most, group=group))

    def pause(self) -> None:
        self._book.run(self.queue.pause())

    def resume(self) -> None:
        self._book.run(self.queue.resume())

    def change(
        self,
        *,
        dead_letter: str | None = None,
        max_deliveries: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._book.run(self.queue.change(dead_letter=dead_letter, max_deliveries=max_deliveries, limits=limits))

    def delete(self) -> None:
        self._book.run(self.queue.delete())

    def limit_key(self, key: str, per_second: float | None) -> None:
        self._book.run(self.queue.limit_key(key, per_second))

    def purge_record(self, seqnum: int) -> None:
        self._book.run(self.queue.purge_record(seqnum))

    def purge(self, group: str = GROUP) -> None:
        self._book.run(self.queue.purge(group))

    def redrive(self, most: int | None = None, *, group: str | None = None, all_groups: bool = False) -> Redriven:
        return self._book.run(self.queue.redrive(most, group=group, all_groups=all_groups))

    def pop(self, *, timeout: float = 0.0) -> T:
        return self._pop(None, lambda: self.queue.pop(timeout=timeout))

    def pop_from(self, shard: int, *, timeout: float = 0.0) -> T:
        return self._pop(shard, lambda: self.queue.pop_from(shard, timeout=timeout))

    def _pop(self, shard: int | None, pop: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Pop a message, or return one whose thread was interrupted before it had it."""

        async def take() -> list[tuple[T]]:
            return [(await pop(),)]

        found = self._popped[shard].next(take)
        assert found is not None, "a pop returns a message or raises"
        return found[0]
