"""Leases by observed silence: the clocks that count, and the order in which members stop and are taken for dead."""

from __future__ import annotations

from bokilib.follow.lease_rules import LATE_S, Observer, beat_every, may_act, stood_still, stood_still_s


def test_a_member_is_dead_after_a_lease_of_silence_in_which_one_listened() -> None:
    observer = Observer(15.0, 100.0)
    assert not observer.dead("a", 115.0), "it may have beaten before anybody listened"
    assert observer.dead("a", 115.1)
    observer.seen("a", 7, 110.0)
    assert (observer.dead("a", 125.0), observer.dead("a", 125.1)) == (False, True)


def test_a_heartbeat_that_is_read_again_renews_nothing() -> None:
    observer = Observer(15.0, 0.0)
    observer.seen("a", 7, 1.0)
    observer.seen("a", 7, 10.0)
    observer.seen("a", 6, 11.0)
    assert observer.alive(16.0) == ["a"]
    assert observer.alive(16.1) == []


def test_the_living_are_named_in_order() -> None:
    observer = Observer(15.0, 0.0)
    for member in ("c", "a", "b"):
        observer.seen(member, 1, 1.0)
    assert observer.alive(2.0) == ["a", "b", "c"]


def test_who_cannot_append_stops_before_others_take_over() -> None:
    """Others count from the reading of a heartbeat, which is after its sending, so the member stops before they take over."""
    sent_s, read_s, lease_s = 10.0, 10.5, 15.0
    observer = Observer(lease_s, 0.0)
    observer.seen("a", 1, read_s)
    for tenth in range(600):
        now_s = tenth / 10
        if observer.dead("a", now_s) and now_s > read_s:
            assert not may_act(sent_s, now_s, lease_s)
    assert not may_act(None, 0.0, lease_s), "before the first one is acknowledged it may not"
    assert beat_every(lease_s) == 5.0


def test_the_next_look_is_when_somebody_may_be_known_to_be_dead() -> None:
    observer = Observer(15.0, 100.0)
    assert observer.silent_in(100.0) == 15.0, "of whom nothing was read"
    observer.seen("a", 1, 104.0)
    observer.seen("b", 2, 107.0)
    assert [observer.silent_in(now_s) for now_s in (110.0, 116.0, 120.0, 122.0, 122.5)] == [5.0, 3.0, 2.0, 0.0, None]


def test_a_process_stood_still_when_its_timer_is_late_by_more_than_a_busy_loop_is() -> None:
    assert not stood_still(10.0, 10.0 + LATE_S)
    assert stood_still(10.0, 10.1 + LATE_S)


def test_a_loop_is_late_when_a_timer_is_late_by_more_than_a_third_of_the_lease() -> None:
    assert [stood_still_s(10.0, fired_s, 15.0) for fired_s in (9.0, 10.0, 15.0, 15.5)] == [0.0, 0.0, 0.0, 5.5]
    assert [stood_still_s(10.0, fired_s, 0.3) for fired_s in (10.2, 11.0, 11.5)] == [0.0, 0.0, 1.5], "hardly late"


def test_a_member_that_leaves_gets_nothing_and_one_that_begins_again_stays() -> None:
    observer = Observer(15.0, 0.0)
    observer.seen("a", 1, 1.0)
    observer.seen("b", 2, 1.0)
    observer.seen("a", 3, 2.0, leaving=True)
    observer.seen("a", 1, 3.0)  # read again
    assert observer.alive(3.0) == ["b"] and not observer.dead("a", 3.0)
    assert observer.dead("a", 17.1), "what it has not given up is taken after a lease of silence"
    observer.seen("a", 4, 18.0)
    assert observer.alive(18.0) == ["a"]


def test_a_member_is_dead_after_its_own_lease_whatever_that_of_the_observer_is() -> None:
    observer = Observer(3.0, 0.0)
    observer.set_lease("read before", 15.0)
    observer.seen("slow", 1, 0.0, lease_s=15.0)
    observer.seen("older program", 2, 0.0)
    assert observer.alive(4.0) == ["slow"]
    assert [observer.dead(one, 4.0) for one in ("slow", "read before", "older program", "unknown")] == [
        *(False, False),
        *(True, True),
    ]
    assert observer.silent_in(4.0) == 11.0
    assert observer.dead("slow", 15.1) and observer.dead("read before", 15.1)
    observer.seen("slow", 3, 16.0, lease_s=3.0)  # it began again with another setting
    assert observer.dead("slow", 19.1)
