"""What an engine needs of the sequencer, and answers those who sent it something, as small protocols.

`boki_metalog`'s SequencerLink fulfils the first as it is; tests put a model here whose cuts and failures are given by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from boki_common.engine.answers import Answers
from boki_common.engine.engine_protocol import Token
from boki_common.errors import BokiError
from boki_common.ids import Position
from boki_common.runtime.ports import Buffer
from boki_metalog.entries.progress import Order
from boki_metalog.entries.sequencer_protocol import SequencerTime


class ShardLink(Protocol):
    """The connection to the sequencer that orders the current term."""

    @property
    def term(self) -> int: ...

    @property
    def carries(self) -> bool:
        """Whether `carry` may be called."""

    async def open_shard(self, incarnation: str, ledger_id: int) -> int:
        """The number of a new shard in that data ledger, once its OPEN is ordered."""

    def report(self, shard: int, records_end: int, entries_end: int, *, now: bool = False) -> None:
        """What is durable of a shard, cumulative; sent at the end of the turn, or `now`, never waits."""

    def carry(self, shard: int, records_end: int, entries_end: int, body: Sequence[Buffer]) -> None:
        """What is known of a shard up to an entry that is durable nowhere yet, and its payload: it may be ordered by that, or
        not. Sent at once, never waits."""

    async def close_shard(self, shard: int) -> None: ...

    async def order(self, command: Order) -> Position:
        """The position after the acknowledged entry that has the command.

        Raises:
            TermEndedMeanwhile, ConnectionLost, CallTimeout: whether it was ordered is unknown; it may be repeated.
            TermOver, SlotNotInTerm, Overloaded, InvalidArgument, ProtocolError: it was refused.
        """

    async def barrier(self) -> Position:
        """A position that all that was ordered before this call is below, proven (ADR 22). Raises TermOver, NetworkError, Overloaded."""

    def ask_barrier(self, on_answer: Callable[[Position | BokiError], None]) -> None:
        """Asks for the same, and calls back once, later: the position, or what `barrier` would raise."""

    async def clock(self) -> SequencerTime | None:
        """The sequencer's wall clock now, and the time of its newest cut; None if it does not say. Raises as `order`."""


class AppendSource(Protocol):
    """Who sent a batch, and is answered what becomes of it."""

    def refused(self, request_id: int, error: BokiError) -> None:
        """The batch was dropped before it was ordered; nothing of this attempt is, or will be, applied."""

    def answered(self, token: Token, answers: Answers) -> None:
        """Verdicts on runs that this source sent; the index has passed `token`."""
