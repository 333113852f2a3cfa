"""Applies the order of one log: cut after cut, entry after entry, verdict, rows, answers (DESIGN §6.5-7, §7).

    metalog entry → ranges per shard → each data ledger entry, in order → verdicts → index rows, places, losers
                  → commands → position advances → answers leave, readers wake

An engine has one for each log; they share the decision state of all books and the frontier.

Rules:
- In order, always: an entry that is not here yet blocks everything behind it. Own entries are taken from memory, others
  from the header feed. A term is also blocked until the terms of other logs that it comes after are applied (`frontier`).
- What is blocked here blocks no other log, but for terms that come after it.
- The position moves by whole metalog entries, and answers leave only when it has passed their cut, so whoever was
  answered can read its record here. Rows of a cut that is not passed are there, and shown to nobody: a reply claims what
  is passed, and other engines would be asked for no more.
- Answers leave as soon as the verdicts are there; rows of the last entry are made after that, in the same callback: nobody
  who heard an answer can ask before it ends.
- Rows, verdicts, losers and writer states depend on the log alone: a rebuild makes the same.
- An entry that is not what its cut means is one that cannot be read (`entry_fit`): it blocks, is reported, and may be given up.
- What an entry has of books that its term does not order joins nothing, is reported, and holds up nobody (`foreign_runs`).
- Entries that LOST commands gave up, and that no snapshot has, are passed over, also when they can be had: so do all engines.
  Their records keep their positions; who sent them is told of a gap (`answers_due`), and sends them again.

One turn of the loop applies some `TURN_RECORDS` records at most; nothing here runs per record except appends to arrays.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from boki_common.ids import Position, make_position
from boki_common.logs import get_logger
from boki_common.records.record_batch import RecordBatch
from boki_logbook.append.shard import OwnEntry
from boki_logbook.apply.answers_due import AnswersDue
from boki_logbook.apply.given_up import GivenUp
from boki_logbook.apply.header_feed import HeaderFeed
from boki_logbook.index.places import ShardPlace, TermPlaces
from boki_logbook.peers.pushed_headers import PushedHeaders
from boki_logbook.read.cache import BatchCache
from boki_logbook.read.entry_fit import Fit, fits
from boki_logbook.read.entry_source import EntrySource
from boki_logbook.read.parked_reads import Arrival
from boki_logbook.state.frontier import Frontier
from boki_logbook.state.snapshot_format import LogPoint
from boki_logbook.state.state import DecisionState, StateDisagrees
from boki_metalog.entries.metalog_entry import Close, Lost, MetalogEntry, Open, ShardEnd
from boki_metalog.entries.progress import Order, ProgressVector, ShardRange
from boki_metalog.follow.follower import TermInfo

TURN_RECORDS: Final = 4_096
"""Records applied before others get their turn, in 2 to 8 ms; one metalog entry may exceed it."""
PENDING_CUTS: Final = 1_024
"""Metalog entries received and not applied, above which catching up waits."""

_log = get_logger("engine.indexer")


class OwnEntries(Protocol):
    """The entries that this engine wrote and still has in memory."""

    @property
    def shards(self) -> Mapping[tuple[int, int], object]:
        """Term and number of the shards that it wrote, as long as something of them may come to be taken."""

    def take(self, term: int, number: int, entry: int) -> OwnEntry | None: ...


class _Term:
    """A term that was received; `places` once it is its turn, with the shards that are known by then and after."""

    __slots__ = ("info", "places", "shards")

    def __init__(self, info: TermInfo) -> None:
        self.info = info
        self.shards: dict[int, ShardPlace] = {}
        self.places: TermPlaces | None = None


class _Cut:
    """One metalog entry that is not applied yet."""

    __slots__ = ("commands", "end_pos", "entry", "next_shard", "open_shards", "ranges", "records", "term", "time_ms")

    def __init__(self, term: _Term, entry: int, metalog_entry: MetalogEntry, vector: ProgressVector) -> None:
        """Becomes the vector's next entry. Raises CorruptData when it cannot follow."""
        self.ranges = vector.apply(metalog_entry)
        self.open_shards = vector.ends
        self.next_shard = vector.next_shard
        self.term = term
        self.entry = entry
        self.end_pos = metalog_entry.end_pos
        self.records = metalog_entry.end_pos - metalog_entry.start_pos
        self.time_ms = metalog_entry.time_ms
        self.commands: Sequence[Order] = ()


class _Begin(NamedTuple):
    """Entries of a term follow."""

    term: _Term


class _End(NamedTuple):
    """The entries of a term are complete; `term` 0: those of all terms, the log has none now."""

    term: int


class Indexer:
    """See the module. `advanced` is told which batches are new, and of each new position; `term_applied`, that a
    term is applied to its end; `failed`, once, why nothing more can be applied.

    Invariant: `frontier.positions[log]` is the metalog position up to which everything is applied.
    """

    def __init__(
        self,
        *,
        log: int,
        incarnation: str,
        state: DecisionState,
        frontier: Frontier,
        own: OwnEntries,
        given_up: GivenUp,
        source: EntrySource,
        pushed: PushedHeaders,
        cache: BatchCache,
        advanced: Callable[[Sequence[Arrival]], None],
        term_applied: Callable[[], None],
        failed: Callable[[Exception], None],
        retry_first_s: float,
        retry_limit_s: float,
    ) -> None:
        self.log = log
        self.caching = False
        """Whether fetched entries go into the cache: not while rebuilding, when all of them come by."""
        self.ready = False
        """Whether what was ordered before this engine started is applied: its own first OPEN is, or the log has no term."""
        self._ready_at: Position | None = None
        self._incarnation = incarnation
        self._state = state
        self._frontier = frontier
        self._own = own
        self._given_up = given_up
        self._cache = cache
        self._advanced = advanced
        self._term_applied = term_applied
        self._failed = failed
        self._feed = HeaderFeed(
            source, self.resume, pushed=pushed, retry_first_s=retry_first_s, retry_limit_s=retry_limit_s
        )
        self._loop = asyncio.get_running_loop()
        self._vector = ProgressVector()
        self._term: _Term | None = None
        self._terms: dict[int, _Term] = {}
        """Terms received and not applied to their ends."""
        self._cuts: deque[_Cut | _Begin | _End] = deque()
        self._range = 0
        self._entry = 0
        self._skipped: int | None = None
        """The first of the entries just passed over as lost; how many records they had is not known yet."""
        self._arrived: list[Arrival] = []
        """What was applied since the last telling, and of the cut that is being applied. One item an entry."""
        self._arrived_by_cut: list[Arrival] = []
        self._answers = AnswersDue()
        self._turn_due = False
        self._closed = False
        self._room: list[tuple[int, asyncio.Future[None]]] = []
        self._applied: _Cut | LogPoint | None = None
        """The last metalog entry of the running term that is applied, or where the snapshot was; None: none is yet."""
        self._held = False

    # -- snapshots

    def restore(self, point: LogPoint) -> None:
        """Goes on where a snapshot was; before anything is told. State and frontier are there already."""
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
        return not (self._range or self._entry)

    def hold(self) -> None:
        """Begins no metalog entry, until `release`."""
        self._held = True

    def release(self) -> None:
        """Goes on."""
        self._held = False
        self.resume()

    # -- what the log says

    @property
    def pending(self) -> int:
        """Metalog entries, and beginnings and ends of terms, received and not applied."""
        return len(self._cuts)

    def term_started(self, info: TermInfo) -> None:
        """Entries of a new term follow."""
        self._term = self._terms[info.term] = _Term(info)
        point = self._applied
        if isinstance(point, LogPoint) and point.term == info.term:
            self._go_on(self._term, point)
            return
        self._vector = ProgressVector()
        self._frontier.received[self.log] = Position(info.term, 0)
        self._cuts.append(_Begin(self._term))
        self.apply()

    def _go_on(self, term: _Term, point: LogPoint) -> None:
        """The term is the one that the snapshot was taken in: its next entries follow."""
        term.places = self._state.places.terms[point.term]
        term.shards = term.places.shards
        for shard in term.shards.values():
            self._heed(shard)
        ends = (ShardEnd(*end) for end in point.shards)
        self._vector = ProgressVector(point.end_pos, point.time_ms, ends, point.next_shard)

    @property
    def shards(self) -> dict[int, ShardPlace]:
        """The shards of the term that is being received."""
        return {} if self._term is None else self._term.shards

    def term_ended(self, term: int) -> None:
        """All entries of the term have come."""
        self._cuts.append(_End(term))
        self.apply()

    def idle(self) -> None:
        """The log has no term now, and all entries of the terms it had have come."""
        self._cuts.append(_End(0))
        self.apply()

    def complete(self) -> None:
        """All that was ever ordered has come: who waited to have it has it once it is applied."""
        if not self.ready:
            self.idle()

    def ordered(self, term: int, entry: int, metalog_entry: MetalogEntry) -> None:
        """Takes the next metalog entry; `apply` does the rest. Raises CorruptData when it cannot follow."""
        receiving, received = self._term, self._frontier.received
        assert receiving is not None and receiving.info.term == term, f"metalog entry of term {term} out of order"
        assert received[self.log] == (term, entry), f"metalog entry {entry} of term {term} out of order"
        cut = _Cut(receiving, entry, metalog_entry, self._vector)
        if metalog_entry.commands:
            self._commands(cut, metalog_entry)
        shards = receiving.shards
        for number, records_end, entries_end in metalog_entry.shards:
            shard = shards[number]
            shard.records_end, shard.entries_end = records_end, entries_end
        self._cuts.append(cut)
        received[self.log] = make_position((term, entry + 1))
        for number, body in metalog_entry.carried:
            if (term, number) not in self._own.shards:
                ledger_id, carried = shards[number].ledger_id, shards[number].entries_end - 1
                batch = self._feed.carried(ledger_id, carried, body)
                if batch is not None:
                    self._cache.put(ledger_id, carried, batch)
        for one in cut.ranges:
            if (term, one.shard) not in self._own.shards:
                self._feed.want(shards[one.shard].ledger_id, one.first_entry, one.entry_count)

    def _commands(self, cut: _Cut, metalog_entry: MetalogEntry) -> None:
        """Shards open and close as soon as it is said; what changes the state waits for its place in the order."""
        term, shards = cut.term.info.term, cut.term.shards
        later: list[Order] = []
        for command in metalog_entry.commands:
            if isinstance(command, Open):
                opened = shards[command.shard] = ShardPlace(term, command.shard, command.ledger_id, command.incarnation)
                self._heed(opened)
                if command.incarnation == self._incarnation and self._ready_at is None:
                    self._ready_at = Position(term, cut.entry + 1)
            elif isinstance(command, Close):
                shards[command.shard].closed = True
            else:
                later.append(command)
        cut.commands = later

    def lost(self, command: Lost) -> None:
        """A LOST command was ordered, and is among those given up: what is waited for in vain need not be any longer."""
        term = self._terms.get(command.term)
        shard = None if term is None else term.shards.get(command.shard)
        if shard is not None:
            self._heed(shard)

    def _heed(self, shard: ShardPlace) -> None:
        """What is known to be given up of a shard need not be found."""
        for command in self._given_up.of(shard.term, shard.number):
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
        mark = self._cuts[0] if self._cuts else None
        ended = self._frontier.ended
        return [term for term in mark.term.info.after if term not in ended] if isinstance(mark, _Begin) else []

    @property
    def needs_snapshot(self) -> bool:
        """Whether the next entry was given up, and only a snapshot has what the log decided by it."""
        cut = self._cuts[0] if self._cuts else None
        if not isinstance(cut, _Cut) or cut.term.places is None or self._range == len(cut.ranges):
            return False
        one = cut.ranges[self._range]
        return self._given_up.in_snapshot_only(cut.term.info.term, one.shard, one.first_entry + self._entry)

    async def room(self, cuts: int = PENDING_CUTS) -> None:
        """Waits until at most so many metalog entries are not applied. While an entry cannot be read nobody waits: what gives
        it up may be ordered long after it."""
        if len(self._cuts) > cuts and not self._feed.waits:
            future: asyncio.Future[None] = self._loop.create_future()
            self._room.append((cuts, future))
            await future

    # -- applying

    def apply(self) -> None:
        """Applies what can be, for one turn; answers as soon as it is decided, then wakes.

        Raises:
            StateDisagrees: this engine has applied, or written, what the log says otherwise; nothing more is ever applied.
        """
        if self._closed:
            return
        cuts = self._cuts
        budget = TURN_RECORDS
        advanced = False
        try:
            while cuts and budget > 0:
                cut = cuts[0]
                if self._held and self.between_entries:
                    break
                if isinstance(cut, _Cut):
                    if not self._apply_cut(cut):
                        break
                    budget -= cut.records
                elif not self._turn_of_term(cut):
                    break
                cuts.popleft()
                advanced = True
            if advanced and self._answers.waiting:  # they leave first: nobody can ask before this callback has ended
                self._answers.tell({self.log: self._frontier.positions[self.log]}, self._frontier.covered[self.log])
            self._state.settle()
            if advanced:
                self._tell()
            elif self._room:
                self._let_in()
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
            self._failed(error)

    def _turn_of_term(self, mark: _Begin | _End) -> bool:
        """A term begins, if those it comes after are applied; or it ended."""
        if isinstance(mark, _Begin):
            info = mark.term.info
            if not self._frontier.may_begin(info.after):
                return False
            mark.term.places = self._state.begin_term(info.term, info.log, info.slots)
            mark.term.places.shards = mark.term.shards
            self._applied = None
            self._frontier.begin(info.term, info.log, info.slots, info.after)
        elif mark.term:
            for shard in self._terms.pop(mark.term).shards.values():
                self._feed.over(shard.ledger_id)
            self._state.end_term(mark.term)
            self._frontier.end(mark.term, self.log)
            self._term_applied()
        else:
            self.ready = True
        return True

    def _apply_cut(self, cut: _Cut) -> bool:
        """Applies the entries of a cut from where it stopped; False when one is not here yet."""
        places = cut.term.places
        assert places is not None, "its term has begun"
        term, given_up = places.term, self._given_up
        for one in cut.ranges[self._range :]:
            ledger_id = places.shards[one.shard].ledger_id
            for entry in range(one.first_entry + self._entry, one.first_entry + one.entry_count):
                own = self._own.take(term, one.shard, entry)
                batch = own.batch if own is not None else self._feed.take(ledger_id, entry)
                if batch is None and not self._feed.take_lost(ledger_id, entry):
                    return False
                if batch is None or (given_up.commands and given_up.joins_nothing(term, one.shard, entry)):
                    self._skipped = entry if self._skipped is None else self._skipped
                    if own is not None:
                        self._answers.passed_over(own, self._state.writer_last)
                else:
                    if not self._is_meant(batch, own, places, one, entry):
                        return False
                    if self._skipped is not None:
                        end_pos = batch.first_local_id - one.first_record + one.first_pos
                        self._pass_over(cut, places, one, entry, end_pos)
                    if own is not None or (self.caching and batch.has_data):
                        self._cache.put(ledger_id, entry, batch)
                    self._arrived_by_cut.append(Arrival(batch, places.first_seqnum + places.end_pos))
                    decision = self._state.decide_entry(
                        places, batch, shard=one.shard, entry=entry, time_ms=cut.time_ms
                    )
                    if decision.foreign is not None:
                        _log.error("what the term does not order joined nothing", log=self.log, found=decision.foreign)
                    if own is not None:
                        self._answers.decided(own, decision)
                self._entry += 1
            if self._skipped is not None:
                self._pass_over(cut, places, one, one.first_entry + one.entry_count, one.first_pos + one.record_count)
            self._range += 1
            self._entry = 0
        self._range = 0
        assert places.end_pos == cut.end_pos, "each entry was where its cut means it to be"
        for command in cut.commands:
            self._state.apply_command(places, command, time_ms=cut.time_ms)
        self._passed(cut, places)
        return True

    def _pass_over(self, cut: _Cut, places: TermPlaces, one: ShardRange, stop_entry: int, end_pos: int) -> None:
        """The records of lost entries, up to `stop_entry`, keep their positions, up to `end_pos`, and join no stream."""
        entry, self._skipped = self._skipped, None
        assert entry is not None
        records = end_pos - places.end_pos
        assert 0 <= records <= one.record_count, "what follows lost entries begins behind what was before them"
        self._state.pass_over(
            places, records, shard=one.shard, first_entry=entry, stop_entry=stop_entry, time_ms=cut.time_ms
        )

    def _is_meant(
        self, batch: RecordBatch, own: OwnEntry | None, places: TermPlaces, one: ShardRange, entry: int
    ) -> bool:
        """Whether an entry is the one that the cut means, and begins where the one before it ended; else it is looked for.

        Raises:
            StateDisagrees: it is our own.
        """
        first = batch.first_local_id if own is None else own.records_end - batch.record_count
        fit = Fit(
            places.term,
            one.shard,
            places.end_pos - one.first_pos + one.first_record,
            one.first_record + one.record_count,
            entry == one.first_entry + one.entry_count - 1,
            self._skipped is not None,
        )
        if fits(fit, first, first + batch.record_count) and (
            own is not None or (batch.term == places.term and batch.shard == one.shard)
        ):
            return True
        if own is not None:
            raise StateDisagrees(
                f"records {first} to below {first + batch.record_count} of shard {one.shard} of term {places.term}, as this engine "
                f"wrote them, are ordered as {fit}: beginning anew",
                term=places.term,
                shard=one.shard,
            )
        ledger_id = places.shards[one.shard].ledger_id
        self._cache.drop(ledger_id, entry)
        self._feed.unfit(ledger_id, entry, fit, fit.fault_of(batch) or "")
        return False

    # -- telling

    def _passed(self, cut: _Cut, places: TermPlaces) -> None:
        self._applied = cut
        position, end_pos = make_position((places.term, cut.entry + 1)), places.end_pos
        self._frontier.passed(self.log, position, places.first_seqnum + end_pos - 1 if end_pos else 0)
        if self._ready_at is not None and not self.ready:
            self.ready = position >= self._ready_at
        self._answers.cut_passed()
        self._arrived += self._arrived_by_cut
        self._arrived_by_cut = []

    def _tell(self) -> None:
        """Wakes those who waited for the new position."""
        arrived, self._arrived = self._arrived, []
        self._advanced(arrived)
        self._let_in()

    def _let_in(self) -> None:
        """Wakes those who waited for room."""
        if self._room:
            for cuts, future in self._room:
                if (len(self._cuts) <= cuts or self._feed.waits) and not future.done():
                    future.set_result(None)
            self._room = [one for one in self._room if not one[1].done()]

    async def close(self) -> None:
        self._closed = True
        await self._feed.close()
