"""Queues on simulated clusters hold (`bokiqueue_tools.simulated`), effects that are planted twice are found, and a seed is one run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import boki
import boki.sim
from bokiqueue import Consumer, Message
from bokiqueue_tools.simulated import QUEUE, program
from itests.support.two_processes import lines_of_two

pytestmark = [
    pytest.mark.blocking_allowed,
    pytest.mark.timeout(300),
]  # the simulator's guard stands in; machines may be busy

DIGESTS = """
from boki_sim.simulated import How, ProgramRun
from bokiqueue_tools.simulated import program
for seed, model, seconds in ((2, True, 3.0), (3, True, 3.0), (1, False, 1.5)):
    run = ProgramRun(seed, "harsh", seconds, None, How(model, True))
    run.go(program)
    print(seed, run.trace.digest())
"""


def on_models(seeds: Iterable[int]) -> None:
    for seed in seeds:
        boki.sim.run(program, seed=seed, faults="harsh", seconds=4.0, model=True)


def test_on_models_each_order_is_handled_once() -> None:
    on_models((1, 5, 6, 7))


def test_on_clusters_each_order_is_handled_once() -> None:
    boki.sim.run(program, seed=1, faults="harsh", seconds=3.0, steady=True)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_on_a_thousand_models_each_order_is_handled_once() -> None:
    on_models(range(1, 1_001))


def test_effects_that_happen_twice_are_found_when_they_are_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler whose record is not its ACK."""

    def apart(message: Message[object]) -> Any:
        message.held_by = ""  # else the ACK is refused
        _ = message.ack()
        return _nothing()

    monkeypatch.setattr(Message, "acked", apart)
    with pytest.raises(AssertionError, match=r"twice|not handled|objects|e-mail"):
        on_models(range(1, 40))


def _nothing() -> Any:
    from bokilib import Contribution

    return Contribution()


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_member_that_beats_on_after_it_was_left_is_found_when_it_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted consumer ends its heartbeats only if it is not cancelled while it releases its shards."""
    ends, releases, cut_off = Consumer._end, Consumer._release_shards, set[Consumer[object]]()

    async def released(self: Consumer[object]) -> list[BaseException]:
        cut_off.add(self)
        failed = await releases(self)
        cut_off.discard(self)
        return failed

    async def end(self: Consumer[object]) -> None:
        if self not in cut_off:
            await ends(self)

    monkeypatch.setattr(Consumer, "_release_shards", released)
    monkeypatch.setattr(Consumer, "_end", end)
    with pytest.raises((AssertionError, ExceptionGroup, boki.BokiError)):
        on_models(range(101, 140))


def taken(value: object, *more: object) -> object:
    """Return a value without looking at it."""
    return value


def no_exception(error: BaseException) -> bool:
    """Take each error that is no Exception for a stop."""
    return not isinstance(error, Exception)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("place", "planted"),
    [
        ("bokiqueue.consume.messages.check_reason", taken),
        ("bokiqueue.consume.messages.Message._check_free", taken),
        ("bokiqueue.attempts.stopped", no_exception),
    ],
)
def test_what_is_planted_is_found_by_odd_code_of_users(
    monkeypatch: pytest.MonkeyPatch, place: str, planted: object
) -> None:
    """Any reason is taken; a handler's function may ack; a block that exits fails no attempt. Seed 1 finds each."""
    monkeypatch.setattr(place, planted)
    with pytest.raises((AssertionError, ExceptionGroup, boki.BokiError)):
        on_models(range(1, 10))


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """Two processes with different hash seeds: no set's order reaches a decision."""
    one, other = lines_of_two(DIGESTS)
    assert len(one) == 3 and one == other


def test_it_is_a_profile_of_the_simulator() -> None:
    assert QUEUE.program is program
