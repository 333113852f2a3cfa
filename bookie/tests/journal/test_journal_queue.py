"""The queue of the journal: nothing is taken beyond its bounds, and what is written makes room again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_bookie.formats.journal_format import RECORD_HEADER_BYTES
from boki_bookie.journal.journal_queue import GroupQueue
from boki_bookie.settings import BookieSettings
from boki_common.errors import InvalidArgument, Overloaded

SETTINGS = BookieSettings(
    journal_segment_bytes=1_048_576,
    journal_group_bytes=4_096,
    journal_queue_bytes=20_000,
    journal_queue_records=40,
)


@given(st.lists(st.one_of(st.none(), st.lists(st.integers(0, 3_000), min_size=1, max_size=6)), max_size=40))
def test_what_is_taken_is_within_the_bounds_and_written_in_order(steps: list[list[int] | None]) -> None:
    """A step adds bodies of these sizes, or (None) writes the oldest group."""
    queue, model, number = GroupQueue(SETTINGS), list[bytes](), 0
    for sizes in steps:
        if sizes is None:
            if queue.waiting:
                group = queue.waiting.popleft()
                assert group.bodies == model[: group.count] and len(group.kinds) == group.count
                assert group.count == 1 or group.record_bytes <= SETTINGS.journal_group_bytes
                del model[: group.count]
                queue.written(group)
            continue
        bodies = [bytes((number % 256,)) * size for size in sizes]
        size = sum(sizes) + RECORD_HEADER_BYTES * len(sizes)
        held = sum(map(len, model)) + RECORD_HEADER_BYTES * len(model)
        fits = held + size <= SETTINGS.journal_queue_bytes and len(model) + len(sizes) <= SETTINGS.journal_queue_records
        fits = fits and (len(sizes) == 1 or size <= SETTINGS.journal_group_bytes)
        assert queue.add(1, bodies, sum(sizes), ()) is fits
        if fits:
            model += bodies
        number += 1
    assert [body for group in queue.waiting for body in group.bodies] == model


def test_a_refusal_says_whether_to_come_again() -> None:
    queue = GroupQueue(SETTINGS)
    assert isinstance(queue.refusal(b"small"), Overloaded)
    assert isinstance(queue.refusal(bytes(1_048_576)), InvalidArgument)
