"""A message that its handler has.

    async with message: await send(message.body)          # acked on exit; redelivered, and the error raised, after an error

- A decision is checked at once (`StaleReceipt`). Await it only to know that it is in the log: a decision that is lost
  with its process is as if the process had died before it.
- `attempts` decides which errors fail an attempt, and how long the message waits then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Generic, TypeVar

from boki_common.errors import BokiError, Conflict, UsageError
from bokilib.errors import AppendUnknown
from bokilib.pauses import retried
from bokilib.records.arguments import check_lease
from bokilib.records.contribution import Contribution
from bokiqueue import attempts
from bokiqueue.errors import StaleReceipt
from bokiqueue.model.delivery_rules import Delivery
from bokiqueue.model.events import Item, Source
from bokiqueue.model.items import body_of, check_reason, delay_ms
from bokiqueue.model.receipts import Receipt
from bokiqueue.shard.shard_owner import Redelivery, ShardOwner

T = TypeVar("T")

LEASE_MOST_S: Final = 12 * 3_600.0
"""The longest lease of a message: its handler may run that long."""


class Message(Generic[T]):
    """A message that its handler has. See the module.

    Attributes:
        id: (shard, seqnum, number), the same at each delivery: for effects outside of the log that must happen once.
        attempt: 1, plus the number of failed attempts.
        key: the key that it was pushed with, or None.
        priority: the priority that it was pushed with.
        pushed_ms: the time of its push, by the clock of the log.
        source: the origin of a dead letter.
        item: the message as it was pushed.
        parted: True while a record may carry its ACK and the outcome is unknown.
        given_up: True if its handler's error was the last one, after which it is not redelivered.
        held_by: the handler or step whose record decides about it, "" if there is none.
    """

    def __init__(self, owner: ShardOwner, receipt: Receipt, delivery: Delivery, kind: type[T]) -> None:
        item = delivery.entry.item
        self.id: Final = (receipt.shard, *receipt.id)
        self.attempt: Final = delivery.attempt
        self.key: Final = item.key
        self.priority: Final = item.priority
        self.pushed_ms: Final = delivery.entry.pushed_ms
        self.source: Final[Source | None] = item.source
        self.item: Final[Item] = item
        self.parted = False
        self.given_up = False
        self.held_by = ""
        self.receipt: Final = receipt
        self.extended: Callable[[float], None] | None = None
        """Called with the additional seconds of its handler, if the handler has a timeout."""
        self._owner = owner
        self._kind = kind
        self._again_s: float | None = None
        self._parts = 0
        self._decided = False

    def __repr__(self) -> str:
        return f"<bokiqueue.Message {self.receipt.id} of {self._owner.queue!r}, shard {self.receipt.shard}, attempt {self.attempt}>"

    @property
    def log_facts(self) -> dict[str, object]:
        """The facts by which a log line names this message: `boki queue peek` prints the same ones."""
        return self._owner.log_facts(self.receipt.id, self.key)

    @property
    def decided(self) -> bool:
        """True if its handler has decided about it."""
        return self._decided

    @property
    def body(self) -> T:
        """The body.

        Raises:
            NotEncodable: it does not fit the queue's type.
        """
        return body_of(self._kind, self.item)

    def ack(self) -> asyncio.Future[None]:
        """Finish the message. Await the result to know that the log has the decision.

        Raises:
            StaleReceipt: at once; the message belongs to this handler no longer.
            UsageError: at once; the record of a `queue.handler` function, or of a step, decides about it.
            Fenced: when awaited; the shard has another owner, which redelivers the message.
            OutcomeUnknown: when awaited; the member left before the log answered.
        """
        self._check_free("`ack()`", "return, and that record is the ACK")
        sent = self._owner.ack(self.receipt)
        self._decided = True
        return sent

    def nack(self, delay_s: float = 0.0) -> asyncio.Future[None]:
        """Fail this attempt. The message is redelivered after `delay_s` seconds, and messages of its key wait for it. Raises as `ack`."""
        self._check_free("`nack()`", "raise an error, and it is redelivered")
        sent = self._owner.nack(self.receipt, Redelivery(delay_ms(delay_s), failed=True))
        self._decided = True
        return sent

    def give_up(self, reason: str) -> asyncio.Future[None]:
        """Make the message a dead letter now, regardless of its attempts; a queue without dead letters drops it.

        Args:
            reason: words for people, up to 16,384 characters.

        Raises:
            InvalidArgument: at once; the reason is no text, or too long. The handler still has the message.
            AtomicTooLarge: when awaited; the message and its reason do not fit one record. It is redelivered later.
            StaleReceipt, UsageError, Fenced, OutcomeUnknown: as `ack`.
        """
        self._check_free("`give_up()`", "raise an error: after `max_deliveries` attempts it is a dead letter")
        sent = self._owner.give_up(self.receipt, check_reason(reason))
        self._decided = True
        return sent

    def _check_free(self, call: str, instead: str) -> None:
        """Check that no record of a handler decides about the message: its other effects would be dropped."""
        if self.held_by:
            raise UsageError(
                f"{call} of a message whose outcome is in the record of {self.held_by}: nothing was sent; {instead}"
            )

    def extend(self, lease_s: float) -> None:
        """Give the handler `lease_s` seconds from now on.

        Raises:
            StaleReceipt: the message belongs to this handler no longer.
            InvalidArgument: the lease is out of range.
        """
        self._owner.extend(self.receipt, check_lease(lease_s, LEASE_MOST_S))
        if self.extended is not None:
            self.extended(lease_s)

    def acked(self) -> Contribution:
        """Return the contribution that makes any library's record the ACK: for `bokilib.Atomic`, or `tx.add` of a transaction.

        Use it within `async with message:`, which finds out the outcome of the record: if the block ends without an
        error, the ACK is in the log. It is for one record; call it again for the next. From now on the lease does not
        run out.

        Raises:
            StaleReceipt: the message belongs to this handler no longer.
        """
        self._owner.check_here()
        part = self._owner.ack_part(self.receipt)
        self.parted = True
        self._parts += 1
        return part

    def within(self, again_s: float) -> Message[T]:
        """Redeliver the message after `again_s` seconds if `async with message.within(again_s): ...` ends with an error."""
        self._owner.check_here()
        delay_ms(again_s)
        self._again_s = again_s
        return self

    async def __aenter__(self) -> Message[T]:
        self._owner.check_here()
        self._check_free("`async with`", "leave that block out")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner.check_here()
        if self._decided:
            return
        if self.parted:
            happened: bool | None = None
            try:
                happened = await self._was_acked(error)
            finally:
                await self.part_ended(happened, error=error)
            return
        if error is None:
            _ = self.ack()
        else:
            self.give_back(error)

    async def _was_acked(self, error: BaseException | None) -> bool | None:
        """Return True if the record with the ACK is in the log; None if that is still unknown."""
        try:
            acked = await self._owner.is_acked(self.receipt)
        except BokiError:
            return None
        refused = isinstance(error, Conflict) and self._owner.fence.tag in error.facts.get("actual", ())
        return False if acked is None and refused and self._parts == 1 else acked

    async def part_ended(
        self, happened: bool | None, *, again: bool = True, error: BaseException | None = None
    ) -> None:
        """Note the outcome of the record with the ACK. If it did not happen the message is redelivered.

        Args:
            happened: None if the outcome is unknown, and the record may still be in flight. The shard's owner then
                finds out from the log.
            again: False if the handler keeps the message in case the record did not happen.
            error: the error with which the record ended.
        """
        self._owner.check_here()
        self.parted = False
        self._decided = happened is not False
        if happened is None:
            self._owner.doubt(self.receipt, self._lost(error))
            return
        self._owner.decided(self.receipt, happened=happened)
        if not happened and again:
            self._returns(self._lost(error))

    def give_back(self, error: BaseException | None) -> None:
        """Release the message after an error, or after None for one that the handler returned. No effect if another handler has it."""
        self._owner.check_here()
        self._returns(self._lost(error) if error is not None else Redelivery(delay_ms(self._after_s()), failed=True))

    def _returns(self, lost: Redelivery) -> None:
        try:
            self.given_up = self._owner.gives_up(self.receipt, lost)
            _ = self._owner.nack(self.receipt, lost)
            self._decided = True
        except StaleReceipt:
            pass  # another handler has it by now

    def _lost(self, error: BaseException | None) -> Redelivery:
        """Return how the message is redelivered after an error, None if its record lost to another."""
        if error is None or attempts.stopped(error):
            return Redelivery()
        at_once = (
            self._again_s is None and self._parts > 0 and attempts.lost(error)
        )  # else another record lost, and may lose again and again
        again_s = 0.0 if at_once else self._after_s()
        return Redelivery(delay_ms(again_s), failed=attempts.failed(error), error=error)

    def _after_s(self) -> float:
        return attempts.backoff_s(self.attempt) if self._again_s is None else self._again_s


async def outcome_of(unknown: AppendUnknown) -> bool:
    """Return True if an append of unknown outcome happened. It asks until the outcome is known."""
    found = await retried(lambda: unknown.outcome(settle=True))
    return type(found).__name__ == "Committed"
