"""What tells two records under one number apart."""

from __future__ import annotations

from boki._arguments import Expectations, encode_tags
from boki._pending import checksum


def test_records_are_compared_by_all_that_they_contain() -> None:
    a, b = encode_tags(["a"]), encode_tags(["b"])
    said = [
        (a, b"x", Expectations((), {})),
        (b, b"x", Expectations((), {})),
        (a, b"y", Expectations((), {})),
        (a, b"x", Expectations(((1, 0),), {})),
        (a, b"x", Expectations(((1, 2),), {})),
    ]
    assert len({checksum(*one) for one in said}) == len(said)
    assert checksum(*said[0]) == checksum(encode_tags(["a"]), b"x")
