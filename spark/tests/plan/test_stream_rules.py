"""Offsets of streams: beginnings, limits, and the contents of ends, as Spark requests them, also after crashes."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_spark.errors import BadOffset, DataLoss
from boki_spark.plan import stream_rules as rules
from boki_spark.plan.stream_rules import (
    EARLIEST,
    LATEST,
    BatchEnd,
    Beginning,
    RangeContent,
    decode_offset,
    encode_offset,
)

OFFSETS = st.dictionaries(st.integers(0, 12), st.tuples(st.integers(1, 5), st.integers(0, 9)), max_size=5)


def reached(**changes: Any) -> BatchEnd:
    made = BatchEnd({0: (7, 900), 10: (3, 0)}, None, 890, ((7, 0, 900),), ((7, 12, 14),))
    return made._replace(**changes)


@pytest.mark.parametrize(
    "start",
    [Beginning(LATEST), Beginning(EARLIEST), Beginning("", {3: (1, 2)}), Beginning("", None, 1_700_000_000_000)],
    ids=str,
)
def test_a_beginning_is_a_constant_of_what_was_chosen(start: Beginning) -> None:
    assert start.encode() == start.encode() and rules.decode(json.loads(json.dumps(start.encode()))) == start


@pytest.mark.parametrize("end", [reached(), reached(begin={0: (7, 0)}), reached(begin={}, gone=((8, 9), (12, 12)))])
def test_an_end_is_read_as_it_was_kept_and_its_text_is_the_same(end: BatchEnd) -> None:
    text = json.dumps(end.encode())
    found = rules.decode(json.loads(text))
    assert found == end and json.dumps(found.encode()) == text
    assert list(end.encode()) == sorted(end.encode())


def test_latest_is_looked_up_once_though_the_first_batch_is_run_again() -> None:
    first = Beginning(LATEST).encode()
    end = reached(begin={0: (7, 880)})
    crashed = Beginning(LATEST).encode()
    assert crashed == first, "asked again, the beginning has not moved"
    assert rules.bounds(rules.decode(crashed), end) == ({0: (7, 880)}, end)


def test_a_batch_that_is_not_the_first_begins_where_the_last_one_ended() -> None:
    start = reached(begin={0: (1, 0)})
    assert rules.bounds(start, reached(rows=0)) == (start.logs, reached(rows=0))


def test_the_first_end_must_have_where_it_began() -> None:
    with pytest.raises(BadOffset, match='expected "from"'):
        rules.bounds(Beginning(LATEST), reached())
    with pytest.raises(BadOffset, match="found where a stream begins"):
        rules.bounds(Beginning(LATEST), Beginning(LATEST))


@given(OFFSETS, OFFSETS)
def test_no_end_lies_before_its_start_and_no_log_is_dropped(
    start: dict[int, tuple[int, int]], newest: dict[int, tuple[int, int]]
) -> None:
    end = rules.furthest(start, newest)
    assert set(end) == {*start, *newest} and list(end) == sorted(end)
    assert all(end[log] >= place for log, place in start.items())
    assert all(end[log] in (start.get(log), newest.get(log)) for log in end)
    assert rules.furthest(end, start) == end, "a state that lags changes nothing"


def test_a_log_that_was_removed_and_added_again_goes_on_from_its_old_end() -> None:
    before = {0: (4, 10), 1: (3, 7)}
    while_it_was_away = rules.furthest(before, {0: (5, 2)})
    assert while_it_was_away == {0: (5, 2), 1: (3, 7)}
    assert rules.furthest(while_it_was_away, {0: (5, 2), 1: (9, 1)}) == {0: (5, 2), 1: (9, 1)}


def test_a_target_holds_back_what_came_after_it() -> None:
    newest = {0: (4, 10), 1: (3, 7), 2: (6, 1)}
    assert rules.capped(newest, {0: (4, 5), 1: (4, 0)}) == {0: (4, 5), 1: (3, 7)}
    assert rules.capped(newest, None) == newest


def test_a_batch_that_is_run_again_with_other_numbers_is_a_loss() -> None:
    end = reached()
    rules.check_same(end, RangeContent(890, ((7, 12, 14),)))
    rules.check_same(end, RangeContent(890, ()))
    with pytest.raises(DataLoss, match=r"\[BOKI_DATA_LOSS\].*had 890 committed records and has 889 now"):
        rules.check_same(end, RangeContent(889, ()))
    with pytest.raises(DataLoss, match="term 7, positions 20 to 29"):
        rules.check_same(end, RangeContent(890, ((7, 12, 14), (7, 20, 30))))
    with pytest.raises(DataLoss, match="term 7, positions 12 to 14"):
        rules.check_same(end, RangeContent(890, ((7, 12, 15),)))


def test_many_losses_are_listed_in_short() -> None:
    assert rules.listed([(1, at, at + 1) for at in range(9)]).endswith("positions 3 to 3 and 5 more")


@pytest.mark.parametrize(
    "change",
    [
        {"rows": -1},
        {"rows": "9"},
        {"cuts": None},
        {"cuts": [[1, 2]]},
        {"lost": [1]},
        {"gone": [1]},
        {"gone": [[1, "2"]]},
        {"gone": None},
        {"logs": {"0": 1}},
        {"v": 2},
        {"start": "soon"},
    ],
    ids=json.dumps,
)
def test_what_no_stream_of_this_version_kept_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(BadOffset, match="expected"):
        rules.decode({**reached().encode(), **change})


# -- offsets as JSON


def test_the_same_offset_has_the_same_text_in_whatever_order_its_logs_come() -> None:
    logs = [(log, (log + 1, 10 * log)) for log in range(12)]
    texts = set()
    for seed in range(20):
        random.Random(seed).shuffle(logs)
        texts.add(json.dumps(encode_offset(dict(logs))))
    assert len(texts) == 1
    assert decode_offset(json.loads(texts.pop())) == dict(logs)


def test_an_offset_before_the_first_term_survives() -> None:
    assert decode_offset(encode_offset({0: (0, 0)})) == {0: (0, 0)}
    assert decode_offset(encode_offset({})) == {}


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"v": 2, "logs": {}},
        {"v": 1, "logs": []},
        {"v": 1, "logs": {"a": [1, 2]}},
        {"v": 1, "logs": {"0": [1]}},
        {"v": 1, "logs": {"0": [1, -2]}},
        {"v": 1, "logs": {"0": [0, 5]}},
        {"v": 1, "logs": {"0": [True, 5]}},
        {"v": 1, "logs": {"0": [1, 2**40]}},
    ],
)
def test_what_is_no_offset_is_refused_with_its_code(value: Any) -> None:
    with pytest.raises(BadOffset, match=r"^\[BOKI_BAD_OFFSET\]"):
        decode_offset(value)
