"""Which writers are proposed to be forgotten, and that proposing goes on whatever becomes of one."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from boki_common.errors import NoSequencer
from boki_common.record_batch import RUN_NAMED
from boki_logbook.expiry import EXPIRES_AT_ONCE, Expiry, due
from boki_logbook.places import ShardPlace
from boki_logbook.settings import EngineSettings
from boki_logbook.state import DecisionState
from boki_logbook.testing import RecordSpec, RunSpec, make_batch
from boki_metalog.metalog_entry import Expire

HOUR_MS = 3_600_000
SETTINGS = EngineSettings(session_writer_age_s=3_600, expiry_period_s=0.01)


def writer(number: int) -> bytes:
    return number.to_bytes(16, "little")


def state_with(*appends: tuple[int, int, int], named: tuple[int, ...] = ()) -> DecisionState:
    """Appends of (book, writer, time in ms), one entry each."""
    state = DecisionState()
    places = state.begin_term(1, 0, ((0, 1023),))
    places.shards[0] = ShardPlace(1, 0, 100, "e")
    for entry, (book, name, time_ms) in enumerate(appends):
        flags = RUN_NAMED if name in named else 0
        number = state.writer_last(book, writer(name)) + 1
        batch = make_batch(RunSpec(book, writer(name), number, (RecordSpec(),), flags=flags))
        state.apply_entry(places, batch, shard=0, entry=entry, time_ms=time_ms)
    return state


def test_session_writers_are_due_an_hour_of_cut_time_after_their_last_append() -> None:
    state = state_with((7, 1, 1_000), (7, 2, 2_000), (7, 1, 5_000), (7, 3, 4_000 + HOUR_MS))
    assert list(due(state, SETTINGS)) == [Expire(7, writer(2), 1)]


def test_without_newer_cuts_nobody_is_due() -> None:
    assert not list(due(DecisionState(), SETTINGS))
    assert not list(due(state_with((7, 1, HOUR_MS)), SETTINGS))


def test_named_writers_stay_unless_a_retention_says_otherwise() -> None:
    state = state_with((7, 1, 1_000), (7, 2, 2 * HOUR_MS), named=(1,))
    assert not list(due(state, SETTINGS))
    assert list(due(state, replace(SETTINGS, writer_retention_s=1_800))) == [Expire(7, writer(1), 1)]


def test_a_round_proposes_a_bounded_number() -> None:
    state = state_with(*((7, number, 1) for number in range(1, EXPIRES_AT_ONCE + 50)), (8, 1, 2 * HOUR_MS))
    assert len(list(due(state, SETTINGS))) == EXPIRES_AT_ONCE


async def test_what_could_not_be_ordered_is_proposed_again() -> None:
    state = state_with((7, 1, 1), (8, 2, 2 * HOUR_MS))
    asked: list[tuple[int, Expire]] = []
    twice = asyncio.Event()

    async def order(book: int, command: Expire) -> None:
        asked.append((book, command))
        if len(asked) == 1:
            raise NoSequencer("none is there")
        twice.set()

    task = asyncio.create_task(Expiry(lambda: state, order, SETTINGS).run())
    await twice.wait()
    task.cancel()
    assert asked[:2] == [(7, Expire(7, writer(1), 1))] * 2
