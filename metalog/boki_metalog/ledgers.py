"""The ledger layer as the metalog needs it: a port that `boki_ledger.LedgerClient` fulfils as it is.

Tests put a model of ledgers here whose acknowledgements are given by hand and whose recovery drops what no quorum has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from boki_common.errors import BokiError
from boki_common.runtime.ports import Buffer


class LedgerWriter(Protocol):
    """The one writer of a ledger."""

    @property
    def ledger_id(self) -> int: ...

    def submit(self, *payload: Buffer, now: bool = False) -> int:
        """Sends the next entry, `now` or at the end of the turn, and returns its id; never waits. Raises what failed the writer,
        or ClosedError."""

    def listen(self, acked: Callable[[int], None], failed: Callable[[BokiError], None]) -> None:
        """`acked(lac)` once per batch of acknowledgements, from the network callback; `failed` once, at most."""

    def ask_unfenced(self, told: Callable[[bool], None]) -> bool:
        """Asks the bookies whether the ledger was fenced when this was called. `told` is called once, later, unless the writer
        fails or ends before: True, it was not, so nobody had recovered it; False, nobody knows. Returns False, and does not call
        `told`, when they cannot be asked."""

    async def close(self) -> int:
        """Closes the ledger at its LAC and returns that; what is in flight is not part of it.

        Raises:
            LedgerFenced: somebody recovers it. MetadataUnavailable, MetadataUnknown: it may be open still.
        """

    def abandon(self) -> None:
        """Forgets the ledger without touching its metadata. Idempotent."""


class LedgerReader(Protocol):
    """One ledger, for reading."""

    @property
    def closed(self) -> bool: ...

    @property
    def last_entry(self) -> int:
        """Of a closed ledger its last entry, for ever; else the last known to be acknowledged. -1: none."""

    async def read(self, first: int, last: int) -> list[memoryview]:
        """Payloads of entries `first` to `last`, both included. Raises NoSuchEntry, EntryUnknown, DigestMismatch."""

    async def read_unconfirmed(self, first: int, last: int) -> list[memoryview]:
        """As `read`, of what bookies have beyond that, too: recovery may drop it. Raises NoSuchEntry: none of them has it."""

    def confirm(self, entry_id: int) -> None:
        """Tells the reader that entries up to `entry_id` were acknowledged, which it need not ask the bookies then."""

    async def close(self) -> None: ...


class Ledgers(Protocol):
    """Makes and opens ledgers."""

    async def create(
        self, *, replicas: int = 3, acks: int = 2, custom: Mapping[str, bytes] | None = None
    ) -> LedgerWriter:
        """A new ledger. Raises NotEnoughBookies, MetadataUnavailable."""

    async def open(self, ledger_id: int, *, recover: bool) -> LedgerReader:
        """Opens for reading; with `recover` it fences and closes the ledger first.

        Raises:
            NoSuchLedger. RecoveryFailed: too few bookies answered, try again.
        """
