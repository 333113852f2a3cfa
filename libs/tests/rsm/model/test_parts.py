"""Large states in parts: they are restored from any history of snapshots, and little is written again."""

from __future__ import annotations

import random

import pytest

from bokirsm.model import parts
from bokirsm.model.events import PartRef
from bokirsm.model.parts import KeptParts, Row, compose, kept_of, rows_of, whole

HEADER = Row("h", value=b"header")
REWRITE_MS = 1_000_000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 4_096)
    monkeypatch.setattr(parts, "LEAST_BYTES", 1_024)


def rows(values: dict[str, bytes]) -> list[Row]:
    return [Row("r", name, b"", value) for name, value in values.items()]


def test_a_small_state_has_no_parts() -> None:
    composed = compose(HEADER, rows({"a": b"1"}), KeptParts(), 0, REWRITE_MS)
    assert not composed.parts and rows_of(composed.data) == [HEADER, *rows({"a": b"1"})]
    assert rows_of(compose(HEADER, [], KeptParts(), 0, REWRITE_MS).data) == [HEADER]


class Stream:
    """A stream of snapshots, as a log would have it."""

    def __init__(self) -> None:
        self.written: dict[PartRef, bytes] = {}
        self.kept = KeptParts()
        self.seqnum = 0
        self.bytes = 0

    def write(self, values: dict[str, bytes], now_ms: int = 0) -> None:
        composed = compose(HEADER, rows(values), self.kept, now_ms, REWRITE_MS)
        refs = []
        for part in composed.new:
            self.seqnum += 1
            refs.append(PartRef(self.seqnum, 0))
            self.written[refs[-1]] = part.data
        found, self.kept = composed.written(refs, now_ms)
        self.seqnum += 1
        self.bytes += len(composed.data) + sum(len(part.data) for part in composed.new)
        assert composed.data + b"".join(self.written[ref] for ref in found) == whole(composed)
        header, *others = rows_of(whole(composed))
        assert header.value == HEADER.value and others == rows(values)
        again = kept_of([(ref, self.written[ref], now_ms) for ref in found], composed.data)
        assert {one.ref for one in again.parts.values()} == {one.ref for one in self.kept.parts.values()}

    @property
    def retained(self) -> int:
        return sum(len(data) for ref, data in self.written.items() if ref.seqnum >= self.kept.first)


def test_changes_of_few_rows_write_few_parts_and_keep_little() -> None:
    chance = random.Random(7)
    values = {f"k{number}": b"x" * 50 for number in range(2_000)}
    stream = Stream()
    stream.write(values)
    whole_bytes, count = stream.bytes, 200
    for step in range(count):
        if step % 3 == 0:
            del values[chance.choice(list(values))]
        values[chance.choice(list(values))] = b"y" * chance.randrange(80)
        values[f"n{step}"] = b"z" * 50
        stream.write(values)
        assert stream.retained < 4 * whole_bytes
    assert stream.bytes < whole_bytes + count * 10 * parts.PART_BYTES


def test_a_large_part_beside_a_small_one_that_changes_is_written_again() -> None:
    values = {"large": b"x" * 20_000, **{f"k{number}": b"x" * 50 for number in range(40)}}
    stream = Stream()
    stream.write(values)
    whole_bytes, count = stream.bytes, 200
    most = 0
    for step in range(count):
        stream.write({**values, "hot": b"%d" % step})
        most = max(most, stream.retained)
    assert most < 4 * whole_bytes, most
    assert stream.bytes < whole_bytes + 3 * count * parts.PART_BYTES, "twice what changes, at most"


def test_parts_as_old_as_a_term_are_written_again() -> None:
    values = {f"k{number}": b"x" * 50 for number in range(1_000)}
    stream = Stream()
    stream.write(values)
    first, size = stream.kept.first, stream.bytes
    stream.write(values, REWRITE_MS - 1)
    assert stream.kept.first == first and stream.bytes < size + 100
    stream.write(values, REWRITE_MS)
    assert stream.kept.first > first and stream.bytes > 2 * size


def test_a_row_that_is_larger_than_a_part_is_one_part() -> None:
    Stream().write({"a": b"x" * 10_000, "b": b"y", "c": b"z" * 5_000})
