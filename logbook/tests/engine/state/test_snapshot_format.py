"""Snapshots as chunks: whole or refused by name."""

from __future__ import annotations

import dataclasses
import gc
import struct
import tracemalloc
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import zstandard
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from boki_common.errors import CorruptData, VersionMismatch
from boki_common.ids import slot_of
from boki_common.records.record_batch import RUN_NAMED
from boki_common.testing.machine import CountingRandom
from boki_common.writer_ids import born_writer
from boki_logbook.state import snapshot_format
from boki_logbook.state.snapshot_format import CHUNK_BYTES, Decoder, LogPoint, Snapshot, encode, raw_bytes
from boki_logbook.state.state import DecisionState, checked_state
from boki_logbook.state.state_snapshot import PairColumns, RowColumns, StateSnapshot
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch
from boki_logbook.testing.plans import begin
from boki_metalog.entries.metalog_entry import Expire, Lost, Trim

POINT = LogPoint(0, 2, 7, False, 99, 100, 5_000, 3, ((1, 20, 2), (2, 4, 1)))


def some_state(records: Iterable[tuple[int, int, int]], *, tail_rows: int = 4) -> DecisionState:
    """A state with records of (book, tag, writer), two terms, a trim, a lost entry."""
    state = DecisionState(tail_rows=tail_rows)
    numbers: dict[tuple[int, int], int] = {}
    rows = list(records)
    for term, some in ((1, rows[: len(rows) // 2]), (2, rows[len(rows) // 2 :])):
        places = begin(state, term)
        for entry, (book, tag, writer) in enumerate(some):
            number = numbers[book, writer] = numbers.get((book, writer), 0) + 1
            flags = RUN_NAMED if writer % 2 else 0
            record = RecordSpec((tag,) if tag else (), b"x", ((tag, 0),) if writer == 2 else ())
            batch = make_batch(RunSpec(book, bytes(15) + bytes([writer]), number, (record,), 1, flags))
            state.apply_entry(places, batch, shard=0, entry=entry, time_ms=70_000 * entry)
        state.apply_command(places, Trim(1, ((3, places.end_pos // 2),), False), time_ms=0)
        state.apply_command(places, Lost(term, 0, 1, 2, b"{}", True), time_ms=0)
        state.pass_over(places, 2, shard=0, first_entry=len(some), stop_entry=len(some) + 2, time_ms=0)
        state.apply_command(places, Lost(term, 0, len(some), len(some) + 2, b"[]"), time_ms=0)
    return state


def decoded(chunks: Iterable[bytes], size: int) -> Snapshot:
    decoder = Decoder(size)
    for chunk in chunks:
        decoder.feed(chunk)
    for _ in decoder.finish():
        pass
    return decoder.snapshot()


def plain(value: Any) -> Any:
    """Columns and tuples as lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, StateSnapshot):
        return [plain(getattr(value, name)) for name in value.__slots__]
    return [plain(one) for one in value] if isinstance(value, tuple) else value


def a_snapshot() -> Snapshot:
    return Snapshot(some_state([(1, 3, 1), (2, 0, 2), (1, 3, 0), (1, 5, 2)]).snapshot_state(), (POINT,), ((1, 5),))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([1, 2, 2**64 - 1]), st.sampled_from([0, 3, 2**64 - 2]), st.integers(0, 3))))
def test_what_was_encoded_is_decoded(records: list[tuple[int, int, int]]) -> None:
    snapshot = Snapshot(some_state(records).snapshot_state(), (POINT,), ((1, 5), (2, 2**62)))
    chunks = list(encode(snapshot))
    again = decoded(chunks, raw_bytes(snapshot))
    assert plain(again.state) == plain(snapshot.state)
    assert (again.logs, again.ended) == (snapshot.logs, snapshot.ended)
    restored = DecisionState.from_snapshot(again.state)
    assert restored.index.streams() == DecisionState.from_snapshot(snapshot.state).index.streams()


def test_a_state_of_no_terms_is_a_snapshot_too() -> None:
    snapshot = Snapshot(DecisionState().snapshot_state(), (), ())
    assert plain(decoded(encode(snapshot), raw_bytes(snapshot)).state) == plain(snapshot.state)


def test_columns_of_several_chunks_go_on_where_they_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_format, "CHUNK_BYTES", 64)
    monkeypatch.setattr(snapshot_format, "_SLICE_ITEMS", 3)
    monkeypatch.setattr(snapshot_format, "_SUM_ITEMS", 5)
    snapshot = Snapshot(some_state([(1, 3, 1)] * 40, tail_rows=1_000).snapshot_state(), (POINT,), ())
    chunks = list(encode(snapshot))
    assert len(chunks) > 20
    assert plain(decoded(chunks, raw_bytes(snapshot)).state) == plain(snapshot.state)


def test_every_damaged_byte_is_found() -> None:
    snapshot = a_snapshot()
    (chunk,) = encode(snapshot)
    for at in range(len(chunk)):
        damaged = bytearray(chunk)
        damaged[at] ^= 0x10
        with pytest.raises((CorruptData, VersionMismatch)):
            decoded([bytes(damaged)], raw_bytes(snapshot))


def respun(chunk: bytes, at: int, bits: int) -> bytes:
    """The chunk with one byte of its piece changed, and everything that covers it right."""
    piece = bytearray(zstandard.ZstdDecompressor().decompress(chunk[20:]))
    piece[at] ^= bits
    frame = zstandard.ZstdCompressor(write_content_size=True).compress(bytes(piece))
    return rewritten(chunk[:20] + frame, version=chunk[4])


@pytest.mark.parametrize("bits", [0x01, 0x80, 0xFF])
def test_a_snapshot_with_any_byte_changed_is_refused_or_a_state(bits: int) -> None:
    """Whoever begins with it finds out before it is begun with, and by name."""
    snapshot = a_snapshot()
    (chunk,) = encode(snapshot)
    refused = taken = 0
    for at in range(raw_bytes(snapshot)):
        try:
            checked_state(decoded([respun(chunk, at, bits)], raw_bytes(snapshot)).state)
            taken += 1
        except (CorruptData, VersionMismatch):
            refused += 1
    assert refused > 100 and taken > 100, (refused, taken)


def test_half_a_snapshot_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_format, "CHUNK_BYTES", 64)
    snapshot = a_snapshot()
    chunks, size = list(encode(snapshot)), raw_bytes(snapshot)
    for count in range(len(chunks)):
        with pytest.raises(CorruptData, match="expected a snapshot of"):
            decoded(chunks[:count], size)
    with pytest.raises(CorruptData, match="expected chunk 1"):
        decoded([chunks[0], chunks[2]], size)
    with pytest.raises(CorruptData, match="found more"):
        decoded([*chunks, rewritten(chunks[0], number=len(chunks))], size)


def rewritten(chunk: bytes, *, number: int = 0, version: int = 1, length: int | None = None) -> bytes:
    """The chunk with another head, and a checksum that fits."""
    (had,) = struct.unpack_from("<I", chunk, 12)
    head = struct.pack("<4sB3xII", b"BKSN", version, number, had if length is None else length)
    return head + struct.pack("<I", crc32c(chunk[20:], crc32c(head))) + chunk[20:]


def test_a_newer_snapshot_is_refused_by_name() -> None:
    snapshot = a_snapshot()
    (chunk,) = encode(snapshot)
    with pytest.raises(VersionMismatch, match="upgrade this program"):
        decoded([rewritten(chunk, version=3)], raw_bytes(snapshot))


def with_a_writer_forgotten() -> Snapshot:
    state = some_state([])
    places = state.places.terms[2]
    writer = born_writer(CountingRandom(), 77)
    batch = make_batch(RunSpec(1, writer, 1, (RecordSpec(),)))
    state.apply_entry(places, batch, shard=0, entry=9, time_ms=1)
    state.apply_command(places, Expire(1, writer, 1), time_ms=1)
    return Snapshot(state.snapshot_state(), (POINT,), ())


def test_floors_of_writers_make_version_2_and_outlive_it() -> None:
    snapshot, before = with_a_writer_forgotten(), a_snapshot()
    assert [next(iter(encode(one)))[4] for one in (snapshot, before)] == [2, 1]
    state = DecisionState.from_snapshot(decoded(encode(snapshot), raw_bytes(snapshot)).state)
    assert state.verdicts.writers.past.by_slot == {slot_of(1): 77}
    assert not DecisionState.from_snapshot(decoded(encode(before), raw_bytes(before)).state).verdicts.writers.past


def test_a_snapshot_whose_chunks_and_head_are_of_two_versions_is_refused() -> None:
    for snapshot, version in ((with_a_writer_forgotten(), 1), (a_snapshot(), 2)):
        (chunk,) = encode(snapshot)
        with pytest.raises(CorruptData, match="of version"):
            decoded([rewritten(chunk, version=version)], raw_bytes(snapshot))


def test_sizes_are_compared_before_memory_is_taken() -> None:
    snapshot = a_snapshot()
    (chunk,) = encode(snapshot)
    with pytest.raises(CorruptData, match="whose frame has"):
        decoded([rewritten(chunk, length=CHUNK_BYTES)], raw_bytes(snapshot))
    with pytest.raises(CorruptData, match="found a head for"):
        decoded([chunk], raw_bytes(snapshot) + 1)
    with pytest.raises(CorruptData, match="found more"):
        decoded([chunk], raw_bytes(snapshot) - 1)


def test_columns_that_do_not_fit_each_other_are_refused() -> None:
    snapshot = a_snapshot()
    state = snapshot.state
    short = state.rows[0]._replace(held=state.rows[0].held[:-1])
    lame = state.writers._replace(kept_counts=state.writers.kept_counts + np.uint32(1))
    odd = state.terms[0]._replace(times=state.terms[0].times[:-1])
    for broken in (
        _with(state, rows=(short, *state.rows[1:])),
        _with(state, writers=lame),
        _with(state, terms=(odd, *state.terms[1:])),
        _with(state, writer_floors=PairColumns(np.zeros(1, np.uint64), np.zeros(2, np.uint64))),
        _with(state, floors=state.floors._replace(values=np.zeros(9, np.uint64))),
    ):
        made = Snapshot(broken, (), ())
        with pytest.raises(CorruptData, match="do not fit each other"):
            decoded(encode(made), raw_bytes(made))


def _with(state: StateSnapshot, **columns: Any) -> StateSnapshot:
    """The state with other columns."""
    return StateSnapshot(**{name: columns.get(name, getattr(state, name)) for name in StateSnapshot.__slots__})


def test_many_rows_are_small_and_cut_to_size() -> None:
    state = DecisionState()
    places = begin(state, 1)
    for entry in range(100):
        run = RunSpec(7, bytes(16), 1 + 2_000 * entry, (RecordSpec((4,)),) * 2_000)
        state.apply_entry(places, make_batch(run), shard=0, entry=entry, time_ms=entry)
    snapshot = Snapshot(state.snapshot_state(), (), ())
    chunks = list(encode(snapshot))
    assert len(chunks) == -(-raw_bytes(snapshot) // CHUNK_BYTES) == 4
    assert sum(map(len, chunks)) < 100_000


def test_loading_takes_little_more_than_what_is_loaded() -> None:
    """The budget: the columns, a copy of the places of entries, and as much again as one run while it is looked through."""
    runs, run_rows, entries = 4, 200_000, 50_000
    state = DecisionState()
    places = begin(state, 1)
    for entry in range(entries):
        places.add_entry(0, entry, 16, 1_000)
    rows = tuple(
        RowColumns(
            np.array([1], np.uint64),
            np.array([0], np.uint64),
            np.array([0, run_rows], np.uint32),
            np.arange(run_rows * at, run_rows * (at + 1), dtype=np.uint64) + np.uint64((1 << 35) + 1),
            np.ones(run_rows, np.uint8),
        )
        for at in range(runs)
    )
    snapshot = Snapshot(dataclasses.replace(state.snapshot_state(), rows=rows), (), ())
    chunks, size = list(encode(snapshot)), raw_bytes(snapshot)
    of_run, of_entries = 9 * run_rows, 28 * entries
    assert size > runs * of_run + of_entries
    del snapshot, rows, state, places
    gc.collect()
    tracemalloc.start()
    try:
        loaded = DecisionState.from_snapshot(decoded(chunks, size).state)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (len(loaded.index), loaded.places.entry_count) == (runs * run_rows, entries)
    assert peak < size + of_entries + of_run + CHUNK_BYTES


def test_a_chunk_whose_checksum_is_right_and_that_holds_no_frame_is_damage() -> None:
    (chunk,) = encode(a_snapshot())
    with pytest.raises(CorruptData, match="holds no frame"):
        decoded([rewritten(chunk[:20] + b"no frame at all", version=chunk[4])], 1_000)
