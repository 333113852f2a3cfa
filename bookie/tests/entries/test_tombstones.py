"""Tombstones are a set of ledgers with a day each, whatever runs they make."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from boki_bookie.entries.tombstones import Run, Tombstones

ledgers = st.integers(0, 40)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), ledgers, st.integers(0, 6), st.integers(0, 3)),
        st.tuples(st.just("discard"), ledgers, st.just(0), st.just(0)),
        st.tuples(st.just("drop"), st.just(0), st.just(0), st.integers(0, 3)),
    ),
    max_size=40,
)


@given(steps)
def test_tombstones_are_a_set_of_ledgers_per_day(steps: list[tuple[str, int, int, int]]) -> None:
    found = Tombstones()
    model: dict[int, set[int]] = {}
    for step, ledger_id, more, day in steps:
        if step == "add":
            found.add(Run(ledger_id, ledger_id + more, day))
            model.setdefault(day, set()).update(range(ledger_id, ledger_id + more + 1))
        elif step == "discard":
            found.discard(ledger_id)
            for days in model.values():
                days.discard(ledger_id)
        else:
            dropped = found.drop_before(day)
            assert dropped == sum(len(model.pop(old)) for old in list(model) if old < day)
        for candidate in range(50):
            assert (candidate in found) == any(candidate in days for days in model.values())
        assert len(found) == sum(len(days) for days in model.values())
    runs = list(found.runs())
    assert runs == sorted(runs, key=lambda run: (run.day, run.first))
    assert [(run.day, number) for run in runs for number in range(run.first, run.last + 1)] == [
        (day, number) for day in sorted(model) for number in sorted(model[day])
    ]
    for one, following in itertools.pairwise(runs):
        assert one.day != following.day or one.last + 1 < following.first, "neighbours are one run"


def test_a_million_neighbours_are_one_run() -> None:
    tombstones = Tombstones()
    tombstones.add(Run(0, 999_999, 5))
    tombstones.add(Run(1_000_000, 1_000_000, 5))
    assert list(tombstones.runs()) == [Run(0, 1_000_000, 5)]
    assert len(tombstones) == 1_000_001
