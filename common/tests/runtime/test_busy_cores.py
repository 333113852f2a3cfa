"""When cores are kept from sleeping."""

from __future__ import annotations

from boki_common.runtime.busy_cores import BUSY, KEPT_S, BusyCores

START = 100.0


def test_a_process_that_never_did_much_lets_cores_sleep() -> None:
    cores = BusyCores(START, 5.0)
    little = 0.9 * BUSY * 0.1
    assert not any(cores.look(START + 0.1 * n, 5.0 + little * n) for n in range(1, 50))


def test_a_busy_process_keeps_them_awake_at_once() -> None:
    cores = BusyCores(START, 5.0)
    assert cores.look(START + 0.1, 5.0 + BUSY * 0.1 + 1e-9)


def test_they_sleep_again_some_time_after_the_last_busy_moment() -> None:
    cores = BusyCores(START, 0.0)
    assert cores.look(START + 0.1, 0.1)
    assert cores.look(START + 0.1 + KEPT_S, 0.1), "a pause between two bursts wakes nobody"
    assert not cores.look(START + 0.2 + KEPT_S, 0.1)
    assert cores.look(START + 0.3 + KEPT_S, 0.2), "and awake again with the next burst"


def test_what_was_used_before_the_first_look_does_not_count() -> None:
    assert not BusyCores(START, 500.0).look(START + 0.1, 500.0)
