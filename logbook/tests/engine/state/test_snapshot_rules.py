"""When snapshots are due, what they cover, and which ledgers are never named."""

from __future__ import annotations

import msgspec
import pytest

from boki_common.errors import CorruptData, VersionMismatch
from boki_logbook.index.places import ShardPlace
from boki_logbook.state.snapshot_format import LogPoint
from boki_logbook.state.snapshot_rules import (
    NO_SNAPSHOT,
    SnapshotPoint,
    as_applied,
    behind,
    decode_node,
    encode_node,
    never_named,
    snapshot_due,
)
from boki_logbook.state.state import DecisionState

NODE = msgspec.structs.replace(
    NO_SNAPSHOT,
    ledgers=(5, 6),
    logs=(SnapshotPoint(0, 3, 9, False), SnapshotPoint(1, 4, 2, True)),
    rows=100_000,
    records=500_000,
    chunks=2,
    raw_bytes=900,
)


def test_the_node_is_read_as_it_was_written() -> None:
    assert decode_node(encode_node(NODE)) == NODE
    with pytest.raises(VersionMismatch, match="upgrade this program"):
        decode_node(encode_node(msgspec.structs.replace(NODE, version=2)))
    with pytest.raises(CorruptData, match="names"):
        decode_node(encode_node(msgspec.structs.replace(NODE, chunks=901)))


@pytest.mark.parametrize(
    ("points", "late"),
    [
        ([(0, 3, 9, False), (1, 4, 2, True)], []),
        ([(0, 3, 10, False), (1, 5, 0, False), (2, 9, 9, True)], []),
        ([(0, 3, 9, True), (1, 4, 2, True)], []),
        ([(0, 3, 8, False), (1, 4, 2, True)], [0]),
        ([(0, 4, 0, False), (1, 4, 2, False)], [1]),
        ([(0, 2, 99, True), (1, 3, 99, True)], [0, 1]),
        ([(0, 9, 9, False)], [1]),
    ],
)
def test_no_snapshot_replaces_one_that_is_further_in_any_log(
    points: list[tuple[int, int, int, bool]], late: list[int]
) -> None:
    logs = [LogPoint(log, term, entry, ended, 0, 0, 0, 0, ()) for log, term, entry, ended in points]
    assert behind(NODE, logs) == late
    assert behind(NO_SNAPSHOT, logs) == []


def test_a_snapshot_covers_terms_up_to_its_points() -> None:
    assert NODE.covers(2, 0) and not NODE.covers(3, 0)
    assert NODE.covers(4, 1) and not NODE.covers(5, 1)
    assert not NODE.covers(1, 2) and not NO_SNAPSHOT.covers(1, 0)


def test_a_snapshot_is_due_when_a_term_ended_or_much_was_applied() -> None:
    ended = {2: 0, 4: 1}
    assert not snapshot_due(NODE, records=600_000, ended=ended, least_records=200_000)
    assert snapshot_due(NODE, records=700_000, ended=ended, least_records=200_000)
    assert snapshot_due(NODE, records=550_000, ended={**ended, 3: 0}, least_records=200_000)
    assert snapshot_due(NO_SNAPSHOT, records=0, ended={1: 0}, least_records=2_000)
    assert not snapshot_due(NO_SNAPSHOT, records=10, ended={}, least_records=2_000)


def test_a_snapshot_is_not_due_before_half_of_the_last_one_is_new() -> None:
    """So the bytes of all snapshots stay a constant factor of what was appended."""
    assert not snapshot_due(NODE, records=549_999, ended={3: 0}, least_records=100)


def test_a_small_snapshot_is_due_after_each_term() -> None:
    """So the terms of a cluster that nobody appends to any more are reclaimed as well."""
    small = msgspec.structs.replace(NODE, rows=1_000)
    assert snapshot_due(small, records=500_000, ended={3: 0}, least_records=100)
    assert not snapshot_due(small, records=500_000, ended={2: 0}, least_records=100)


@pytest.mark.parametrize(
    ("megabytes", "age_s", "ended", "due"),
    [(0.1, 1.0, 3, True), (20, 1.0, 3, False), (20, 19.0, 3, False), (20, 21.0, 3, True), (20, 1e9, 2, False)],
)
def test_an_end_of_a_term_is_in_a_snapshot_once_the_last_one_is_old_for_its_bytes(
    megabytes: float, age_s: float, ended: int, due: bool
) -> None:
    """So a term that ended can be offloaded, and reclaimed, though nobody appends any more; and terms that end often cost little."""
    node = msgspec.structs.replace(NODE, bytes=int(megabytes * 2**20))
    assert snapshot_due(node, records=500_001, ended={ended: 0}, least_records=200_000, age_s=age_s) == due
    assert not snapshot_due(node, records=549_999, ended={}, least_records=100, age_s=age_s), "for an end alone"


def test_a_ledger_whose_version_has_passed_is_never_named() -> None:
    assert never_named(7, 3, NODE, 4)
    assert not never_named(7, 4, NODE, 4), "its writer may be about to name it"
    assert not never_named(5, 3, NODE, 4), "it is in use"


def test_what_a_running_term_received_beyond_its_position_is_left_out() -> None:
    state = DecisionState()
    places = state.begin_term(3, 0, [(0, 1023)])
    for number in range(4):
        shard = places.shards[number] = ShardPlace(3, number, 10 + number, "ab" * 16)
        shard.cut(100, 10)
        shard.close()
    point = LogPoint(0, 3, 8, False, 0, 50, 1_000, 3, ((1, 50, 5),))
    (term,) = as_applied(state.snapshot_state(), [point]).terms
    assert [(one.number, one.records_end, one.entries_end, one.closed) for one in term.shards] == [
        (0, 100, 10, True),
        (1, 50, 5, False),
        (2, 100, 10, True),
    ]
    (whole,) = as_applied(state.snapshot_state(), [point._replace(ended=True)]).terms
    assert len(whole.shards) == 4
