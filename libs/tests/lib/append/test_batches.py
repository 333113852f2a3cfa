"""What shares a record."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from bokilib.append.batches import Batches


class Weight(NamedTuple):
    size: int
    tags: int
    expectations: int

    def over(self, limit: Weight) -> bool:
        return any(found > most for found, most in zip(self, limit, strict=True))


def total(weights: list[Weight]) -> Weight:
    return Weight(*(sum(column) for column in zip(*weights, strict=True)))


WEIGHTS = st.builds(Weight, st.integers(0, 12), st.integers(0, 3), st.integers(0, 3))


@given(st.lists(WEIGHTS), st.builds(Weight, st.integers(1, 30), st.integers(1, 6), st.integers(1, 6)))
def test_batches_have_all_in_order_and_end_only_where_the_next_item_would_not_fit(
    weights: list[Weight], limit: Weight
) -> None:
    batches: Batches[Weight, None] = Batches(*limit)
    for weight in weights:
        batches.add(weight, *weight)
    found = []
    while batches:
        found.append(batches.take().items)
    assert [weight for items in found for weight in items] == weights and all(found)
    assert all(len(items) == 1 or not total(items).over(limit) for items in found)
    assert all(total([*items, after[0]]).over(limit) for items, after in pairwise(found))


def test_what_comes_after_a_batch_was_taken_is_the_next_one() -> None:
    batches: Batches[str, str] = Batches(10, seen=3)
    batches.add("a", 1)
    batches.open.after.append("answer a")
    first = batches.take()
    assert (first.items, first.after, first.seen, bool(batches)) == (["a"], ["answer a"], 3, False)
    batches.open.seen = 5
    batches.close()  # nothing is in it
    batches.add("b", 11)
    batches.add("c", 1)
    assert [(batch.items, batch.seen) for batch in batches] == [(["b"], 5), (["c"], 5)]
    assert (batches.fits(9), batches.fits(10)) == (True, False)
