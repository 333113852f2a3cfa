"""Lists of entries against recorded ones and against a plain list."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.bookkeeper import availability, v3
from boki_common.bookkeeper.v3_messages import ListEntriesResponse
from boki_common.errors import ProtocolError

VECTORS = Path(__file__).parent.parent / "vectors" / "bookkeeper"


@pytest.mark.parametrize(
    ("name", "entries"), [("v3-list-of-entries", [0, 1, 2]), ("v3-list-of-entries-gaps", [5, 6, 9])]
)
def test_recorded_lists_are_what_we_write_and_read(name: str, entries: list[int]) -> None:
    lines = (VECTORS / f"{name}.txt").read_text().splitlines()
    frame = bytes.fromhex(next(line for line in lines if line.startswith("response.1: "))[12:])
    response = v3.decode_response(memoryview(frame)[4:])
    assert isinstance(response, ListEntriesResponse)
    assert response.availability is not None
    assert availability.encode(entries) == response.availability
    assert [entry for run in availability.decode(response.availability) for entry in run] == entries


@given(st.sets(st.integers(0, 60)) | st.sets(st.integers(0, 2**62), max_size=20))
def test_any_set_of_entries_comes_back(entries: set[int]) -> None:
    runs = availability.decode(availability.encode(sorted(entries)))
    assert [entry for run in runs for entry in run] == sorted(entries)


def test_striped_entries_take_one_group() -> None:
    entries = [entry for entry in range(3_000) if entry % 3 != 1]
    assert len(availability.encode(entries[1:-1])) == 64 + 24


@given(st.binary(max_size=150), st.integers(0, 4))
def test_arbitrary_lists_are_refused_or_ascend(noise: bytes, groups: int) -> None:
    header = bytes(4) + groups.to_bytes(4, "big") + bytes(56)
    for data in (noise, header + noise, header + noise[: 24 * groups].ljust(24 * groups, b"\0")):
        try:
            runs = availability.decode(data)
        except ProtocolError:
            continue
        below = 0
        for run in runs:
            assert run.start >= below and len(run) > 0
            below = run.stop


def test_a_list_of_more_entries_than_anybody_has_is_refused() -> None:
    huge = (1).to_bytes(8, "big") + bytes(56)
    group = bytes(8) + (2**62).to_bytes(8, "big") + (1).to_bytes(4, "big") + (2).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="at most"):
        availability.decode(huge[:64] + group)


def test_a_group_that_runs_backwards_is_refused() -> None:
    """Its count would be negative, and let others in that are too large."""
    header = (2).to_bytes(8, "big") + bytes(56)
    huge = bytes(16) + (101_713_970).to_bytes(4, "big") + (276_865_255).to_bytes(4, "big")
    backwards = (4 << 30).to_bytes(8, "big") + bytes(8) + (1 << 20).to_bytes(4, "big") + (1 << 30).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="expected ascending groups"):
        availability.decode(header + huge + backwards)


@given(st.sets(st.integers(0, 40)), st.integers(0, 300))
def test_a_list_that_does_not_fit_is_none(entries: set[int], bytes_limit: int) -> None:
    whole = availability.encode(sorted(entries))
    fitting = availability.encode_within(sorted(entries), bytes_limit)
    assert fitting == (whole if len(whole) <= bytes_limit else None)


def _grouped_one_by_one(entries: list[int]) -> list[tuple[int, int, int, int]]:
    """The plain model: a run joins the group before it when it has its size and its distance."""
    runs: list[list[int]] = []
    for entry in entries:
        if runs and entry == runs[-1][0] + runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([entry, 1])
    groups: list[tuple[int, int, int, int]] = []
    for start, size in runs:
        if groups:
            first, last, group_size, period = groups[-1]
            if size == group_size and period in (0, start - last) and start - last < 2**31:
                groups[-1] = (first, start, size, start - last)
                continue
        groups.append((start, start, size, 0))
    return groups


@given(
    st.sets(st.integers(0, 80))
    | st.lists(st.sampled_from((1, 2, 3, 2**31 - 1, 2**31)), max_size=30).map(lambda steps: set(accumulate(steps)))
)
def test_groups_are_those_of_the_model(entries: set[int]) -> None:
    data = availability.encode(sorted(entries))
    assert list(Struct(">qqii").iter_unpack(data[64:])) == _grouped_one_by_one(sorted(entries))
