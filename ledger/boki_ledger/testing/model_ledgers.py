"""A model of the port `ledgers.Ledgers` for tests of the layers above: entries in memory, acknowledgements and failures by hand.

    ledgers = ModelLedgers()                    # acknowledges in the next turn of the loop
    ledgers.hold_acks = True                    # from now on only by `ledger.ack()`
    ledger = await ledgers.create()             # a ledger and its one writer

Recovery fences, drops what was not acknowledged but for `keep_unacked` entries (either is allowed to a real one), and closes. A
writer that was fenced learns it when it sends something. A reader of an open ledger sees what was confirmed, and what the LAC of
a later entry proves acknowledged. Nothing sleeps, nothing is random.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.errors import (
    BokiError,
    ClosedError,
    DigestMismatch,
    EntryUnknown,
    LedgerDataMissing,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
)
from boki_common.ids import BookieId
from boki_common.runtime.ports import Buffer


class ModelLedger:
    """One ledger as its bookies have it, and its writer."""

    def __init__(self, ledgers: ModelLedgers, ledger_id: int, custom: Mapping[str, bytes] | None = None) -> None:
        self.ledger_id = ledger_id
        self.custom = tuple((custom or {}).items())
        self.entries: list[bytes] = []
        self.proven = -1
        """The LAC that the newest entry carries."""
        self.acked = 0
        """How many entries have their quorum."""
        self.fenced = False
        self.closed_at: int | None = None
        """How many entries it has for ever."""
        self.closed_by_writer = False
        self.abandoned = False
        self.fault: BokiError | None = None
        """What failed the writer."""
        self.damaged = False
        """Whether every copy of every entry fails its digest."""
        self.waited: list[int] = []
        """Entries that were left to the end of the turn."""
        self._ledgers = ledgers
        self._acked: Callable[[int], None] = lambda _: None
        self._failed: Callable[[BokiError], None] = lambda _: None
        self._news = asyncio.Event()

    @property
    def closed(self) -> bool:
        return self.closed_at is not None

    @property
    def metadata(self) -> LedgerMetadata:
        open_or_closed = LedgerState.OPEN if self.closed_at is None else LedgerState.CLOSED
        last_entry = -1 if self.closed_at is None else self.closed_at - 1
        bookies = ((0, (BookieId("b1"), BookieId("b2"), BookieId("b3"))),)
        return LedgerMetadata(3, 3, 2, bookies, open_or_closed, last_entry, custom=self.custom)

    # -- LedgerWriter

    @property
    def in_reserve(self) -> bool:
        return self._ledgers.full

    @property
    def failing_bookies(self) -> list[str]:
        return []

    def submit(self, *payload: Buffer, now: bool = False) -> int:
        if self.fault is not None:
            raise self.fault
        if self.closed_by_writer or self.abandoned:
            raise ClosedError(f"ledger {self.ledger_id} is closed", ledger_id=self.ledger_id)
        entry = len(self.entries)
        if self.fenced:
            asyncio.get_running_loop().call_soon(self.fail)
            return entry
        if not now:
            self.waited.append(entry)
        self.entries.append(b"".join(payload))
        self.proven = self.acked - 1
        if not self._ledgers.hold_acks:
            asyncio.get_running_loop().call_soon(self.ack)
        return entry

    def listen(self, acked: Callable[[int], None], failed: Callable[[BokiError], None]) -> None:
        self._acked, self._failed = acked, failed

    async def acknowledged(self, entry_id: int) -> None:
        assert entry_id < len(self.entries)
        while self.acked <= entry_id:
            if self.fault is not None:
                raise self.fault
            self._news.clear()
            await self._news.wait()

    def ask_unfenced(self, on_answer: Callable[[bool], None]) -> bool:
        ledgers, loop = self._ledgers, asyncio.get_running_loop()
        if not ledgers.proves or not self.acked:
            return False
        if self.fenced:
            loop.call_soon(self.fail)
        elif ledgers.hold_proofs:
            ledgers.asked.append(on_answer)
        else:
            loop.call_soon(on_answer, True)
        return True

    async def close(self) -> int:
        await self._ledgers.step("close")
        if self.fault is not None:
            raise self.fault
        if self.fenced and self.closed_at != self.acked:
            raise _fenced(self.ledger_id)
        if self.closed_at is None:
            del self.entries[self.acked :]
            self.closed_at, self.fenced, self.closed_by_writer = self.acked, True, True
        return self.closed_at - 1

    def abandon(self) -> None:
        self.abandoned = True

    # -- the test's hand

    def ack(self, end: int | None = None) -> None:
        """Entries below `end` have their quorum, all without it; none that comes after a fence has."""
        end = len(self.entries) if end is None else end
        if self.fenced or self.fault is not None or end <= self.acked:
            return
        assert end <= len(self.entries)
        self.acked = end
        self._news.set()
        if not self.abandoned:
            self._acked(end - 1)

    def fail(self) -> None:
        """The writer learns that the ledger was fenced."""
        if self.fault is None:
            self.fenced, self.fault = True, _fenced(self.ledger_id)
            self._news.set()
            if not self.abandoned:
                self._failed(self.fault)


class ModelReader:
    """Port `LedgerReader`."""

    def __init__(self, ledgers: ModelLedgers, ledger: ModelLedger) -> None:
        self._ledgers = ledgers
        self._ledger = ledger
        self._known = ledger.metadata.last_entry if ledger.closed else ledger.proven
        self.ended = False
        """Whether it was closed."""

    @property
    def closed(self) -> bool:
        return self._ledger.closed

    @property
    def last_entry(self) -> int:
        return self._known

    def confirm(self, entry_id: int) -> None:
        self._known = max(self._known, entry_id)

    async def read(self, first: int, last: int) -> list[memoryview]:
        if last > self._known:
            await asyncio.sleep(0)
            raise EntryUnknown(f"entry {last} is not proven acknowledged", ledger_id=self._ledger.ledger_id)
        return await self.read_unconfirmed(first, last)

    async def read_unconfirmed(self, first: int, last: int) -> list[memoryview]:
        assert not self.ended
        ledgers, ledger = self._ledgers, self._ledger
        ledgers.reads.append((ledger.ledger_id, first, last))
        gate = ledgers.gates.get((ledger.ledger_id, first))
        await (asyncio.sleep(0) if gate is None else gate.wait())
        for entry in range(first, last + 1):
            key = ledger.ledger_id, entry
            if key in ledgers.missing or entry >= len(ledger.entries):
                raise NoSuchEntry(f"ledger {ledger.ledger_id} has no entry {entry}", ledger_id=ledger.ledger_id)
            if key in ledgers.damaged or ledger.damaged:
                raise DigestMismatch(f"all copies of entry {entry} are damaged", ledger_id=ledger.ledger_id)
            if key in ledgers.unknown:
                raise EntryUnknown(f"entry {entry}: bookies are away", ledger_id=ledger.ledger_id)
        return [memoryview(payload) for payload in ledger.entries[first : last + 1]]

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.ended = True


class ModelLedgers:
    """Port `Ledgers`. `missing`, `unknown` and `damaged` entries cannot be read; a `gate` holds reads that begin at an entry."""

    def __init__(self, *, keep_unacked: int = 0) -> None:
        self.ledgers: dict[int, ModelLedger] = {}
        self.made = 0
        """How many were made: an id is never used again."""
        self.up = True
        """Whether there are bookies for new ledgers."""
        self.hold_acks = False
        self.keep_unacked = keep_unacked
        self.proves = False
        """Whether bookies can be asked if a ledger is fenced."""
        self.hold_proofs = False
        self.asked: list[Callable[[bool], None]] = []
        """Waiters for a proof that is held back."""
        self.full = False
        """Whether all disks are: only control ledgers are made."""
        self.faults: list[tuple[str, BokiError]] = []
        """(operation, error): raised once, by the next call of that operation."""
        self.refusals = 0
        """How often a ledger could not be made, or not be closed."""
        self.recovered: list[tuple[int, int]] = []
        """(ledger, floor) of each recovery."""
        self.reads: list[tuple[int, int, int]] = []
        self.readers: list[ModelReader] = []
        self.missing: dict[tuple[int, int], None] = {}
        self.unknown: dict[tuple[int, int], None] = {}
        self.damaged: dict[tuple[int, int], None] = {}
        self.gates: dict[tuple[int, int], asyncio.Event] = {}
        self.entries_elsewhere: Callable[[int], list[bytes] | None] = lambda ledger_id: None
        """Entries of a ledger that something else in the test keeps."""

    def __getitem__(self, ledger_id: int) -> ModelLedger:
        return self.ledgers[ledger_id]

    async def create(
        self, *, replicas: int = 3, acks: int = 2, custom: Mapping[str, bytes] | None = None, control: bool = False
    ) -> ModelLedger:
        await self.step("create")
        if not self.up or (self.full and not control):
            self.refusals += 1
            raise NotEnoughBookies(f"expected {acks} bookies, found none")
        ledger = self.ledgers[self.made] = ModelLedger(self, self.made, custom)
        self.made += 1
        return ledger

    async def open(
        self, ledger_id: int, *, recover: bool, floor: int = 0, carried: Mapping[int, Buffer] | None = None
    ) -> ModelReader:
        await self.step("recover" if recover else "open")
        elsewhere = None if ledger_id in self.ledgers else self.entries_elsewhere(ledger_id)
        if elsewhere is None:
            ledger = self._named(ledger_id)
        else:
            ledger = ModelLedger(self, ledger_id)
            ledger.entries = elsewhere
        if recover:
            await self._recover(ledger, floor, carried or {})
        reader = ModelReader(self, ledger)
        self.readers.append(reader)
        return reader

    async def _recover(self, ledger: ModelLedger, floor: int, carried: Mapping[int, Buffer]) -> None:
        ledger.fenced = True
        await self.step("recovery fenced")
        if ledger.closed_at is None:
            entries = ledger.entries
            del entries[max(floor, ledger.acked + self.keep_unacked) :]
            while len(entries) in carried:
                entries.append(bytes(carried[len(entries)]))
            if len(entries) < floor:
                self.refusals += 1
                raise LedgerDataMissing(
                    f"ledger {ledger.ledger_id} has {len(entries)} entries, expected {floor}",
                    ledger_id=ledger.ledger_id,
                )
            ledger.closed_at = len(entries)
            self.recovered.append((ledger.ledger_id, floor))
        await self.step("recovery closed")

    async def delete(self, ledger_id: int) -> None:
        await self.step("delete")
        self._named(ledger_id)
        del self.ledgers[ledger_id]

    async def list(self) -> list[int]:
        await self.step("list")
        return sorted(self.ledgers)

    async def metadata_of(self, ledger_id: int) -> LedgerMetadata:
        await self.step("metadata")
        return self._named(ledger_id).metadata

    def ack(self, ledger_id: int) -> None:
        """The ack quorum has everything submitted, unless the ledger was fenced before."""
        self.ledgers[ledger_id].ack()

    async def step(self, operation: str) -> None:
        """One turn of the loop; raises what is next of `faults` for the operation."""
        await asyncio.sleep(0)
        for position, (named, error) in enumerate(self.faults):
            if named == operation:
                del self.faults[position]
                raise error

    def _named(self, ledger_id: int) -> ModelLedger:
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            raise NoSuchLedger(f"there is no ledger {ledger_id}", ledger_id=ledger_id)
        return ledger


def _fenced(ledger_id: int) -> LedgerFenced:
    return LedgerFenced(f"ledger {ledger_id} is fenced", ledger_id=ledger_id)
