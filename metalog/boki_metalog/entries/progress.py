"""What a term has ordered: how the sequencer makes the next metalog entry, and how everybody reads one.

    CutBuilder       the sequencer's side: reports are merged, `take` makes the next entry
    ProgressVector   everybody's side: the state after an entry; `deltas` checks the next one and gives its ranges

Rules:
- Reports are cumulative per shard. One that is not above what is known is ignored; one that no sequence of entries
  explains is refused. A shard number is given once in a term.
- FIFO (DESIGN §6.3): an engine reports a new shard only after its old one is cut to the end. So a report of a younger
  shard closes the engine's older ones, in the same entry and before it; a record never overtakes its predecessor in the
  engine's previous shard, and an engine that could not say CLOSE is not held up.
- A CLOSE pins the shard's end at what the same entry cuts. Later reports are refused.
- One entry of a shard, the next one, may come before it is durable, with its bytes: the metalog entry that orders it carries
  them. All entries before it are durable, or in earlier metalog entries. There is room for a few in each; what finds none is
  not taken, and is reported once it is durable. Never the first: a data ledger without entries is one that nothing is in.
- Positions are dense: an entry starts where the one before ended. Within it, shard by shard, ascending.
- Time is max(time of the entry before, clock). No position beyond `limits.POSITION_MAX` is given: `TermFull`.
- An entry says something new, or there is none; but one that says nothing is made when a barrier is asked for.
- Commands are taken first in, first out, as many as one entry may hold. What waits is bounded: `Overloaded`.

Pure: no clock, no IO. The work is per entry and per open shard, never per record. One entry in flight at a time is the
caller's rule (`term_server`); nothing here knows what is acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Final, NamedTuple, cast

from boki_common import limits
from boki_common.errors import CorruptData, Overloaded
from boki_metalog.entries.metalog_entry import (
    Carried,
    Close,
    Command,
    Expire,
    Lost,
    MetalogEntry,
    Open,
    ShardEnd,
    Trim,
    check_command,
    command_bytes,
    make_end,
)
from boki_metalog.errors import ImpossibleReport, ShardNotOpen, TermFull

Order = Trim | Expire | Lost
"""What participants have ordered by name; OPEN and CLOSE follow from shards."""


class ShardRange(NamedTuple):
    """Consecutive records of one shard that one metalog entry ordered; they have consecutive positions."""

    shard: int
    first_record: int
    record_count: int
    first_entry: int
    entry_count: int
    first_pos: int


_make_range: Final = cast(
    Callable[[tuple[int, int, int, int, int, int]], ShardRange], partial(tuple.__new__, ShardRange)
)
"""Without a frame of Python, as `make_end`."""


class ProgressVector:
    """The state of a term after some of its metalog entries.

    Invariant: `end_pos` is the number of positions given; `ends` are those of the open shards, ascending.
    """

    __slots__ = ("end_pos", "ends", "next_shard", "time_ms")

    def __init__(self, end_pos: int = 0, time_ms: int = 0, ends: Iterable[ShardEnd] = (), next_shard: int = 0) -> None:
        self.end_pos = end_pos
        self.time_ms = time_ms
        self.ends = tuple(ends)
        self.next_shard = max([next_shard, *(end.shard + 1 for end in self.ends)])
        """No shard number below has yet to be opened."""

    @property
    def shards(self) -> dict[int, ShardEnd]:
        """The ends of the open shards, by number."""
        return {end.shard: end for end in self.ends}

    @classmethod
    def after(cls, entry: MetalogEntry) -> ProgressVector:
        """The state after an entry, from that entry alone: vectors are absolute."""
        closed = {command.shard for command in entry.commands if isinstance(command, Close)}
        known = max((end.shard + 1 for end in entry.shards), default=0)
        return cls(entry.end_pos, entry.time_ms, (end for end in entry.shards if end.shard not in closed), known)

    def apply(self, entry: MetalogEntry) -> list[ShardRange]:
        """Checks the next entry, becomes the state after it, and returns what it ordered. Raises as `deltas`."""
        ranges = deltas(self, entry)
        self.ends = entry.shards
        for command in entry.commands:
            if isinstance(command, Open):
                self.next_shard = command.shard + 1
            elif isinstance(command, Close):
                self.ends = tuple(end for end in self.ends if end.shard != command.shard)
        self.end_pos = entry.end_pos
        self.time_ms = entry.time_ms
        return ranges


def deltas(previous: ProgressVector, entry: MetalogEntry) -> list[ShardRange]:
    """What `entry` orders after `previous`: ranges in order of position, none empty of both records and entries.

    Raises:
        CorruptData: the entry cannot follow: another start, a vector that falls, a shard out of nowhere, records without
            entries, time that runs back. No correct sequencer writes it, so nothing of it may be applied.
    """
    pos = entry.start_pos
    if pos != previous.end_pos or entry.time_ms < previous.time_ms:
        raise CorruptData(
            f"expected a metalog entry from position {previous.end_pos} and time {previous.time_ms} on, "
            f"found position {entry.start_pos} and time {entry.time_ms}",
            expected=previous.end_pos,
            found=entry.start_pos,
        )
    ranges = []
    expected = _opened(previous, entry.commands) if entry.commands else previous.ends
    for before, end in zip_longest(expected, entry.shards):
        if before == end:
            continue
        if before is None or end is None or before[0] != end[0]:
            numbers = [[one.shard for one in ends] for ends in (expected, entry.shards)]
            raise CorruptData(
                f"expected the ends of shards {numbers[0]}, found those of {numbers[1]}", expected=numbers[0]
            )
        _, first_record, first_entry = before
        shard, records_end, entries_end = end
        records = records_end - first_record
        entries = entries_end - first_entry
        if records < 0 or entries < 0 or (records and not entries):
            raise CorruptData(
                f"shard {shard} was at {first_record} records in {first_entry} entries and cannot go on to "
                f"{records_end} in {entries_end}",
                shard=shard,
            )
        ranges.append(_make_range((shard, first_record, records, first_entry, entries, pos)))
        pos += records
    if pos != entry.end_pos:
        raise CorruptData(
            f"a metalog entry orders positions {entry.start_pos} to {pos}, but says it ends at {entry.end_pos}",
            expected=pos,
            found=entry.end_pos,
        )
    if entry.carried:
        _check_carried(entry.carried, ranges)
    return ranges


def _check_carried(carried: Iterable[Carried], ranges: Iterable[ShardRange]) -> None:
    """Raises CorruptData when a shard has a carried entry and no new record."""
    numbers = [one.shard for one in carried]
    cut = [one.shard for one in ranges if one.record_count]
    if not set(numbers).issubset(cut):
        raise CorruptData(
            f"expected carried entries of the shards {cut}, which are cut, found some of {numbers}",
            expected=cut,
            found=numbers,
        )


def _opened(previous: ProgressVector, commands: Iterable[Command]) -> Sequence[ShardEnd]:
    """The ends before an entry of the shards that it must list: those open before and those it opens. Raises CorruptData."""
    expected = list(previous.ends)
    closed: list[int] = []
    next_shard = previous.next_shard
    for command in commands:
        if isinstance(command, Open):
            if command.shard < next_shard:
                raise CorruptData(
                    f"expected a new shard from {next_shard} on, found {command.shard}", shard=command.shard
                )
            next_shard = command.shard + 1
            expected.append(make_end((command.shard, 0, 0)))
        elif isinstance(command, Close):
            if command.shard in closed:
                raise CorruptData(f"a metalog entry closes shard {command.shard} twice", shard=command.shard)
            closed.append(command.shard)
    numbers = [end.shard for end in expected]
    if not set(closed).issubset(numbers):
        raise CorruptData(
            f"expected a metalog entry to close some of the shards {numbers}, found {closed}",
            expected=numbers,
            found=closed,
        )
    return expected


class _Shard:
    """The sequencer's view of one shard that is not closed yet."""

    __slots__ = ("closing", "incarnation")

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.closing = False
        """Its CLOSE waits to be taken: no more reports."""


class CutBuilder:
    """The state of a term's sequencer. See the module.

    Invariant: `_known` has the shards whose OPEN is in an entry that was taken, as the next entry cuts them, which ends at
    `_known_pos` then; the entries taken so far are a sequence that `deltas` accepts.
    """

    def __init__(self, *, time_ms: int = 0) -> None:
        self.end_pos = 0
        self.time_ms = time_ms
        """Of the last entry; before the first, the newest time of the terms that this one succeeds."""
        self.waits = False
        """Whether there is something for the next entry."""
        self._known: dict[int, ShardEnd] = {}
        self._known_pos = 0
        self._next_shard = 0
        self._shards: dict[int, _Shard] = {}
        self._by_ledger: dict[int, tuple[int, str]] = {}
        self._owned: dict[str, list[int]] = {}
        """Incarnation → its shards that are not closed and not about to be, ascending."""
        self._carried: dict[int, Carried] = {}
        """Shard → the last of its known entries, if the next cut carries it."""
        self._commands: deque[Command] = deque()
        self._orders = 0
        """Of the commands that wait, those given to `order`; and their bytes."""
        self._order_bytes = 0

    @property
    def shards(self) -> dict[int, str]:
        """Shard → incarnation of those not closed and not about to be, ascending."""
        return {number: shard.incarnation for number, shard in self._shards.items() if not shard.closing}

    @property
    def shards_given(self) -> int:
        """How many shard numbers were given."""
        return self._next_shard

    @property
    def shards_left(self) -> int:
        """How many of them are not closed by an entry that was taken."""
        return len(self._shards)

    def known_end(self, shard: int) -> ShardEnd | None:
        """What was reported of a shard whose OPEN is in an entry that was taken; None: there is none such."""
        return self._known.get(shard)

    def _given(self, incarnation: str, ledger_id: int) -> int:
        shard, owner = self._by_ledger[ledger_id]
        if owner != incarnation or shard not in self._shards or self._shards[shard].closing:
            raise ShardNotOpen(
                f"ledger {ledger_id} was shard {shard} of engine {owner}; each shard needs a new ledger", shard=shard
            )
        return shard

    def open(self, incarnation: str, ledger_id: int) -> int:
        """Gives a shard number; the OPEN goes into the next entry. The same request again gives the same number.

        Raises:
            ShardNotOpen: the ledger's shard is closed already, or another incarnation writes it.
            TermFull: all numbers are given.
        """
        if ledger_id in self._by_ledger:
            return self._given(incarnation, ledger_id)
        if self._next_shard >= limits.TERM_SHARDS:
            raise TermFull(f"all {limits.TERM_SHARDS} shard numbers of the term are given")
        shard, self._next_shard = self._next_shard, self._next_shard + 1
        self._shards[shard] = _Shard(incarnation)
        self._by_ledger[ledger_id] = shard, incarnation
        self._owned.setdefault(incarnation, []).append(shard)
        self._commands.append(Open(shard, incarnation, ledger_id))
        self.waits = True
        return shard

    def report(self, shard: int, records_end: int, entries_end: int) -> None:
        """Merges cumulative progress; what is not above the known is ignored.

        Raises:
            ShardNotOpen: closed, about to be closed, or not opened by an entry yet.
            ImpossibleReport: one number rises without the other, or faster than entries can hold records, or above all bounds.
        """
        known = self._known.get(shard)
        if known is None or self._shards[shard].closing:
            raise ShardNotOpen(f"shard {shard} is not open in this term: its end is in the metalog", shard=shard)
        _, records_known, entries_known = known
        records = records_end - records_known
        entries = entries_end - entries_known
        if records <= 0 and entries <= 0:
            return
        impossible = records < 0 or entries <= 0 or records > entries * limits.BATCH_RECORDS
        if impossible or entries_end > limits.POSITION_MAX:  # which no entry of a metalog has
            raise ImpossibleReport(
                f"shard {shard} was reported at {records_known} records in {entries_known} entries and "
                f"cannot be at {records_end} in {entries_end}",
                shard=shard,
            )
        owned = self._owned[self._shards[shard].incarnation]
        while owned[0] != shard:
            self.close(owned[0])
        self._known[shard] = make_end((shard, records_end, entries_end))
        self._known_pos += records
        self.waits = True
        if self._carried:
            self._carried.pop(shard, None)

    def carry(self, shard: int, records_end: int, entries_end: int, body: bytes) -> None:
        """Takes the next entry of a shard, which is durable nowhere yet: the next metalog entry carries it.

        One that is known already is ignored, as is one that finds no room: it will be reported.

        Raises:
            ShardNotOpen: as `report`. ImpossibleReport: it is not the next one, or is the first, or has no records, or more
                than fit into it; or the one before it waits to be carried as well.
        """
        known = self._known.get(shard)
        if known is not None and not self._shards[shard].closing:
            if entries_end <= known.entries_end:
                return
            if (
                entries_end != known.entries_end + 1
                or not known.entries_end
                or shard in self._carried
                or records_end <= known.records_end
            ):
                raise ImpossibleReport(
                    f"shard {shard} is known up to {known.records_end} records in {known.entries_end} entries, the last one "
                    f"{'carried' if shard in self._carried else 'durable'}, and entry {entries_end - 1} up to record "
                    f"{records_end} cannot be carried next",
                    shard=shard,
                )
            if len(self._carried) >= limits.CARRIED_ENTRIES:
                return
        self.report(shard, records_end, entries_end)
        self._carried[shard] = Carried(shard, body)

    def close(self, shard: int) -> None:
        """Has the next entry cut what is known of the shard and close it. Repeated, or closed already: nothing. Raises
        ShardNotOpen: no such shard was ever opened."""
        if shard >= self._next_shard or shard < 0:
            raise ShardNotOpen(f"shard {shard} was never opened in this term", shard=shard)
        state = self._shards.get(shard)
        if state is not None and not state.closing:
            state.closing = True
            owned = self._owned[state.incarnation]
            owned.remove(shard)
            if not owned:
                del self._owned[state.incarnation]
            self._commands.append(Close(shard))
            self.waits = True

    def close_all_of(self, incarnation: str) -> list[int]:
        """Closes every shard of a lost engine; returns their numbers."""
        lost = list(self._owned.get(incarnation, ()))
        for number in lost:
            self.close(number)
        return lost

    def order(self, command: Order) -> None:
        """Queues a command for one of the next entries; those given before it come no later. Raises InvalidArgument: its
        numbers cannot be stored; Overloaded: too many, or too large ones, wait already."""
        check_command(command)
        waiting_bytes = self._order_bytes + command_bytes(command)
        if self._orders >= limits.ORDERS_WAITING or waiting_bytes > limits.ORDERS_WAITING_BYTES:
            raise Overloaded(
                f"{self._orders} commands of {self._order_bytes} bytes wait for a metalog entry; try again later",
                found=self._orders,
            )
        self._orders += 1
        self._order_bytes = waiting_bytes
        self._commands.append(command)
        self.waits = True

    def barrier(self) -> None:
        """Has the next `take` make an entry, even one that says nothing."""
        self.waits = True

    def take(self, now_ms: int) -> MetalogEntry | None:
        """The next entry, or None when there is nothing to say. What is taken counts as ordered. Raises TermFull: the positions
        do not suffice; nothing was taken, and never will be."""
        if not self.waits:
            return None
        start_pos, end_pos = self.end_pos, self._known_pos
        if end_pos > limits.POSITION_MAX:
            raise TermFull(
                f"{end_pos - start_pos} more records do not fit below position {limits.POSITION_MAX} of the term",
                end_pos=start_pos,
            )
        if now_ms > self.time_ms:
            self.time_ms = now_ms
        commands: tuple[Command, ...] = ()
        if self._commands:
            commands = self._fitting()
            for command in commands:
                if isinstance(command, Open):
                    self._known[command.shard] = make_end((command.shard, 0, 0))
        carried: tuple[Carried, ...] = ()
        if self._carried:
            carried = tuple(sorted(self._carried.values()))
            self._carried.clear()
        entry = MetalogEntry(start_pos, end_pos, self.time_ms, tuple(self._known.values()), commands, carried)
        if commands:
            self._took(commands)
        self.end_pos = end_pos
        self.waits = bool(self._commands)
        return entry

    def _fitting(self) -> tuple[Command, ...]:
        """Takes from the queue what one entry may hold: always at least one command."""
        waiting = self._commands
        fitting: list[Command] = []
        room = limits.METALOG_COMMANDS_BYTES
        while waiting and len(fitting) < limits.METALOG_COMMANDS:
            room -= command_bytes(waiting[0])
            if room < 0:
                break
            fitting.append(waiting.popleft())
        assert fitting, "every command fits into an entry alone"
        return tuple(fitting)

    def _took(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, Close):
                del self._shards[command.shard], self._known[command.shard]
            elif not isinstance(command, Open):
                self._orders -= 1
                self._order_bytes -= command_bytes(command)
