"""Which queued batches become the next entry of a shard, and what it consists of. Pure: columns are joined, no record is looked at."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from boki_common import limits
from boki_common.records.numpy_pays import FEW_RUNS
from boki_common.records.record_batch import Compress, RecordBatch, join
from boki_common.runtime.ports import Buffer
from boki_logbook.append.shard import Piece, Shard


def next_pieces(queue: deque[Piece]) -> list[Piece]:
    """Takes what goes into the next entry: at least one batch, then as many as fit."""
    pieces = [queue.popleft()]
    size, records = pieces[0].batch.size, pieces[0].batch.record_count
    while queue and size < limits.BATCH_FLUSH_BYTES:
        batch = queue[0].batch
        size += batch.size
        records += batch.record_count
        if records > limits.BATCH_RECORDS or size > limits.ENTRY_BYTES:
            break
        pieces.append(queue.popleft())
    return pieces


def fit_together(pieces: Iterable[Piece], room: int) -> bool:
    """Whether all of them have room in an entry of so many bytes."""
    for piece in pieces:
        room -= piece.batch.size
        if room < 0:
            return False
    return True


def entry_of(shard: Shard, pieces: Sequence[Piece], compress: Compress | None) -> tuple[Sequence[Buffer], RecordBatch]:
    """The payload of the shard's next entry, and its batch."""
    if len(pieces) == 1 and compress is None:
        batch = pieces[0].batch
        return batch.at(shard.term, shard.number, shard.submitted_records), batch
    batches = [piece.batch for piece in pieces]
    buffers = join(
        batches, term=shard.term, shard=shard.number, first_local_id=shard.submitted_records, compress=compress
    )
    if len(batches) == 1:
        return buffers, batches[0]
    joined = b"".join(buffers)
    many = any(one.run_count > FEW_RUNS for one in batches)  # nobody made a list of them
    runs = None if many else [run for one in batches for run in one.runs]
    return (joined,), RecordBatch.parse(memoryview(joined), trusted=True, runs=runs)
