"""What a history is made of: its beginning, checkpoints, restarts; and when it is not whole."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bokiflow.model import history_fold
from bokiflow.model.delivery_order import RecordedEvents, in_order
from bokiflow.model.flow_events import (
    Begun,
    Checkpointed,
    Delivered,
    Effect,
    Emitted,
    Incoming,
    Restarted,
    Signalled,
    Sleeping,
    Started,
    Stepped,
    Withdrawn,
)
from bokiflow.model.history_fold import History, HistoryRecord
from bokiflow.model.outcomes import Outcome
from bokilib.errors import ForeignRecord, UnknownEvent

STARTED = Started("x", "n", "d", [[], {}], 0)


def begun(seqnum: int) -> HistoryRecord:
    return HistoryRecord(RecordedEvents(seqnum, seqnum, 0, started=STARTED), "a")


def step(seqnum: int, seen: int, key: str) -> HistoryRecord:
    return HistoryRecord(RecordedEvents(seqnum, seqnum, seen, (Stepped("x", key, "s", "", 0, Outcome(1)),)), "a")


def signal(seqnum: int, value: int = 0) -> HistoryRecord:
    return HistoryRecord(RecordedEvents(seqnum, seqnum, 0, incoming=(Signalled("x", "t", value or seqnum),)), "b")


def restart(seqnum: int, seen: int, run: int = 1) -> HistoryRecord:
    made = Restarted("x", run, STARTED, 1, (), 0, carried_ms=77)
    return HistoryRecord(
        RecordedEvents(seqnum, seqnum, seen, (Stepped("x", "old", "s", "", 0, Outcome(1)),)), "a", made
    )


def checkpoint(seqnum: int, covers: int, history: History) -> list[HistoryRecord]:
    data = history_fold.encode(history)
    return [
        HistoryRecord(
            RecordedEvents(seqnum + at, seqnum + at, covers),
            "a",
            None,
            (Checkpointed("x", covers, at, len(data), part),),
        )
        for at, part in enumerate(data)
    ]


def delivered(kept: list[HistoryRecord], gap: int = 0) -> list[object] | None:
    found = history_fold.fold(kept, gap)
    if found is None:
        return None
    return [getattr(one.event, "key", getattr(one.event, "value", None)) for one in in_order(found.records)]


def test_a_history_begins_where_the_workflow_did() -> None:
    rows = [signal(1), begun(2), signal(3), step(4, 2, "a"), step(5, 3, "b")]
    assert delivered(rows) == ["a", 3, "b"], "what was sent before was for who had the id then"
    assert delivered(rows, gap=1) == ["a", 3, "b"] and delivered(rows, gap=2) is not None
    assert delivered(rows[2:]) is None and delivered(rows, gap=3) is None
    assert delivered([*rows, begun(8), step(9, 8, "c")], gap=0) == ["c"], "forgotten, and started again"


def test_a_checkpoint_stands_for_all_below_it_when_all_its_parts_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_fold, "PART_DATA_BYTES", 40)
    rows = [begun(1), step(2, 1, "a"), signal(3), step(5, 1, "b")]
    base = history_fold.fold(rows, 0)
    assert base is not None and base.carried_ms == 1
    parts = checkpoint(7, 5, base)
    assert len(parts) > 2
    after = [signal(6), *parts, step(20, 6, "c")]
    assert delivered(after, gap=5) == ["a", "b", 3, 6, "c"]
    assert delivered(after, gap=6) is None, "what is above it may be missing"
    del after[2]
    assert delivered(after, gap=5) is None and delivered([*rows, *after]) == ["a", "b", 3, 6, "c"]
    found = history_fold.fold([signal(6), *parts], 5)
    assert found is not None and (found.start, found.carried_ms, found.covers) == (1, 6 + len(parts), 5)


def test_after_a_restart_only_what_was_not_delivered_counts() -> None:
    rows = [begun(1), signal(2), step(3, 2, "a"), signal(4), restart(5, 2), signal(6), step(7, 6, "b")]
    assert delivered(rows) == [4, 6, "b"]
    assert delivered(rows[3:], gap=3) == [4, 6, "b"] and delivered(rows[4:], gap=4) == [6, "b"]
    assert delivered(rows[4:], gap=6) is None
    found = history_fold.fold(rows[4:], 4)
    assert found is not None and (found.start, found.carried_ms, found.begins) == (1, 77, STARTED)


def test_a_checkpoint_keeps_the_restart_before_it_and_yields_to_the_one_after() -> None:
    rows = [begun(1), signal(2), restart(3, 1), step(5, 1, "a")]
    base = history_fold.fold(rows, 0)
    assert base is not None
    parts = checkpoint(6, 5, base)
    assert delivered(parts, gap=5) == ["a", 2]
    found = history_fold.fold([*parts, step(7, 2, "b")], 5)
    assert found is not None and found.restarted is not None and found.restarted.run == 1
    assert delivered([*parts, restart(8, 1, run=2)], gap=5) == [2], "delivered to nobody, and in the checkpoint only"


def test_topics_are_those_of_all_runs() -> None:
    emitted = HistoryRecord(RecordedEvents(6, 6, 5, (Emitted("x", "k", "new", 1),)), "a")
    made = restart(5, 1)
    assert made.restarted is not None
    first = made._replace(restarted=Restarted("x", 1, STARTED, 1, (), 0, topics=("old",)))
    found = history_fold.fold([begun(1), first, emitted], 0)
    assert found is not None and found.topics == ["old", "new"]
    many = found._replace(records=[RecordedEvents(9, 9, 0, tuple(Emitted("x", str(n), str(n), 1) for n in range(500)))])
    assert len(history_fold.encode(many)) >= 3, "one part joins so many streams and no more"


class OldRow(msgspec.Struct, array_like=True, frozen=True):
    """A row, as programs decode it that do not know `Withdrawn`."""

    seqnum: int
    time_ms: int
    seen: int
    own: tuple[Delivered | Effect | Sleeping, ...]
    incoming: tuple[Incoming, ...]


class OldData(msgspec.Struct, array_like=True, frozen=True):
    """A checkpoint, as such programs decode it."""

    started: Started
    start: int
    restarted: Restarted | None
    rows: tuple[OldRow, ...]


BEGUN, OTHER = Begun("x", "0:1", "s"), Begun("x", "0:2", "s")
WITHDRAWN, AGAIN = Withdrawn("x", "0:1", "s"), Withdrawn("x", "0:1", "s", again=True)


def drained() -> History:
    """A history with steps that a drain withdrew, in a record with others and in one of their own."""
    rows = [
        RecordedEvents(3, 3, 1, (BEGUN, WITHDRAWN, AGAIN, OTHER)),
        RecordedEvents(4, 4, 3, (WITHDRAWN,)),
        RecordedEvents(5, 5, 4, (AGAIN, Stepped("x", "0:1", "s", "", 0, Outcome(1)))),
    ]
    return History(STARTED, 1, None, rows, 5, 1)


def of_data(data: bytes) -> History | None:
    """A history of which only a checkpoint is left."""
    return history_fold.fold(
        [HistoryRecord(RecordedEvents(9, 9, 5), "a", None, (Checkpointed("x", 5, 0, 1, data),))], 5
    )


def test_a_program_of_before_reads_a_checkpoint_with_events_that_it_does_not_know() -> None:
    (data,) = history_fold.encode(drained())
    old = msgspec.msgpack.decode(data, type=OldData)
    assert [row.own for row in old.rows] == [(BEGUN, OTHER), (), (drained().records[2].own[1],)]
    found = of_data(data)
    assert found is not None and [one for one in found.records if one.own] == drained().records


def test_a_checkpoint_without_such_events_is_encoded_as_before() -> None:
    rows = (OldRow(3, 3, 1, (BEGUN, OTHER), (Signalled("x", "t", 1),)),)
    one = RecordedEvents(3, 3, 1, (BEGUN, OTHER), (Signalled("x", "t", 1),))
    assert history_fold.encode(History(STARTED, 1, None, [one], 5, 1)) == [
        msgspec.msgpack.encode(OldData(STARTED, 1, None, rows))
    ]


def test_a_checkpoint_that_has_such_events_in_its_rows_is_read_too() -> None:
    rows = [(one.seqnum, one.time_ms, one.seen, one.own, one.incoming) for one in drained().records]
    found = of_data(msgspec.msgpack.encode((STARTED, 1, None, rows)))
    assert found is not None and [one for one in found.records if one.own] == drained().records


def _with(passed: Any) -> bytes:
    return msgspec.msgpack.encode((STARTED, 1, None, [(3, 3, 1, (BEGUN, OTHER), ())], passed))


def test_events_of_later_programs_are_skipped_or_refused_with_a_sentence() -> None:
    found = of_data(_with([(0, 1, ("flow.later?", "x", 7)), (0, 1, WITHDRAWN)]))
    assert found is not None and found.records[0].own == (BEGUN, WITHDRAWN, OTHER)
    with pytest.raises(UnknownEvent, match=r"record 9 .*'flow.later'.*upgrade"):
        of_data(_with([(0, 1, ("flow.later", "x"))]))
    with pytest.raises(UnknownEvent, match=r"record 9 .*upgrade"):
        of_data(msgspec.msgpack.encode((STARTED, 1, None, [(3, 3, 1, [("flow.later", "x")], ())])))
    with pytest.raises(ForeignRecord, match="record 9 is damaged"):
        of_data(_with([])[:-1])


def test_a_restart_has_the_signals_of_the_last_parts_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts without a restart are of a worker that died; a restart whose parts are not all there is not whole."""
    monkeypatch.setattr(history_fold, "EVENT_BYTES", 100)
    monkeypatch.setattr(history_fold, "PART_DATA_BYTES", 30)
    signals = tuple(("t", f"{number}".rjust(20)) for number in range(4))
    parts, slim, last = history_fold.restart_events(Restarted("x", 1, STARTED, 1, signals, 0))
    assert len(parts) > 2 and last is not None and last.parts == len(parts) + 1 and slim.unreceived == ()
    before = [
        HistoryRecord(RecordedEvents(5 + at, 0, 0), "a", unreceived=(part,))
        for at, part in enumerate([*parts[:2], *parts])
    ]
    with_parts = HistoryRecord(RecordedEvents(20, 20, 0), "a", slim, unreceived=(last,))
    found = history_fold.fold([begun(1), *before, with_parts], 0)
    assert found is not None and found.restarted is not None and found.restarted.unreceived == signals
    assert (found.restarted_at, found.restart_from) == (20, 7)
    assert history_fold.fold([begun(1), *before[:-1], with_parts], 0) is None
    alone = HistoryRecord(RecordedEvents(20, 20, 0), "a", Restarted("x", 1, STARTED, 1, signals[:1], 0))
    found = history_fold.fold([begun(1), *before, alone], 0)
    assert found is not None and found.restarted is not None and found.restarted.unreceived == signals[:1]
    again = history_fold.fold(checkpoint(30, 25, found), 25)
    assert again is not None and again.restarted_at == 20 and again.restarted == found.restarted
