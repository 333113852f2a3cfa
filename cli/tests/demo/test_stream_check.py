"""The demo's checker finds every way in which a stream can be wrong, and says where."""

from __future__ import annotations

import pytest

from boki_cli.demo.stream_check import CheckResult, StreamCheck, by_tag, chosen_tags

RECORDS = [b"a", b"b", b"c"]
SEQNUMS = [10, 12, 17]


def checked(found: list[tuple[int, bytes]]) -> CheckResult:
    check = StreamCheck("carrier/UA", RECORDS, SEQNUMS)
    for seqnum, data in found:
        check.found(seqnum, data)
    return check.result()


def test_a_stream_that_is_right_holds() -> None:
    result = checked([(10, b"a"), (12, b"b"), (17, b"c")])
    assert result == CheckResult("carrier/UA", 3, "")
    assert result.holds


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        ([(10, b"a"), (12, b"b")], "expected 3 records, found 2: 1 are missing, the first with seqnum 17: 'c'"),
        ([(10, b"a"), (17, b"c")], "record 2 (seqnum 17): expected 'b', found 'c'"),
        ([(10, b"a"), (12, b"b"), (17, b"c"), (18, b"c")], "record 4 (seqnum 18) is one too many: 'c'"),
        ([(10, b"a"), (10, b"a"), (12, b"b"), (17, b"c")], "record 2 (seqnum 10): expected 'b', found 'a'"),
        ([(10, b"a"), (12, b"B"), (17, b"c")], "record 2 (seqnum 12): expected 'b', found 'B'"),
        ([(10, b"a"), (13, b"b"), (17, b"c")], "record 2: its append returned seqnum 12, it was read with 13"),
        ([], "expected 3 records, found 0: 3 are missing, the first with seqnum 10: 'a'"),
    ],
)
def test_a_stream_that_is_wrong_says_where(found: list[tuple[int, bytes]], difference: str) -> None:
    result = checked(found)
    assert not result.holds
    assert result.difference == difference


def test_long_records_are_cut_in_messages() -> None:
    check = StreamCheck("all", [b"x" * 100], [1])
    check.found(1, b"y" * 100)
    assert check.result().difference.endswith(f"found '{'y' * 60}'… (100 bytes)")


def test_tags_are_chosen_whole_where_they_are_few_and_sampled_where_they_are_many() -> None:
    places = by_tag([["a/1", "b/0"], ["a/2", "b/1"], ["a/1", "b/2"], ["b/3"]])
    assert places == {"a/1": [0, 2], "b/0": [0], "a/2": [1], "b/1": [1], "b/2": [2], "b/3": [3]}
    assert chosen_tags(places, all_below=2, sample=2) == ["a/1", "a/2", "b/0", "b/2"]
    assert chosen_tags({}, all_below=2, sample=2) == []
