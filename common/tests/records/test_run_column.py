"""Runs are summed up the same one by one and by columns, and what cannot be is refused by both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from boki_common.errors import ProtocolError
from boki_common.records.run_column import RUN_COLUMNS, RUN_ROW, Run, make_run, sums_of_columns, sums_of_runs

RUNS = st.lists(
    st.builds(
        Run,
        st.integers(0, 2**64 - 1),
        st.binary(min_size=16, max_size=16),
        st.integers(0, 9),
        st.integers(0, 9),
        st.integers(0, 3) | st.just(2**32 - 1),
        st.integers(0, 3),
        st.integers(0, 3),
        st.sampled_from([0, 0, 0, 1, 2, 4, 5, 8, 15, 16, 2**31]),
    ),
    min_size=1,
    max_size=4,
)


def sums_or_none(of: Callable[[Any], tuple[int, ...]], runs: object) -> tuple[int, ...] | None:
    """None: refused."""
    try:
        return of(runs)
    except ProtocolError:
        return None


@given(RUNS)
def test_runs_are_summed_up_one_by_one_as_by_columns(runs: list[Run]) -> None:
    packed = b"".join(RUN_ROW.pack(*run) for run in runs)
    assert [make_run(row) for row in RUN_ROW.iter_unpack(packed)] == runs
    assert sums_or_none(sums_of_runs, runs) == sums_or_none(sums_of_columns, np.frombuffer(packed, RUN_COLUMNS))


@given(RUNS)
def test_a_run_begins_at_or_above_its_low_and_has_records_unless_it_ends_its_writer(runs: list[Run]) -> None:
    right = all(0 < run.low <= run.first and not run.flags & ~15 and (run.count or run.flags & 4) for run in runs)
    try:
        records, tags, expectations, named = sums_of_runs(runs)
    except ProtocolError:
        assert not right
        return
    assert right
    assert (records, tags) == (sum(run.count for run in runs), sum(run.tag_count for run in runs))
    assert expectations == sum(run.expectation_count for run in runs)
    assert named == sum(run.count for run in runs if run.flags & 1)
