"""What the cache keeps of what came over a connection, and what that keeps in turn."""

from __future__ import annotations

import pytest
from tests.engine.test_server import Served, run, served

from boki_common import limits
from boki_common.engine import engine_protocol as wire
from boki_common.records.record_batch import RecordBatch

__all__ = ["served"]


@pytest.mark.parametrize("size", [1, 40_000, 100_000, 200_000, 900_000])
async def test_what_is_kept_of_an_append_keeps_little_more_of_what_it_came_in(served: Served, size: int) -> None:
    """The cache counts batches, and not the receive buffers that they are views of, in which other messages are too."""
    sdk = await served.sdk()
    question = wire.encode_prev_many({}, 1, [(5, 2**63 - 1)] * 1_000)
    for number in range(1, 9):
        for _ in range(limits.CONNECTION_BUFFER_BYTES // len(b"".join(question)) + 1):
            await sdk.peer.call(wire.OP_READ_PREV_MANY, *question)
        sdk.append(run(number, bytes(size)))
        await sdk.answers(number)
    kept = [one for one, _ in served.core.cache._kept.values() if isinstance(one, RecordBatch)]
    buffers = {id(one._view.obj): memoryview(one._view.obj).nbytes for one in kept}
    assert len(kept) == 8
    assert sum(buffers.values()) <= 4 * sum(one.kept_bytes for one in kept)
