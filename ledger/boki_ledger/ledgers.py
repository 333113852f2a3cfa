"""Ledgers as the layers above need them: a port that `client.LedgerClient` fulfils as it is.

Tests put `testing.model_ledgers` here, whose acknowledgements are given by hand; both pass one contract suite
(`ledger/tests/test_ledgers_contract.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.errors import BokiError
from boki_common.runtime.ports import Buffer


class LedgerWriter(Protocol):
    """The one writer of a ledger."""

    @property
    def ledger_id(self) -> int: ...

    @property
    def failing_bookies(self) -> list[str]:
        """Bookies that fail to acknowledge, and that no other one has replaced yet."""

    @property
    def in_reserve(self) -> bool:
        """Whether bookies take entries from the reserves of their full disks: only those of a control ledger, and few."""

    def submit(self, *payload: Buffer, now: bool = False) -> int:
        """Sends the next entry, `now` or at the end of the turn, and returns its id; never waits. Raises what failed the writer,
        ClosedError, Overloaded."""

    def listen(self, acked: Callable[[int], None], failed: Callable[[BokiError], None]) -> None:
        """`acked(lac)` once per batch of acknowledgements, from the network callback; `failed` once, at most."""

    async def acknowledged(self, entry_id: int) -> None:
        """Waits until entries up to this one, which were submitted, have their ack quorum. Raises what fails the writer."""

    def ask_unfenced(self, on_answer: Callable[[bool], None]) -> bool:
        """Asks the bookies whether the ledger was fenced when this was called. `on_answer` is called once, later, unless the
        writer fails or ends before: True, it was not, so nobody had recovered it; False, unknown. Returns False, without a call
        of `on_answer`, when they cannot be asked."""

    async def close(self) -> int:
        """Closes the ledger at its LAC and returns that; what is in flight is not part of it. Raises LedgerFenced: somebody
        recovers it; MetadataUnavailable, MetadataUnknown: it may be open still."""

    def abandon(self) -> None:
        """Forgets the ledger without touching its metadata. Idempotent."""


class LedgerReader(Protocol):
    """One ledger, for reading."""

    @property
    def closed(self) -> bool: ...

    @property
    def last_entry(self) -> int:
        """Of a closed ledger its last entry, for ever; else the last known to be acknowledged. -1: none."""

    def confirm(self, entry_id: int) -> None:
        """Confirms that entries up to `entry_id` were acknowledged, which it need not ask the bookies then."""

    async def read(self, first: int, last: int) -> list[memoryview]:
        """Payloads of entries `first` to `last`, both included. Raises NoSuchEntry, EntryUnknown, DigestMismatch."""

    async def read_unconfirmed(self, first: int, last: int) -> list[memoryview]:
        """As `read`, of what bookies have beyond that, too: recovery may drop it. Raises NoSuchEntry: none of them has it."""

    async def close(self) -> None: ...


class Ledgers(Protocol):
    """Makes, opens and deletes ledgers."""

    async def create(
        self, *, replicas: int = 3, acks: int = 2, custom: Mapping[str, bytes] | None = None, control: bool = False
    ) -> LedgerWriter:
        """A new ledger. Raises NotEnoughBookies, MetadataUnavailable.

        `control`: of small entries that free space; on full disks it uses the reserves of bookies. Never for user data.
        """

    async def open(
        self, ledger_id: int, *, recover: bool, floor: int = 0, carried: Mapping[int, Buffer] | None = None
    ) -> LedgerReader:
        """Opens for reading; with `recover` the ledger is fenced and closed first, never below `floor` entries.

        `carried`: entry id → payload of some that belong into the ledger, and may not be there yet.

        Raises:
            NoSuchLedger. RecoveryFailed: too few bookies answered, try again. LedgerDataMissing: it is shorter than `floor`.
        """

    async def delete(self, ledger_id: int) -> None:
        """Raises NoSuchLedger."""

    async def list(self) -> list[int]:
        """Ids of all ledgers, ascending."""

    async def metadata_of(self, ledger_id: int) -> LedgerMetadata:
        """Raises NoSuchLedger."""
