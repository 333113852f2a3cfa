"""Handlers whose effects happen once: the message is acked in the record of what they write.

    @orders.handler(store)
    async def ship(order: Message[Order], tx: Transaction) -> None:
        tx["stock"].inc(order.body.item, -1)
        tx.add(emails.pushed(Email(order.body.to)))

    async with ship: ...                                   # or: await ship.run()

- `store` is whatever runs transactions over the same log: it runs the body again while it loses, and what it does outside of `tx` with it.
- An error gives the message back, later each time, up to a minute; the queue's dead letters end that, if it has them (`attempts`).
- A member whose heartbeats do not arrive stops its handlers before others have their messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Generic, Protocol, TypeVar

from boki_common.errors import BokiError, InvalidArgument
from boki_common.logs import get_logger
from bokilib.contribution import Contribution
from bokilib.errors import AppendUnknown
from bokiqueue.attempts import backoff_s
from bokiqueue.consumer import FINISH_S, Consumer
from bokiqueue.errors import StaleReceipt
from bokiqueue.messages import Message, outcome_of

T = TypeVar("T")

AT_ONCE: Final = 16

log = get_logger(__name__)


class Takes(Protocol):
    """A transaction, as far as a handler's ACK goes into it."""

    def add(self, part: Contribution) -> None: ...


X = TypeVar("X", bound=Takes)
X_co = TypeVar("X_co", covariant=True, bound=Takes)


class Transacts(Protocol[X_co]):
    """What runs transactions: a `bokistore.BokiStore`."""

    async def transact(self, body: Callable[[X_co], Awaitable[None]]) -> Any: ...


class Handler(Generic[T, X]):
    """See the module. Made by `queue.handler`.

    Attributes:
        body: the function. consumer: while it runs, the member that it is.
    """

    def __init__(
        self,
        consume: Callable[[], Consumer[T]],
        store: Transacts[X],
        body: Callable[[Message[T], X], Awaitable[None]],
        *,
        at_once: int,
        backoff: float,
    ) -> None:
        if type(at_once) is not int or at_once < 1:
            raise InvalidArgument(f"expected one handler at once at least, found {at_once!r}", found=at_once)
        self.body: Final = body
        self.consumer: Consumer[T] | None = None
        self._consume = consume
        self._store = store
        self._at_once = at_once
        self._backoff_s = backoff
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Handler[T, X]:
        self.consumer = await self._consume().__aenter__()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._work(self.consumer), name="bokiqueue handler") for _ in range(self._at_once)
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops handling: what is not done comes again elsewhere."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self.consumer is not None, "it was entered"
        await self.consumer.__aexit__(kind, error, trace)
        self.consumer = None

    async def drain(self, finish_s: float = FINISH_S) -> bool:
        """Take no new messages and let the functions that run finish: see `Consumer.drain`. `run` returns then."""
        return self.consumer is None or await self.consumer.drain(finish_s)

    async def run(self) -> None:
        """Handles messages until it is cancelled. Raises what ends a worker: an error that no message causes."""
        async with self:
            await asyncio.gather(*self._tasks)

    async def _work(self, consumer: Consumer[T]) -> None:
        async for message in consumer:
            await consumer.guarded(self.handle(message))

    async def handle(self, message: Message[T]) -> None:
        """Handles one message: its effects and its ACK in one record, or it is given back."""
        try:
            async with message.within(backoff_s(message.attempt, self._backoff_s)):
                await self._transact(message)
        except StaleReceipt as stale:
            log.info("a message went to another handler", message=message.id, error=str(stale))
        except Exception as error:  # noqa: BLE001 - there is no caller: it is logged, and the message comes again
            if message.decided and isinstance(error, AppendUnknown):
                return  # its outcome is known: it happened
            retryable = isinstance(error, BokiError) and error.retryable
            log.warning(
                "a message was not handled",
                message=message.id,
                attempt=message.attempt,
                error=repr(error),
                retryable=retryable,
            )

    async def _transact(self, message: Message[T]) -> None:
        """Raises what became of the record: `transact` itself does, but for a wait that was ended."""
        try:
            await self._store.transact(lambda tx: self._run(message, tx))
        except AppendUnknown as unknown:
            happened = await outcome_of(unknown)
            if message.parted:
                await message.part_ended(happened, error=unknown)
            raise
        except BokiError as error:
            if message.parted:
                await message.part_ended(False if error.definite else None, error=error)
            raise
        except BaseException as error:
            if message.parted:
                await message.part_ended(None, error=error)
            raise
        await message.part_ended(True)

    async def _run(self, message: Message[T], tx: X) -> None:
        await self.body(message, tx)
        tx.add(message.acked())
