"""Where the stored entries of one ledger lie: rows of entry, location and bytes of the body, kept small. Pure.

Rows are in ascending order of entry and kept in pieces of two forms:

    form    rows                                                           bytes a row
    even    ids without a gap, one behind another in a file, all of one    nothing; some 400 B a piece
            size: what one write of a checkpoint stored of a ledger
    loose   any                                                            12 where ids have no gap, else 20

Nearly all rows come in order and are put behind the others. Rows that come late, moves and removals cut the pieces at
their first and last entry and replace what lies between, so they cost what lies there and no more.

Invariants: every piece has rows; even ones from EVEN_ROWS to EVEN_ROWS_MOST, loose ones up to LOOSE_ROWS; two loose neighbours have
more than that together. Arrays of pieces belong to their `Places` alone: what is handed out is a copy.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from boki_bookie.formats.entry_log_format import ENTRY_HEADER_BYTES, OFFSET_BITS

EVEN_ROWS: Final = 64
"""Fewer rows are not worth a piece of their own."""
EVEN_ROWS_MOST: Final = 16_384
LOOSE_ROWS: Final = 4_096
"""Bounds what one late row has to copy."""

Columns = tuple[Sequence[int], Sequence[int], Sequence[int]]
"""Entries, locations and body bytes."""
Arrays: TypeAlias = "tuple[array[int], array[int], array[int]]"
"""The same, in arrays of 8, 8 and 4 bytes."""


class Place(NamedTuple):
    """Where a stored entry lies; `location` as in `entry_log_format`, `body_bytes` without the stored header."""

    entry_id: int
    location: int
    body_bytes: int


class Extent(NamedTuple):
    """Stored entries of one ledger without a gap between their ids, from `first` on, as columns."""

    first: int
    locations: Sequence[int]
    body_bytes: Sequence[int]


class Even(NamedTuple):
    """A piece of that form."""

    entries: range
    locations: range
    size: int
    """Of each body."""

    def part(self, start: int, stop: int) -> Even:
        return Even(self.entries[start:stop], self.locations[start:stop], self.size)

    def sizes(self, start: int, stop: int) -> array[int]:
        return array("I", (self.size,)) * (stop - start)

    def body_bytes(self) -> int:
        return self.size * len(self.entries)


class Loose(NamedTuple):
    """A piece of that form."""

    entries: range | array[int]
    locations: array[int]
    each: array[int]
    """Bytes of the bodies."""

    def part(self, start: int, stop: int) -> Loose:
        return Loose(self.entries[start:stop], self.locations[start:stop], self.each[start:stop])

    def sizes(self, start: int, stop: int) -> array[int]:
        return self.each[start:stop]

    def body_bytes(self) -> int:
        return sum(self.each)


Piece = Even | Loose
"""Rows that follow one another."""


def file_numbers(piece: Piece) -> set[int]:
    """Files of the entry log in which some of its rows lie."""
    if isinstance(piece, Even):
        return {piece.locations[0] >> OFFSET_BITS}
    return {location >> OFFSET_BITS for location in piece.locations}


class Places:
    """See the module."""

    __slots__ = ("_count", "_firsts", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._firsts = array("q")
        """The first entry of each piece."""
        self._count = 0

    def __len__(self) -> int:
        """How many entries are stored."""
        return self._count

    @property
    def last(self) -> int:
        """The highest entry; of none -1."""
        return self._pieces[-1].entries[-1] if self._pieces else -1

    def find(self, entry_id: int) -> Place | None:
        """Where the entry is stored, if it is."""
        number = bisect_right(self._firsts, entry_id) - 1
        if number < 0:
            return None
        piece = self._pieces[number]
        if isinstance(piece, Even):
            row = entry_id - piece.entries.start
            return Place(entry_id, piece.locations[row], piece.size) if row < len(piece.entries) else None
        row = _row_of(piece.entries, entry_id)
        return Place(entry_id, piece.locations[row], piece.each[row]) if row >= 0 else None

    def extent(self, first: int, count: int) -> Extent | None:
        """Stored entries from `first` on, up to a gap, at most `count`; more may follow. None where `first` is not stored."""
        number = bisect_right(self._firsts, first) - 1
        if number < 0:
            return None
        piece = self._pieces[number]
        entries = piece.entries
        row = _row_of(entries, first)
        if row < 0:
            return None
        found = min(count, len(entries) - row)
        if entries[row + found - 1] != first + found - 1:  # ids ascend: they are without a gap while these are equal
            found = bisect_right(range(found), 0, key=lambda index: entries[row + index] - index - first)
        return Extent(first, piece.locations[row : row + found], piece.sizes(row, row + found))

    def entries(self) -> list[int]:
        """All ids, ascending."""
        return [entry_id for piece in self._pieces for entry_id in piece.entries]

    def runs(self) -> Iterator[tuple[int, int]]:
        """First and last of ids without a gap between them, ascending."""
        return joined_runs(itertools.chain.from_iterable(_runs_of(piece.entries) for piece in self._pieces))

    def pieces(self) -> Iterator[Piece]:
        """All rows as they are now, whatever changes until the last one was given."""
        for piece in tuple(self._pieces):
            yield piece if isinstance(piece, Even) else piece.part(0, len(piece.entries))

    def columns(self) -> Arrays:
        """All rows, 20 B each."""
        entries, locations, sizes = array("q"), array("Q"), array("I")
        for piece in self._pieces:
            more = _columns_of(piece)
            entries += more[0]
            locations += more[1]
            sizes += more[2]
        return entries, locations, sizes

    def body_bytes(self) -> int:
        """Of all entries together."""
        return sum(piece.body_bytes() for piece in self._pieces)

    # -- changes

    def add(self, entries: Sequence[int], locations: Sequence[int], body_bytes: Sequence[int]) -> None:
        """Adds rows, ascending; a row of an entry that is there already is replaced."""
        columns = _array("q", entries), _array("Q", locations), _array("I", body_bytes)
        if not len(columns[0]):
            return
        if columns[0][0] > self.last:
            self._append(*columns)
            return
        start = 0
        for first, last in _runs_of(columns[0]):  # whatever is stored between the two is replaced
            stop = start + last - first + 1
            rows = _pieces_of(columns[0][start:stop], columns[1][start:stop], columns[2][start:stop])
            self._put(*self._between(first, last), rows)
            start = stop

    def _append(self, entries: array[int], locations: array[int], sizes: array[int]) -> None:
        """Adds rows behind the others."""
        rows, last = len(entries), self._pieces[-1] if self._pieces else None
        if rows < EVEN_ROWS and isinstance(last, Loose) and len(last.entries) + rows <= LOOSE_ROWS:
            self._pieces[-1] = _joined(last, Loose(entries, locations, sizes))
            self._count += rows
        else:
            self._put(len(self._pieces), len(self._pieces), _pieces_of(entries, locations, sizes))

    def forget(self, entry_id: int) -> bool:
        """The entry is not stored any more, as far as is known here; whether it was."""
        if self.find(entry_id) is None:
            return False
        self._put(*self._between(entry_id, entry_id), ())
        return True

    def move(self, entries: array[int], old: array[int], new: array[int]) -> Arrays:
        """Entries, ascending, lie at `new` from now on, if they still lie at `old`; returns the rows of those."""
        moved = array("q"), array("Q"), array("I")
        if not self._pieces or not len(entries):
            return moved
        low, high = self._between(entries[0], entries[-1])
        pieces: list[Piece] = []
        for piece in self._pieces[low:high]:
            start, stop = bisect_left(entries, piece.entries[0]), bisect_right(entries, piece.entries[-1])
            if start == stop:
                pieces.append(piece)
                continue
            rows = _columns_of(piece)
            for number in range(start, stop):
                row = _row_of(piece.entries, entries[number])
                if row >= 0 and rows[1][row] == old[number]:
                    rows[1][row] = new[number]
                    for column, values in zip(moved, rows, strict=True):
                        column.append(values[row])
            pieces += _pieces_of(*rows)
        self._put(low, high, pieces)
        return moved

    def _between(self, first: int, last: int) -> tuple[int, int]:
        """The pieces, from one number up to another, that hold the rows of these entries and no others."""
        return self._boundary(first), self._boundary(last + 1)

    def _boundary(self, entry_id: int) -> int:
        """The number of the piece that begins with this entry or the next one held; one that holds both sides is cut."""
        number = bisect_left(self._firsts, entry_id)
        if number:
            piece = self._pieces[number - 1]
            row, rows = bisect_left(piece.entries, entry_id), len(piece.entries)
            if row < rows:
                self._pieces[number - 1 : number] = piece.part(0, row), piece.part(row, rows)
                self._firsts.insert(number, piece.entries[row])
        return number

    def _put(self, low: int, high: int, pieces: Iterable[Piece]) -> None:
        """Instead of the pieces from `low` up to `high`; with what a cut left beside them they are brought into form."""
        begin, end = max(low - 2, 0), high + 2
        self._count -= sum(len(piece.entries) for piece in self._pieces[begin:end])
        tidy = _tidied([*self._pieces[begin:low], *pieces, *self._pieces[high:end]])
        self._count += sum(len(piece.entries) for piece in tidy)
        self._pieces[begin:end] = tidy
        self._firsts[begin:end] = array("q", [piece.entries[0] for piece in tidy])

    def check_invariants(self) -> None:
        """Asserts what the module promises."""
        assert self._count == sum(len(piece.entries) for piece in self._pieces)
        assert list(self._firsts) == [piece.entries[0] for piece in self._pieces]
        assert all(left < right for left, right in itertools.pairwise(self.entries()))
        for piece in self._pieces:
            assert len(piece.entries) == len(piece.locations)
            if isinstance(piece, Even):
                assert EVEN_ROWS <= len(piece.entries) <= EVEN_ROWS_MOST
            else:
                assert 0 < len(piece.entries) == len(piece.each) <= LOOSE_ROWS
        for left, right in itertools.pairwise(self._pieces):
            assert isinstance(left, Even) or isinstance(right, Even) or len(left[1]) + len(right[1]) > LOOSE_ROWS


def _array(kind: str, values: Sequence[int]) -> array[int]:
    return values if isinstance(values, array) else array(kind, values)


def _row_of(entries: range | array[int], entry_id: int) -> int:
    """Which row is of this entry, -1 for none; the first row is of it or of a lower one."""
    row = entry_id - entries[0]  # there, unless entries are missing before it
    if row < len(entries) and entries[row] == entry_id:
        return row
    row = bisect_left(entries, entry_id)
    return row if row < len(entries) and entries[row] == entry_id else -1


def _columns_of(piece: Piece) -> Arrays:
    return array("q", piece.entries), array("Q", piece.locations), piece.sizes(0, len(piece.entries))


def _runs_of(entries: range | array[int]) -> Iterator[tuple[int, int]]:
    """First and last of ids without a gap."""
    if entries[-1] - entries[0] == len(entries) - 1:
        return iter(((entries[0], entries[-1]),))
    return joined_runs((entry_id, entry_id) for entry_id in entries)


def joined_runs(parts: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Joins those without a gap between them."""
    first: int | None = None
    last = -1
    for part_first, part_last in parts:
        if first is not None and part_first != last + 1:
            yield first, last
            first = None
        if first is None:
            first = part_first
        last = part_last
    if first is not None:
        yield first, last


def _pieces_of(entries: array[int], locations: array[int], sizes: array[int]) -> Iterator[Piece]:
    """The rows in pieces of their own."""
    loose_from = row = 0
    while row < len(entries):
        even = _even_from(row, entries, locations, sizes)
        if even is None:
            row += EVEN_ROWS
            continue
        yield from _loose(entries[loose_from:row], locations[loose_from:row], sizes[loose_from:row])
        yield even
        loose_from = row = row + len(even.entries)
    yield from _loose(entries[loose_from:], locations[loose_from:], sizes[loose_from:])


def _even_from(row: int, entries: array[int], locations: array[int], sizes: array[int]) -> Even | None:
    """The longest even piece that begins with this row, if it has EVEN_ROWS.

    That bodies of one size lie one behind another follows from the first and the last of them, for entries never overlap in
    a file. This only finds the end: the rows between are compared one by one.
    """
    first, location, size = entries[row], locations[row], sizes[row]
    stride = ENTRY_HEADER_BYTES + size

    def breaks(other: int) -> bool:
        rows = other - row
        return entries[other] - first != rows or locations[other] - location != rows * stride or sizes[other] != size

    last = row + EVEN_ROWS - 1
    if last >= len(entries) or breaks(last):
        return None
    end = min(row + EVEN_ROWS_MOST, len(entries))
    rows = bisect_left(range(last, end), True, key=breaks) + EVEN_ROWS - 1
    stop = row + rows
    even = Even(range(first, first + rows), range(location, location + rows * stride, stride), size)
    if locations[row:stop] != array("Q", even.locations) or sizes[row:stop] != even.sizes(0, rows):
        return None
    return even


def _loose(entries: array[int], locations: array[int], sizes: array[int]) -> Iterator[Loose]:
    for start in range(0, len(entries), LOOSE_ROWS):
        ids = entries[start : start + LOOSE_ROWS]
        gapless = ids[-1] - ids[0] == len(ids) - 1
        yield Loose(
            range(ids[0], ids[-1] + 1) if gapless else ids,
            locations[start : start + LOOSE_ROWS],
            sizes[start : start + LOOSE_ROWS],
        )


def _tidied(pieces: Iterable[Piece]) -> list[Piece]:
    """Neighbours in form, as the module's invariants have it."""
    tidy: list[Piece] = []
    for piece in pieces:
        rows = len(piece.entries)
        if isinstance(piece, Even):
            if rows >= EVEN_ROWS:
                tidy.append(piece)
                continue
            piece = Loose(piece.entries, array("Q", piece.locations), piece.sizes(0, rows))
        last = tidy[-1] if tidy else None
        if isinstance(last, Loose) and len(last.entries) + rows <= LOOSE_ROWS:
            tidy[-1] = _joined(last, piece)
        else:
            tidy.append(piece)
    return tidy


def _joined(left: Loose, right: Loose) -> Loose:
    """In the arrays of the left one."""
    entries = left.entries
    if isinstance(entries, range) and right.entries[-1] - entries[0] == len(entries) + len(right.entries) - 1:
        entries = range(entries.start, right.entries[-1] + 1)
    else:
        entries = array("q", entries) if isinstance(entries, range) else entries
        entries.extend(right.entries)
    left.locations.extend(right.locations)
    left.each.extend(right.each)
    return Loose(entries, left.locations, left.each)
