"""Compression of entries, where it pays."""

from __future__ import annotations

import zstandard

from boki_common.records.record_batch import RecordBatch, join
from boki_logbook.read.compression import LEAST_BYTES, compressor
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch


def test_only_where_it_pays() -> None:
    compress = compressor()
    assert compress(bytes(LEAST_BYTES - 1)) is None
    assert compress(bytes(LEAST_BYTES)) is not None
    incompressible = b"".join((at * 2654435761 % 2**32).to_bytes(4, "little") for at in range(5_000))
    assert compress(incompressible) is None


def test_frames_declare_their_size() -> None:
    compressed = compressor()(bytes(100_000))
    assert compressed is not None
    assert zstandard.get_frame_parameters(compressed).content_size == 100_000


def test_a_joined_batch_comes_back() -> None:
    raw = [make_batch(RunSpec(1, bytes(16), first, (RecordSpec(data=b"text " * 2_000),))) for first in (1, 2)]
    packed = b"".join(join(raw, term=1, shard=2, first_local_id=3, compress=compressor()))
    batch = RecordBatch.parse(memoryview(packed))
    assert batch.size < 1_000
    assert bytes(batch.data) == bytes(raw[0].data) * 2
