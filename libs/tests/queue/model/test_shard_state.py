"""The fold of a consumer stream: idempotent, and the same from any checkpoint."""

from __future__ import annotations

import random

from bokilib.records.dedup import DedupWindow
from bokiqueue.model.events import Acked, Checkpoint, ConsumerEvent, Dead, Delivered, Id, Nacked
from bokiqueue.model.shard_state import Progress, StreamRecord, decode, fold


def fields(progress: Progress) -> tuple[object, ...]:
    return (
        progress.floor,
        progress.upto,
        sorted(progress.over),
        sorted(progress.held),
        sorted(progress.attempts.items()),
        sorted(progress.due.items()),
    )


def story(seed: int) -> list[ConsumerEvent]:
    """What an owner of six messages may write."""
    chances, events = random.Random(seed), list[ConsumerEvent]()
    state = Progress(1, DedupWindow(0))
    for _ in range(12):
        ids = [id for number in range(1, 7) if not state.is_finished(id := Id(number, 0))]
        if not ids:
            break
        id = chances.choice(ids)
        event: ConsumerEvent
        match chances.randrange(4):
            case 0:
                between = tuple(one for one in ids if state.upto < one < id)
                again = () if id > state.upto else ((id.seqnum, 0, state.attempt(id) + 1),)
                event = Delivered("s", id if id > state.upto else state.upto, between, again)
            case 1:
                event = Acked("s", (id,))
            case 2:
                event = Nacked("s", ((id.seqnum, 0, max(1, state.attempt(id)), 1_000),))
            case _:
                event = Dead("s", (id,)) if chances.random() < 0.3 else Acked("s", (id,))
        state.apply(event)
        events.append(event)
    return events


def test_from_a_checkpoint_composed_at_any_place_it_comes_to_the_same() -> None:
    for seed in range(200):
        events = story(seed)
        whole = fold([StreamRecord(place, 0, "me", [event]) for place, event in enumerate(events, 1)], 1, 0).progress
        for composed in range(len(events) + 1):
            known = Progress(1, DedupWindow(0))
            for event in events[:composed]:
                known.apply(event)
            for covers in range(composed + 1):
                rows = [
                    StreamRecord(place, 0, "me", [event]) for place, event in enumerate(events, 1) if place > covers
                ]
                rows.append(StreamRecord(100, 0, "me", [Checkpoint("s", covers, 0, 1, known.encode())]))
                assert fields(fold(rows, 1, 0).progress) == fields(whole), (seed, composed, covers)


def test_a_state_comes_back_from_its_bytes_and_in_parts() -> None:
    progress = Progress(7, DedupWindow(1_000, {"a": 5}))
    progress.read, progress.upto = 40, Id(30, 2)
    for id in (Id(9, 0), Id(9, 1), Id(9, 3), Id(12, 0)):
        progress.ends(id)
    progress.held, progress.attempts, progress.due = {Id(8, 0)}, {Id(7, 0): 3}, {Id(7, 0): 99}
    data = progress.encode()
    again = decode(data, 1_000)
    assert fields(again) == fields(progress)
    assert (again.read, again.window.items()) == (40, [("a", 5)])
    rows = [
        StreamRecord(50 + part, 0, "me", [Checkpoint("s", 45, part, 2, data[part * 20 :][: 20 if not part else None])])
        for part in (0, 1)
    ]
    folded = fold(rows, 1, 1_000)
    assert (folded.covers, fields(folded.progress)) == (45, fields(progress))
    assert fold(rows[1:], 1, 1_000).covers == 0


def test_below_the_floor_all_is_over_and_forgotten() -> None:
    progress = Progress(1, DedupWindow(0))
    progress.read = 9
    progress.ends(Id(2, 0))
    progress.ends(Id(5, 0))
    progress.raise_floor(Id(4, 0))
    assert (progress.floor, progress.over) == (Id(4, 0), {Id(5, 0)})
    progress.raise_floor(Id(progress.read + 1, 0))
    assert (progress.floor, progress.over, progress.is_finished(Id(9, 3))) == (Id(10, 0), set(), True)
    progress.apply(Nacked("s", ((2, 0, 1, 5),)))
    assert not progress.due


def test_a_purge_finishes_messages_that_an_owner_still_has_to_compare() -> None:
    none = fold([], 9, 1_000, 3).progress
    assert (none.floor, none.read, none.needs, none.is_finished(Id(8, 7))) == (Id(9, 0), 2, Id(3, 0), True)
    kept = Progress(3, DedupWindow(1_000, {"x": 1}))
    kept.read = 6
    rows = [StreamRecord(7, 0, "me", [Checkpoint("s", 5, 0, 1, kept.encode())])]
    found = fold(rows, 9, 1_000, 3).progress
    assert (found.floor, found.needs, found.window.items()) == (Id(9, 0), Id(7, 0), [("x", 1)])
    found.read = 20
    assert found.needs == Id(9, 0)
    assert fold(rows, 9, 1_000).progress.needs == Id(9, 0), "nothing below belongs to the group"


def test_what_could_not_be_opened_has_no_messages_until_one_is_handed_out() -> None:
    progress = Progress(1, DedupWindow(1_000))
    progress.apply(Delivered("s", Id(7, 0), (), (), (5,)))
    for known in (progress, decode(progress.encode(), 1_000)):
        assert known.is_delivered(Id(6, 0)) and not known.is_delivered(Id(5, 0)) and known.attempt(Id(5, 1)) == 0
        known.apply(Delivered("s", Id(7, 0), (), ((5, 0, 1),)))
        assert (known.attempt(Id(5, 0)), known.attempt(Id(5, 1))) == (1, 0)
        known.raise_floor(Id(6, 0))
        assert not known.unopened
