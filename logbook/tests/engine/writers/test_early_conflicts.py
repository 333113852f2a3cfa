"""Certain losers: who may be answered at once, and that the log says the same afterwards, whatever comes in between."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boki_common import ids
from boki_common.engine.answers import AnswerRow
from boki_common.engine.engine_protocol import NEWEST_FORGOTTEN, Token, Verdict
from boki_common.ids import Position
from boki_common.records.record_batch import RUN_END, RUN_NAMED, RUN_RESENT, RecordBatch
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RecordingSource, RecordSpec, RunSpec, append, make_batch
from boki_logbook.testing.plans import begin
from boki_logbook.writers.early_conflicts import early_conflicts
from boki_metalog.entries.metalog_entry import Trim

ALICE = b"alice".ljust(16, b"\0")
BOB = b"bob".ljust(16, b"\0")
BOOK = 7
HOUR_MS: Final = 3_600_000
SEEN: Final = {0: Position(1, 9)}


class Engine:
    """A state, and what is shown of it: `hidden` positions at its end are of a cut that is not passed."""

    def __init__(self) -> None:
        self.state = DecisionState()
        self.places = begin(self.state, 1)
        self.entry = self.hidden = 0
        self.behind = False

    def apply(self, batch: RecordBatch, time_ms: int = 0) -> list[tuple[int, int, int]]:
        """(first number, count, verdict) of each answer."""
        decision = self.state.apply_entry(self.places, batch, shard=0, entry=self.entry, time_ms=time_ms)
        self.entry += 1
        return [(answer.first, answer.count, answer.verdict) for answer in decision.answers]

    def view_after(self, token: Token, book: int) -> tuple[dict[int, Position], int] | None:
        end = self.places.end_pos - self.hidden
        return None if self.behind else (dict(SEEN), ids.seqnum(1, end - 1) if end else 0)


def at(pos: int) -> int:
    return ids.seqnum(1, pos)


@pytest.fixture
def engine() -> Engine:
    """With two records in stream 5."""
    engine = Engine()
    engine.apply(make_batch(RunSpec(BOOK, ALICE, 1, (RecordSpec(tags=(5,)), RecordSpec(tags=(5,))))))
    return engine


def attempt(*records: RecordSpec, flags: int = 0, first: int = 1) -> RecordBatch:
    return make_batch(RunSpec(BOOK, BOB, first, records, flags=flags))


LOSER = RecordSpec(tags=(5, 6), data=b"payload", expect=((5, at(0)),))


def test_a_certain_loser_is_answered_and_loses_its_payload(engine: Engine) -> None:
    found = early_conflicts(
        attempt(RecordSpec((8,), b"before"), LOSER, RecordSpec((9,), b"after")), {}, engine.state, engine
    )
    assert found is not None
    assert found.token == SEEN
    assert found.rows == [AnswerRow(BOOK, BOB, 2, 0, at(1), 1, Verdict.CONFLICT, ((5, at(1)),))]
    batch = RecordBatch.parse(found.batch._view)  # checked, not trusted
    assert [bytes(batch.payload(record)) for record in range(3)] == [b"\0\0before", b"\0\0", b"\0\0after"]
    assert [batch.record_tags(record).tolist() for record in range(3)] == [[8], [], [9]]
    assert engine.apply(batch) == [(1, 1, Verdict.COMMITTED), (2, 1, Verdict.CONFLICT), (3, 1, Verdict.COMMITTED)]


@pytest.mark.parametrize(
    ("record", "flags"),
    [
        (RecordSpec(expect=((5, at(1)),)), 0),
        (RecordSpec(expect=((6, 0),)), 0),
        (RecordSpec(), 0),
        (RecordSpec(expect=((5, 0),)), 0),
        (LOSER, RUN_RESENT),
        (LOSER, RUN_NAMED),
        (LOSER, RUN_NAMED | RUN_RESENT),
    ],
    ids=["it holds", "no record, and none is there", "nothing is expected", "no record: the stream may be forgotten",
         "sent before", "has a name", "both"],
)  # fmt: skip
def test_what_may_hold_is_left_to_the_log(engine: Engine, record: RecordSpec, flags: int) -> None:
    assert early_conflicts(attempt(record, flags=flags), {}, engine.state, engine) is None


def test_an_engine_that_lags_its_caller_says_nothing(engine: Engine) -> None:
    engine.behind = True
    assert early_conflicts(attempt(LOSER), {0: Position(9, 9)}, engine.state, engine) is None


def test_a_winner_of_a_cut_that_is_not_passed_is_not_named(engine: Engine) -> None:
    engine.hidden = 1
    assert early_conflicts(attempt(LOSER), {}, engine.state, engine) is None


def test_a_forgotten_stream_fails_what_expected_less_than_its_floor(engine: Engine) -> None:
    engine.state.apply_command(engine.places, Trim(BOOK, ((5, at(9)),), forget=True), time_ms=2 * HOUR_MS)
    found = early_conflicts(attempt(LOSER), {}, engine.state, engine)
    assert found is not None
    assert found.rows[0].actual == ((5, NEWEST_FORGOTTEN),)


def test_other_runs_of_the_batch_stay_as_they_are(engine: Engine) -> None:
    runs = [
        RunSpec(BOOK, BOB, 1, (LOSER,)),
        RunSpec(8, ALICE, 4, (RecordSpec((1, 2), b"x", ((3, 4),)), RecordSpec((), b"y")), low=2, flags=RUN_NAMED),
        RunSpec(9, BOB, 7, (), flags=RUN_END),
    ]
    before = make_batch(*runs)
    found = early_conflicts(before, {}, engine.state, engine)
    assert found is not None
    runs[0] = RunSpec(BOOK, BOB, 1, (RecordSpec(expect=LOSER.expect),))
    assert bytes(found.batch._view) == bytes(make_batch(*runs)._view)


TAGS = (0, 5, 6)
EXPECT = st.lists(st.tuples(st.sampled_from(TAGS), st.integers(0, 12)), max_size=2, unique_by=lambda pair: pair[0])
RECORDS = st.lists(st.tuples(st.sets(st.sampled_from((5, 6)), max_size=2), EXPECT), min_size=1, max_size=4)
STEPS = st.lists(st.one_of(RECORDS, st.tuples(st.sampled_from(TAGS), st.integers(0, 12), st.booleans())), max_size=5)


def specs(records: list[tuple[set[int], list[tuple[int, int]]]]) -> tuple[RecordSpec, ...]:
    return tuple(
        RecordSpec(tuple(sorted(tags)), b"data", tuple((tag, pos and at(pos - 1)) for tag, pos in expect))
        for tags, expect in records
    )


@settings(max_examples=100, deadline=None)
@given(before=STEPS, asked=RECORDS, after=STEPS)
def test_the_log_decides_what_was_answered_early_and_all_else_as_without_it(
    before: list[object], asked: list[tuple[set[int], list[tuple[int, int]]]], after: list[object]
) -> None:
    one, other = Engine(), Engine()
    number = time_ms = 0

    def go_on(steps: list[object]) -> None:
        nonlocal number, time_ms
        for step in steps:
            time_ms += HOUR_MS
            for engine in (one, other):
                if isinstance(step, list):
                    engine.apply(make_batch(RunSpec(BOOK, ALICE, number + 1, specs(step))), time_ms)
                elif isinstance(step, tuple):
                    tag, pos, forget = step
                    command = Trim(BOOK, ((tag, at(pos)),), forget)
                    engine.state.apply_command(engine.places, command, time_ms=time_ms)
            number += len(step) if isinstance(step, list) else 0

    go_on(before)
    batch = make_batch(RunSpec(BOOK, BOB, 1, specs(asked)))
    found = early_conflicts(batch, {}, one.state, one)
    reported = [] if found is None else [row.first for row in found.rows]
    go_on(after)
    answers = one.apply(batch)
    assert other.apply(batch if found is None else found.batch) == answers
    decided = {first + index: verdict for first, count, verdict in answers for index in range(count)}
    assert [decided[first] for first in reported] == [Verdict.CONFLICT] * len(reported)
    assert one.state.index.streams() == other.state.index.streams()
    assert one.places.losers() == other.places.losers()


async def test_an_engine_answers_a_conflict_before_the_record_is_ordered(cluster: Any, core: Any) -> None:
    source = RecordingSource()
    append(core, source, RunSpec(BOOK, ALICE, 1, (RecordSpec(tags=(5,)), RecordSpec(tags=(5,)))))
    await cluster.until(lambda: source.rows)
    first = source.rows[0].first_seqnum
    cluster.ledgers.hold_acks = True
    found = core.early_conflicts({}, attempt(RecordSpec((5,), b"late", ((5, first),))))
    assert found is not None
    assert found.rows[0].actual == ((5, first + 1),)
    assert found.token == core.view_of(BOOK)[0]
    assert core.early_conflicts({0: Position(1, 99)}, attempt(RecordSpec((5,), b"late", ((5, first),)))) is None
