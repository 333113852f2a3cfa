"""The model's verdicts: dedupe, then condition; everything takes its place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki.testing._model import ANSWERS_KEPT, FORGET_MINUTES, FORGOTTEN, MINUTE_MS, TERM, Append, Model, Outcome
from boki_common.engine.engine_protocol import Verdict
from boki_common.ids import seqnum as pack_seqnum
from boki_common.records.record_batch import RUN_VOID
from boki_common.testing.machine import CountingRandom
from boki_common.writer_ids import born_writer
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import ModelStreams, RecordSpec, RunSpec, make_batch
from boki_logbook.testing.plans import begin
from boki_logbook.writers.verdict import Verdicts
from boki_metalog.entries.metalog_entry import Trim

AN_HOUR_MS = FORGET_MINUTES * MINUTE_MS
A, B = b"a" * 16, b"b" * 16
FIRST_SEQNUM = pack_seqnum(TERM, 0)


def append(
    number: int, *, writer: bytes = A, low: int = 1, expect: tuple[tuple[int, int], ...] = (), **more: bool
) -> Append:
    return Append(1, writer, number, low, (7,), b"x", expect, **more)


def test_numbers_are_decided_once_and_in_order() -> None:
    model = Model()
    first = model.append(append(1), 5)
    assert first.outcome is Outcome.COMMITTED
    assert model.append(append(3), 5) == model.append(append(4), 5)
    assert model.append(append(3), 5).outcome is Outcome.GAP
    assert model.append(append(3), 5).seqnum == 1
    assert model.append(append(1), 6) == first
    second = model.append(append(2), 4)
    assert second.outcome is Outcome.COMMITTED
    records = model.upwards(1, 7, 0, 2**63, 10)
    assert [record.seqnum for record in records] == [first.seqnum, second.seqnum]
    assert [record.time_ms for record in records] == [5, 6]
    assert model.end == 7, "duplicates and gaps take places too"


def test_a_losing_condition_stays_lost() -> None:
    model = Model()
    model.append(append(1, writer=B), 0)
    lost = model.append(append(1, expect=((7, 0),)), 0)
    assert lost.outcome is Outcome.CONFLICT
    assert model.append(append(1, expect=((7, 0),)), 0) == lost
    assert model.append(append(2), 0).outcome is Outcome.COMMITTED


def test_a_void_decides_its_number() -> None:
    model = Model()
    assert model.append(append(1, void=True), 0).outcome is Outcome.NEVER
    assert model.append(append(1), 0).outcome is Outcome.NEVER
    assert model.upwards(1, 0, 0, 2**63, 10) == []


def test_answers_below_low_go() -> None:
    model = Model()
    for number in (1, 2, 3):
        model.append(append(number, low=number), 0)
    assert model.append(append(1), 0).outcome is Outcome.FORGOTTEN
    assert model.append(append(3), 0).outcome is Outcome.COMMITTED
    model.forget_writers()
    assert model.append(append(4), 0).outcome is Outcome.GAP


def test_ranges() -> None:
    model = Model()
    seqnums = [model.append(append(number), 0).seqnum for number in range(1, 6)]
    upwards = model.upwards(1, 0, seqnums[1], seqnums[4], 2)
    assert [record.seqnum for record in upwards] == seqnums[1:3]
    downwards = model.downwards(1, 0, seqnums[3], seqnums[1], 10)
    assert [record.seqnum for record in downwards] == [seqnums[3], seqnums[2], seqnums[1]]
    assert model.downwards(1, 0, seqnums[3], 0, 1)[0].seqnum == seqnums[3]
    assert model.downwards(2, 0, seqnums[3], 0, 1) == model.upwards(1, 8, 0, 2**63, 1) == []
    assert model.newest(1, 7) == seqnums[4]
    assert model.newest(1, 8) == 0


def tagged(model: Model, number: int, *tags: int, now_ms: int = 0) -> int:
    answer = model.append(Append(1, A, number, 1, tags, b"x"), now_ms)
    assert answer.outcome is Outcome.COMMITTED
    return answer.seqnum


def live(model: Model, stream: int = 0) -> list[int]:
    return [record.seqnum for record in model.upwards(1, stream, 0, 2**63, 100)]


def test_a_record_lives_while_the_book_or_one_of_its_tags_holds_it() -> None:
    model = Model()
    both, _, none = tagged(model, 1, 7, 8), tagged(model, 2, 7), tagged(model, 3)
    last = tagged(model, 4, 7)
    model.trim(1, [(7, last)], 0, forget=False)
    assert (live(model), live(model, 7), live(model, 8)) == ([both, none, last], [last], [both])
    model.trim(1, [(8, last)], 0, forget=False)
    assert live(model) == [none, last]
    model.trim(1, [(0, last)], 0, forget=False)
    assert live(model) == [last]
    assert (model.mark(1, 0), model.mark(1, 7), model.mark(1, 8), model.mark(2, 7)) == (last, last, last, 0)


def test_a_mark_is_at_most_behind_the_newest_record_of_its_stream() -> None:
    model = Model()
    first, second = tagged(model, 1, 7), tagged(model, 2, 8)
    model.trim(1, [(7, 2**63 - 1), (9, second)], 0, forget=False)
    assert (model.mark(1, 7), model.mark(1, 9), model.mark(1, 0)) == (first + 1, 0, 0)
    third = tagged(model, 3, 7)
    assert live(model, 7) == [third]
    before = model.entries
    model.trim(1, [(7, first)], 0, forget=False)
    assert model.mark(1, 7) == first + 1
    assert model.entries == before + 1, "every trim is an entry of the metalog"


def test_only_old_and_empty_streams_are_forgotten() -> None:
    model = Model()
    first = tagged(model, 1, 7, now_ms=MINUTE_MS - 1)
    second = tagged(model, 2, 8, now_ms=AN_HOUR_MS)
    model.trim(1, [(7, first + 1)], AN_HOUR_MS + MINUTE_MS - 1, forget=True)
    assert model.newest(1, 7) == first, "60 whole minutes lie between them, not more"
    model.trim(1, [(7, first + 1), (8, second)], AN_HOUR_MS + MINUTE_MS, forget=True)
    assert (model.newest(1, 7), model.newest(1, 8)) == (0, second)
    tagged(model, 3, 9)
    assert model.upwards(1, 9, 0, 2**63, 1)[0].time_ms == AN_HOUR_MS + MINUTE_MS, "a trim moves the log's clock"
    lost = model.append(append(4, expect=((7, first - 1),)), 0)
    assert lost.actual == ((7, FORGOTTEN),), "what lies below the floor is not known any more"
    assert model.append(append(5, expect=((7, 0),)), 0).outcome is Outcome.COMMITTED


def test_a_record_whose_streams_are_forgotten_one_after_the_other_is_gone() -> None:
    """A stream that was forgotten has no mark any more; it holds nothing all the same."""
    model = Model()
    seqnum = tagged(model, 1, 7, 8)
    later_ms = 2 * AN_HOUR_MS
    model.trim(1, [(7, seqnum + 1)], later_ms, forget=True)
    assert live(model) == [seqnum]
    model.trim(1, [(8, seqnum + 1)], later_ms, forget=True)
    assert live(model) == []


def test_a_forgotten_book_is_as_if_it_had_never_been() -> None:
    model = Model()
    tagged(model, 1, 7, now_ms=0)
    model.append(Append(2, B, 1, 1, (), b"x"), 2 * AN_HOUR_MS)
    model.trim(1, [(0, 2**63 - 1)], 0, forget=True)
    assert (model.newest(1, 0), model.newest(1, 7), model.mark(1, 7)) == (0, 0, 0)
    assert model.append(append(2, expect=((0, 0), (7, 0))), 0).outcome is Outcome.COMMITTED


def test_a_named_writer_keeps_answers_and_knows_its_records() -> None:
    model = Model()

    def named(number: int, checksum: int = 5, *, void: bool = False) -> Outcome:
        item = Append(1, A, number, number, (), b"x", named=True, checksum=checksum, void=void)
        return model.append(item, 0).outcome

    assert [named(1), named(1), named(1, 6), named(1, void=True), named(1, 6, void=True)] == [
        Outcome.COMMITTED, Outcome.COMMITTED, Outcome.REUSED, Outcome.COMMITTED, Outcome.REUSED,
    ]  # fmt: skip
    assert [named(2, void=True), named(2)] == [Outcome.NEVER, Outcome.NEVER]
    assert model.last(1, A) == 2
    for number in range(3, ANSWERS_KEPT + 3):
        named(number)
    assert (named(2), named(3)) == (Outcome.FORGOTTEN, Outcome.COMMITTED)


@given(
    st.lists(st.one_of(st.just("forget"), st.tuples(st.integers(0, 3), st.integers(1, 3), st.booleans())), max_size=12)
)
def test_engines_refuse_writers_that_are_too_old_when_the_model_does(steps: list[str | tuple[int, int, bool]]) -> None:
    """Of one book: engines keep what they know of forgotten writers by slot."""
    writers = [*(born_writer(CountingRandom(), birth) for birth in (5, 6, 7)), A]
    model, verdicts, end = Model(), Verdicts(), int(FIRST_SEQNUM)
    for step in steps:
        if step == "forget":
            model.forget_writers()
            for (book, writer), state in list(verdicts.writers.items()):
                verdicts.expire(book, writer, state.last)
            continue
        assert isinstance(step, tuple)
        at, number, void = step
        answer = model.append(append(number, writer=writers[at], void=void), 0)
        run = RunSpec(1, writers[at], number, (RecordSpec(),), 1, RUN_VOID if void else 0)
        batch = make_batch(run)
        streams = ModelStreams()
        streams.batch, streams.first_seqnum = batch, end
        (found,) = verdicts.decide(batch.runs, batch.expectations, end, streams).answers
        end += 1
        assert (Verdict(found.verdict).name, found.first_seqnum) == (answer.outcome.name, answer.seqnum)


def test_seeking_a_time() -> None:
    model = Model()
    seqnums = [tagged(model, number, now_ms=10 * number) for number in range(1, 4)]
    assert [model.seek(time_ms) for time_ms in (0, 10, 11, 30, 31)] == [
        seqnums[0], seqnums[0], seqnums[1], seqnums[2], seqnums[2] + 1,
    ]  # fmt: skip


@given(st.integers(0, 3 * MINUTE_MS), st.integers(-2 * MINUTE_MS, 2 * MINUTE_MS))
def test_engines_forget_when_the_model_does(ordered_ms: int, beyond_ms: int) -> None:
    model, state = Model(), DecisionState()
    places = begin(state, 1)
    seqnum = tagged(model, 1, 7, now_ms=ordered_ms)
    batch = make_batch(RunSpec(1, A, 1, (RecordSpec(tags=(7,)),)))
    state.apply_entry(places, batch, shard=0, entry=0, time_ms=ordered_ms)
    assert state.index.newest(1, 7) == seqnum
    now_ms = ordered_ms + AN_HOUR_MS + beyond_ms
    model.trim(1, [(7, seqnum + 1)], now_ms, forget=True)
    state.apply_command(places, Trim(1, ((7, seqnum + 1),), True), time_ms=now_ms)
    assert model.newest(1, 7) == state.index.newest(1, 7)
