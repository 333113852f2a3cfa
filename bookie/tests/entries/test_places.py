"""Places against a plain dict: whatever is added, forgotten and moved, the rows are those of the dict, in whatever pieces."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_bookie.entries.places import EVEN_ROWS, LOOSE_ROWS, Even, Place, Places, file_numbers, joined_runs
from boki_bookie.formats.entry_log_format import ENTRY_HEADER_BYTES, pack_location

Row = tuple[int, int]
"""Location and size."""


class Log:
    """Gives locations as an entry log does: one behind another, each write on a page of its own."""

    def __init__(self) -> None:
        self._offset = 4096
        self._file = 1

    def write(self, sizes: Sequence[int], *, new_file: bool = False) -> list[int]:
        if new_file:
            self._file, self._offset = self._file + 1, 4096
        locations = []
        for size in sizes:
            locations.append(pack_location(self._file, self._offset))
            self._offset += ENTRY_HEADER_BYTES + size
        self._offset += -self._offset % 4096
        return locations


def check(places: Places, model: dict[int, Row]) -> None:
    places.check_invariants()
    entries = sorted(model)
    columns = [list(column) for column in places.columns()]
    assert columns == [entries, [model[entry][0] for entry in entries], [model[entry][1] for entry in entries]]
    assert (places.entries(), len(places), places.last) == (entries, len(entries), entries[-1] if entries else -1)
    assert places.body_bytes() == sum(size for _, size in model.values())
    runs = list(places.runs())
    assert [entry for first, last in runs for entry in range(first, last + 1)] == entries
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(runs))
    found = {number for piece in places.pieces() for number in file_numbers(piece)}
    assert found == {location >> 40 for location, _ in model.values()}


def check_reads(places: Places, model: dict[int, Row], wanted: Sequence[int]) -> None:
    for entry in wanted:
        assert places.find(entry) == (Place(entry, *model[entry]) if entry in model else None)
        extent = places.extent(entry, 50)
        assert (extent is not None) == (entry in model)
        if extent is not None:
            assert extent.first == entry and 0 < len(extent.locations) <= 50
            rows = list(zip(extent.locations, extent.body_bytes, strict=True))
            assert rows == [model[entry + at] for at in range(len(rows))]


class Stretch(NamedTuple):
    """Rows to add: the first entry, the distances of ids behind it, sizes."""

    first: int
    gaps: list[int]
    sizes: list[int]


class Moved(NamedTuple):
    """Rows to move."""

    first: int
    rows: int
    distance: int


@st.composite
def stretches(draw: st.DrawFn) -> Stretch:
    count = draw(st.sampled_from([1, 2, EVEN_ROWS - 1, EVEN_ROWS, 3 * EVEN_ROWS + 1]))
    gaps = draw(st.sampled_from([[1], [1], [1], [2], [1, 1, 1, 5]]))
    sizes = draw(st.sampled_from([[100], [100], [7], [100, 7], [100] * 70 + [3]]))
    first = draw(st.integers(0, 600))
    return Stretch(
        first, [gaps[at % len(gaps)] for at in range(count)], [sizes[at % len(sizes)] for at in range(count)]
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), stretches()),
        st.tuples(st.just("append"), stretches()),
        st.tuples(st.just("forget"), st.integers(0, 700)),
        st.tuples(st.just("move"), st.builds(Moved, st.integers(0, 600), st.integers(1, 200), st.sampled_from([1, 3]))),
    ),
    max_size=12,
)


def rows_of(first: int, gaps: list[int]) -> Iterator[int]:
    for gap in gaps:
        yield first
        first += gap


@given(STEPS, st.lists(st.integers(0, 900), min_size=5, max_size=20))
def test_places_are_a_map_from_entries_to_rows(steps: list[tuple[str, object]], wanted: list[int]) -> None:
    places, model, log = Places(), dict[int, Row](), Log()
    for step, value in steps:
        if step in ("add", "append"):
            assert isinstance(value, Stretch)
            first, gaps, sizes = value
            entries = list(rows_of(first if step == "add" else max(model, default=-1) + 1, gaps))
            locations = log.write(sizes, new_file=len(sizes) == 1)
            places.add(entries, locations, sizes)
            model.update(zip(entries, zip(locations, sizes, strict=True), strict=True))
        elif step == "forget":
            assert isinstance(value, int)
            assert places.forget(value) == (model.pop(value, None) is not None)
        else:
            assert isinstance(value, Moved)
            move(places, model, log, value)
        check(places, model)
    check_reads(places, model, [*wanted, *model])


def move(places: Places, model: dict[int, Row], log: Log, moved_rows: Moved) -> None:
    """Every tenth row was changed since it was copied; ids that are not held are asked for too."""
    first, rows, distance = moved_rows
    entries = range(first, first + rows * distance, distance)
    old = [model.get(entry, (5, 0))[0] + (entry % 10 == 0) for entry in entries]
    new = log.write([model.get(entry, (0, 9))[1] for entry in entries], new_file=True)
    moved = places.move(array("q", entries), array("Q", old), array("Q", new))
    expected = [
        (entry, at, model[entry][1])
        for entry, before, at in zip(entries, old, new, strict=True)
        if entry in model and model[entry][0] == before
    ]
    assert list(zip(*moved, strict=True)) == expected
    model.update({entry: (at, size) for entry, at, size in expected})


@pytest.mark.parametrize(
    ("sizes", "most"),
    [([1024] * 1000, 0.6), ([1000 + at % 7 for at in range(1000)], 13.5)],
    ids=["next to nothing when of one size", "twelve bytes when of any size"],
)
def test_entries_that_a_checkpoint_wrote_without_gaps_take_up_little(sizes: list[int], most: float) -> None:
    places, log, entry = Places(), Log(), 0
    for _ in range(100):
        places.add(range(entry, entry + 1000), log.write(sizes), sizes)
        entry += 1000
    assert bytes_of(places) < most * entry
    assert most > 1 or all(isinstance(piece, Even) for piece in places.pieces())


def bytes_of(places: Places) -> int:
    total = 0
    for piece in places.pieces():
        total += sys.getsizeof(piece) + sys.getsizeof(piece.entries) + sys.getsizeof(piece.locations)
        total += 3 * 64 if isinstance(piece, Even) else sys.getsizeof(piece.each)
    return total


def test_a_piece_that_was_given_out_does_not_change() -> None:
    places, log = Places(), Log()
    places.add([1, 2, 3], log.write([5, 6, 7]), [5, 6, 7])
    pieces = places.pieces()
    given_out = next(pieces)
    places.add([4], log.write([8]), [8])
    places.forget(2)
    assert (list(given_out.entries), len(given_out.locations), list(given_out.sizes(0, 3))) == ([1, 2, 3], 3, [5, 6, 7])


def test_who_goes_through_them_gets_every_row_that_was_there_first() -> None:
    places, log = Places(), Log()
    sizes = list(range(3 * LOOSE_ROWS))
    places.add(sizes, log.write(sizes), sizes)
    seen: list[int] = []
    for piece in places.pieces():
        seen += piece.entries
        places.move(array("q", [9_000]), array("Q", [0]), array("Q", [1]))
        places.forget(seen[-1] + 10)
    assert set(sizes) - set(seen) <= {LOOSE_ROWS + 9, 2 * LOOSE_ROWS + 9, 3 * LOOSE_ROWS + 9}


def test_rows_that_overlap_are_kept_as_they_are() -> None:
    """No entry log writes so; what is not even must not become it by what its first and last rows say."""
    places, count = Places(), 2 * EVEN_ROWS
    stride = ENTRY_HEADER_BYTES + 10
    locations = [stride * at for at in range(count)]
    locations[70] += 1
    places.add(range(count), locations, [10] * count)
    assert places.columns()[1].tolist() == locations
    places.check_invariants()


@pytest.mark.parametrize(
    ("parts", "joined"),
    [([], []), ([(1, 2), (3, 3), (5, 9)], [(1, 3), (5, 9)]), ([(0, 0)], [(0, 0)])],
)
def test_runs_are_joined(parts: list[tuple[int, int]], joined: list[tuple[int, int]]) -> None:
    assert list(joined_runs(parts)) == joined
