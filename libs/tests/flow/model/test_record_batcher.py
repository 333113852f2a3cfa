"""What is appended, record by record."""

from __future__ import annotations

from bokiflow.model.flow_events import Begun, Emitted, Signalled, Sleeping, Stepped, Withdrawn
from bokiflow.model.outcomes import Outcome
from bokiflow.model.record_batcher import RECORD_BYTES, TAGS, BatchEntry, EventBatch, RecordBatcher


def step(key: str, value: object = None) -> BatchEntry:
    return BatchEntry(Stepped("x", key, "s", "", 0, Outcome(value)), delivers=True)


def effect(key: str, tags: int = 0) -> BatchEntry:
    return BatchEntry(Emitted("x", key, "t", 1), tags=tags)


def begun(key: str) -> BatchEntry:
    return BatchEntry(Begun("x", key, "s"), begins=True)


SLEEP = BatchEntry(Sleeping("x", "0:9", 5), lazy=True)


def keys(batch: EventBatch[str] | None) -> list[str]:
    assert batch is not None
    return [str(getattr(entry.event, "key", "")) for entry in batch.items]


def test_what_happens_while_a_record_is_under_way_is_the_next_one() -> None:
    batcher: RecordBatcher[str] = RecordBatcher(3)
    batcher.add(step("1"))
    batcher.when_appended("body")
    first = batcher.next()
    batcher.add(step("2"))
    batcher.add(effect("3"))
    assert keys(first) == ["1"] and first is not None and (first.after, first.seen) == (["body"], 3)
    assert keys(batcher.next()) == ["2", "3"] and batcher.next() is None


def test_an_open_record_is_closed_before_an_event_of_others_is_delivered() -> None:
    batcher: RecordBatcher[str] = RecordBatcher(3)
    batcher.add(step("1"))
    batcher.saw(7)
    batcher.add(step("2"))
    batcher.when_appended("body")
    first, second = batcher.next(), batcher.next()
    assert first is not None and second is not None
    assert (keys(first), first.seen, first.after) == (["1"], 3, [])
    assert (keys(second), second.seen, second.after) == (["2"], 7, ["body"])


def test_effects_alone_stay_open() -> None:
    batcher: RecordBatcher[str] = RecordBatcher(3)
    batcher.add(effect("1"))
    batcher.saw(7)
    batcher.add(effect("2"))
    found = batcher.next()
    assert found is not None and (keys(found), found.seen) == (["1", "2"], 7)


def test_what_is_lazy_goes_with_something_else_or_not_at_all() -> None:
    batcher: RecordBatcher[str] = RecordBatcher(0)
    batcher.add(SLEEP)
    assert batcher.next() is None
    batcher.when_appended("body")
    found = batcher.next()
    assert found is not None and not found.items and found.after == ["body"]
    batcher.add(step("1"))
    assert keys(batcher.next()) == ["0:9", "1"]
    batcher.add(SLEEP)
    batcher.drop("0:9")
    batcher.add(step("2"))
    assert keys(batcher.next()) == ["2"]


def test_records_stay_within_the_bounds_of_the_log() -> None:
    batcher: RecordBatcher[str] = RecordBatcher(0)
    for number in range(3):
        batcher.add(step(str(number), "a" * (RECORD_BYTES // 2)))
    for number in range(3, 5):
        batcher.add(effect(str(number), tags=TAGS // 2 + 1))
    batcher.when_appended("body")
    found = []
    while (batch := batcher.next()) is not None:
        found.append((keys(batch), batch.after))
    assert found == [(["0"], []), (["1"], []), (["2", "3"], []), (["4"], ["body"])]


def test_something_from_others_is_no_delivery_of_its_own() -> None:
    batcher: RecordBatcher[str] = RecordBatcher(0)
    batcher.add(BatchEntry(Signalled("y", "t", 1)))
    batcher.saw(5)
    found = batcher.next()
    assert found is not None and found.seen == 5


def test_while_it_holds_what_is_delivered_is_recorded_and_no_step_begins() -> None:
    batcher: RecordBatcher[str] = RecordBatcher(3)
    for entry in (step("1"), effect("2"), begun("3"), effect("4")):
        batcher.add(entry)
    batcher.when_appended("begin 3")
    batcher.saw(7)
    batcher.add(step("5"))
    batcher.when_appended("end")
    batcher.hold(lambda after: after == "begin 2")
    assert (first := batcher.next()) is not None and (keys(first), first.seen, first.after) == (["1", "2"], 3, [])
    assert (second := batcher.next()) is not None and (keys(second), second.seen, second.after) == (["5"], 7, [])
    batcher.add(effect("6"))
    batcher.when_appended("more")
    assert (
        batcher.next() is None
        and batcher.is_empty
        and [getattr(one.event, "key", "") for one in batcher.held]
        == [
            "3",
            "4",
            "6",
        ]
    )
    batcher.add(BatchEntry(Withdrawn("x", "0", "s"), note=True))
    assert keys(batcher.next()) == ["0"]


def test_while_it_holds_and_no_step_is_to_begin_all_is_recorded() -> None:
    batcher: RecordBatcher[str] = RecordBatcher(3)
    batcher.add(step("1"))
    batcher.when_appended("first")
    batcher.hold(lambda after: False)
    batcher.add(effect("2"))
    batcher.when_appended("second")
    assert (found := batcher.next()) is not None and (keys(found), found.after) == (["1", "2"], ["first", "second"])


def test_a_record_of_which_all_is_held_back_is_none() -> None:
    batcher: RecordBatcher[str] = RecordBatcher(3)
    batcher.add(step("1"))
    batcher.saw(7)
    batcher.add(begun("2"))
    batcher.hold(lambda after: False)
    assert keys(batcher.next()) == ["1"] and batcher.next() is None and batcher.is_empty
