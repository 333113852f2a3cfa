"""What an engine needs of the ledgers and of the sequencer, as small protocols.

`boki_ledger.LedgerClient` and `boki_metalog`'s SequencerLink fulfil them as they are; tests put models here whose acks, cuts
and failures are given by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from boki_common.engine_protocol import Answers, Token
from boki_common.errors import BokiError
from boki_common.ids import Position
from boki_common.runtime.ports import Buffer
from boki_metalog.progress import Order
from boki_metalog.sequencer_protocol import SequencerTime


class LedgerWriter(Protocol):
    """The one writer of a data ledger."""

    @property
    def ledger_id(self) -> int: ...

    @property
    def failing_bookies(self) -> list[str]:
        """Bookies that entries are sent to in vain, and that no other one has replaced yet."""

    def submit(self, *payload: Buffer) -> int:
        """Sends the next entry and returns its id; never waits. Raises what failed the writer, ClosedError, Overloaded."""

    def listen(self, acked: Callable[[int], None], failed: Callable[[BokiError], None]) -> None:
        """`acked(lac)` once per batch of acknowledgements, from the network callback; `failed` at most once."""

    async def acknowledged(self, entry_id: int) -> None:
        """Waits until entries up to this one, which were submitted, have their ack quorum. Raises what fails the writer."""

    async def close(self) -> int:
        """Closes the ledger at its last acknowledged entry, which it returns. Raises LedgerFenced."""

    def abandon(self) -> None:
        """Forgets the ledger without touching its metadata."""


class LedgerReader(Protocol):
    """A data ledger, for reading."""

    def confirm(self, entry_id: int) -> None:
        """Entries up to this one are known to have their ack quorum: a cut names them."""

    async def read(self, first: int, last: int) -> list[memoryview]:
        """Payloads of entries first … last, inclusive. Raises NoSuchEntry, EntryUnknown, DigestMismatch."""

    async def close(self) -> None: ...


class DataLedgers(Protocol):
    """Makes and opens data ledgers."""

    async def create(
        self, *, replicas: int = 3, acks: int = 2, custom: Mapping[str, bytes] | None = None
    ) -> LedgerWriter:
        """A new ledger. Raises NotEnoughBookies, MetadataUnavailable."""

    async def open(
        self, ledger_id: int, *, recover: bool, floor: int = 0, carried: Mapping[int, Buffer] | None = None
    ) -> LedgerReader:
        """Opens for reading; with `recover` the ledger is fenced and closed first, never below `floor` entries.

        `carried`: entry id → payload of some that belong into the ledger, and may not be there yet.

        Raises:
            NoSuchLedger, RecoveryFailed, LedgerDataMissing.
        """

    async def delete(self, ledger_id: int) -> None: ...


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
        """The position after an acknowledged entry that began after this call. Raises TermOver, NetworkError, Overloaded."""

    def ask_barrier(self, told: Callable[[Position | BokiError], None]) -> None:
        """Asks for the same, and calls back once, later: the position, or what `barrier` would raise."""

    async def clock(self) -> SequencerTime | None:
        """The sequencer's wall clock now, and the time of its newest cut; None if it does not tell. Raises as `order`."""


class AppendSource(Protocol):
    """Who sent a batch, and hears what becomes of it."""

    def refused(self, request_id: int, error: BokiError) -> None:
        """The batch was dropped before it was ordered; nothing of this attempt is, or will be, applied."""

    def answered(self, token: Token, answers: Answers) -> None:
        """Verdicts on runs that this source sent; the index has passed `token`."""
