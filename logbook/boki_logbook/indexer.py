"""Applies the order of the log: cut after cut, entry after entry, verdict, rows, answers (DESIGN §6.5-7, §7).

    metalog entry → ranges per shard → each data ledger entry, in order → verdicts → index rows, places, losers
                  → position advances → answers leave, readers wake

Rules:
- In order, always: an entry that is not here yet blocks everything behind it. Own entries are taken from memory, others
  from the header feed.
- The position moves by whole metalog entries, and answers leave only when it has passed their cut, so whoever was
  answered can read its record here.
- Rows, verdicts, losers and writer states depend on the log alone: a rebuild makes the same.

One turn of the loop applies some `TURN_RECORDS` records at most; nothing here runs per record except appends to arrays.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from boki_common import ids
from boki_common.engine_protocol import AnswerRow, Token
from boki_common.errors import CorruptData
from boki_common.ids import Position
from boki_common.record_batch import RecordBatch, Run
from boki_logbook.cache import BatchCache
from boki_logbook.entry_source import EntrySource
from boki_logbook.header_feed import HeaderFeed
from boki_logbook.index import Index
from boki_logbook.places import Places, ShardPlace, TermPlaces
from boki_logbook.ports import AppendSource
from boki_logbook.shard import OwnEntry
from boki_logbook.verdict import Answer, Verdicts
from boki_metalog.metalog_entry import Close, MetalogEntry, Open
from boki_metalog.progress import ProgressVector, ShardRange

TURN_RECORDS: Final = 16_384
"""Records applied before others get their turn; one metalog entry may exceed it."""
PENDING_CUTS: Final = 1_024
"""Metalog entries received and not applied, above which catching up waits."""


_NOWHERE: Final = Position(0, 0)


class OwnEntries(Protocol):
    """The entries that this engine wrote and still has in memory."""

    def wrote(self, term: int, number: int) -> bool: ...

    def take(self, term: int, number: int, entry: int) -> OwnEntry | None: ...


class _Cut:
    """One metalog entry that is not applied yet."""

    __slots__ = ("end_pos", "entry", "places", "ranges", "time_ms")

    def __init__(self, places: TermPlaces, entry: int, metalog_entry: MetalogEntry, ranges: list[ShardRange]) -> None:
        self.places = places
        self.entry = entry
        self.end_pos = metalog_entry.end_pos
        self.time_ms = metalog_entry.time_ms
        self.ranges = ranges


class _Given(NamedTuple):
    """An answer on its way to who sent the run."""

    run: Run
    answer: Answer


class _BatchStreams:
    """The index as conditions of one batch see it: its committed records join it on the way."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.newest = index.newest
        self.batch: RecordBatch
        self.first_seqnum = 0

    def commit(self, first: int, stop: int) -> None:
        self._index.add(self.batch, first, stop, self.first_seqnum)


class Indexer:
    """See the module. `advanced` is told which books have new records; `failed`, once, why nothing more can be applied.

    Invariant: `positions[log]` is the metalog position up to which everything is applied; `covered[log]` is the last
    seqnum below it.
    """

    def __init__(
        self,
        *,
        incarnation: str,
        own: OwnEntries,
        source: EntrySource,
        cache: BatchCache,
        advanced: Callable[[dict[int, None]], None],
        failed: Callable[[Exception], None],
        retry_first_s: float,
        retry_limit_s: float,
    ) -> None:
        self.index = Index()
        self.verdicts = Verdicts()
        self.places = Places()
        self.positions: dict[int, Position] = {}
        self.received: dict[int, Position] = {}
        self.covered: dict[int, int] = {}
        self.records = 0
        self.caching = False
        """Whether fetched entries go into the cache: not while rebuilding, when all of them come by."""
        self.ready = False
        """Whether this engine has seen what was ordered before it started: its own first OPEN is applied."""
        self._ready_at: Position | None = None
        self._incarnation = incarnation
        self._own = own
        self._cache = cache
        self._advanced = advanced
        self._failed = failed
        self._feed = HeaderFeed(source, self._resume, retry_first_s=retry_first_s, retry_limit_s=retry_limit_s)
        self._loop = asyncio.get_running_loop()
        self._streams = _BatchStreams(self.index)
        self._vector = ProgressVector()
        self._term: TermPlaces | None = None
        self._cuts: deque[_Cut] = deque()
        self._range = 0
        self._entry = 0
        self._books: dict[int, None] = {}
        self._cut_answers: list[tuple[AppendSource, list[_Given]]] = []
        self._answers: dict[AppendSource, list[_Given]] = {}
        self._turn_due = False
        self._closed = False
        self._room: list[tuple[int, asyncio.Future[None]]] = []

    # -- what the log says

    @property
    def pending(self) -> int:
        """Metalog entries received and not applied."""
        return len(self._cuts)

    def term_started(self, term: int, log: int) -> None:
        """Entries of a new term follow; everything before is applied."""
        assert not self._cuts, "a term starts when the one before is applied to its end"
        self._term = self.places.begin(term, log)
        self._vector = ProgressVector()
        self.positions[log] = self.received[log] = Position(term, 0)

    def ordered(self, term: int, entry: int, metalog_entry: MetalogEntry) -> None:
        """Takes the next metalog entry; `apply` does the rest. Raises CorruptData when it cannot follow."""
        places = self._term
        assert places is not None and places.term == term, f"metalog entry of term {term} out of order"
        assert self.received[places.log] == (term, entry), f"metalog entry {entry} of term {term} out of order"
        ranges = self._vector.apply(metalog_entry)
        for command in metalog_entry.commands:
            if isinstance(command, Open):
                place = ShardPlace(term, command.shard, command.ledger_id, command.incarnation)
                places.shards[command.shard] = place
                if command.incarnation == self._incarnation and self._ready_at is None:
                    self._ready_at = Position(term, entry + 1)
            elif isinstance(command, Close):
                places.shards[command.shard].closed = True
        for number, records_end, entries_end in metalog_entry.shards:
            place = places.shards[number]
            place.records_end, place.entries_end = records_end, entries_end
        self._cuts.append(_Cut(places, entry, metalog_entry, ranges))
        self.received[places.log] = Position(term, entry + 1)
        for one in ranges:
            if not self._own.wrote(term, one.shard):
                self._feed.want(places.shards[one.shard].ledger_id, one.first_entry, one.entry_count)

    async def room(self, cuts: int = PENDING_CUTS) -> None:
        """Waits until at most so many metalog entries are not applied."""
        if len(self._cuts) > cuts:
            future: asyncio.Future[None] = self._loop.create_future()
            self._room.append((cuts, future))
            await future

    # -- applying

    def apply(self) -> None:
        """Applies what can be, for one turn; then answers and wakes.

        Raises:
            CorruptData: the log and the entries disagree; nothing more is ever applied.
        """
        if self._closed:
            return
        try:
            self._apply_turn()
        except BaseException:
            self._closed = True
            raise

    def _apply_turn(self) -> None:
        cuts = self._cuts
        budget = TURN_RECORDS
        advanced = False
        while cuts and budget > 0 and self._apply_cut(cuts[0]):
            cut = cuts.popleft()
            self._passed(cut)
            budget -= sum(one.record_count for one in cut.ranges)
            advanced = True
        if advanced:
            self._tell()
        self._feed.fetch(blocked=bool(cuts) and budget > 0)
        if cuts and budget <= 0:
            self._resume()

    def _resume(self) -> None:
        """Goes on in another turn of the loop: entries arrived, or the last turn was long."""
        if not self._turn_due and not self._closed:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        try:
            self.apply()
        except Exception as error:  # noqa: BLE001 - there is no caller: the engine ends with it
            self._failed(error)

    def _apply_cut(self, cut: _Cut) -> bool:
        """Applies the entries of a cut from where it stopped; False when one is not here yet."""
        places = cut.places
        while self._range < len(cut.ranges):
            one = cut.ranges[self._range]
            ledger_id = places.shards[one.shard].ledger_id
            while self._entry < one.entry_count:
                entry = one.first_entry + self._entry
                own = self._own.take(places.term, one.shard, entry)
                batch = own.batch if own is not None else self._feed.take(ledger_id, entry)
                if batch is None:
                    return False
                if own is None:
                    self._check(batch, places, one, entry)
                if own is not None or self.caching:
                    self._cache.put(ledger_id, entry, batch)
                self._apply_entry(batch, places, cut.time_ms, one.shard, entry, own)
                self._entry += 1
            self._range += 1
            self._entry = 0
        self._range = 0
        if places.end_pos != cut.end_pos:
            raise CorruptData(
                f"metalog entry {cut.entry} of term {places.term} ends at position {cut.end_pos}, but the entries it "
                f"covers end at {places.end_pos}",
                expected=cut.end_pos,
                found=places.end_pos,
            )
        return True

    def _apply_entry(
        self, batch: RecordBatch, places: TermPlaces, time_ms: int, shard: int, entry: int, own: OwnEntry | None
    ) -> None:
        start = places.end_pos
        first_seqnum = ids.seqnum(places.term, start)
        streams = self._streams
        streams.batch, streams.first_seqnum = batch, first_seqnum
        decision = self.verdicts.decide(batch.runs, batch.expectations, first_seqnum, streams)
        places.add_entry(shard, entry, batch.record_count, time_ms)
        for first, stop in decision.losers:
            places.add_losers(start + first, start + stop)
        self.records += batch.record_count
        books = self._books
        for run in batch.runs:
            books[run.book] = None
        if own is not None:
            self._keep_answers(own, batch.runs, decision.answers)

    def _keep_answers(self, own: OwnEntry, runs: Sequence[Run], answers: Sequence[Answer]) -> None:
        """Sorts the answers on an entry by who sent the runs; they stay here until the cut is passed."""
        at = runs_stop = 0
        for piece in own.pieces:
            runs_stop += len(piece.batch.runs)
            begin = at
            while at < len(answers) and answers[at].run < runs_stop:
                at += 1
            if begin < at:
                given = [_Given(runs[answer.run], answer) for answer in answers[begin:at]]
                self._cut_answers.append((piece.source, given))

    def _check(self, batch: RecordBatch, places: TermPlaces, one: ShardRange, entry: int) -> None:
        """An entry that was read must be the one that the cut means."""
        found = batch.term, batch.shard
        if found != (places.term, one.shard):
            raise CorruptData(
                f"expected entry {entry} of shard {one.shard} of term {places.term}, found one of shard {batch.shard} of "
                f"term {batch.term}",
                expected=[places.term, one.shard],
                found=list(found),
            )

    # -- telling

    def _passed(self, cut: _Cut) -> None:
        places = cut.places
        self.positions[places.log] = Position(places.term, cut.entry + 1)
        if self._ready_at is not None and not self.ready:
            self.ready = self.positions[places.log] >= self._ready_at
        if places.end_pos:
            self.covered[places.log] = ids.seqnum(places.term, places.end_pos - 1)
        for source, given in self._cut_answers:
            self._answers.setdefault(source, []).extend(given)
        self._cut_answers.clear()

    def _tell(self) -> None:
        """Answers and wakes those who waited for the new position."""
        answers, self._answers = self._answers, {}
        if answers:
            assert self._term is not None
            position = self.covered[self._term.log]
            for source, given in answers.items():
                source.answered(
                    self.positions,
                    [
                        AnswerRow(
                            run.book,
                            run.writer,
                            answer.first,
                            answer.first_seqnum,
                            position,
                            answer.count,
                            answer.verdict,
                            answer.actual,
                        )
                        for run, answer in given
                    ],
                )
        books, self._books = self._books, {}
        self._advanced(books)
        if self._room:
            for cuts, future in self._room:
                if len(self._cuts) <= cuts and not future.done():
                    future.set_result(None)
            self._room = [one for one in self._room if not one[1].done()]

    def reached(self, token: Token) -> bool:
        """Whether everything that a session has seen is applied here, and what was ordered before this engine started."""
        positions = self.positions
        return self.ready and all(position <= positions.get(log, _NOWHERE) for log, position in token.items())

    async def close(self) -> None:
        self._closed = True
        await self._feed.close()
