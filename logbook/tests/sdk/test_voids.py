"""Voids, and the frames in which they fill holes."""

from __future__ import annotations

import pytest

from boki._arguments import encode_tags
from boki._bounds import FRAME_TARGET_BYTES
from boki._numbers import Numbers
from boki._outbox import Outbox
from boki._session import Session
from boki._special import NOTHING
from boki._ticket import Ticket
from boki._voids import add_voids
from boki_common.errors import LogBookError
from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.record_batch import RUN_NAMED, RUN_RESENT, RUN_VOID, RecordBatch

CONFLICT = LogBookError("conflict")


def ticket() -> Ticket:
    return Ticket(encode_tags([]), b"x")


def give(numbers: Numbers, item: Ticket) -> None:
    """The next number, of a writer that is born when there was none."""
    assert numbers.add(item, 0.0) or numbers.add(item, 0.0, b"w" * 16)


def sent(numbers: Numbers) -> RecordBatch:
    """The next frame."""
    builder = BatchBuilder()
    numbers.fill(builder)
    return RecordBatch.parse(memoryview(b"".join(builder.finish())))


def test_voids_have_neither_tags_nor_data_nor_conditions() -> None:
    for crcs in ([], [7, 8]):
        builder = BatchBuilder()
        builder.start_run(1, b"w" * 16, 3, 3, RUN_VOID | (RUN_NAMED if crcs else 0))
        add_voids(builder, 2, crcs)
        batch = RecordBatch.parse(memoryview(b"".join(builder.finish())))
        assert (batch.record_count, batch.tag_count, batch.expectation_count) == (2, 0, 0)
        assert batch.crc_values == crcs and batch.length_values == [2, 2]


@pytest.mark.parametrize("holes", [1, 40_000])
def test_holes_are_filled_with_voids_in_frames_of_a_size(holes: int) -> None:
    numbers, losers = Numbers(Session(), 1, Outbox()), 0
    while losers < holes:
        items = [ticket() for _ in range(min(1_000, holes - losers))]
        for item in items:
            give(numbers, item)
        sent(numbers)
        numbers.failed(losers + 1, len(items), CONFLICT, ordered=False)
        losers += len(items)
    later = ticket()
    give(numbers, later)
    sent(numbers)
    assert numbers.gap(0) and numbers.stall() == 0
    numbers.resume(numbers.writer)
    frames: list[RecordBatch] = []
    builder = BatchBuilder()
    while numbers.fill(builder) >= FRAME_TARGET_BYTES:
        frames.append(RecordBatch.parse(memoryview(b"".join(builder.finish()))))
        builder = BatchBuilder()
    frames.append(RecordBatch.parse(memoryview(b"".join(builder.finish()))))
    assert len(frames) == 1 + holes // 40_000 and max(frame.size for frame in frames) < FRAME_TARGET_BYTES + 100
    *voids, run = [run for frame in frames for run in frame.runs]
    assert sum(run.count for run in voids) == holes and all(run.flags == RUN_VOID | RUN_RESENT for run in voids)
    assert (run.first, run.count, run.flags) == (holes + 1, 1, RUN_RESENT)


def test_holes_of_a_connection_that_ends_are_filled_on_the_next() -> None:
    numbers = Numbers(Session(), 1, Outbox())
    for _ in range(1_000):
        give(numbers, ticket())
    sent(numbers)
    numbers.failed(1, 1_000, CONFLICT, ordered=False)
    give(numbers, ticket())
    sent(numbers)
    assert numbers.gap(0)
    assert [(run.first, run.count) for run in sent(numbers).runs] == [(1, 1_000), (1_001, 1)]
    numbers.connection_lost()
    assert [(run.first, run.count) for run in sent(numbers).runs] == [(1, 1_000), (1_001, 1)]
    numbers.connection_lost()
    numbers.failed(1, 400, CONFLICT, ordered=True)
    assert [(run.first, run.count) for run in sent(numbers).runs] == [(401, 600), (1_001, 1)]
    numbers.failed(401, 600, CONFLICT, ordered=True)
    numbers.committed(1_001, 1, 7)
    assert numbers.special is NOTHING
