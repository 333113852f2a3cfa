"""Compares what a stream returns with what was put into it, record by record and byte for byte.

    check = StreamCheck("carrier/UA", expected_records, expected_seqnums)
    for record in ...: check.found(record.seqnum, record.data)
    result = check.result()

A stream is right when it returns exactly the expected records: each once, in order, with the seqnum that its append
returned. The first difference is kept, in words; later ones are counted as one. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class CheckResult(NamedTuple):
    """The outcome of one check; `difference` is empty when it holds, and `held` says what that means."""

    name: str
    records: int
    difference: str
    held: str = "equal, byte for byte"

    @property
    def holds(self) -> bool:
        return not self.difference


class StreamCheck:
    """One stream under comparison."""

    def __init__(self, name: str, expected: Sequence[bytes], seqnums: Sequence[int]) -> None:
        assert len(expected) == len(seqnums), (len(expected), len(seqnums))
        self.name = name
        self._expected = expected
        self._seqnums = seqnums
        self._count = 0
        self._difference = ""

    def found(self, seqnum: int, data: bytes | memoryview) -> None:
        """Takes the next record that the stream returned."""
        at = self._count
        self._count = at + 1
        if self._difference:
            return
        if at >= len(self._expected):
            self._difference = f"record {at + 1:,} (seqnum {seqnum}) is one too many: {_excerpt(data)}"
        elif self._expected[at] != data:
            self._difference = (
                f"record {at + 1:,} (seqnum {seqnum}): expected {_excerpt(self._expected[at])}, found {_excerpt(data)}"
            )
        elif self._seqnums[at] != seqnum:
            self._difference = (
                f"record {at + 1:,}: its append returned seqnum {self._seqnums[at]}, it was read with {seqnum}"
            )

    def result(self) -> CheckResult:
        """The outcome, once the stream has ended."""
        if not self._difference and self._count < len(self._expected):
            missing = len(self._expected) - self._count
            self._difference = (
                f"expected {len(self._expected):,} records, found {self._count:,}: {missing:,} are missing, the first "
                f"with seqnum {self._seqnums[self._count]}: {_excerpt(self._expected[self._count])}"
            )
        return CheckResult(self.name, self._count, self._difference)


def by_tag(tags_of: Sequence[Sequence[str]]) -> dict[str, list[int]]:
    """Places of the records under each tag, in order; tags in order of first appearance."""
    places: dict[str, list[int]] = {}
    for place, tags in enumerate(tags_of):
        for tag in tags:
            places.setdefault(tag, []).append(place)
    return places


def chosen_tags(places: dict[str, list[int]], *, all_below: int, sample: int) -> list[str]:
    """Which tags to read back: every tag of a field with at most `all_below` values, of others an even sample.

    A field is what stands before the first `/` of a tag.
    """
    fields: dict[str, list[str]] = {}
    for tag in places:
        fields.setdefault(tag.partition("/")[0], []).append(tag)
    chosen: list[str] = []
    for tags in fields.values():
        if len(tags) <= all_below:
            chosen += tags
        else:
            chosen += [tags[number * len(tags) // sample] for number in range(sample)]
    return chosen


def _excerpt(data: bytes | memoryview) -> str:
    head = bytes(data[:60])
    return repr(head.decode(errors="replace")) + (f"… ({len(data)} bytes)" if len(data) > 60 else "")
