"""Histories as files: what is written is read back, and a line that means nothing is named."""

from __future__ import annotations

import pytest

from boki_common.errors import CorruptData
from boki_sim.checkers.history import Operation, read_lines, write_lines

OPERATIONS = [
    Operation("c1", "append", "b", 0.5, 1.5, "ok", data="a", tags=("x",), seqnum=7, expect={"x": None}),
    Operation("c2", "read", "b", 2.0, 3.0, "ok", rows=((7, "a"),), low=1, high=9),
    Operation("c2", "trim", "b", 2.0, before=7),
]


def test_what_is_written_is_read_back() -> None:
    lines = list(write_lines(OPERATIONS))
    assert list(read_lines(lines, name="h.jsonl")) == OPERATIONS


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"not json", "expected one operation as JSON"),
        (b'{"client": "c", "kind": "eat", "book": "b", "start": 0}', "eat"),
        (b'{"client": "c", "kind": "trim", "book": "b", "start": 2, "end": 1}', "end at or after the start"),
        (b'{"client": "c", "kind": "read", "book": "b", "start": 2, "outcome": "ok"}', "never returned"),
        (
            b'{"client": "c", "kind": "append", "book": "b", "start": 1, "end": 2, "data": "x", "outcome": "ok"}',
            "seqnum",
        ),
        (b'{"client": "c", "kind": "append", "book": "b", "start": 1}', "names the record"),
        (b'{"client": "c", "kind": "token", "book": "b", "start": 1, "of": "d"}', "a token of no book"),
        (b'{"client": "c", "kind": "token", "book": "", "start": 1}', "names a session"),
        (
            b'{"client": "c", "kind": "read", "book": "b", "start": 1, "end": 2, "rows": [[2, "a"], [1, "b"]]}',
            "ascending",
        ),
        (
            b'{"client": "c", "kind": "read", "book": "b", "start": 1, "end": 2, "low": 5, "rows": [[2, "a"]]}',
            "rows in",
        ),
    ],
)
def test_a_line_that_means_nothing_is_named(line: bytes, message: str) -> None:
    with pytest.raises(CorruptData, match=message) as caught:
        list(read_lines([b"\n", line], name="h.jsonl"))
    assert "h.jsonl, line 2" in str(caught.value)
