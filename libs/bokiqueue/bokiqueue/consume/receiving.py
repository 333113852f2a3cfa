"""Messages as steps of workflows: the step's outcome, its writes and the ACK are one record, so each message is one step's.

    received = Receiving(messages, store)                     # messages: an entered consumer, of the worker's own Log

    async def take(tx: Received[Order, Transaction]) -> Order:
        tx.store["stock"].inc(tx.body.item, -1)
        return tx.body

    @app.workflow
    async def sell() -> str:
        order = await bokiflow.transact(received, take)       # waits for a message
        ...

- It is a store for `bokiflow.transact` whose transactions begin with a message. A replay reads the result of the step,
  and takes no message.
- A step that lost to another transaction runs again with its message. A step whose body raised releases the message,
  which is redelivered later each time, as after an error of a handler. The workflow continues with the error, and the
  message goes to another step.
- Messages of a shard go to workflows of the process that owns the shard: the queue needs at least as many shards as
  there are workers.
- A message that a process took and did not commit is redelivered when its lease or its process ends.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Final, Generic, Protocol, TypeVar

from boki_common.errors import BokiError, Conflict
from bokilib.append.log import Log
from bokilib.errors import AppendUnknown
from bokilib.records.arguments import check_seconds
from bokilib.records.contribution import Contribution
from bokiqueue.attempts import BACKOFF_S, backoff_s
from bokiqueue.consume.consumer import Consumer
from bokiqueue.consume.handlers import check_store
from bokiqueue.consume.messages import Message, outcome_of
from bokiqueue.errors import NotEntered, StaleReceipt

T = TypeVar("T")


class StepTransaction(Protocol):
    """A transaction, as far as a step needs it."""

    def add(self, part: Contribution) -> None: ...

    def end(self) -> None: ...


X = TypeVar("X", bound=StepTransaction)


class StepStore(Protocol[X]):
    """A store that begins and commits transactions, such as a `bokistore.BokiStore`."""

    @property
    def log(self) -> Log: ...

    async def begin(self) -> X: ...

    async def commit(self, tx: X) -> int: ...


class Received(Generic[T, X]):
    """A message, and a transaction that consumes it.

    Attributes:
        message: the message.
        store: the transaction of the store, to write in.
    """

    def __init__(self, message: Message[T], store: X, backoff: float) -> None:
        self.message: Final = message
        self.store: Final = store
        self._backoff_s = backoff

    @property
    def body(self) -> T:
        """The body of the message.

        Raises:
            NotEncodable: it does not fit the queue's type.
        """
        return self.message.body

    def add(self, part: Contribution) -> None:
        """Add the contribution of another library to the record."""
        self.store.add(part)

    def end(self) -> None:
        """End without a record. The message is redelivered, after the error being handled or the one that the body returned."""
        self.store.end()
        self.message.within(backoff_s(self.message.attempt, self._backoff_s)).give_back(sys.exception())


class Receiving(Generic[T, X]):
    """A store whose transactions begin with a message. See the module.

    Invariant: a message is with one step at a time, or waits for the next one.
    """

    def __init__(self, messages: Consumer[T], store: StepStore[X], *, again_s: float = BACKOFF_S) -> None:
        """Prepare the store.

        Args:
            messages: an entered consumer.
            store: the store that the steps write to.
            again_s: the wait before a message is redelivered after its first error; it doubles each time.

        Raises:
            WrongBook: the store is in another book than the queue.
            InvalidArgument: `again_s` is no time.
        """
        check_seconds("again_s=", again_s)
        check_store(store, messages.origin)
        self._messages = messages
        self._store = store
        self._again_s = again_s
        self._lost: deque[Message[T]] = deque()

    @property
    def log(self) -> Log:
        """The log of the store."""
        return self._store.log

    async def begin(self) -> Received[T, X]:
        """Wait for a message, and begin a transaction with it.

        Raises:
            NotEntered: the consumer was left or drained, or is not entered yet.
        """
        message = await self._next()
        message.held_by = "a workflow's step"
        try:
            return Received(message, await self._store.begin(), self._again_s)
        except BaseException:
            self._lost.append(message)
            raise

    async def _next(self) -> Message[T]:
        while self._lost:
            message = self._lost.popleft()
            try:
                self._messages.renew(message)
            except StaleReceipt:
                continue  # it was redelivered meanwhile
            return message
        async for message in self._messages:
            return message
        raise NotEntered(
            f"consumer {self._messages.who!r} was left or drained: enter it around the worker whose workflows wait for its messages"
        )

    async def commit(self, tx: Received[T, X]) -> int:
        """Append the record of a step.

        Raises:
            Conflict: it lost; nothing was appended.
            AppendUnknown: the outcome was unknown at first; it is known by now.
            AtomicTooLarge: the record is too large.
        """
        message = tx.message
        try:
            tx.store.add(message.acked())
        except StaleReceipt as stale:
            raise Conflict(f"nothing was appended: {stale}", actual={}, position=0) from stale
        try:
            place = await self._store.commit(tx.store)
        except AppendUnknown as unknown:
            await self._ended(message, await outcome_of(unknown))
            raise
        except BokiError as error:
            await self._ended(message, False if error.definite else None)
            raise
        except BaseException as error:
            await message.part_ended(None, error=error)
            raise
        await message.part_ended(True)
        return place

    async def _ended(self, message: Message[T], happened: bool | None) -> None:
        """Note the outcome of a message's record. If it certainly did not happen the next step gets the message."""
        await message.part_ended(happened, again=False)
        if happened is False:
            self._lost.append(message)
