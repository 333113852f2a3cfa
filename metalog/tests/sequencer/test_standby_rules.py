"""Whose turn it is, when, and how long after the last time: pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_metalog.sequencer.standby_rules import BACKOFF_LIMIT_S, JITTER, Step, Suspicions, Vacancy, next_step, turns

NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True)
LOGS = st.lists(st.integers(0, 9), min_size=1, unique=True)


@given(NAMES, LOGS)
def test_each_log_has_one_of_every_place(names: list[str], logs: list[int]) -> None:
    places = {me: turns(logs, names, me) for me in names}
    for log in logs:
        assert sorted(places[me][log] for me in names) == list(range(len(names)))


@given(NAMES, LOGS)
def test_as_many_logs_as_standbys_have_different_firsts(names: list[str], logs: list[int]) -> None:
    some = sorted(logs)[: len(names)]
    firsts = {log: me for me in names for log, place in turns(some, names, me).items() if place == 0}
    assert len(set(firsts.values())) == len(some)


def test_who_is_not_listed_yet_has_a_place_too() -> None:
    assert turns([4], [], "me") == {4: 0}
    assert turns([4], ["a", "z"], "me") == {4: 1}


def test_the_first_goes_at_once_the_next_a_stagger_later() -> None:
    gone = [Vacancy(0, since_s=10.0)]
    for place, pause_s in ((0, 0.0), (1, 0.5), (3, 1.5)):
        step = next_step(gone, {0: place}, Suspicions(), stagger_s=0.5, now_s=10.0)
        assert step == (Step(0, 0.0) if place == 0 else Step(None, pause_s))
        assert next_step(gone, {0: place}, Suspicions(), stagger_s=0.5, now_s=10.0 + pause_s).log == 0


def test_a_term_that_somebody_ended_is_left_to_him_for_the_grace() -> None:
    over = [Vacancy(0, since_s=10.0, grace_s=1.0)]
    assert next_step(over, {0: 0}, Suspicions(), stagger_s=0.5, now_s=10.2) == Step(None, 0.8000000000000007)
    assert next_step(over, {0: 0}, Suspicions(), stagger_s=0.5, now_s=11.0) == Step(0, 0.0)


def test_the_log_that_is_due_first() -> None:
    vacancies = [Vacancy(0, 10.0), Vacancy(1, 10.0)]
    assert next_step(vacancies, {0: 1, 1: 0}, Suspicions(), stagger_s=0.5, now_s=10.0).log == 1
    assert next_step([], {}, Suspicions(), stagger_s=0.5, now_s=10.0) == Step(None, None)


def test_pauses_double_up_to_the_limit_and_end_with_quiet() -> None:
    suspicions, now_s, pauses = Suspicions(), 100.0, []
    for _ in range(7):
        suspicions.changed(0, now_s, chance=0.0)
        pauses.append(suspicions.not_before_s(0) - now_s)
        now_s = suspicions.not_before_s(0) - 0.25
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    suspicions.changed(0, now_s + BACKOFF_LIMIT_S, chance=0.0)
    assert suspicions.not_before_s(0) == now_s + BACKOFF_LIMIT_S + 1.0
    assert suspicions.not_before_s(1) == float("-inf"), "one log's trouble is no other's"
    suspicions.keep([1])
    assert suspicions.not_before_s(0) == float("-inf")


@given(st.floats(0, 1))
def test_jitter_only_lengthens(chance: float) -> None:
    suspicions = Suspicions()
    suspicions.changed(0, 0.0, chance=chance)
    assert 1.0 <= suspicions.not_before_s(0) <= 1.0 + JITTER
    assert next_step([Vacancy(0, 0.0)], {0: 0}, suspicions, stagger_s=0.1, now_s=0.5).log is None
