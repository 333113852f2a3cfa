"""Which entries may be the ones that a cut means."""

from __future__ import annotations

import pytest

from boki_common.records.record_batch import RecordBatch, join
from boki_logbook.read.entry_fit import Fit
from boki_logbook.testing.cluster import RunSpec, make_batch, plain_records

LAST = Fit(term=2, shard=1, first_record=5, stop_record=8, last=True, after_lost=False)
INNER = LAST._replace(last=False)


def entry(first: int, count: int, *, term: int = 2, shard: int = 1) -> RecordBatch:
    batch = make_batch(RunSpec(1, bytes(16), 1, plain_records(*map(str, range(count)))))
    return RecordBatch.parse(memoryview(b"".join(join([batch], term=term, shard=shard, first_local_id=first))))


@pytest.mark.parametrize(
    ("fit", "first", "count"),
    [
        (LAST, 5, 3),
        (INNER, 5, 3),
        (INNER, 5, 1),
        (LAST._replace(after_lost=True), 7, 1),
        (INNER._replace(after_lost=True), 6, 1),
    ],
)
def test_what_begins_and_ends_where_the_cut_means_it_to_is_taken(fit: Fit, first: int, count: int) -> None:
    assert fit.fault_of(entry(first, count)) is None


@pytest.mark.parametrize(
    ("fit", "first", "count"),
    [
        (LAST, 5, 2),
        (LAST, 5, 4),
        (LAST, 6, 2),
        (LAST, 4, 4),
        (INNER, 5, 4),
        (INNER, 6, 1),
        (LAST._replace(after_lost=True), 4, 4),
        (LAST._replace(after_lost=True), 6, 1),
        (INNER._replace(after_lost=True), 8, 1),
    ],
)
def test_what_begins_or_ends_elsewhere_is_another_one(fit: Fit, first: int, count: int) -> None:
    said = fit.fault_of(entry(first, count))
    assert said is not None and f"found records {first} to below {first + count}" in said


@pytest.mark.parametrize(("term", "shard"), [(1, 1), (2, 0), (0, 0)])
def test_an_entry_of_another_place_is_another_one(term: int, shard: int) -> None:
    said = LAST.fault_of(entry(5, 3, term=term, shard=shard))
    assert said is not None and said.startswith("expected an entry of shard 1 of term 2")
