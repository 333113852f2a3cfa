"""The order of delivery: by what was seen, not by place. Against a model of an executor that flushes late."""

from __future__ import annotations

import random

from bokiflow.model.delivery_order import RecordedEvents, in_order, parts_left, recorded_events
from bokiflow.model.flow_events import Abandoned, Attempted, Fired, Signalled, Sleeping, Started, Stepped
from bokiflow.model.outcomes import Outcome


def step(key: str) -> Stepped:
    return Stepped("x", key, "s", "", 0, Outcome(1))


def signal(number: int) -> Signalled:
    return Signalled("x", "t", number)


def test_a_signal_before_the_record_of_an_earlier_delivery_comes_after_it() -> None:
    records = [
        RecordedEvents(5, 0, 0, incoming=(signal(1),)),
        RecordedEvents(6, 0, 4, own=(step("0:1"),)),
        RecordedEvents(7, 0, 6, own=(step("0:2"),)),
        RecordedEvents(8, 0, 0, incoming=(signal(2),)),
    ]
    assert [one.event for one in in_order(records)] == [step("0:1"), signal(1), step("0:2"), signal(2)]


def test_one_record_may_have_both() -> None:
    found = recorded_events(3, 9, 1, [step("0:1"), signal(1), Started("x", "n", "d", [], 0)])
    assert found.own == (step("0:1"),) and found.incoming == (signal(1),) and found.started is not None
    assert [one.event for one in in_order([found])] == [step("0:1"), signal(1)]


def live_and_log(chances: random.Random, *, by_seen: bool) -> tuple[list[object], list[RecordedEvents]]:
    """An executor whose records land later than signals do; what was delivered, and its log."""
    delivered: list[object] = []
    log: list[RecordedEvents] = []
    seqnum = seen = number = 0
    pending: list[Signalled] = []
    places: list[int] = []
    opened: list[Stepped] = []
    opened_seen = 0
    for _ in range(chances.randrange(5, 30)):
        what = chances.randrange(4)
        seqnum += 1
        if what == 0:
            number += 1
            log.append(RecordedEvents(seqnum, 0, 0, incoming=(signal(number),)))
            pending.append(signal(number))
            places.append(seqnum)
        elif what == 1 and pending:
            if opened and by_seen:
                log.append(RecordedEvents(seqnum, 0, opened_seen, own=tuple(opened)))
                opened = []
            delivered.append(pending.pop(0))
            seen = places.pop(0)
        elif what == 2:
            opened_seen = seen if not opened else opened_seen
            opened.append(step(f"0:{seqnum}"))
            delivered.append(opened[-1])
        elif opened:
            log.append(RecordedEvents(seqnum, 0, opened_seen if by_seen else seen, own=tuple(opened)))
            opened = []
    if opened:
        log.append(RecordedEvents(seqnum + 1, 0, opened_seen if by_seen else seen, own=tuple(opened)))
    return [*delivered, *pending], log


def test_any_history_is_delivered_again_in_its_order() -> None:
    for seed in range(2_000):
        delivered, log = live_and_log(random.Random(seed), by_seen=True)
        assert [one.event for one in in_order(log)] == delivered, seed


def test_a_record_left_open_while_a_signal_is_delivered_is_found() -> None:
    wrong = 0
    for seed in range(200):
        delivered, log = live_and_log(random.Random(seed), by_seen=False)
        wrong += [one.event for one in in_order(log)] != delivered
    assert wrong > 20


def test_timers_and_sleeps_are_own() -> None:
    own: list[Fired | Sleeping] = [Fired("x", "0:1", 5), Sleeping("x", "0:1", 5)]
    assert recorded_events(1, 0, 0, own).own == tuple(own)


def test_parts_may_run_until_they_are_abandoned_or_their_transaction_ended() -> None:
    called = [Attempted("x", key, attempt, child, "n", 0) for key, attempt, child in ("1aA", "1bB", "1bC", "2aD")]
    rows = [RecordedEvents(5 + at, 0, 0, own=(one,)) for at, one in enumerate(called)]
    assert parts_left(rows) == called
    rows.append(RecordedEvents(10, 0, 9, own=(Abandoned("x", "1", "A"), Abandoned("x", "1", "C"))))
    assert parts_left(rows) == [called[1], called[3]]
    rows.append(RecordedEvents(11, 0, 10, own=(step("1"),)))
    assert parts_left(rows) == [called[3]]
