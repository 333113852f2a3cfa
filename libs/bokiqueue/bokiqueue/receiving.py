"""Messages as steps of workflows: the step's outcome, the ACK and what the step writes are one record, so each message is one step's.

    received = Receiving(messages, store)                     # messages: an entered consumer, of the worker's own Log

    async def take(tx: Received[Order, Transaction]) -> Order:
        tx.store["stock"].inc(tx.body.item, -1)
        return tx.body

    @app.workflow
    async def sell() -> str:
        order = await bokiflow.transact(received, take)       # waits for a message
        ...

- It is a store to `bokiflow.transact`, whose transactions begin with a message. A replay reads what the step returned, and takes none.
- One that lost to another transaction is run again with the message that it had. One whose body raised gives it back, later each time,
  as a handler does: the workflow goes on with the error, and the message is another step's.
- Messages of a shard go to workflows of the process that has the shard: give the queue as many shards as there are workers at least.
- A message that a process took, and did not commit, comes again when its lease is over, or when the process is.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Final, Generic, Protocol, TypeVar

from boki_common.errors import BokiError, Conflict
from bokilib.contribution import Contribution
from bokilib.errors import AppendUnknown
from bokilib.log import Log
from bokiqueue.attempts import BACKOFF_S, backoff_s
from bokiqueue.consumer import Consumer
from bokiqueue.errors import StaleReceipt
from bokiqueue.messages import Message, outcome_of

T = TypeVar("T")


class Stages(Protocol):
    """A transaction, as far as a step needs it."""

    def add(self, part: Contribution) -> None: ...

    def end(self) -> None: ...


X = TypeVar("X", bound=Stages)


class Stores(Protocol[X]):
    """What begins and commits transactions: a `bokistore.BokiStore`."""

    @property
    def log(self) -> Log: ...

    async def begin(self) -> X: ...

    async def commit(self, tx: X) -> int: ...


class Received(Generic[T, X]):
    """A message, and a transaction that consumes it.

    Attributes:
        store: the transaction of the store, to write in.
    """

    def __init__(self, message: Message[T], store: X, backoff: float) -> None:
        self.message: Final = message
        self.store: Final = store
        self._backoff_s = backoff

    @property
    def body(self) -> T:
        """The message's. Raises NotEncodable: it does not fit the queue's type."""
        return self.message.body

    def add(self, part: Contribution) -> None:
        """Another library's part of the record."""
        self.store.add(part)

    def end(self) -> None:
        """Nothing comes of it: the message comes again, after the error that is being handled or the one that the body returned."""
        self.store.end()
        self.message.within(backoff_s(self.message.attempt, self._backoff_s)).give_back(sys.exception())


class Receiving(Generic[T, X]):
    """See the module. Invariant: a message is with one step at a time, or waits for the next one."""

    def __init__(self, messages: Consumer[T], store: Stores[X], *, again_s: float = BACKOFF_S) -> None:
        """`again_s`: after an error a message comes again so much later, twice as long each time."""
        self._messages = messages
        self._store = store
        self._again_s = again_s
        self._lost: deque[Message[T]] = deque()

    @property
    def log(self) -> Log:
        """Of the store."""
        return self._store.log

    async def begin(self) -> Received[T, X]:
        """Waits for a message."""
        message = await self._next()
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
                continue  # it went elsewhere meanwhile
            return message
        return await anext(self._messages)

    async def commit(self, tx: Received[T, X]) -> int:
        """Appends all of it. Raises Conflict, AppendUnknown (what became of it is known by then), AtomicTooLarge."""
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
        """A message whose record certainly did not happen is the next step's: of whoever runs again."""
        await message.part_ended(happened, again=False)
        if happened is False:
            self._lost.append(message)
