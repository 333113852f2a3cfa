"""Whatever callers may append leaves in frames that an engine takes: all limits at once."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from boki._append_many import chunk_end
from boki._arguments import encode_record
from boki._numbers import Numbers
from boki._outbox import Outbox
from boki._session import Session
from boki._ticket import Chunk, Ticket
from boki.testing._engine import appends_of
from boki_common import limits
from boki_common.records.payload_check import check_payloads
from boki_common.records.record_batch import RecordBatch


class Shape(NamedTuple):
    """Equal records that one caller appends to a book."""

    records: int
    tags: int
    name_bytes: int
    conditions: int
    data_bytes: int
    together: bool
    """As one `append_many`."""

    def record(self, number: int) -> tuple[bytes, list[str], dict[str | int, int | None]]:
        most = min(self.tags, limits.TAG_NAMES_BYTES // (self.name_bytes + 2))
        tags = [f"{number}/{tag}/".ljust(self.name_bytes, "t")[: max(self.name_bytes, 12)] for tag in range(most)]
        return bytes(self.data_bytes), tags, dict.fromkeys(range(1, self.conditions + 1))


SHAPES = st.lists(
    st.builds(
        Shape,
        st.sampled_from([1, 7, 300, 1_024]),
        st.sampled_from([0, 1, 60, limits.RECORD_TAGS]),
        st.sampled_from([12, 200, limits.TAG_NAME_BYTES]),
        st.sampled_from([0, 1, limits.RECORD_EXPECTATIONS]),
        st.sampled_from([0, 1, 1_000, limits.RECORD_BYTES]),
        st.booleans(),
    ).filter(
        lambda one: one.records * (one.tags * one.name_bytes + one.conditions * 24 + one.data_bytes) < 4 * limits.MIB
    ),
    min_size=1,
    max_size=4,
)


@given(SHAPES)
@example([Shape(400, 60, 200, 0, 1, together=True)])
@example([Shape(700, 0, 12, limits.RECORD_EXPECTATIONS, 1, together=False)])
@settings(max_examples=6)
def test_frames_of_any_appends_are_taken_by_engines(shapes: list[Shape]) -> None:
    outbox, session, expected = Outbox(), Session(), 0
    for book, shape in enumerate(shapes):
        numbers = Numbers(session, book, outbox)
        encoded = [encode_record(*shape.record(number)) for number in range(shape.records)]
        items: list[Ticket | Chunk] = [Ticket(*one) for one in encoded]
        if shape.together:
            rows, items = [(tags, data) for tags, data, _ in encoded], []
            while rows:
                stop, size = chunk_end(rows, 0, limits.WINDOW_RECORDS)
                items.append(Chunk(rows[:stop], size))
                rows = rows[stop:]
        for item in items:
            assert numbers.add(item, 0.0) or numbers.add(item, 0.0, book.to_bytes(16, "little"))
            outbox.put(numbers, item.size)
        expected += shape.records
    found = 0
    for frame in outbox.frames():
        body = memoryview(b"".join(frame))
        assert len(body) < limits.FRAME_BYTES
        batch = RecordBatch.parse(body[2:])
        assert batch.size <= limits.ENTRY_BYTES
        check_payloads(batch)
        found += len(appends_of(batch))
    assert found == expected
