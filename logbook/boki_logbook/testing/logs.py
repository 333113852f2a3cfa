"""Logs whose terms, cuts and moves are given by a test's hand; they order with the sequencer's own `CutBuilder`.

    log = ScriptedLog()                         # one log with all slots; `cut_by_itself = False` holds cuts
    await log.begin_term(); await log.join(core)

    logs = ScriptedLogs(2)                      # several, with equal shares of the slots
    await logs.begin(); await logs.join(core)
    await logs.move([17], to=1)                 # seals all logs concerned, then one view with all new terms
    logs.holding = [1]                          # its followers are not notified of sealed and new terms until `release`

Nothing sleeps, nothing is random; what happens by itself happens in the next turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from boki_common import limits
from boki_common.errors import BokiError, NoSequencer, TermOver
from boki_common.ids import Position
from boki_common.runtime.ports import Buffer
from boki_metalog.entries.metalog_entry import MetalogEntry, encode
from boki_metalog.entries.progress import CutBuilder, Order
from boki_metalog.entries.sequencer_protocol import SequencerTime
from boki_metalog.terms.slot_rules import to_ranges
from boki_metalog.terms.term_info import TermInfo
from boki_metalog.terms.term_order import slot_mask, terms_before
from boki_metalog.terms.term_record import VERSION, Location, TermRecord
from boki_metalog.terms.view import VERSION as VIEW_VERSION
from boki_metalog.terms.view import Installed, SlotRange, View

if TYPE_CHECKING:
    from boki_logbook.core import EngineCore


class ScriptedLink:
    """An engine's connection to the sequencer of one term."""

    def __init__(self, log: ScriptedLog, term: int) -> None:
        self.term = term
        self.carries = True
        self.up = True
        self.open_faults: list[BokiError] = []
        self.close_faults: list[BokiError] = []
        self.order_faults: list[BokiError] = []
        """What the next orders meet instead of an answer; the command is ordered all the same if the fault leaves that open."""
        self.reports: list[tuple[int, bool]] = []
        """(entries end, whether it was to leave at once) of each report."""
        self.carried: list[tuple[int, bytes]] = []
        """(entries end, payload) of each entry that was to be carried."""
        self._log = log

    async def open_shard(self, incarnation: str, ledger_id: int) -> int:
        await asyncio.sleep(0)
        if self.open_faults:
            raise self.open_faults.pop(0)
        self._check()
        number = self._log.builder.open(incarnation, ledger_id)
        self._log.cut()
        return number

    def report(self, shard: int, records_end: int, entries_end: int, *, now: bool = False) -> None:
        self.reports.append((entries_end, now))
        if self.up and self.term == self._log.term and not self._log.sealed:
            self._log.builder.report(shard, records_end, entries_end)
            self._log.cut_soon()

    def carry(self, shard: int, records_end: int, entries_end: int, body: Sequence[Buffer]) -> None:
        self.carried.append((entries_end, b"".join(body)))
        if self.up and self.term == self._log.term and not self._log.sealed:
            self._log.builder.carry(shard, records_end, entries_end, b"".join(body))
            self._log.cut_soon()

    async def close_shard(self, shard: int) -> None:
        await asyncio.sleep(0)
        if self.close_faults:
            raise self.close_faults.pop(0)
        self._check()
        self._log.builder.close(shard)
        self._log.cut()

    async def order(self, command: Order) -> Position:
        await asyncio.sleep(0)
        self._check()
        fault = self.order_faults.pop(0) if self.order_faults else None
        if fault is None or not fault.definite:
            self._log.builder.order(command)
            self._log.cut()
        if fault is not None:
            raise fault
        return Position(self.term, len(self._log.history[self.term]))

    async def barrier(self) -> Position:
        await asyncio.sleep(0)
        return self._barrier()

    def ask_barrier(self, on_answer: Callable[[Position | BokiError], None]) -> None:
        asyncio.get_running_loop().call_soon(self._answer_barrier, on_answer)

    def _answer_barrier(self, on_answer: Callable[[Position | BokiError], None]) -> None:
        try:
            position = self._barrier()
        except BokiError as error:
            on_answer(error)
        else:
            on_answer(position)

    def _barrier(self) -> Position:
        self._check()
        self._log.builder.barrier()
        self._log.cut()
        return Position(self.term, len(self._log.history[self.term]))

    async def clock(self) -> SequencerTime | None:
        await asyncio.sleep(0)
        self._check()
        return self._log.clock

    def _check(self) -> None:
        if self.term != self._log.term or self._log.sealed:
            raise TermOver(f"term {self.term} is over")
        if not self.up:
            raise NoSequencer("the sequencer is away")


class ScriptedLogs:
    """All logs of a cluster, and the view: who has which slot, and which number is next."""

    def __init__(self, count: int) -> None:
        self.next_term = 1
        self.slots = [slot * count // limits.SLOTS for slot in range(limits.SLOTS)]
        """The log of each slot."""
        self.records: dict[int, TermRecord] = {}
        self.holding: list[int] = []
        """Logs whose followers are not notified of the ends and beginnings of terms, until `release`."""
        self.logs: dict[int, ScriptedLog] = {}
        for log in range(count):
            ScriptedLog(self, log)
        self.members: list[EngineCore] = []

    def __getitem__(self, log: int) -> ScriptedLog:
        return self.logs[log]

    def slots_of(self, log: int) -> tuple[SlotRange, ...]:
        return tuple(SlotRange(first, last) for first, last, owner in to_ranges(self.slots) if owner == log)

    @property
    def view(self) -> View:
        """What the metadata store would say."""
        logs = {
            number: Installed(log.term, 1_000 + log.term, "ab" * 16, "cd" * 16, 0) if log.term else None
            for number, log in self.logs.items()
        }
        return View(VIEW_VERSION, self.next_term, to_ranges(self.slots), logs)

    async def begin(self) -> None:
        """The first term of every log."""
        await self.install(self.logs)

    def add(self, log: int) -> None:
        """A log that has no slots and no term yet."""
        ScriptedLog(self, log)
        for core in self.members:
            core.log_found(log)
            core.view_changed(self.view)
            self.logs[log].follow(core)

    async def move(self, slots: Iterable[int], *, to: int) -> None:
        """Seals the logs that have the slots, and the target; then one view has the slots moved, and all new terms."""
        moved = list(slots)
        changed = sorted({to, *(self.slots[slot] for slot in moved)})
        for log in changed:
            self.logs[log].seal()
        for slot in moved:
            self.slots[slot] = to
        await self.install(changed)

    async def install(self, logs: Iterable[int]) -> None:
        """New terms for these logs, whose old ones are sealed, in one view; then their followers are notified."""
        installed = sorted(logs)
        for log in installed:
            self.logs[log].install()
        for core in self.members:
            core.view_changed(self.view)
        for log in installed:
            if log not in self.holding:
                await self.logs[log].announce()

    async def release(self, log: int) -> None:
        """The followers of a log that was held are notified of what they missed."""
        self.holding.remove(log)
        await self.logs[log].announce()

    async def join(self, core: EngineCore, *, live: bool = True) -> None:
        """Replays the past of all logs to an engine; then it follows them."""
        for number in self.logs:
            core.log_found(number)
        core.view_changed(self.view)
        self.members.append(core)
        for log in self.logs.values():
            await log.join(core, live=live)

    def leave(self, core: EngineCore) -> None:
        """The engine is notified of nothing any more."""
        self.members.remove(core)
        for log in self.logs.values():
            log.members.pop(core)


class ScriptedLog:
    """One physical log: terms, their metalog entries, and the engines that follow it."""

    def __init__(self, logs: ScriptedLogs | None = None, number: int = 0) -> None:
        self.number = number
        self.term = 0
        self.sealed = True
        self.time_ms = 1_000
        self.cut_by_itself = True
        self.builder = CutBuilder()
        self.clock: SequencerTime | None = None
        """The sequencer's answer when it is asked for its time."""
        self.history: dict[int, list[MetalogEntry]] = {}
        self.infos: dict[int, TermInfo] = {}
        self.members: dict[EngineCore, ScriptedLink] = {}
        self._announced: dict[EngineCore, list[int]] = {}
        """Terms of which each engine has still to be notified: of the end, or the beginning."""
        self._cut_due = False
        self.logs = ScriptedLogs(0) if logs is None else logs
        self.logs.logs[number] = self

    @property
    def records(self) -> dict[int, TermRecord]:
        """The records of this log's sealed terms."""
        return {term: record for term, record in self.logs.records.items() if record.log == self.number}

    # -- terms

    def install(self) -> None:
        """The view names the next term; nobody is notified yet."""
        assert self.sealed
        self.term = self.logs.next_term
        self.logs.next_term += 1
        self.history[self.term] = []
        slots = self.logs.slots_of(self.number)
        earlier = [(record.term, record.log, slot_mask(record.slots)) for record in self.logs.records.values()]
        after = terms_before(slot_mask(slots), sorted(earlier, reverse=True), self.number)
        self.infos[self.term] = TermInfo(self.term, self.number, slots, 1_000 + self.term, after)
        self.builder = CutBuilder(time_ms=self.time_ms)
        self.sealed = False

    def seal(self) -> None:
        """Ends the term at what is cut now; nobody is notified yet. A log without a term has none to end."""
        if self.sealed:
            return
        entries = self.history[self.term]
        last = entries[-1] if entries else None
        self.logs.records[self.term] = TermRecord(
            version=VERSION,
            term=self.term,
            log=self.number,
            slots=self.infos[self.term].slots,
            metalog_ledger=1_000 + self.term,
            last_entry=len(entries) - 1,
            end_pos=0 if last is None else last.end_pos,
            last_time_ms=self.time_ms if last is None else last.time_ms,
            location=Location(),
        )
        self.sealed = True
        for core, link in self.members.items():
            if link.up:
                link.up = False
                core.logs[self.number].sequencer_down()

    async def announce(self) -> None:
        """The followers of all engines are notified of what they missed: ends of terms, and beginnings."""
        for core in list(self.members):
            await self._catch_up(core)
            if not self.sealed:
                self.connect(core)

    async def _catch_up(self, core: EngineCore) -> None:
        part = core.logs[self.number]
        for term in sorted(self.infos):
            known = core.frontier.received.get(self.number, Position(0, 0))
            record = self.logs.records.get(term)
            if term > known.term:
                await part.term_started(self.infos[term]._replace(sealed=record is not None))
                known = Position(term, 0)
            if term < known.term:
                continue
            entries = self.history[term]
            for first in range(known.entry, len(entries), 3):
                part.entries_ordered(term, first, entries[first : first + 3])
                await part.caught_up()
            if record is not None and term not in self._announced[core]:
                self._announced[core].append(term)
                await part.term_ended(record)

    async def begin_term(self) -> None:
        """The next term, at all engines."""
        await self.logs.install([self.number])

    async def end_term(self) -> None:
        """Seals the term at what is cut now, at all engines."""
        self.seal()
        for core in list(self.members):
            await self._catch_up(core)

    async def next_term(self) -> None:
        await self.end_term()
        await self.begin_term()

    # -- cuts

    def cut(self) -> MetalogEntry | None:
        """Orders what was reported, at all engines."""
        self._cut_due = False
        self.time_ms += 1
        entry = self.builder.take(self.time_ms)
        if entry is not None:
            history = self.history[self.term]
            history.append(entry)
            for core in list(self.members):
                if core.frontier.received.get(self.number) == (self.term, len(history) - 1):
                    core.logs[self.number].entries_ordered(self.term, len(history) - 1, [entry])
        return entry

    def cut_soon(self) -> None:
        if self.cut_by_itself and not self._cut_due:
            self._cut_due = True
            asyncio.get_running_loop().call_soon(self._cut_now)

    def _cut_now(self) -> None:
        if self._cut_due and not self.sealed:
            self.cut()

    def metalog(self, ledger_id: int) -> list[bytes] | None:
        """What the metalog ledger of one of its terms holds."""
        history = self.history.get(ledger_id - 1_000)
        return None if history is None else [encode(entry) for entry in history]

    # -- engines

    async def join(self, core: EngineCore, *, live: bool = True) -> None:
        """Replays the past to an engine as a follower does, in batches; then it follows, with a link if `live`."""
        if self.number not in core.logs:  # alone: the cluster has one log
            await self.logs.join(core, live=live)
            return
        self.follow(core)
        await self._catch_up(core)
        if live and not self.sealed:
            self.connect(core)

    def follow(self, core: EngineCore) -> None:
        """The engine has received nothing yet."""
        self.members[core] = ScriptedLink(self, self.term)
        self.members[core].up = not self.sealed
        self._announced[core] = []

    def connect(self, core: EngineCore) -> ScriptedLink:
        """A new connection of an engine to the sequencer."""
        link = self.members[core] = ScriptedLink(self, self.term)
        core.logs[self.number].sequencer_up(link)
        return link

    def disconnect(self, core: EngineCore) -> None:
        self.members[core].up = False
        core.logs[self.number].sequencer_down()

    def leave(self, core: EngineCore) -> None:
        """The engine is notified of nothing any more."""
        self.logs.leave(core)

    def link(self, core: EngineCore) -> ScriptedLink:
        return self.members[core]
