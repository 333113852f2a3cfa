"""Writers in rows and writers in objects get the same verdicts, whichever way they are looked up."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_common.engine.engine_protocol import Verdict
from boki_common.records.record_batch import RUN_END, RUN_RESENT, Run
from boki_common.testing.machine import CountingRandom
from boki_common.writer_ids import born_writer
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch
from boki_logbook.writers.verdict import Decision, Verdicts
from boki_logbook.writers.writer_table import WRITER_KEY, WriterTable

PLAIN = RecordSpec()
WRITERS = [bytes([number]) * 16 for number in range(1, 5)]
FIRST_SEQNUM = 1_000


WRITTEN = 4


class NoStreams:
    """Notes what joins; the stream of one tag has a record, all others have none."""

    def __init__(self) -> None:
        self.joined: list[tuple[int, int]] = []

    def commit(self, first: int, stop: int) -> None:
        self.joined.append((first, stop))

    def newest(self, book: int, tag: int) -> int:
        return FIRST_SEQNUM - 1 if tag == WRITTEN else 0

    def newest_before(self, book: int, tags: Sequence[int], records: Sequence[int]) -> list[int]:
        return [self.newest(book, tag) for tag in tags]


class Log:
    """One engine; `together`: it tries to decide all runs of a batch together."""

    def __init__(self, *, together: bool) -> None:
        self.verdicts = Verdicts()
        self.end = FIRST_SEQNUM
        self.together = together
        self.decided_together = 0

    def decide(self, *runs: RunSpec) -> tuple[list[object], list[tuple[int, int]], list[tuple[int, int]]]:
        batch, streams = make_batch(*runs), NoStreams()
        decision: Decision | None = None
        if self.together:
            decision = self.verdicts.decide_unconditional(
                batch.run_columns, batch.expectations, self.end, streams, self.end
            )
        if decision is None:
            decision = self.verdicts.decide(batch.runs, batch.expectations, self.end, streams, self.end)
        else:
            self.decided_together += 1
            assert decision.all_committed(len(runs))
        self.end += batch.record_count
        return list(decision.answers), decision.losers, streams.joined


def run(writer: int, first: int, count: int = 1, *, low: int = 0, book: int = 7, flags: int = 0) -> RunSpec:
    return RunSpec(book, WRITERS[writer], first, (PLAIN,) * count, low or first, flags)


@st.composite
def histories(draw: st.DrawFn) -> list[list[RunSpec]]:
    """Batches of runs of which most are what a writer would send next."""
    following = dict.fromkeys(range(4), 1)
    batches = []
    for _ in range(draw(st.integers(1, 8))):
        batch = []
        for writer in draw(st.lists(st.sampled_from(range(4)), min_size=1, max_size=4)):
            first = max(1, following[writer] + draw(st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1])))
            low = draw(st.sampled_from([first, first, first, first, 1]))
            count = draw(st.integers(1, 3))
            flags = draw(st.sampled_from([0] * 10 + [RUN_RESENT, RUN_END]))
            expect = draw(st.sampled_from([()] * 10 + [((3, 0),), ((3, 0), (WRITTEN, FIRST_SEQNUM)), ((WRITTEN, 0),)]))
            batch.append(RunSpec(7, WRITERS[writer], first, (RecordSpec(expect=expect),) * count, low, flags))
            if first == following[writer]:
                following[writer] = first + count
        batches.append(batch)
    return batches


@given(histories())
def test_runs_decided_together_are_decided_as_one_by_one(batches: list[list[RunSpec]]) -> None:
    one, other = Log(together=True), Log(together=False)
    for runs in batches:
        assert one.decide(*runs) == other.decide(*runs)
        assert one.verdicts.state() == other.verdicts.state()
        assert len(one.verdicts.writers) == len(other.verdicts.writers) == len(one.verdicts.state())


def test_a_batch_of_other_forms_changes_nothing_and_is_decided_run_by_run() -> None:
    log = Log(together=True)
    log.decide(run(0, 1), run(1, 1, 3))
    before = log.verdicts.state()
    some = Run(7, WRITERS[0], 2, 2, 1, 0, 0, 0)
    for lame in (
        some._replace(writer=WRITERS[1], first=5, low=5),  # a gap
        some._replace(writer=WRITERS[1], first=4, low=1),  # awaits what came before
        some._replace(writer=WRITERS[1], first=4, low=4, flags=RUN_RESENT),
        some._replace(writer=WRITERS[2], first=2, low=2),  # nobody knows it
        some._replace(first=3, low=3),  # the same writer twice
        some._replace(writer=WRITERS[1], first=4, low=4, count=limits.WINDOW_RECORDS + 1),
        some._replace(writer=WRITERS[1], first=4, low=4, count=0),
    ):
        columns = make_batch(run(0, 2), run(1, 4)).run_columns.copy()
        columns[1] = (lame.book, lame.writer, b"", *lame[2:])
        columns["key"][1] = WRITER_KEY.pack(lame.book, lame.writer)
        assert not log.verdicts.writers.commit_unconditional(columns, 2_000, 1)
        assert log.verdicts.state() == before
    assert log.decided_together == 1


def test_runs_are_decided_together_only_while_all_that_they_expect_holds() -> None:
    log = Log(together=True)
    holds, fails = RecordSpec(expect=((3, 0),)), RecordSpec(expect=((WRITTEN, 0),))
    log.decide(*(RunSpec(7, writer, 1, (holds, PLAIN), 1) for writer in WRITERS[:3]))
    assert log.decided_together == 1
    last = RunSpec(7, WRITERS[2], 3, (PLAIN, fails), 3)
    answers, losers, _ = log.decide(*(RunSpec(7, writer, 3, (PLAIN, holds), 3) for writer in WRITERS[:2]), last)
    assert log.decided_together == 1
    assert (len(answers), losers) == (4, [(5, 6)])


def test_a_writer_leaves_its_row_for_what_a_row_cannot_say_and_comes_back() -> None:
    log = Log(together=True)
    writers = log.verdicts.writers
    log.decide(run(0, 1), run(1, 1))
    log.decide(run(0, 2, low=1))
    assert (len(writers.rows), len(writers.states)) == (1, 1)
    assert log.decide(run(0, 1, low=1))[0] == [(0, 1, 1, FIRST_SEQNUM, 0, ())]
    log.decide(run(0, 3, low=3))
    assert len(writers.states) == 1, "one alone stays what it is"
    log.decide(run(0, 4), run(1, 2), run(2, 1))
    assert (len(writers.rows), len(writers.states), log.decided_together) == (3, 0, 2)
    assert {writer for _, writer in writers} == set(WRITERS[:3])
    assert [log.verdicts.last(7, writer) for writer in WRITERS] == [4, 2, 1, 0]


def test_rows_of_writers_that_went_are_used_again_and_are_idle_no_more() -> None:
    log = Log(together=False)
    for book in range(200):
        log.decide(run(0, 1, book=book))
    writers = log.verdicts.writers
    used = writers._used
    assert all(log.verdicts.expire(book, WRITERS[0], 1) for book in range(0, 200, 2))
    assert not log.verdicts.expire(0, WRITERS[0], 0), "it is gone"
    idle = log.verdicts.writers.idle(2**40, 1_000)
    assert idle == [(book, WRITERS[0], 1) for book in range(1, 200, 2)]
    for book in range(1_000, 1_100):
        log.decide(run(1, 1, book=book))
    assert (writers._used, len(writers)) == (used, 200)
    assert {book for book, _ in writers} == {*range(1, 200, 2), *range(1_000, 1_100)}


def test_a_search_for_idle_rows_goes_on_behind_those_it_found() -> None:
    log = Log(together=False)
    for book in range(10):
        log.decide(run(0, 1, book=book))
    found = [[one.book for one in log.verdicts.writers.idle(FIRST_SEQNUM + 9, 4)] for _ in range(4)]
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8], [0, 1, 2, 3]]


def test_rows_are_restored_as_they_were() -> None:
    log = Log(together=True)
    log.decide(*(run(0, 1, 2, book=book) for book in range(100)))
    log.decide(run(1, 1), run(1, 2, low=1))
    writers, again = log.verdicts.writers, WriterTable()
    again.restore(writers.columns(), {WRITER_KEY.unpack(key): state for key, state in writers.states.items()})
    verdicts = Verdicts()
    verdicts.restore(again, {})
    assert verdicts.state() == log.verdicts.state()
    again.keep(lambda book: book == 7)
    assert sorted(again) == [(7, WRITERS[0]), (7, WRITERS[1])]
    assert ((7, WRITERS[1]) in again, (8, WRITERS[0]) in again) == (True, False)
    assert again.last(7, WRITERS[0]) == 2


def test_a_hint_that_leads_elsewhere_or_to_a_writer_that_went_is_not_believed() -> None:
    log, plain = Log(together=True), Log(together=False)
    everybody = [run(0, 1, book=book) for book in range(3)]  # one writer's bits: one hint for all
    following = [run(0, 2, book=book) for book in range(3)]
    for runs in (everybody, following):
        assert log.decide(*runs) == plain.decide(*runs)
    assert log.decided_together == 2
    assert log.verdicts.expire(2, WRITERS[0], 2) and plain.verdicts.expire(2, WRITERS[0], 2)
    again = run(0, 3, book=2)
    assert log.decide(again) == plain.decide(again)
    begun = [run(0, 3, book=0), run(0, 1, book=2)]
    assert log.decide(*begun) == plain.decide(*begun)
    assert (log.verdicts.state(), log.decided_together) == (plain.verdicts.state(), 3)


def test_rows_stay_as_many_as_a_power_of_two_as_hints_need_it() -> None:
    log = Log(together=True)
    log.decide(*(run(0, 1, book=book) for book in range(100)))
    again = WriterTable()
    again.restore(log.verdicts.writers.columns(), {})
    verdicts = Verdicts()
    verdicts.restore(again, {})
    restored = Log(together=True)
    restored.verdicts, restored.end = verdicts, log.end
    for first in (2, 3):
        runs = [run(0, first, book=book) for book in range(100)]
        assert log.decide(*runs) == restored.decide(*runs)
    assert (log.verdicts.state(), restored.decided_together) == (restored.verdicts.state(), 2)


def test_of_many_first_numbers_one_too_old_is_refused_the_others_are_committed() -> None:
    young, old, other = (born_writer(CountingRandom(), birth) for birth in (8, 7, 9))
    for together in (True, False):
        log = Log(together=together)
        log.decide(RunSpec(7, old, 1, (PLAIN,), 1))
        assert log.verdicts.expire(7, old, 1)
        answers, losers, _ = log.decide(*(RunSpec(7, writer, 1, (PLAIN,), 1) for writer in (young, old, other)))
        assert [answer[4] for answer in answers] == [Verdict.COMMITTED, Verdict.TOO_OLD, Verdict.COMMITTED]  # type: ignore[index]
        assert losers == [(1, 2)]
        assert {writer for _, writer in log.verdicts.writers} == {young, other}
