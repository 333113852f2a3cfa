"""All writers that the log knows (DESIGN §6.9): rows of numbers where one is as nearly all are, objects where it is not. Pure.

    rows      book u64 | writer 16 B | last | floor | first seqnum of the answers kept | time_ms | mark           64 bytes
    hints     some bits of a writer → the row that had them last: where to look before asking the dict of all rows
    states    `WriterState` of named writers, and of those with several answers kept

A session writer that awaits nothing before its last run has one row, which is one line of the processor's cache. Of many
writers, `commit_unconditional` looks up and changes all rows together, so the memory is waited for once and not writer after writer
(writers are random: so are their bits); and the garbage collector sees none of them. What a row cannot say moves the writer
into `states` (`state`); it comes back where it is one of many again.

Readers see no difference: `look` is a copy of either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from boki_common import limits
from boki_common.records.record_batch import RUN_ROW
from boki_logbook.writers.writer_floors import WriterFloors
from boki_logbook.writers.writers import WriterState

WRITER_KEY: Final = Struct("<Q16s")
"""Book and writer, as the run column of a batch has them."""
_KEY_WORDS: Final = Struct("<QQQ")
LAST, FLOOR, SEQNUM, TIME, _MARK = range(3, 8)
"""Words of a row; before them is the key. The mark means something only within one call."""
ROW_WORDS: Final = 8
_ROW_SHIFT: Final = 3
_FIRST_ROWS: Final = 64
_HINTS_PER_ROW: Final = 8
_RUN_WORDS: Final = RUN_ROW.size // 8
LOOKED_AT: Final = 4_096
"""States that one search for idle ones looks at; of rows so many times `ROWS_LOOKED_AT`."""
ROWS_LOOKED_AT: Final = 64 * 1024

Rows: TypeAlias = NDArray[np.uint64]
_pack_key = WRITER_KEY.pack
_unpack_key = WRITER_KEY.unpack


class IdleWriter(NamedTuple):
    """A writer that was not active for long; `last` is what an EXPIRE of it must say."""

    book: int
    writer: bytes
    last: int


class WriterTable:
    """See the module.

    Invariant: a writer is in `rows` or in `states` or in neither; a row without numbers (`LAST` 0) is free; there are as many
    rows, free ones included, as a power of two.
    """

    def __init__(self) -> None:
        self.rows: dict[bytes, int] = {}
        """Key → where its row begins in `words`."""
        self.states: dict[bytes, WriterState] = {}
        self.past = WriterFloors()
        """What is kept of writers that were forgotten."""
        self._free: list[int] = []
        self._used = 0
        """Rows that were ever used: all others lie behind them."""
        self._looked: list[bytes] = []
        self._looked_rows = 0
        self._have(np.zeros((_FIRST_ROWS, ROW_WORDS), np.uint64))

    def _have(self, table: Rows) -> None:
        self._table = table
        self._hints = np.zeros(_HINTS_PER_ROW * len(table), np.int32)
        self.words = table.reshape(-1).data
        """All rows, word by word."""

    def __len__(self) -> int:
        return len(self.rows) + len(self.states)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Book and id of each."""
        for kept in (self.rows, self.states):
            for key in kept:
                yield _unpack_key(key)

    def __contains__(self, writer: tuple[int, bytes]) -> bool:
        key = _pack_key(*writer)
        return key in self.rows or key in self.states

    def items(self) -> Iterator[tuple[tuple[int, bytes], WriterState]]:
        """All that is known of each, for looking at."""
        for writer in list(self):
            state = self.look(*writer)
            assert state is not None
            yield writer, state

    # -- one writer

    def look(self, book: int, writer: bytes) -> WriterState | None:
        """What is known of a writer, for looking at."""
        key = _pack_key(book, writer)
        at = self.rows.get(key)
        return self.states.get(key) if at is None else self._state_of(at)

    def last(self, book: int, writer: bytes) -> int:
        """The last decided number of a writer, 0 if none."""
        key = _pack_key(book, writer)
        at = self.rows.get(key)
        if at is not None:
            return self.words[at + LAST]
        state = self.states.get(key)
        return 0 if state is None else state.last

    def state(self, key: bytes) -> WriterState | None:
        """What is known of a writer, for changing it in any way."""
        at = self.rows.pop(key, None)
        if at is None:
            return self.states.get(key)
        state = self.states[key] = self._state_of(at)
        self._free_row(at)
        return state

    def pop(self, key: bytes) -> WriterState | None:
        """Forgets a writer."""
        self.state(key)
        return self.states.pop(key, None)

    def add_row(self, key: bytes) -> int:
        """A row for a writer that is not known, without a number yet; returns where it begins in `words`."""
        if self._free:
            at = self._free.pop()
        else:
            at = self._used << _ROW_SHIFT
            if self._used == len(self._table):
                self._have(np.concatenate((self._table, np.zeros_like(self._table))))
            self._used += 1
        self.words[at], self.words[at + 1], self.words[at + 2] = _KEY_WORDS.unpack(key)
        self.rows[key] = at
        return at

    def _free_row(self, at: int) -> None:
        self.words[at + LAST] = 0  # no hint leads here
        self._free.append(at)

    def _state_of(self, at: int) -> WriterState:
        state, words = WriterState(named=False), self.words
        state.take_table_row(words[at + LAST], words[at + FLOOR], words[at + SEQNUM], words[at + TIME])
        return state

    # -- many writers

    def commit_unconditional(self, runs: NDArray[np.void], first_seqnum: int, time_ms: int) -> bool:
        """Decides runs (`RecordBatch.run_columns`) that are all the next numbers, without conditions that may fail, of different
        session writers that await nothing before them: all are committed, one after another.

        Returns:
            False when one of them is not so; then no writer knows anything more than before.
        """
        firsts, counts = runs["first"], runs["count"]
        if (
            (runs["low"] != firsts).any()
            or runs["flags"].any()
            or not counts.all()
            or counts.max() > limits.WINDOW_RECORDS
        ):
            return False
        at = self._find_rows(runs)
        if at is None:
            return False
        table, places = self._table, np.arange(len(at), dtype=np.uint64)
        if (table[at, LAST] + np.uint64(1) != firsts).any():
            return False
        table[at, _MARK] = places
        if (table[at, _MARK] != places).any():
            return False  # one writer twice
        table[at, LAST] = firsts + counts - np.uint64(1)
        table[at, FLOOR] = firsts
        table[at, SEQNUM] = np.cumsum(counts, dtype=np.uint64) - counts + np.uint64(first_seqnum)
        table[at, TIME] = time_ms
        return True

    def _find_rows(self, runs: NDArray[np.void]) -> NDArray[np.int64] | None:
        """The rows of the writers of runs; None where one of them can have none."""
        keys = runs.view(np.uint64).reshape(-1, _RUN_WORDS)[:, :LAST]
        hints = (keys[:, 1] & np.uint64(len(self._hints) - 1)).astype(np.int64)
        at = self._hints[hints].astype(np.int64)
        rows = self._table.take(at, axis=0)
        unknown = np.flatnonzero((rows[:, :LAST] != keys).any(axis=1) | (rows[:, LAST] == 0))
        if len(unknown):
            for place in unknown.tolist():
                row = self.row_of(keys[place].tobytes(), int(runs["first"][place]))
                if row is None:
                    return None
                at[place] = row >> _ROW_SHIFT
            hints = (keys[unknown, 1] & np.uint64(len(self._hints) - 1)).astype(np.int64)  # there may be more by now
            self._hints[hints] = at[unknown]
        return at

    def row_of(self, key: bytes, first: int) -> int | None:
        """The row of a writer that sends `first` next; it gets one if it is new, younger than those that were
        forgotten, and that is 1, or if a row can say all of it."""
        row = self.rows.get(key)
        if row is None:
            state = self.states.get(key)
            if state is None:
                if first != 1 or self.past.refuses(*_unpack_key(key)):
                    return None
            elif not state.fits_row:
                return None
            row = self.add_row(key)
            if state is not None:
                del self.states[key]
                self._table[row >> _ROW_SHIFT, LAST : TIME + 1] = state.as_table_row
        return row

    def idle(self, before_ms: int, limit: int, *, named: bool = False) -> list[IdleWriter]:
        """Up to `limit` writers that were not active since `before_ms` of cut time, session writers or named ones. Looks at some
        of them, and at those behind them when it is called again: whoever asks often enough gets all."""
        found = [] if named else self._idle_rows(before_ms, limit)
        if not self._looked:
            self._looked = list(reversed(self.states))
        for _ in range(min(LOOKED_AT, len(self._looked))):
            if len(found) >= limit:
                break
            key = self._looked.pop()
            state = self.states.get(key)
            if state is not None and state.named == named and state.time_ms < before_ms:
                found.append(IdleWriter._make((*_unpack_key(key), state.last)))
        return found

    def _idle_rows(self, before_ms: int, limit: int) -> list[IdleWriter]:
        first = self._looked_rows if self._looked_rows < self._used else 0
        stop = min(first + ROWS_LOOKED_AT, self._used)
        table = self._table[first:stop]
        idle = np.flatnonzero((table[:, TIME] < before_ms) & (table[:, LAST] > 0))[:limit]
        self._looked_rows = stop if len(idle) < limit else first + int(idle[-1]) + 1
        return [IdleWriter._make((*_unpack_key(row[:LAST].tobytes()), int(row[LAST]))) for row in table[idle]]

    # -- all writers

    def columns(self) -> Rows:
        """A copy of all rows, in no order."""
        table = self._table[: self._used]
        return table[table[:, LAST] > 0]

    def restore(self, rows: Rows, states: dict[tuple[int, bytes], WriterState]) -> None:
        """Takes rows as `columns` gives them, and all other writers."""
        size = max(_FIRST_ROWS, 1 << (len(rows) - 1).bit_length())
        table = np.zeros((size, ROW_WORDS), np.uint64)
        table[: len(rows)] = rows
        self._have(table)
        self._used, self._free, self._looked, self._looked_rows = len(rows), [], [], 0
        keys = (
            np.ascontiguousarray(table[: len(rows), :LAST]).view(np.dtype(f"V{WRITER_KEY.size}")).reshape(-1).tolist()
        )
        self.rows = dict(zip(keys, range(0, len(rows) << _ROW_SHIFT, ROW_WORDS), strict=True))
        self.states = {_pack_key(*key): state for key, state in states.items()}

    def keep(self, wanted: Callable[[int], bool]) -> None:
        """Forgets the writers of books that are not wanted."""
        for book, writer in list(self):
            if not wanted(book):
                self.pop(_pack_key(book, writer))
