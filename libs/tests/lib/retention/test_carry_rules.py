"""In how many records states are carried forward."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bokilib.retention.carry_rules import Load, batches


@given(st.lists(st.builds(Load, st.text(max_size=3), st.integers(0, 700_000), st.integers(1, 40), st.integers(1, 40))))
def test_records_of_carried_states_are_within_the_bounds_and_lose_none(loads: list[Load]) -> None:
    found = batches(loads)
    assert [load for batch in found for load in batch] == loads
    for batch in found:
        assert len(batch) == 1 or (
            sum(load.size for load in batch) <= 2**19
            and sum(load.tags for load in batch) < 255
            and sum(load.expectations for load in batch) < 256
        )
    for batch, following in pairwise(found):
        more = [*batch, following[0]]
        assert (
            sum(load.size for load in more) > 2**19
            or sum(load.tags for load in more) >= 255
            or sum(load.expectations for load in more) >= 256
        ), "as few as can be"


def test_254_small_states_are_one_record() -> None:
    assert [len(batch) for batch in batches([Load(str(number), 10) for number in range(300)])] == [254, 46]
