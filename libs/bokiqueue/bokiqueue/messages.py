"""A message as its handler has it.

    async with message: await send(message.body)          # acked when it is left; given back, and raised, on an error

- A decision is checked at once (`StaleReceipt`), and awaited only to know that it is in the log: one that is lost with its process is as
  if the process had died before it.
- `attempts` says which errors are failed attempts, and for how long the message waits then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Generic, TypeVar

from boki_common.errors import BokiError, Conflict, InvalidArgument
from bokilib.contribution import Contribution
from bokilib.errors import AppendUnknown
from bokiqueue import attempts
from bokiqueue.delivery_rules import Hand
from bokiqueue.errors import StaleReceipt
from bokiqueue.events import Item, Source
from bokiqueue.items import body_of, delay_ms
from bokiqueue.receipts import Receipt
from bokiqueue.shard_owner import Lost, ShardOwner

T = TypeVar("T")

LEASE_MOST_S: Final = 12 * 3_600.0


def check_lease(lease_s: float) -> float:
    """Raises InvalidArgument."""
    if not 0 < lease_s <= LEASE_MOST_S:
        raise InvalidArgument(f"expected a lease of up to {LEASE_MOST_S:.0f} seconds, found {lease_s!r}", found=lease_s)
    return lease_s


class Message(Generic[T]):
    """See the module.

    Attributes:
        id: (shard, seqnum, index): the same at each delivery, for effects outside that must happen once.
        attempt: 1, and one more for each attempt of it that failed. key, priority: as it was pushed.
        pushed_ms: when, by the clock of the log. source: of a dead letter. item: as it was pushed.
        parted: whether a record may carry its ACK, and it is not known what became of it.
        given_up: whether its handler's error was the last one: it does not come again.
    """

    def __init__(self, owner: ShardOwner, receipt: Receipt, hand: Hand, kind: type[T]) -> None:
        item = hand.entry.item
        self.id: Final = (receipt.shard, *receipt.id)
        self.attempt: Final = hand.attempt
        self.key: Final = item.key
        self.priority: Final = item.priority
        self.pushed_ms: Final = hand.entry.pushed_ms
        self.source: Final[Source | None] = item.source
        self.item: Final[Item] = item
        self.parted = False
        self.given_up = False
        self.receipt: Final = receipt
        self.extended: Callable[[float], None] | None = None
        """Called with the seconds that its handler got more, for a handler with a time-out."""
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
        """Whether it was decided, as far as its handler is concerned."""
        return self._decided

    @property
    def body(self) -> T:
        """What was pushed. Raises NotEncodable: it does not fit the queue's type."""
        return body_of(self._kind, self.item)

    def ack(self) -> asyncio.Future[None]:
        """It is done. Awaited: the log has it.

        Raises:
            StaleReceipt: at once. Fenced: when awaited; the shard has another owner, who hands it out again.
        """
        sent = self._owner.ack(self.receipt)
        self._decided = True
        return sent

    def nack(self, delay_s: float = 0.0) -> asyncio.Future[None]:
        """Give it back: this attempt failed. It comes again after so many seconds, and messages of its key wait for it. As `ack`."""
        sent = self._owner.nack(self.receipt, Lost(delay_ms(delay_s), failed=True))
        self._decided = True
        return sent

    def give_up(self, reason: str) -> asyncio.Future[None]:
        """Make it a dead letter now, however many attempts it has left; a queue without dead letters drops it. As `ack`."""
        sent = self._owner.give_up(self.receipt, reason)
        self._decided = True
        return sent

    def extend(self, lease_s: float) -> None:
        """Its handler needs so many seconds from now on. Raises StaleReceipt."""
        self._owner.extend(self.receipt, check_lease(lease_s))
        if self.extended is not None:
            self.extended(lease_s)

    def acked(self) -> Contribution:
        """What makes a record of any library its ACK: for `bokilib.Atomic`, or `tx.add` of a transaction.

        Within `async with message:`, which sees what became of the record: left without an error, it is in the log.
        For one record: ask again for the next one. From now on its lease does not run out. Raises StaleReceipt.
        """
        self._owner.check_here()
        part = self._owner.ack_part(self.receipt)
        self.parted = True
        self._parts += 1
        return part

    def within(self, again_s: float) -> Message[T]:
        """`async with message.within(5): ...` gives it back on an error so that it comes again after so many seconds."""
        self._owner.check_here()
        delay_ms(again_s)
        self._again_s = again_s
        return self

    async def __aenter__(self) -> Message[T]:
        self._owner.check_here()
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
        """Return whether the record that `acked` went into is in the log; None: nobody knows yet."""
        try:
            acked = await self._owner.is_acked(self.receipt)
        except BokiError:
            return None
        refused = isinstance(error, Conflict) and self._owner.fence.tag in error.facts.get("actual", ())
        return False if acked is None and refused and self._parts == 1 else acked

    async def part_ended(
        self, happened: bool | None, *, again: bool = True, error: BaseException | None = None
    ) -> None:
        """Take note of what became of the record that `acked` went into.

        If it did not happen the message comes again.

        Args:
            happened: None: that is unknown, and the record may be on its way still. The owner of the shard finds out, and what it finds
                in the log decides.
            again: False: if it did not happen, its handler has it still.
            error: the one with which the record ended.
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
        """Give it back after an error, None: the handler's own; unless another handler has it by now."""
        self._owner.check_here()
        self._returns(self._lost(error) if error is not None else Lost(delay_ms(self._after_s()), failed=True))

    def _returns(self, lost: Lost) -> None:
        try:
            self.given_up = self._owner.gives_up(self.receipt, lost)
            _ = self._owner.nack(self.receipt, lost)
            self._decided = True
        except StaleReceipt:
            pass  # another handler has it by now

    def _lost(self, error: BaseException | None) -> Lost:
        """Return how it comes again after an error; None: its record lost to another one."""
        if error is None or attempts.stopped(error):
            return Lost()
        at_once = (
            self._again_s is None and self._parts > 0 and attempts.lost(error)
        )  # else another record lost, and may for ever
        again_s = 0.0 if at_once else self._after_s()
        return Lost(delay_ms(again_s), failed=attempts.failed(error), error=error)

    def _after_s(self) -> float:
        return attempts.backoff_s(self.attempt) if self._again_s is None else self._again_s


async def outcome_of(unknown: AppendUnknown) -> bool:
    """Whether it happened; asks until the outcome is known."""
    while True:
        try:
            found = await unknown.outcome(settle=True)
        except BokiError as error:
            if not error.retryable:
                raise
            continue
        return type(found).__name__ == "Committed"
