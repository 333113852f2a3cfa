"""Which writers are proposed to be forgotten, and that proposing goes on whatever becomes of one."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from boki_common.errors import NoSequencer, SettingsError
from boki_common.records.record_batch import RUN_NAMED
from boki_common.settings import validate
from boki_logbook.index.places import ShardPlace
from boki_logbook.settings import EngineSettings
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch
from boki_logbook.upkeep.expiry import EXPIRES_AT_ONCE, Expiry, due
from boki_metalog.entries.metalog_entry import Expire

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
        number = state.verdicts.last(book, writer(name)) + 1
        batch = make_batch(RunSpec(book, writer(name), number, (RecordSpec(),), flags=flags))
        state.apply_entry(places, batch, shard=0, entry=entry, time_ms=time_ms)
    return state


LOG = 0
HOUR_S = 3_600.0


class Watching:
    """An engine that looks at its state now and then, by a clock of its own."""

    def __init__(self, state: DecisionState, settings: EngineSettings = SETTINGS) -> None:
        self.now_s = 0.0
        self.asked: list[tuple[int, Expire]] = []
        self.state = state
        self.expiry = Expiry(lambda: self.state, self.order, settings, log_of=lambda _: LOG, elapsed=lambda: self.now_s)

    async def order(self, book: int, command: Expire) -> None:
        self.asked.append((book, command))

    def look_at(self, now_s: float) -> list[Expire]:
        self.now_s = now_s
        return self.expiry.look()


def append(state: DecisionState, book: int, name: int, time_ms: int) -> None:
    places = state.places.terms[1]
    number = state.verdicts.last(book, writer(name)) + 1
    batch = make_batch(RunSpec(book, writer(name), number, (RecordSpec(),)))
    state.apply_entry(places, batch, shard=0, entry=places.shards[0].entries_end, time_ms=time_ms)


def all_due(state: DecisionState, before_ms: int, *, named: bool = False) -> list[Expire]:
    return list(due(state, {LOG: before_ms}, lambda _: LOG, named=named))


def test_writers_are_due_whose_last_append_is_older() -> None:
    state = state_with((7, 1, 1_000), (7, 2, 2_000), (7, 1, 5_000), (7, 3, 4_000))
    assert all_due(state, 4_000) == [Expire(7, writer(2), 1)]
    assert not all_due(state, 0)


def test_named_writers_are_due_by_an_age_of_their_own() -> None:
    state = state_with((7, 1, 1_000), (7, 2, 1_000), named=(1,))
    assert all_due(state, 4_000, named=True) == [Expire(7, writer(1), 1)]
    assert all_due(state, 4_000) == [Expire(7, writer(2), 1)]


def test_a_round_proposes_a_bounded_number() -> None:
    state = state_with(*((7, number, 1) for number in range(1, EXPIRES_AT_ONCE + 50)))
    assert len(all_due(state, 9)) == EXPIRES_AT_ONCE


def test_the_time_of_another_log_makes_nobody_old() -> None:
    state = state_with((7, 1, 1_000), (8, 2, 1_000))
    assert list(due(state, {0: 500, 1: HOUR_MS}, lambda book: book - 7, named=False)) == [Expire(8, writer(2), 1)]


def test_a_session_writer_is_proposed_an_hour_after_its_last_append_by_both_clocks() -> None:
    state = state_with((7, 1, 1_000))
    watching = Watching(state)
    assert not watching.look_at(0)
    append(state, 7, 2, 2_000)
    assert not watching.look_at(60)
    append(state, 7, 2, HOUR_MS + 1_500)
    assert not watching.look_at(HOUR_S), "what was there an hour ago was not older than the newest"
    assert watching.look_at(HOUR_S + 60) == [Expire(7, writer(1), 1)]


def test_a_step_of_the_logs_time_makes_nobody_old() -> None:
    state = state_with((7, 1, 1_000))
    watching = Watching(state)
    watching.look_at(0)
    for at in range(1, 59):
        append(state, 7, 2, 5 * HOUR_MS + 60_000 * at)
        assert not watching.look_at(60.0 * at)


def test_an_engine_proposes_nothing_before_it_has_run_for_so_long() -> None:
    state = state_with((7, 1, 1_000), (7, 2, 9 * HOUR_MS))
    watching = Watching(state)
    watching.look_at(5 * HOUR_S)
    assert not watching.look_at(6 * HOUR_S - 1)
    assert watching.look_at(6 * HOUR_S) == [Expire(7, writer(1), 1)]


def test_named_writers_stay_unless_a_retention_says_otherwise() -> None:
    state = state_with((7, 1, 1_000), (7, 2, 2 * HOUR_MS), named=(1,))
    kept, forgotten = Watching(state), Watching(state, replace(SETTINGS, writer_retention_s=1_800))
    for watching in (kept, forgotten):
        watching.look_at(0)
    assert not kept.look_at(HOUR_S)
    assert forgotten.look_at(HOUR_S) == [Expire(7, writer(1), 1)]


def test_a_trim_may_forget_what_was_old_for_both_clocks() -> None:
    state = state_with((7, 1, 1_000))
    watching = Watching(state)
    watching.look_at(0)
    append(state, 7, 1, 3 * HOUR_MS)
    watching.now_s = HOUR_S - 1
    assert watching.expiry.forget_before_ms(7) == 0
    watching.now_s = HOUR_S
    assert watching.expiry.forget_before_ms(7) == 1_000
    watching.look_at(HOUR_S)
    watching.now_s = 2 * HOUR_S
    assert watching.expiry.forget_before_ms(7) == 2 * HOUR_MS


def test_how_old_a_stream_has_to_be_is_a_setting_of_two_minutes_at_least() -> None:
    state = state_with((7, 1, 1_000))
    watching = Watching(state, replace(SETTINGS, forget_age_s=120.0))
    watching.look_at(0)
    append(state, 7, 1, 600_000)
    watching.now_s = 119.0
    assert watching.expiry.forget_before_ms(7) == 0
    watching.look_at(120)
    assert watching.expiry.forget_before_ms(7) == 1_000
    watching.look_at(240)
    assert watching.expiry.forget_before_ms(7) == 480_000
    assert EngineSettings().forget_age_s == 3_600.0
    with pytest.raises(SettingsError, match="forget_age_s"):
        validate(replace(SETTINGS, forget_age_s=119.0))


async def test_what_could_not_be_ordered_is_proposed_again() -> None:
    state = state_with((7, 1, 1))
    watching, asked, twice = Watching(state), list[tuple[int, Expire]](), asyncio.Event()

    async def order(book: int, command: Expire) -> None:
        asked.append((book, command))
        if len(asked) == 1:
            raise NoSequencer("none is there")
        twice.set()

    expiry = Expiry(lambda: state, order, SETTINGS, log_of=lambda _: LOG, elapsed=lambda: watching.now_s)
    expiry.look()
    append(state, 8, 2, 2 * HOUR_MS)
    watching.now_s = HOUR_S
    expiry.look()
    watching.now_s = 2 * HOUR_S
    task = asyncio.create_task(expiry.run())
    await twice.wait()
    task.cancel()
    assert asked[:2] == [(7, Expire(7, writer(1), 1))] * 2
