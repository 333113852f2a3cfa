"""Whatever a parser takes of an SDK can be decided, indexed, put into a snapshot and read back: no number in it ends an engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.state.test_snapshot_format import decoded

from boki_common.errors import ProtocolError
from boki_common.records.payload_check import unreadable_payloads
from boki_common.records.record_batch import RUN_END, RUN_NAMED, RUN_RESENT, RUN_VOID, RecordBatch, join
from boki_common.records.tag_names import split_payload
from boki_logbook.state.snapshot_format import Snapshot, encode, raw_bytes
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch
from boki_logbook.testing.plans import begin

ALICE = bytes(15) + b"a"
EXTREMES = (0, 1, 5, 2**32 - 1, 2**35 + 2, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)

records = st.builds(
    RecordSpec,
    st.lists(st.sampled_from([3, 4, 5]), max_size=2).map(tuple),
    st.just(b"x"),
    st.lists(st.tuples(st.sampled_from([0, 3, 4]), st.sampled_from([0, 2**36, 2**35 + 3])), max_size=1).map(tuple),
)
runs = st.builds(
    RunSpec,
    st.sampled_from([1, 2]),
    st.sampled_from([bytes(15) + bytes([writer]) for writer in range(3)]),
    st.integers(1, 5),
    st.lists(records, min_size=1, max_size=3).map(tuple),
    st.just(1),
    st.sampled_from([0, 0, RUN_NAMED, RUN_VOID, RUN_END, RUN_RESENT, RUN_NAMED | RUN_RESENT]),
)
changes = st.lists(st.tuples(st.floats(0, 0.999), st.sampled_from(EXTREMES) | st.integers(0, 2**64 - 1)), max_size=2)
batches = st.tuples(st.lists(runs, min_size=1, max_size=3), st.sampled_from([1, 1, 30]), changes)


def changed(batch: RecordBatch, changes: list[tuple[float, int]]) -> bytes:
    """Some words of its columns hold other numbers."""
    data = bytearray(b"".join(batch.at(0, 0, 0)))
    words = (len(batch.header) - 64) // 8
    for where, number in changes:
        at = 64 + 8 * int(where * words)
        data[at : at + 8] = number.to_bytes(8, "little")
    return bytes(data)


@settings(max_examples=100, deadline=None)
@given(st.lists(batches, min_size=1, max_size=5), st.sampled_from([4, 1_000]))
def test_a_batch_with_any_numbers_is_refused_or_can_be_applied_kept_and_restored(
    sent: list[tuple[list[RunSpec], int, list[tuple[float, int]]]], tail_rows: int
) -> None:
    state = DecisionState(tail_rows=tail_rows)
    places = begin(state, 1)
    for entry, (some, times, words) in enumerate(sent):
        try:
            batch = RecordBatch.parse(memoryview(changed(make_batch(*some * times), words)))
        except ProtocolError:
            continue
        state.apply_entry(places, batch, shard=0, entry=entry, time_ms=entry * 1_000)
    snapshot = Snapshot(state.snapshot_state(), (), ())
    again = DecisionState.from_snapshot(decoded(encode(snapshot), raw_bytes(snapshot)).state)
    assert again.index.streams() == state.index.streams()
    assert again.verdicts.state() == state.verdicts.state()


@pytest.mark.parametrize("compress", [None, zstandard.ZstdCompressor().compress], ids=["plain", "zstd"])
@pytest.mark.parametrize("bits", [0x01, 0x80, 0xFF])
def test_an_entry_with_any_byte_changed_is_no_batch_or_one_that_can_be_applied(
    bits: int, compress: Callable[[Any], bytes] | None
) -> None:
    """Each byte of it, at the lowest rung: a reader gets an error of that name, or gets records."""
    some = RunSpec(1, ALICE, 1, (RecordSpec((3, 4), b"x" * 40), RecordSpec((3,), b"y", ((3, 0),))), 1, RUN_NAMED)
    whole = b"".join(
        join([make_batch(some, some._replace(first=3))], term=1, shard=0, first_local_id=0, compress=compress)
    )
    outcomes = Counter[str]()
    for at in range(len(whole)):
        try:
            batch = RecordBatch.parse(memoryview(whole[:at] + bytes([whole[at] ^ bits]) + whole[at + 1 :]))
        except ProtocolError:
            outcomes["no batch"] += 1
            continue
        state = DecisionState()
        places = begin(state, 1)
        state.apply_entry(places, batch, shard=0, entry=0, time_ms=0)
        closed = [record for record, _ in unreadable_payloads(batch)]
        outcomes["unopened" if closed else "opened"] += 1
        for record in range(batch.record_count):
            if record not in closed:
                split_payload(batch.payload(record))
    assert all(outcomes[name] for name in ("no batch", "unopened", "opened")), outcomes
