"""When rounds begin."""

from __future__ import annotations

import asyncio

import pytest

from boki_common.errors import BokiError, Unreachable
from boki_common.testing.virtual_time import VirtualTimeLoop, let_pass
from bokiflow.testing import in_virtual_time
from bokilib.follow.lease_rules import BEATS
from bokilib.partitions.rounds import PULSES, SOON_S, Rounds

LEASE_S = 15.0
BEAT_S = LEASE_S / BEATS
PULSE_S = BEAT_S / PULSES


class Looks:
    """The rounds of a member, and when each began; `silent_s`: when the next lease may expire."""

    def __init__(self, silent_s: float | None = None, every_s: float | None = None) -> None:
        self.silent_s = silent_s
        self.at: list[tuple[float, bool]] = []
        self.late: list[tuple[float, float]] = []
        self.errors: list[BokiError] = []
        self.lasts_s = 0.0
        self.fails: BokiError | None = None
        self.loop = asyncio.get_running_loop()
        self.begun_s = self.loop.time()
        self.rounds = Rounds(
            LEASE_S, self.silent_in, lambda seen_s, still_s: self.late.append((seen_s, still_s)), every_s=every_s
        )
        self.task = self.loop.create_task(self.rounds.run(self.look, self.failed))

    def silent_in(self) -> float | None:
        left_s = -1.0 if self.silent_s is None else self.silent_s - (self.loop.time() - self.begun_s)
        return left_s if left_s >= 0 else None

    async def look(self, is_due: bool) -> None:
        self.at.append((round(self.loop.time() - self.begun_s, 3), is_due))
        if self.fails is not None:
            raise self.fails
        await let_pass(self.lasts_s)

    def failed(self, error: BokiError) -> None:
        self.errors.append(error)
        if not error.retryable:
            raise error


@in_virtual_time
async def test_rounds_are_due_three_times_a_lease_and_begin_at_once_after_a_change() -> None:
    looks = Looks()
    await let_pass(7)
    looks.rounds.wake()
    looks.rounds.wake()
    await let_pass(4)
    assert looks.at == [(BEAT_S, True), (7, False), (2 * BEAT_S, True)] and not looks.late
    looks.task.cancel()


@in_virtual_time
async def test_a_round_is_due_soon_after_a_lease_may_expire() -> None:
    looks = Looks(silent_s=7.0)
    await let_pass(8)
    assert looks.at == [(BEAT_S, True), (7.0 + SOON_S, True)]
    looks.task.cancel()


@in_virtual_time
async def test_changes_during_a_round_are_one_round_after_it() -> None:
    looks = Looks(every_s=100)
    looks.lasts_s = 3.0
    looks.rounds.wake()
    for _ in range(2):
        await let_pass(1)
        looks.rounds.wake()
    await let_pass(9)
    assert looks.at == [(0, False), (3, False)]
    looks.task.cancel()


@in_virtual_time
async def test_after_an_error_the_next_round_tries_again_and_one_that_is_raised_ends_them() -> None:
    looks = Looks()
    looks.fails = Unreachable("nobody answers")
    await let_pass(11)
    assert len(looks.errors) == len(looks.at) == 2
    looks.fails = BokiError("for good")
    with pytest.raises(BokiError, match="for good"):
        await looks.task


@in_virtual_time
async def test_only_a_loop_that_stood_still_is_late_and_no_round_that_took_long() -> None:
    looks = Looks()
    looks.lasts_s = 3 * BEAT_S
    looks.rounds.wake()
    await let_pass(3 * BEAT_S + 1)
    assert looks.at == [(0, False), (3 * BEAT_S, True)] and not looks.late


@pytest.mark.parametrize("begins_s", [0.1, BEAT_S / 2, BEAT_S - 0.1, BEAT_S, BEAT_S + 0.1])
@in_virtual_time
async def test_a_loop_that_stood_still_is_reported_with_all_of_it_whenever_it_began(begins_s: float) -> None:
    looks = Looks()
    assert isinstance(looks.loop, VirtualTimeLoop)
    await let_pass(begins_s)
    looks.loop.jump(BEAT_S - 2 * PULSE_S)
    await let_pass(BEAT_S)
    assert not looks.late, "it stood still for less than a third of the lease"
    before_s = looks.loop.time()
    looks.loop.jump(BEAT_S + 0.1)
    await let_pass(3 * BEAT_S)
    ((seen_s, still_s),) = looks.late
    assert before_s - PULSE_S <= seen_s <= before_s
    assert still_s == pytest.approx(before_s + BEAT_S + 0.1 - seen_s)
    looks.task.cancel()
    await asyncio.wait([looks.task])
    looks.loop.jump(3 * BEAT_S)
    await let_pass(BEAT_S)
    assert len(looks.late) == 1, "rounds that ended look no more"
