"""Batches of a stream, planned from a real state that grows, lags, is trimmed and loses entries between two requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from boki_common.ids import seqnum, slot_of
from boki_common.testing.machine import ManualClock
from boki_logbook.index.places import TermPlaces
from boki_logbook.scan.facts import Committed, ScanRange, TermFacts, first_missing
from boki_logbook.scan.partitions import Partition
from boki_logbook.scan.plan import Plan
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RecordSpec, RunSpec
from boki_logbook.testing.plans import ALL_SLOTS, apply, begin, committed_of, plan_of
from boki_metalog.entries.metalog_entry import Lost, Trim
from boki_spark.errors import BadOffset, BadOption, Behind, DataLoss
from boki_spark.plan.read_options import ClusterOptions, ReadOptions
from boki_spark.plan.stream_planner import StreamPlanner, check_time, resolve
from boki_spark.plan.stream_rules import EARLIEST, LATEST, Beginning

W = b"w".ljust(16, b"\0")
OPTIONS = ReadOptions(ClusterOptions("boki://a", timeout_s=1.0), start=Beginning(LATEST))
FIRST = Beginning(EARLIEST).encode()
NEWEST = Beginning(LATEST).encode()


class Log:
    """A planner over the state of one or two logs, in the loop of the test."""

    def __init__(self) -> None:
        self.state = DecisionState()
        self.places = begin(self.state, 1)
        self.number = 1
        self.lags: list[Committed] = []
        """Answers of engines that lag."""

    def append(self, count: int, places: TermPlaces | None = None) -> None:
        """One entry."""
        records = tuple(RecordSpec((), b"x") for _ in range(count))
        apply(self.state, places or self.places, RunSpec(7, W, self.number, records, 1))
        self.number += count

    def roll(self, slots: tuple[tuple[int, int], ...] = ALL_SLOTS) -> None:
        """Begin the next term."""
        self.places = begin(self.state, self.places.term + 1, slots=slots)

    def trim(self, before: int) -> None:
        """Trim the book below a term."""
        self.state.apply_command(self.places, Trim(7, ((0, seqnum(before, 0)),), False), time_ms=1_000)

    async def committed(self) -> Committed:
        return self.lags.pop(0) if self.lags else committed_of(self.state)

    async def plan(self, asked: ScanRange, mode: str) -> Plan:
        plan = plan_of(self.state, asked, mode)
        if first_missing(plan.committed, asked.end) is not None:
            raise Behind("not yet")
        return plan

    async def seek(self, time_ms: int) -> dict[int, tuple[int, int]]:
        return {0: (1, time_ms)}


@pytest.fixture
def log() -> Log:
    made = Log()
    made.append(3)
    made.append(2)
    return made


def planner(log: Log, **options: Any) -> StreamPlanner:
    """Return a planner without memory, as a new process has it."""
    return StreamPlanner(log, ReadOptions(**{**vars(OPTIONS), **options}))


def spans(partitions: Sequence[Partition]) -> list[tuple[int, int, int, int]]:
    return [(one.term, one.start_pos, one.stop_pos, one.rows) for one in partitions]


async def test_a_first_batch_has_all_there_is_and_keeps_where_it_began(log: Log) -> None:
    end = await planner(log).latest(FIRST)
    assert end == {"cuts": [[1, 0, 5]], "from": {}, "logs": {"0": [1, 5]}, "lost": [], "rows": 5, "v": 1}
    assert spans(await planner(log).partitions(FIRST, end)) == [(1, 0, 5, 5)]


async def test_from_latest_a_first_batch_has_nothing_and_the_next_what_came_since(log: Log) -> None:
    end = await planner(log).latest(NEWEST)
    assert end["from"] == end["logs"] == {"0": [1, 5]} and end["rows"] == 0
    log.append(4)
    assert await planner(log).partitions(NEWEST, end) == [], "run again after a crash, it has not moved"
    after = await planner(log).latest(end)
    assert "from" not in after and spans(await planner(log).partitions(end, after)) == [(1, 5, 9, 4)]


async def test_where_nothing_is_new_the_start_is_given_back_as_it_was(log: Log) -> None:
    end = await planner(log).latest(FIRST)
    assert await planner(log).latest(end) is end


async def test_an_engine_that_lags_is_waited_for_and_never_sends_a_stream_back(log: Log) -> None:
    before = committed_of(log.state)
    log.append(2)
    end = await planner(log).latest(FIRST)
    log.lags = [before, before]
    assert await planner(log).latest(end) is end and not log.lags


async def test_engines_that_never_come_so_far_are_an_error(log: Log) -> None:
    ahead = {**await planner(log).latest(FIRST), "logs": {"0": [1, 99]}}
    short = planner(log, cluster=ClusterOptions("boki://a", timeout_s=0.01))
    with pytest.raises(Behind, match=r"\[BOKI_BEHIND\]"):
        await short.latest(ahead)


async def test_a_limit_cuts_at_entries_and_reaches_the_end(log: Log) -> None:
    log.append(4)
    ends, start = [], FIRST
    for _ in range(9):
        end = await planner(log).latest(start, max_rows=2)
        if end is start:
            break
        ends.append(end["logs"]["0"])
        start = end
    assert ends == [[1, 3], [1, 5], [1, 9]]


async def test_an_available_now_stream_stops_at_what_was_there(log: Log) -> None:
    one = planner(log)
    await one.aim()
    log.append(4)
    end = await one.latest(FIRST)
    assert end["logs"] == {"0": [1, 5]} and await one.latest(end) is end


async def test_a_later_term_and_a_new_log_go_on_from_the_offset(log: Log) -> None:
    end = await planner(log).latest(FIRST)
    begin(log.state, 2, log=0, slots=((512, 1023),))
    third = begin(log.state, 3, log=1, slots=((0, 511),))
    apply(log.state, third, RunSpec(8, W, 1, (RecordSpec((), b"x"),), 1))
    after = await planner(log).latest(end)
    assert after["logs"] == {"0": [2, 0], "1": [3, 1]} and after["rows"] == 1
    assert list(json.loads(json.dumps(after))["logs"]) == ["0", "1"]


async def test_a_batch_keeps_its_partitions_though_options_changed(log: Log) -> None:
    end = await planner(log, partition_bytes=1).latest(FIRST)
    assert len(end["cuts"]) == 2
    assert spans(await planner(log, partition_bytes=1 << 30).partitions(FIRST, end)) == [(1, 0, 3, 3), (1, 3, 5, 2)]


async def test_records_lost_after_they_were_read_are_a_loss_when_run_again(log: Log) -> None:
    end = await planner(log).latest(FIRST)
    log.state.apply_command(log.places, Lost(1, 0, 1, 2, b"{}", indexed=True), time_ms=10)
    with pytest.raises(DataLoss, match=r"\[BOKI_DATA_LOSS\].*positions 3 to 4"):
        await planner(log).partitions(FIRST, end)
    assert spans(await planner(log, fail_on_data_loss=False).partitions(FIRST, end)) == [(1, 0, 5, 5)]
    with pytest.raises(DataLoss, match="failOnDataLoss=false"):
        await planner(log).latest(FIRST)


async def test_other_numbers_than_were_kept_are_a_loss(log: Log) -> None:
    end = await planner(log).latest(FIRST)
    with pytest.raises(DataLoss, match="had 7 committed records and has 5 now"):
        await planner(log).partitions(FIRST, {**end, "rows": 7})
    with pytest.raises(DataLoss, match="term 9"):
        await planner(log).partitions(FIRST, {**end, "cuts": [[9, 0, 5]]})


async def test_what_is_no_offset_is_refused(log: Log) -> None:
    with pytest.raises(BadOffset):
        await planner(log).latest({"v": 9})


# -- terms that are gone: all of their records were trimmed


async def test_unread_records_that_were_trimmed_with_their_term_are_a_loss(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    end = await planner(log).latest(FIRST)
    log.append(4)
    log.roll()
    log.append(2)
    log.roll()
    log.append(1)
    log.trim(3)
    with pytest.raises(DataLoss, match=r"\[BOKI_DATA_LOSS\].*term 1, positions 5 to 8, term 2, positions 0 to 1;"):
        await planner(log).latest(end)
    with pytest.raises(DataLoss, match=r"of its book is not known any more"):
        await planner(log, book=7).latest(end)
    assert not capsys.readouterr().err
    after = await planner(log, fail_on_data_loss=False).latest(end)
    assert (after["logs"], after["rows"], after["cuts"]) == ({"0": [3, 1]}, 1, [[3, 0, 1]])
    assert "left out" in (warned := capsys.readouterr().err) and "term 1, positions 5 to 8" in warned
    log.append(2)
    assert (await planner(log).latest(after))["rows"] == 2, "they are no loss once they were passed"


async def test_a_term_that_was_read_to_its_end_may_go(log: Log) -> None:
    end = await planner(log).latest(FIRST)
    log.roll()
    log.append(1)
    log.trim(2)
    assert (await planner(log).latest(end))["rows"] == 1


async def test_a_term_that_never_had_the_book_of_a_stream_is_no_loss(log: Log) -> None:
    end = await planner(log).latest(FIRST)
    log.roll(((slot_of(7), slot_of(7)),))
    log.append(2)
    log.roll()
    log.append(1)
    log.trim(3)
    other = next(book for book in range(1, 9) if slot_of(book) != slot_of(7))
    assert (await planner(log, book=other).latest(end))["logs"] == {"0": [3, 1]}
    with pytest.raises(DataLoss):
        await planner(log, book=7).latest(end)


async def test_what_was_gone_when_a_stream_began_is_no_loss_and_what_goes_later_is() -> None:
    """Term 1 has a book that stays, and terms 2 and 3 are gone: a stream that is limited comes to them in a later batch."""
    stays = Log()
    apply(stays.state, stays.places, RunSpec(8, W, 1, (RecordSpec((), b"x"),) * 3, 1))
    for _ in range(5):
        stays.roll()
        stays.append(2)
    stays.trim(4)
    begun = await planner(stays).latest(FIRST, max_rows=1)
    assert (begun["logs"], begun["gone"]) == ({"0": [2, 0]}, [[2, 3]])
    passed = await planner(stays).latest(begun, max_rows=2)
    assert passed["logs"] == {"0": [5, 0]} and "gone" not in passed
    stays.trim(6)
    for start in (begun, passed):
        with pytest.raises(DataLoss, match=r"trimmed with all of their term: term [45], positions 0 to 1"):
            await planner(stays).latest(start)


@pytest.mark.parametrize(
    ("begin_at", "loses"),
    [
        (Beginning(EARLIEST), False),
        (Beginning("", None, 0), False),
        (Beginning("", {0: (1, 2)}), True),
        (Beginning("", None, None, seqnum(1, 2)), True),
    ],
    ids=str,
)
async def test_a_stream_from_a_position_lacks_what_was_trimmed_behind_it(
    log: Log, begin_at: Beginning, loses: bool
) -> None:
    log.roll()
    log.append(1)
    log.trim(2)
    if loses:
        with pytest.raises(DataLoss, match="positions 2 to 4"):
            await planner(log).latest(begin_at.encode())
    else:
        assert (await planner(log).latest(begin_at.encode()))["rows"] == 1


# -- beginnings


async def test_a_stream_that_begins_at_a_time_in_the_future_is_refused(log: Log) -> None:
    one = StreamPlanner(log, OPTIONS, clock=ManualClock(1_999))
    with pytest.raises(BadOption, match=r"\[BOKI_BAD_OPTION\].*not to be in the future, found 2000 ms"):
        await one.latest(Beginning("", None, 2_000).encode())


def test_now_is_what_the_clock_of_the_driver_or_of_the_log_says() -> None:
    begin = Beginning("", None, 1_000)
    check_time(begin, Committed((), 1_000), now_ms=900)
    check_time(begin, Committed((), 900), now_ms=1_000)
    with pytest.raises(BadOption):
        check_time(begin, Committed((), 999), now_ms=999)


async def test_a_stream_that_begins_at_a_seqnum_in_the_future_is_refused(log: Log) -> None:
    short = planner(log, cluster=ClusterOptions("boki://a", timeout_s=0.01))
    for ahead in (seqnum(1, 6), seqnum(2, 0)):
        with pytest.raises(Behind, match="at most one above the newest record"):
            await short.latest(Beginning("", None, None, ahead).encode())
    end = await short.latest(Beginning("", None, None, seqnum(1, 5)).encode())
    log.append(2)
    assert (await short.latest(end))["rows"] == 2


async def test_a_seqnum_that_a_lagging_engine_does_not_have_is_waited_for(log: Log) -> None:
    before = committed_of(log.state)
    log.append(3)
    log.lags = [before, before]
    end = await planner(log).latest(Beginning("", None, None, seqnum(1, 7)).encode())
    assert end["rows"] == 1 and not log.lags


async def test_a_seqnum_behind_a_term_that_ended_begins_at_the_next_one(log: Log) -> None:
    log.roll()
    log.append(2)
    assert (await planner(log).latest(Beginning("", None, None, seqnum(1, 99)).encode()))["rows"] == 2


def term(number: int, log: int, end_pos: int) -> TermFacts:
    return TermFacts(number, log, ((0, 1023),), end_pos, True, end_pos, end_pos, 0, False, 0)


STATE = Committed((term(1, 0, 10), term(2, 1, 20), term(4, 0, 5)), 0)


async def seek(time_ms: int) -> dict[int, tuple[int, int]]:
    return {0: (1, time_ms)}


@pytest.mark.parametrize(
    ("chosen", "place"),
    [
        (Beginning(EARLIEST), {}),
        (Beginning(LATEST), {0: (4, 5), 1: (2, 20)}),
        (Beginning("", {1: (2, 3)}), {1: (2, 3)}),
        (Beginning("", None, 7), {0: (1, 7)}),
        (Beginning("", None, None, seqnum(2, 3)), {0: (2, 3), 1: (2, 3)}),
        (Beginning("", None, None, seqnum(9, 3)), {0: (4, 5), 1: (2, 20)}),
        (Beginning("", None, None, 1), {0: (0, 0), 1: (0, 0)}),
    ],
    ids=str,
)
async def test_every_form_of_a_beginning_names_a_place_in_each_log(
    chosen: Beginning, place: dict[int, tuple[int, int]]
) -> None:
    assert await resolve(chosen, STATE, seek) == place
