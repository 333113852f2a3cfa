"""What an engine that indexes some slots leaves out of what the logs say: rows of a snapshot. Pure.

Entries hold books of all slots of their term, and positions count all records. So a run of another slot keeps its positions and
joins nothing (`foreign_runs`); it is decided by engines that index its slot. A snapshot is of all slots: what is foreign of it is
dropped when it is loaded.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from boki_common.ids import slot_of
from boki_logbook.index.sorted_run import U64
from boki_logbook.index.trim_marks import MarkColumns
from boki_logbook.state.state_snapshot import PairColumns, RowColumns, StateSnapshot
from boki_logbook.writers.verdict import Verdicts


def indexed(book: int, slots: int) -> bool:
    """Whether a book's slot is one of `slots`, the bits of a number."""
    return bool(slots >> slot_of(book) & 1)


def own_columns(snapshot: StateSnapshot, slots: int) -> StateSnapshot:
    """Rows, books and marks of some slots; terms are whole. For writers and floors see `keep_own`."""
    rows = (_own_rows(run, slots) for run in snapshot.rows)
    marks, book_marks = snapshot.marks, snapshot.book_marks
    kept, kept_marks = _own(marks.books, slots), _own(book_marks.books, slots)
    return replace(
        snapshot,
        rows=tuple(run for run in rows if len(run.seqnums)),
        marks=MarkColumns(*(column[kept] for column in marks)),
        book_marks=PairColumns(*(column[kept_marks] for column in book_marks)),
    )


def keep_own(verdicts: Verdicts, slots: int) -> None:
    """Forgets writers and floors of other slots."""
    verdicts.writers.keep(lambda book: indexed(book, slots))
    verdicts.writers.past.keep(lambda slot: bool(slots >> slot & 1))
    verdicts.restore(
        verdicts.writers,
        {book: floor for book, floor in verdicts.floors.items() if indexed(book, slots)},
    )


def _own(books: U64, slots: int) -> NDArray[np.bool_]:
    """Which of a column of books are of these slots; each book is looked at once."""
    known, at = np.unique(books, return_inverse=True)
    own = np.fromiter((indexed(book, slots) for book in known.tolist()), np.bool_, len(known))
    result: NDArray[np.bool_] = own[at]
    return result


def _own_rows(run: RowColumns, slots: int) -> RowColumns:
    kept = _own(run.books, slots)
    counts = np.diff(run.offsets)
    rows = np.repeat(kept, counts)
    offsets = np.zeros(int(kept.sum()) + 1, np.uint32)
    np.cumsum(counts[kept], out=offsets[1:])
    return RowColumns(run.books[kept], run.tags[kept], offsets, run.seqnums[rows], run.held[rows])
