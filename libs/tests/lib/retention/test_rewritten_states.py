"""Rewriting of states: many in one record, without streams that moved, under a fence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import boki
from boki.testing import MemoryCluster
from bokilib import Contribution, Event, Log
from bokilib.retention.rewritten_states import Load, State, append_states, batches

NAMES = [f"s{number}" for number in range(300)]


class Note(Event, tag="toy.note", frozen=True):
    """A state."""

    id: str


@pytest.fixture
async def log() -> AsyncIterator[Log]:
    async with MemoryCluster() as cluster:
        yield Log((await cluster.connect()).book("b"))


async def append_notes(log: Log, *names: str) -> dict[str, State]:
    """Append a note to each stream, and return the notes as the newest states."""
    return {name: State(name, await log.append(Contribution((name,), {}, (Note(name),))), Note(name)) for name in names}


async def test_as_few_records_as_take_them_have_all(log: Log) -> None:
    states = await append_notes(log, *NAMES)
    before = log.appends
    made = await append_states(log, states.values(), {})
    assert (sorted(made), log.appends - before) == (sorted(NAMES), 2)
    newest = await log.book.read_prev_many([(name, None) for name in NAMES])
    assert [record.seqnum for record in newest if record is not None] == [made[name] for name in NAMES]


async def test_what_somebody_changed_meanwhile_stays_as_he_left_it(log: Log) -> None:
    states = await append_notes(log, "a", "b", "c")
    changed = (await append_notes(log, "b"))["b"]
    assert sorted(await append_states(log, states.values(), {})) == ["a", "c"]
    newest = await log.book.read_prev("b")
    assert newest is not None and newest.seqnum == changed.position
    assert await append_states(log, [states["b"]], {}) == {}


async def test_under_a_fence_that_is_over_nothing_is_appended(log: Log) -> None:
    fence = (await append_notes(log, "fence"))["fence"]
    states = await append_notes(log, "a", "b")
    await append_notes(log, "fence", "b")
    with pytest.raises(boki.Conflict):
        await append_states(log, states.values(), {"fence": fence.position})
    newest = await log.book.read_prev("a")
    assert newest is not None and newest.seqnum == states["a"].position
    assert await append_states(log, [], {}) == {}


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
