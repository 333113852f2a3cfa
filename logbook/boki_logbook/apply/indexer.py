"""Applies the order of one log: cut after cut, entry after entry, verdict, rows, answers (DESIGN §6.5-7, §7).

    metalog entry → ranges per shard → each data ledger entry, in order → verdicts → index rows, places, losers
                  → commands → position advances → answers leave, readers wake

An engine has one for each log; they share the decision state of all books and the frontier.

Rules:
- In order, always: an entry that is not here yet blocks everything behind it. A term is also blocked until the terms of other
  logs that it comes after are applied (`frontier`).
- What is blocked here blocks no other log, but for terms that come after it.
- The position moves by whole metalog entries, and answers leave only when it has passed their cut, so whoever was
  answered can read its record here. Rows of a cut that is not passed are there, and read by nobody: a reply claims what
  is passed, and other engines would be asked for no more.
- Answers leave as soon as the verdicts are there; rows of the last entry are made after that, in the same callback: nobody
  who got an answer can ask before it ends.
- Rows, verdicts, losers and writer states depend on the log alone: a rebuild makes the same.
- What an entry has of books that its term does not order joins nothing, is reported, and holds up nobody (`foreign_runs`).

What came is in `received_order`, the entries of a cut are applied by `cut_applier`. One turn of the loop applies some
`TURN_RECORDS` records at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from boki_common.ids import Position, make_position
from boki_logbook.append.appender import Appender
from boki_logbook.apply.cut_applier import CutApplier
from boki_logbook.apply.engine_parts import EngineParts
from boki_logbook.apply.header_feed import HeaderFeed
from boki_logbook.apply.received_order import Begin, Cut, End, ReceivedOrder
from boki_logbook.index.places import ShardPlace
from boki_logbook.read.parked_reads import Arrival
from boki_logbook.state.snapshot_format import LogPoint
from boki_metalog.entries.metalog_entry import Lost, MetalogEntry
from boki_metalog.terms.term_info import TermInfo

TURN_RECORDS: Final = 4_096
"""Records applied before others get their turn, in 2 to 8 ms; one metalog entry may exceed it."""
PENDING_CUTS: Final = 1_024
"""Metalog entries received and not applied, above which catching up waits."""


class IndexerOwner(Protocol):
    """What an indexer reports to its engine."""

    def advanced(self, arrived: Sequence[Arrival]) -> None:
        """The position moved; these batches are new."""

    def term_applied(self) -> None:
        """A term is applied to its end."""

    def fail(self, error: BaseException) -> None:
        """Nothing more can be applied; called once."""


class Indexer:
    """See the module.

    Invariant: `frontier.positions[log]` is the metalog position up to which everything is applied.
    """

    def __init__(self, log: int, parts: EngineParts, own: Appender, owner: IndexerOwner) -> None:
        """`own`: has the entries that this engine wrote, while they are in memory."""
        self.log = log
        self.ready = False
        """Whether what was ordered before this engine started is applied: its own first OPEN is, or the log has no term."""
        self._ready_at: Position | None = None
        self._parts = parts
        self._state = parts.state
        self._frontier = parts.frontier
        self._own = own
        self._owner = owner
        self._feed = HeaderFeed(parts.source, self.resume, pushed=parts.pushed, backoff=parts.settings.backoff)
        self._loop = asyncio.get_running_loop()
        self._received = ReceivedOrder(log, parts.frontier)
        self._applier = CutApplier(log, parts, own, self._feed)
        self._arrived: list[Arrival] = []
        """What was applied since the engine was notified last. One item an entry."""
        self._turn_due = False
        self._closed = False
        self._room: list[tuple[int, asyncio.Future[None]]] = []
        self._applied: Cut | LogPoint | None = None
        """The last metalog entry of the running term that is applied, or where the snapshot was; None: none is yet."""
        self._paused = False

    # -- snapshots

    def restore(self, point: LogPoint) -> None:
        """Goes on where a snapshot was; before anything is ordered. State and frontier are there already."""
        self._applied = point

    def point(self) -> LogPoint | None:
        """How far the log is applied; None when nothing is. Only `between_entries`."""
        assert self.between_entries
        position = self._frontier.positions.get(self.log)
        if position is None:
            return None
        term, entry = position
        ended = term in self._frontier.ended
        covered = self._frontier.covered.get(self.log, 0)
        last = self._applied
        if isinstance(last, LogPoint):
            return last._replace(ended=ended, covered=covered)
        if last is None:
            return LogPoint(self.log, term, entry, ended, covered, 0, 0, 0, ())
        shards = tuple((end.shard, end.records_end, end.entries_end) for end in last.open_shards)
        return LogPoint(self.log, term, entry, ended, covered, last.end_pos, last.time_ms, last.next_shard, shards)

    @property
    def between_entries(self) -> bool:
        """Whether what is applied ends with a metalog entry."""
        return self._applier.between_cuts

    def pause(self) -> None:
        """Begins no metalog entry, until `unpause`."""
        self._paused = True

    def unpause(self) -> None:
        """Goes on."""
        self._paused = False
        self.resume()

    # -- events of the log

    @property
    def pending(self) -> int:
        """Metalog entries, and beginnings and ends of terms, received and not applied."""
        return len(self._received.queue)

    @property
    def shards(self) -> Mapping[int, ShardPlace]:
        """The shards of the term that is being received."""
        return self._received.shards

    def sequencer_up(self) -> None:
        """What is fetched from now on is worth keeping: it is new."""
        self._applier.caching = True

    def term_started(self, info: TermInfo) -> None:
        """Entries of a new term follow."""
        point = self._applied
        if isinstance(point, LogPoint) and point.term == info.term:
            places = self._state.places.terms[point.term]
            self._received.went_on(info, places, point)
            for shard in places.shards.values():
                self._skip_lost(shard)
            return
        self._received.begun(info)
        self.apply()

    def close_shards(self) -> list[int]:
        """The term that is being received is over: the numbers of those shards that were open still."""
        return self._received.close_shards()

    def term_ended(self, term: int) -> None:
        """All entries of the term have come."""
        self._received.ended(term)
        self.apply()

    def idle(self) -> None:
        """The log has no term now, and all entries of the terms it had have come."""
        self._received.ended(0)
        self.apply()

    def complete(self) -> None:
        """All that was ever ordered has come: who waited to have it has it once it is applied."""
        if not self.ready:
            self.idle()

    def ready_at(self, position: Position) -> None:
        """All that was ordered before this engine started is below a position of this log, as its sequencer proved."""
        if self._ready_at is None:
            self._ready_at = position
        self._look_ready(self._frontier.positions.get(self.log, Position(0, 0)))
        if self.ready:
            self._notify()

    def ordered(self, term: int, entry: int, metalog_entry: MetalogEntry) -> None:
        """Takes the next metalog entry; `apply` does the rest. Raises CorruptData when it cannot follow."""
        cut = self._received.ordered(term, entry, metalog_entry)
        for opened in cut.opened:
            self._skip_lost(opened)
            if opened.incarnation == self._parts.incarnation and self._ready_at is None:
                self._ready_at = Position(term, entry + 1)
        shards, own = cut.term.shards, self._own.shards
        for number, body in metalog_entry.carried:
            if (term, number) not in own:
                ledger_id, carried = shards[number].ledger_id, shards[number].entries_end - 1
                batch = self._feed.carried(ledger_id, carried, body)
                if batch is not None:
                    self._parts.cache.put(ledger_id, carried, batch)
        for one in cut.ranges:
            if (term, one.shard) not in own:
                self._feed.want(shards[one.shard].ledger_id, one.first_entry, one.entry_count)

    def lost(self, command: Lost) -> None:
        """A LOST command was ordered, and is among those given up: what is waited for in vain need not be any longer."""
        shard = self._received.shard(command.term, command.shard)
        if shard is not None:
            self._skip_lost(shard)

    def _skip_lost(self, shard: ShardPlace) -> None:
        """What is known to be given up of a shard need not be found."""
        for command in self._parts.given_up.of(shard.term, shard.number):
            if not command.indexed:
                self._feed.lost(shard.ledger_id, command.first_entry, command.stop_entry)

    @property
    def unreadable(self) -> list[dict[str, Any]]:
        """Entries that are ordered and cannot be read now, as plain values."""
        return self._feed.unreadable

    @property
    def foreign(self) -> list[str]:
        """The newest entries that had what their terms do not order, in words."""
        terms = self._state.places.terms
        return [str(one) for one in self._state.foreign if terms[one.term].log == self.log]

    @property
    def waits_for_terms(self) -> list[int]:
        """Terms of other logs that have to be applied to their ends before anything here is."""
        queue = self._received.queue
        mark = queue[0] if queue else None
        ended = self._frontier.ended
        return [term for term in mark.term.info.after if term not in ended] if isinstance(mark, Begin) else []

    @property
    def needs_snapshot(self) -> bool:
        """Whether the next entry was given up, and only a snapshot has what the log decided by it."""
        queue = self._received.queue
        cut = queue[0] if queue else None
        return isinstance(cut, Cut) and self._applier.needs_snapshot(cut)

    async def room(self, cuts: int = PENDING_CUTS) -> None:
        """Waits until at most so many metalog entries are not applied. While an entry cannot be read nobody waits: what gives
        it up may be ordered long after it."""
        if self.pending > cuts and not self._feed.waits:
            future: asyncio.Future[None] = self._loop.create_future()
            self._room.append((cuts, future))
            await future

    # -- applying

    def apply(self) -> None:
        """Applies what can be, for one turn; answers as soon as it is decided, then wakes. Raises StateDisagrees: this engine
        has applied, or written, what the log says otherwise; nothing more is ever applied."""
        if self._closed:
            return
        cuts, applier = self._received.queue, self._applier
        budget = TURN_RECORDS
        advanced = False
        try:
            while cuts and budget > 0:
                cut = cuts[0]
                if self._paused and applier.between_cuts:
                    break
                if isinstance(cut, Cut):
                    arrived = applier.apply(cut)
                    if arrived is None:
                        break
                    self._passed(cut, arrived)
                    budget -= cut.records
                elif not self._turn_of_term(cut):
                    break
                cuts.popleft()
                advanced = True
            if advanced and applier.answers.waiting:  # they leave first: nobody can ask before this callback has ended
                applier.answers.send({self.log: self._frontier.positions[self.log]}, self._frontier.covered[self.log])
            self._state.index_decided()
            if advanced:
                self._notify()
            elif self._room:
                self._wake_waiting()
        except BaseException:
            self._closed = True
            raise
        if self._feed.wanted:
            self._feed.fetch(blocked=bool(cuts) and budget > 0)
        if cuts and budget <= 0:
            self.resume()

    def resume(self) -> None:
        """Goes on in another turn of the loop: entries arrived, another log advanced, or the last turn was long."""
        if not self._turn_due and not self._closed:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        try:
            self.apply()
        except Exception as error:  # noqa: BLE001 - there is no caller: the engine ends with it
            self._owner.fail(error)

    def _turn_of_term(self, mark: Begin | End) -> bool:
        """A term begins, if those it comes after are applied; or it ended."""
        if isinstance(mark, Begin):
            info = mark.term.info
            if not self._frontier.may_begin(info.after):
                return False
            mark.term.apply_to(self._state.begin_term(info.term, info.log, info.slots))
            self._applied = None
            self._frontier.begin(info.term, info.log, info.slots, info.after)
            self._look_ready(Position(info.term, 0))
        elif mark.term:
            for shard in self._received.applied(mark.term):
                self._feed.over(shard.ledger_id)
            self._state.end_term(mark.term)
            self._frontier.end(mark.term, self.log)
            self._owner.term_applied()
        else:
            self.ready = True
        return True

    def _passed(self, cut: Cut, arrived: Sequence[Arrival]) -> None:
        places = cut.term.places
        assert places is not None, "its term has begun"
        self._applied = cut
        self._arrived += arrived
        position, end_pos = make_position((places.term, cut.entry + 1)), places.end_pos
        self._frontier.passed(self.log, position, places.first_seqnum + end_pos - 1 if end_pos else 0)
        self._look_ready(position)

    def _look_ready(self, position: Position) -> None:
        """The log is applied up to a position."""
        if self._ready_at is not None and not self.ready:
            self.ready = position >= self._ready_at

    def _notify(self) -> None:
        """Wakes those who waited for the new position."""
        arrived, self._arrived = self._arrived, []
        self._owner.advanced(arrived)
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        """Wakes those who waited for room."""
        if self._room:
            for cuts, future in self._room:
                if (self.pending <= cuts or self._feed.waits) and not future.done():
                    future.set_result(None)
            self._room = [one for one in self._room if not one[1].done()]

    async def close(self) -> None:
        self._closed = True
        await self._feed.close()
