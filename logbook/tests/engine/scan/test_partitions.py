"""Partitions of a plan: together they are the plan, each is small, and bounds make the same ones again."""

from __future__ import annotations

import pickle
import random

import pytest

from boki_common import limits
from boki_common.errors import CorruptData, InvalidArgument
from boki_logbook.scan.facts import COMMITTED, LIVE, ScanRange
from boki_logbook.scan.partitions import Partition, bounds_of, cut
from boki_logbook.scan.plan import Plan
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RecordSpec, RunSpec
from boki_logbook.testing.plans import apply, begin, everything, plan_of, positions_of
from boki_metalog.entries.metalog_entry import Trim

W = b"w".ljust(16, b"\0")


def state_of(entries: int, *, shards: int = 3, records: int = 4, seed: int = 1, losers: bool = True) -> DecisionState:
    rng = random.Random(seed)
    state = DecisionState()
    for term in (1, 2):
        places = begin(state, term, shards=shards)
        for at in range(entries):
            first = 1 + (entries * (term - 1) + at) * records
            again = losers and at and rng.random() < 0.2
            run = RunSpec(101 if again else 100 + first, W, 1, (RecordSpec((at % 3 + 1,), b"x" * 10),) * records, 1)
            apply(state, places, run, shard=rng.randrange(shards), time_ms=1_000 + at)
    return state


def ranges(partitions: list[Partition]) -> list[tuple[int, int]]:
    return [(one.term, pos) for one in partitions for pos in positions_of(one.rows_to_deliver())]


def planned(plan: Plan) -> list[tuple[int, int]]:
    return [(one.facts.term, pos) for one in plan.terms for pos in positions_of(one.rows)]


@pytest.mark.parametrize("max_bytes", [1, 100, 1_000, 10**9])
@pytest.mark.parametrize("tags", [(), (1,), (1, 2)])
@pytest.mark.parametrize("mode", [LIVE, COMMITTED])
def test_partitions_have_all_rows_once_and_their_entries(max_bytes: int, tags: tuple[int, ...], mode: str) -> None:
    state = state_of(50)
    plan = plan_of(state, everything(state)._replace(tags=tags), mode)
    partitions = cut(plan, max_bytes=max_bytes)
    assert ranges(partitions) == planned(plan)
    for one in partitions:
        assert one.rows == len(positions_of(one.rows_to_deliver()))
        entries = one.entries()
        for pos in positions_of(one.rows_to_deliver()):
            at = int((entries.first_positions <= pos).sum()) - 1
            place = state.places.terms[one.term].locate(pos)
            assert place is not None
            assert (place.ledger_id, place.entry) == (entries.ledgers[at], entries.entries[at])
            assert entries.first_positions[at] <= pos < entries.stop_positions[at]


def test_a_partition_has_an_entry_at_least_and_otherwise_no_more_bytes_than_asked() -> None:
    plan = plan_of(state_of(50, losers=False), ScanRange({}, {0: (2, 10**6)}))
    assert {len(one.entries().entries) for one in cut(plan, max_bytes=1)} == {1}
    assert all(len(one.entries().entries) == 5 for one in cut(plan, max_bytes=5 * 4 * 12))
    assert len(cut(plan)) == 2, "a term each"


def test_as_many_partitions_are_made_as_are_asked_for() -> None:
    plan = plan_of(state_of(50), ScanRange({}, {0: (2, 10**6)}))
    assert len(cut(plan, least=8)) >= 8


@pytest.mark.parametrize("max_bytes", [1, 333, 10**9])
def test_bounds_of_partitions_make_them_again_after_a_trim(max_bytes: int) -> None:
    state = state_of(30)
    begin(state, 3)
    asked = ScanRange({}, {0: (2, 10**6)})
    before = cut(plan_of(state, asked, COMMITTED), max_bytes=max_bytes)
    for book in (101, 105):
        state.apply_command(state.places.terms[3], Trim(book, ((0, 1 << 60),), False), time_ms=9_000)
    after = cut(plan_of(state, asked, COMMITTED), bounds=bounds_of(before))
    assert [(one.rows, one.packed, one.start_pos, one.stop_pos) for one in after] == [
        (one.rows, one.packed, one.start_pos, one.stop_pos) for one in before
    ]


def test_bounds_of_another_plan_are_refused() -> None:
    plan = plan_of(state_of(3), ScanRange({}, {0: (1, 5)}))
    for bounds in ([[1, 0, 99]], [[9, 0, 1]], [[1, 2, 2]]):
        with pytest.raises(InvalidArgument, match="of term"):
            cut(plan, bounds=bounds)
    with pytest.raises(InvalidArgument, match="above 0"):
        cut(plan, max_bytes=0)


def test_what_travels_is_small_however_many_entries_and_spans() -> None:
    state = DecisionState()
    places = begin(state, 1)
    every_other = tuple(RecordSpec((1 + at % 2,)) for at in range(200))
    for at in range(12_000):
        records = every_other if at % 400 == 0 else (RecordSpec((1,)),)
        apply(state, places, RunSpec(100 + at, W, 1, records, 1))
    for tags in ((), (1,)):
        plan = plan_of(state, everything(state)._replace(tags=tags))
        partitions = cut(plan, max_bytes=10**12)
        assert len(partitions) > 1 and ranges(partitions) == planned(plan)
        assert all(len(pickle.dumps(one)) <= 256 * limits.KIB for one in partitions)


def test_an_entry_of_many_records_of_which_every_other_is_shown_fits() -> None:
    state = DecisionState()
    places = begin(state, 1)
    apply(state, places, RunSpec(7, W, 1, tuple(RecordSpec((1 + at % 2,)) for at in range(65_536)), 1))
    (one,) = cut(plan_of(state, everything(state)._replace(tags=(1,))))
    assert one.rows == 32_768 and len(pickle.dumps(one)) < 16 * limits.KIB
    assert positions_of(one.rows_to_deliver()) == list(range(0, 65_536, 2))


def test_a_partition_that_was_cut_short_is_refused_as_damaged() -> None:
    (one, _) = cut(plan_of(state_of(5), ScanRange({}, {0: (2, 10**6)})))
    damaged = Partition(**{**{name: getattr(one, name) for name in Partition.__slots__}, "packed": one.packed[:40]})
    with pytest.raises(CorruptData):
        damaged.entries()
