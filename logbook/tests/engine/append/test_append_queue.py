"""The queue of batches that wait for a shard: order, and age."""

from __future__ import annotations

import asyncio

from tests.engine.scripted import until

from boki_common.errors import Overloaded
from boki_logbook.append.append_queue import AppendQueue
from boki_logbook.append.shard import Piece
from boki_logbook.testing.cluster import RecordingSource, RunSpec, make_batch, plain_records


def piece(number: int, source: RecordingSource, arrived_s: float | None = None) -> Piece:
    arrived_s = asyncio.get_running_loop().time() if arrived_s is None else arrived_s
    return Piece(make_batch(RunSpec(1, bytes(16), number, plain_records("x"))), source, number, arrived_s)


async def test_what_comes_back_is_before_everything_else() -> None:
    source, queue = RecordingSource(), AppendQueue(60.0, lambda _: None)
    for number in (1, 2, 3, 4):
        queue.add(piece(number, source))
    taken = [queue.pieces.popleft(), queue.pieces.popleft()]
    queue.put_back(taken)
    assert [one.request_id for one in queue.take_all()] == [1, 2, 3, 4]
    assert not queue.pieces
    queue.close()


async def test_old_batches_are_dropped_and_their_senders_notified() -> None:
    source = RecordingSource()
    dropped: list[int] = []
    queue = AppendQueue(0.02, lambda one: dropped.append(one.request_id))
    now_s = asyncio.get_running_loop().time()
    queue.put_back([piece(1, source, now_s - 1), piece(2, source, now_s - 1)])
    queue.add(piece(3, source, now_s + 60))
    await until(lambda: len(dropped) >= 2)
    assert dropped == [1, 2]
    assert [(number, type(error)) for number, error in source.refusals] == [(1, Overloaded), (2, Overloaded)]
    assert [one.request_id for one in queue.pieces] == [3]
    queue.close()
