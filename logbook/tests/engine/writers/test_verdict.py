"""Verdicts: each rule by example, then all of them against a model that goes record by record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_common.engine.engine_protocol import NEWEST_FORGOTTEN, Verdict
from boki_common.ids import slot_of
from boki_common.records.record_batch import RUN_END, RUN_NAMED, RUN_RESENT, RUN_VOID, RecordBatch
from boki_common.testing.machine import CountingRandom
from boki_common.writer_ids import born_writer
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import ModelStreams, RecordSpec, RunSpec, make_batch
from boki_logbook.testing.plans import begin
from boki_logbook.writers.verdict import Answer, Decision, Verdicts

ALICE = b"alice".ljust(16, b"\0")
BOB = b"bob".ljust(16, b"\0")
PLAIN = RecordSpec()
FIRST_SEQNUM = 1 << 35


class Log:
    """Decides one batch after the other, as the indexer does."""

    def __init__(self) -> None:
        self.verdicts = Verdicts()
        self.streams = ModelStreams()
        self.end = FIRST_SEQNUM
        self.time_ms = 1_000

    def decide(self, *runs: RunSpec) -> Decision:
        batch = make_batch(*runs)
        self.streams.committed.clear()
        self.streams.batch, self.streams.first_seqnum = batch, self.end
        decision = self.verdicts.decide(
            batch.runs, batch.expectations, self.end, self.streams, self.time_ms, list(crcs_of(runs))
        )
        self.end += batch.record_count
        check_partition(decision, self.streams, batch)
        return decision


@pytest.fixture
def log() -> Log:
    return Log()


def crcs_of(runs: Iterable[RunSpec]) -> Iterator[int]:
    """One number per record of a named run, the same for the same record."""
    return (crc32(repr(record).encode()) for run in runs if run.flags & RUN_NAMED for record in run.records)


def check_partition(decision: Decision, streams: ModelStreams, batch: RecordBatch) -> None:
    """Every record either joined or lost, and every number of every run has an answer, in order."""
    spans = sorted([*decision.losers, *streams.committed])
    assert sum(stop - first for first, stop in spans) == batch.record_count
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    for at, run in enumerate(batch.runs):
        answers = [answer for answer in decision.answers if answer.run == at]
        assert sum(answer.count for answer in answers) == run.count
        number = run.first
        for answer in answers:
            assert answer.first == number
            number += answer.count
    assert [answer.run for answer in decision.answers] == sorted(answer.run for answer in decision.answers)


def run(first: int, count: int = 1, *, book: int = 7, writer: bytes = ALICE, low: int = 1, flags: int = 0) -> RunSpec:
    return RunSpec(book, writer, first, (PLAIN,) * count, low, flags)


def one(decision: Decision) -> Answer:
    (answer,) = decision.answers
    return answer


def test_first_numbers_are_committed_as_one_run(log: Log) -> None:
    answer = one(log.decide(run(1, 300)))
    assert answer == Answer(0, 1, 300, FIRST_SEQNUM, Verdict.COMMITTED, ())
    assert log.streams.committed == [(0, 300)]
    assert log.verdicts.last(7, ALICE) == 300


def test_a_duplicate_gets_the_answer_of_the_first(log: Log) -> None:
    log.decide(run(1, 4))
    answer = one(log.decide(run(2, 2)))
    assert answer == Answer(0, 2, 2, FIRST_SEQNUM + 1, Verdict.COMMITTED, ())
    assert log.streams.committed == []


def test_a_gap_decides_nothing_and_answers_the_last_number(log: Log) -> None:
    log.decide(run(1, 2))
    answer = one(log.decide(run(4, 3)))
    assert answer == Answer(0, 4, 3, 2, Verdict.GAP, ())
    assert log.verdicts.last(7, ALICE) == 2
    assert one(log.decide(run(3, 4))).verdict == Verdict.COMMITTED


def test_a_gap_of_an_unknown_writer_leaves_no_state(log: Log) -> None:
    assert one(log.decide(run(5))) == Answer(0, 5, 1, 0, Verdict.GAP, ())
    assert len(log.verdicts.writers) == 0


def test_a_void_decides_never_and_wins_over_what_comes_later(log: Log) -> None:
    assert one(log.decide(run(1, flags=RUN_VOID))).verdict == Verdict.NEVER
    assert one(log.decide(run(1))) == Answer(0, 1, 1, 0, Verdict.NEVER, ())
    log.decide(run(2))
    assert one(log.decide(run(2, flags=RUN_VOID))) == Answer(0, 2, 1, FIRST_SEQNUM + 2, Verdict.COMMITTED, ())


def expecting(first: int, *records: RecordSpec, writer: bytes = ALICE) -> RunSpec:
    return RunSpec(7, writer, first, records)


def test_expecting_none_holds_once(log: Log) -> None:
    create = RecordSpec(tags=(5,), expect=((5, 0),))
    decision = log.decide(expecting(1, create), expecting(1, create, writer=BOB))
    assert decision.answers[0].verdict == Verdict.COMMITTED
    assert decision.answers[1] == Answer(1, 1, 1, 0, Verdict.CONFLICT, ((5, FIRST_SEQNUM),))
    assert decision.losers == [(1, 2)]


def test_expecting_a_seqnum_holds_iff_nothing_is_newer(log: Log) -> None:
    log.decide(expecting(1, RecordSpec(tags=(5,)), RecordSpec(tags=(6,))))
    assert one(log.decide(expecting(3, RecordSpec(expect=((5, FIRST_SEQNUM),))))).verdict == Verdict.COMMITTED
    assert one(log.decide(expecting(4, RecordSpec(expect=((5, FIRST_SEQNUM + 9),))))).verdict == Verdict.COMMITTED
    answer = one(log.decide(expecting(5, RecordSpec(expect=((5, FIRST_SEQNUM), (6, FIRST_SEQNUM))))))
    assert answer.actual == ((5, FIRST_SEQNUM), (6, FIRST_SEQNUM + 1))
    assert answer.verdict == Verdict.CONFLICT


def test_a_losing_number_is_decided_for_ever(log: Log) -> None:
    """core-review F18: a conflict that was answered stays one, even if the condition would hold later."""
    log.decide(expecting(1, RecordSpec(tags=(5,)), writer=BOB))
    loser = expecting(1, RecordSpec(expect=((5, 0),)))
    first = one(log.decide(loser))
    log.streams.rows.clear()
    assert one(log.decide(loser)) == first
    assert one(log.decide(expecting(2, PLAIN))).verdict == Verdict.COMMITTED


def test_conditions_inside_one_run_see_the_records_before_them(log: Log) -> None:
    tagged, create = RecordSpec(tags=(5,)), RecordSpec(tags=(5,), expect=((5, 0),))
    decision = log.decide(expecting(1, PLAIN, tagged, create, PLAIN, create, PLAIN))
    assert [(answer.first, answer.count, answer.verdict) for answer in decision.answers] == [
        (1, 2, Verdict.COMMITTED),
        (3, 1, Verdict.CONFLICT),
        (4, 1, Verdict.COMMITTED),
        (5, 1, Verdict.CONFLICT),
        (6, 1, Verdict.COMMITTED),
    ]
    assert decision.losers == [(2, 3), (4, 5)]


class LookedAt(ModelStreams):
    """Counts the streams that are looked at one by one."""

    one_by_one = 0

    def newest(self, book: int, tag: int) -> int:
        self.one_by_one += 1
        return super().newest(book, tag)

    def newest_before(self, book: int, tags: Sequence[int], records: Sequence[int]) -> list[int] | None:
        before = self.one_by_one
        found = super().newest_before(book, tags, records)
        self.one_by_one = before
        return found


def test_conditions_that_hold_on_streams_of_their_own_are_looked_at_together(log: Log) -> None:
    log.streams = streams = LookedAt()
    once = [RecordSpec(tags=(tag,), expect=((tag, 0),)) for tag in range(1, 65)]
    assert one(log.decide(expecting(1, *once))) == Answer(0, 1, 64, FIRST_SEQNUM, Verdict.COMMITTED, ())
    again = [RecordSpec(tags=(tag,), expect=((tag, FIRST_SEQNUM + tag - 1),)) for tag in range(1, 65)]
    assert one(log.decide(expecting(65, *again))) == Answer(0, 65, 64, FIRST_SEQNUM + 64, Verdict.COMMITTED, ())
    assert streams.one_by_one == 0
    assert len(log.decide(expecting(129, *again)).answers) == 64
    assert streams.one_by_one == 64


def test_answers_below_low_are_forgotten(log: Log) -> None:
    log.decide(run(1, 10))
    log.decide(run(11, 1, low=6))
    decision = log.decide(run(4, 4, low=4))
    assert decision.answers == [
        Answer(0, 4, 2, 0, Verdict.FORGOTTEN, ()),
        Answer(0, 6, 2, FIRST_SEQNUM + 5, Verdict.COMMITTED, ()),
    ]


def test_a_named_writer_keeps_its_window_whatever_low_says(log: Log) -> None:
    window = limits.WINDOW_RECORDS
    log.decide(run(1, 100, flags=RUN_NAMED))
    log.decide(run(101, window, low=100, flags=RUN_NAMED))
    decision = log.decide(run(1, 101, flags=RUN_NAMED))
    assert [(answer.first, answer.verdict) for answer in decision.answers] == [
        (1, Verdict.FORGOTTEN),
        (101, Verdict.COMMITTED),
    ]


def test_answers_of_a_long_stream_stay_few(log: Log) -> None:
    for first in range(1, 5_000, 2):
        log.decide(run(first, 1, low=max(1, first - 20)), run(first + 1, 1, low=max(1, first - 20), flags=RUN_VOID))
    ((_, _, kept, *_),) = log.verdicts.state().values()
    assert isinstance(kept, tuple) and len(kept) <= 22


def test_the_end_of_a_writer_makes_nobody_forget_it(log: Log) -> None:
    log.decide(run(1, 3), run(1, 1, writer=BOB, flags=RUN_NAMED))
    log.decide(run(4, 1, flags=RUN_END))
    log.decide(RunSpec(7, BOB, 2, (), 1, RUN_END | RUN_NAMED))
    assert log.verdicts.last(7, ALICE) == 4
    assert log.verdicts.last(7, BOB) == 1
    assert {answer.verdict for answer in log.decide(run(1, 4)).answers} == {Verdict.COMMITTED}
    assert log.streams.committed == []


YOUNG, MIDDLING, OLD = (born_writer(CountingRandom(), birth) for birth in (300, 200, 100))


@pytest.mark.parametrize("flags", [0, RUN_VOID, RUN_RESENT])
def test_number_1_is_not_decided_of_a_writer_as_old_as_one_that_was_forgotten(log: Log, flags: int) -> None:
    log.decide(run(1, 3, writer=MIDDLING))
    assert log.verdicts.expire(7, MIDDLING, 3)
    for writer in (MIDDLING, OLD):
        decision = log.decide(run(1, 2, writer=writer, flags=flags))
        assert one(decision) == Answer(0, 1, 2, 200, Verdict.TOO_OLD, ())
        assert (decision.losers, log.verdicts.last(7, writer)) == ([(0, 2)], 0)
    assert one(log.decide(run(2, writer=OLD))).verdict == Verdict.GAP
    assert one(log.decide(run(1, writer=YOUNG))).verdict == Verdict.COMMITTED


def test_a_writer_goes_on_when_a_younger_one_is_forgotten(log: Log) -> None:
    log.decide(run(1, writer=OLD), run(1, writer=YOUNG))
    assert log.verdicts.expire(7, YOUNG, 1)
    assert one(log.decide(run(2, writer=OLD))).verdict == Verdict.COMMITTED


def test_floors_only_rise_and_are_of_a_slot(log: Log) -> None:
    other = next(book for book in range(8, 99) if slot_of(book) != slot_of(7))
    for writer in (YOUNG, OLD):
        log.decide(run(1, writer=writer))
        assert log.verdicts.expire(7, writer, 1) is (writer is YOUNG), "an old one did not begin"
    assert one(log.decide(run(1, writer=MIDDLING))).first_seqnum == 300
    assert one(log.decide(run(1, writer=MIDDLING, book=other))).verdict == Verdict.COMMITTED


def test_named_writers_and_those_without_a_birth_leave_no_floor_and_meet_none(log: Log) -> None:
    log.decide(run(1, writer=YOUNG, flags=RUN_NAMED), run(1))
    assert log.verdicts.expire(7, YOUNG, 1) and log.verdicts.expire(7, ALICE, 1)
    assert not log.verdicts.writers.past
    log.decide(run(1, writer=YOUNG))
    assert log.verdicts.expire(7, YOUNG, 1)
    for answered in (log.decide(run(1, writer=OLD, flags=RUN_NAMED)), log.decide(run(1))):
        assert one(answered).verdict == Verdict.COMMITTED


def test_an_expire_of_an_earlier_version_lets_a_writer_begin_anew(log: Log) -> None:
    log.decide(run(1, writer=YOUNG))
    assert log.verdicts.expire(7, YOUNG, 1, for_good=False)
    assert one(log.decide(run(1, writer=YOUNG))).verdict == Verdict.COMMITTED


def test_another_record_under_a_number_that_is_taken_is_reused(log: Log) -> None:
    records = tuple(RecordSpec(data=data) for data in (b"a", b"b", b"c"))
    log.decide(RunSpec(7, BOB, 1, records, flags=RUN_NAMED))
    other = (records[0], RecordSpec(data=b"x"), records[2])
    decision = log.decide(RunSpec(7, BOB, 1, other, flags=RUN_NAMED))
    assert [(answer.first, answer.verdict, answer.first_seqnum) for answer in decision.answers] == [
        (1, Verdict.COMMITTED, FIRST_SEQNUM),
        (2, Verdict.REUSED, 0),
        (3, Verdict.COMMITTED, FIRST_SEQNUM + 2),
    ]
    assert decision.losers == [(0, 3)]


def test_a_void_of_a_number_that_is_taken_asks_what_became_of_it(log: Log) -> None:
    log.decide(RunSpec(7, BOB, 1, (RecordSpec(data=b"a"),), flags=RUN_NAMED))
    void = RunSpec(7, BOB, 1, (RecordSpec(data=b"a"),), flags=RUN_NAMED | RUN_VOID)
    assert one(log.decide(void)).verdict == Verdict.COMMITTED
    other = void._replace(records=(RecordSpec(data=b"x"),))
    assert one(log.decide(other)).verdict == Verdict.REUSED, "the number is another record"
    log.decide(void._replace(first=2))
    late = RunSpec(7, BOB, 2, (RecordSpec(data=b"b"),), flags=RUN_NAMED)
    assert one(log.decide(late)).verdict == Verdict.NEVER


def test_checksums_go_with_the_answers_they_belong_to(log: Log) -> None:
    window = limits.WINDOW_RECORDS
    log.decide(run(1, 100, writer=BOB, flags=RUN_NAMED))
    log.decide(run(101, window, writer=BOB, flags=RUN_NAMED))
    reused = RunSpec(7, BOB, 100, (RecordSpec(data=b"x"),) * 2, flags=RUN_NAMED)
    assert [answer.verdict for answer in log.decide(reused).answers] == [Verdict.FORGOTTEN, Verdict.REUSED]
    ((*_, crcs),) = log.verdicts.state().values()
    assert isinstance(crcs, list) and len(crcs) == window


def test_an_expectation_below_the_floor_fails_where_nothing_is_known_of_the_stream(log: Log) -> None:
    log.decide(run(1))
    log.verdicts.raise_floor(7, FIRST_SEQNUM + 10)
    log.verdicts.raise_floor(7, FIRST_SEQNUM + 9)
    assert log.verdicts.floor(7) == FIRST_SEQNUM + 10
    log.streams.rows[7, 4] = [FIRST_SEQNUM]

    def expecting(tag: int, seqnum: int, number: int) -> Answer:
        return one(log.decide(RunSpec(7, ALICE, number, (RecordSpec(expect=((tag, seqnum),)),))))

    assert expecting(3, FIRST_SEQNUM + 9, 2).actual == ((3, NEWEST_FORGOTTEN),)
    assert expecting(3, FIRST_SEQNUM + 10, 3).verdict == Verdict.COMMITTED
    assert expecting(3, 0, 4).verdict == Verdict.COMMITTED
    assert expecting(4, FIRST_SEQNUM, 5).verdict == Verdict.COMMITTED, "a stream that is known was not forgotten"


def test_an_expire_drops_a_writer_that_did_not_go_on(log: Log) -> None:
    log.decide(run(1, 3))
    assert not log.verdicts.expire(7, ALICE, 2)
    assert not log.verdicts.expire(7, BOB, 0)
    assert log.verdicts.expire(7, ALICE, 3)
    assert one(log.decide(run(4))) == Answer(0, 4, 1, 0, Verdict.GAP, ())
    assert one(log.decide(run(1))).verdict == Verdict.COMMITTED


def test_named_writers_of_a_book_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boki_logbook.writers.verdict.BOOK_NAMED_WRITERS", 1)
    log = Log()
    log.decide(run(1), run(1, writer=BOB, flags=RUN_NAMED))
    assert log.verdicts.admits(7, BOB)
    assert not log.verdicts.admits(7, b"carol".ljust(16, b"\0"))
    assert log.verdicts.admits(8, b"carol".ljust(16, b"\0"))
    log.verdicts.expire(7, BOB, 1)
    assert log.verdicts.admits(7, b"carol".ljust(16, b"\0"))


def test_idle_writers_are_found_some_at_a_time(log: Log) -> None:
    writers = [bytes([number]) * 16 for number in range(1, 7)]
    for writer in writers:
        log.decide(run(1, writer=writer), run(1, writer=BOB, flags=RUN_NAMED))
        log.time_ms += 10
    log.decide(run(2, writer=writers[0]))
    found = [log.verdicts.writers.idle(1_040, 2) for _ in range(3)]
    assert found == [
        [(7, writers[1], 1), (7, writers[2], 1)],
        [(7, writers[3], 1)],
        [(7, writers[1], 1), (7, writers[2], 1)],
    ]
    assert log.verdicts.writers.idle(9_999, 9, named=True) == [(7, BOB, 1)]
    assert log.verdicts.writers.idle(9_999, 9, named=True) == [(7, BOB, 1)]


# -- the model


class Outcome(NamedTuple):
    verdict: int
    seqnum: int
    actual: tuple[tuple[int, int], ...]


class ModelWriter:
    def __init__(self) -> None:
        self.last = 0
        self.floor = 1
        self.answers: dict[int, Outcome] = {}
        self.records: dict[int, RecordSpec] = {}


class ModelVerdicts:
    """The rules of DESIGN §6.6, one record at a time."""

    def __init__(self) -> None:
        self.writers: dict[tuple[int, bytes], ModelWriter] = {}
        self.newest: dict[tuple[int, int], int] = {}
        self.floors: dict[int, int] = {}
        self.end = FIRST_SEQNUM

    def decide(self, spec: RunSpec) -> list[Outcome]:
        key = spec.book, spec.writer
        writer = self.writers.get(key, ModelWriter())
        found = []
        for number, record in enumerate(spec.records, spec.first):
            found.append(self.record(spec, writer, number, record))
            self.end += 1
        if writer.last:
            self.writers[key] = writer
        floor = writer.last - limits.WINDOW_RECORDS + 1
        if not spec.flags & RUN_NAMED:
            floor = max(floor, min(spec.low, writer.last + 1))
        writer.floor = max(writer.floor, floor)
        return found

    def record(self, spec: RunSpec, writer: ModelWriter, number: int, record: RecordSpec) -> Outcome:
        if number <= writer.last:
            if number < writer.floor:
                return Outcome(Verdict.FORGOTTEN, 0, ())
            first = writer.answers[number]
            other = writer.records[number] != record and first.verdict != Verdict.NEVER
            return Outcome(Verdict.REUSED, 0, ()) if spec.flags & RUN_NAMED and other else first
        if number > writer.last + 1:
            return Outcome(Verdict.GAP, 0, ())
        writer.last = number
        writer.records[number] = record
        actual = tuple((tag, self.seen(spec.book, tag, expected)) for tag, expected in record.expect)
        if spec.flags & RUN_VOID:
            outcome = Outcome(Verdict.NEVER, 0, ())
        elif any(newest > expected for (_, newest), (_, expected) in zip(actual, record.expect, strict=True)):
            outcome = Outcome(Verdict.CONFLICT, 0, actual)
        else:
            outcome = Outcome(Verdict.COMMITTED, self.end, ())
            for tag in (0, *record.tags):
                self.newest[spec.book, tag] = self.end
        writer.answers[number] = outcome
        return outcome

    def seen(self, book: int, tag: int, expected: int) -> int:
        newest = self.newest.get((book, tag), 0)
        return NEWEST_FORGOTTEN if not newest and 0 < expected < self.floors.get(book, 0) else newest


def per_record(decision: Decision, runs: tuple[RunSpec, ...]) -> list[list[Outcome]]:
    found: list[list[Outcome]] = [[] for _ in runs]
    for answer in decision.answers:
        for at in range(answer.count):
            seqnum = answer.first_seqnum + at if answer.verdict == Verdict.COMMITTED else 0
            found[answer.run].append(Outcome(answer.verdict, seqnum, answer.actual))
    return found


TAGS = st.integers(1, 3)
EXPECTATIONS = st.dictionaries(
    st.integers(0, 3), st.one_of(st.just(0), st.integers(FIRST_SEQNUM, FIRST_SEQNUM + 40)), max_size=2
).map(lambda expect: tuple(expect.items()))
RECORDS = st.tuples(st.lists(TAGS, max_size=2).map(tuple), st.one_of(st.just(()), st.just(()), EXPECTATIONS)).map(
    lambda drawn: RecordSpec(tags=drawn[0], expect=drawn[1])
)
NAMED = {ALICE: 0, BOB: RUN_NAMED}


@st.composite
def run_specs(draw: st.DrawFn) -> RunSpec:
    writer = draw(st.sampled_from([ALICE, BOB]))
    first = draw(st.integers(1, 12))
    flags = draw(st.sampled_from([0, 0, 0, 0, RUN_VOID, RUN_END])) | NAMED[writer]
    records = tuple(draw(st.lists(RECORDS, min_size=0 if flags & RUN_END else 1, max_size=4)))
    if flags & RUN_VOID:
        records = tuple(record._replace(expect=()) for record in records)
    return RunSpec(draw(st.integers(1, 2)), writer, first, records, draw(st.integers(1, first)), flags)


@given(
    st.lists(st.lists(run_specs(), min_size=1, max_size=4).map(tuple), max_size=12),
    st.sampled_from([0, 0, FIRST_SEQNUM + 5]),
)
def test_verdicts_equal_those_of_the_model(batches: list[tuple[RunSpec, ...]], floor: int) -> None:
    log, model = Log(), ModelVerdicts()
    model.floors[1] = floor
    log.verdicts.raise_floor(1, floor)
    for runs in batches:
        expected = [model.decide(spec) for spec in runs]
        assert per_record(log.decide(*runs), runs) == expected
        assert log.end == model.end
    for key, state in log.verdicts.state().items():
        assert (state[0], state[1]) == (model.writers[key].last, model.writers[key].floor)
    assert log.verdicts.state().keys() == model.writers.keys()
    assert {key: rows[-1] for key, rows in log.streams.rows.items()} == model.newest


NEWEST = -1
"""In the place of what is expected: the newest record as the batch begins."""
CONDITIONAL = st.tuples(
    st.lists(st.integers(1, 6), max_size=2, unique=True).map(tuple),
    st.dictionaries(st.integers(0, 6), st.sampled_from([NEWEST] * 8 + [0, FIRST_SEQNUM + 3]), max_size=2),
)
CONDITIONAL_RUNS = st.tuples(
    st.integers(1, 2), st.sampled_from([ALICE, BOB]), st.lists(CONDITIONAL, min_size=1, max_size=4)
)


@given(
    st.lists(st.lists(CONDITIONAL_RUNS, min_size=1, max_size=3), max_size=8),
    st.sampled_from([0, 0, FIRST_SEQNUM + 5]),
    st.sampled_from([1, 1_000]),
    st.booleans(),
)
def test_verdicts_with_the_index_of_an_engine_equal_those_of_the_model(
    batches: list[list[tuple[int, bytes, list[tuple[tuple[int, ...], dict[int, int]]]]]],
    floor: int,
    tail_rows: int,
    together: bool,
) -> None:
    """`together`: all runs of a batch are decided together where that can be, however few they are."""
    state, model = DecisionState(tail_rows=tail_rows), ModelVerdicts()
    model.floors[1] = floor
    state.verdicts.raise_floor(1, floor)
    places = begin(state, 1)
    for entry, drawn in enumerate(batches):
        newest, runs, following = dict(model.newest), [], {key: one.last + 1 for key, one in model.writers.items()}
        for book, writer, records in drawn:
            first = following.get((book, writer), 1)
            following[book, writer] = first + len(records)
            of_run = tuple(
                RecordSpec(
                    tags,
                    expect=tuple((tag, newest.get((book, tag), 0) if n == NEWEST else n) for tag, n in expect.items()),
                )
                for tags, expect in records
            )
            runs.append(RunSpec(book, writer, first, of_run, first))
        expected = [model.decide(spec) for spec in runs]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("boki_logbook.state.state.FEW_RUNS", 0 if together else 48)
            decision = state.apply_entry(places, make_batch(*runs), shard=0, entry=entry, time_ms=0)
        assert per_record(decision, tuple(runs)) == expected
    assert {key: state.index.newest(*key) for key in model.newest} == model.newest
