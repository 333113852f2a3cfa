"""Offsets of streams: where a stream begins, how far it may advance, and what each end records so that a batch can be run again. Pure.

- A stream begins at a constant that only states the user's choice ("latest"). Spark requests the beginning again when it reruns the
  first batch, and a position that was looked up then would have moved. The first end records the position, as `from`.
- An end records the number of committed records of its batch, the bounds of its partitions, and the spans that were lost by then. A batch
  that is run again is planned by these: it has the same records in the same partitions, or it fails.
- No end lies before its start in any log: an engine that lags would move the stream back.
- If there is nothing new, the end is the start itself, with the same text.

    {"cuts": [[7, 0, 900]], "from": {...}, "logs": {"0": [7, 900]}, "lost": [[7, 12, 14]], "rows": 890, "v": 1}

An offset alone is {"v": 1, "logs": {"0": [term, position]}}. Spark compares texts, so keys have one order and equal offsets equal texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from boki_common import limits
from boki_logbook.scan.facts import NOWHERE, Offset
from boki_spark.errors import BadOffset, DataLoss

VERSION: Final = 1
EARLIEST: Final = "earliest"
LATEST: Final = "latest"

Span = tuple[int, int, int]
"""(term, first position, stop position)."""


class Beginning(NamedTuple):
    """The user's choice of a beginning: one of the words, or an offset, a time or a seqnum."""

    word: str = LATEST
    offset: Offset | None = None
    time_ms: int | None = None
    seqnum: int | None = None

    def encode(self) -> dict[str, Any]:
        """Return the constant that Spark keeps."""
        if self.offset is not None:
            return {"start": {"logs": encode_logs(self.offset)}, "v": VERSION}
        if self.time_ms is not None:
            return {"start": {"time_ms": self.time_ms}, "v": VERSION}
        if self.seqnum is not None:
            return {"start": {"seqnum": self.seqnum}, "v": VERSION}
        return {"start": self.word, "v": VERSION}


class BatchEnd(NamedTuple):
    """The end of a batch and what it records. `begin` is the start of the first batch, and None in later ones."""

    logs: Offset
    begin: Offset | None
    rows: int
    cuts: tuple[Span, ...]
    lost: tuple[Span, ...]

    def encode(self) -> dict[str, Any]:
        """Return JSON values with keys in a fixed order."""
        begin = {} if self.begin is None else {"from": encode_logs(self.begin)}
        return {
            "cuts": [list(span) for span in self.cuts],
            **begin,
            "logs": encode_logs(self.logs),
            "lost": [list(span) for span in self.lost],
            "rows": self.rows,
            "v": VERSION,
        }


def encode_logs(offset: Offset) -> dict[str, Any]:
    """Return only the logs of an offset, in a fixed order."""
    logs: dict[str, Any] = encode_offset(offset)["logs"]
    return logs


def decode_logs(found: object) -> dict[int, tuple[int, int]]:
    """Parse an offset from its logs alone. Raises BadOffset."""
    return decode_offset({"v": VERSION, "logs": found})


def decode(found: Mapping[str, Any]) -> Beginning | BatchEnd:
    """Parse an offset of a checkpoint. Raises BadOffset."""
    if not isinstance(found, Mapping) or found.get("v") != VERSION:
        raise BadOffset(
            f'expected an offset with "v": {VERSION}, found {found!r:.200}: it is of another program, or of a later version'
        )
    if "start" in found:
        return _beginning(found["start"])
    begin = decode_logs(found["from"]) if "from" in found else None
    rows = found.get("rows")
    if not isinstance(rows, int) or rows < 0:
        raise BadOffset(f"expected how many rows a batch has, found {rows!r:.80}")
    return BatchEnd(decode_logs(found.get("logs")), begin, rows, _spans(found.get("cuts")), _spans(found.get("lost")))


def _beginning(found: object) -> Beginning:
    if found in (EARLIEST, LATEST):
        return Beginning(str(found))
    if isinstance(found, Mapping) and "logs" in found:
        return Beginning("", decode_logs(found["logs"]))
    if isinstance(found, Mapping) and isinstance(found.get("time_ms"), int):
        return Beginning("", None, found["time_ms"])
    if isinstance(found, Mapping) and isinstance(found.get("seqnum"), int):
        return Beginning("", None, None, found["seqnum"])
    raise BadOffset(f"expected where a stream begins, found {found!r:.200}")


def _spans(found: object) -> tuple[Span, ...]:
    if not isinstance(found, list):
        raise BadOffset(f"expected [term, position, position] for each partition, found {found!r:.200}")
    spans = []
    for span in found:
        if not (isinstance(span, list) and len(span) == 3 and all(isinstance(number, int) for number in span)):
            raise BadOffset(f"expected [term, position, position] for each partition, found {span!r:.80}")
        spans.append((span[0], span[1], span[2]))
    return tuple(spans)


def furthest(start: Offset, newest: Offset) -> dict[int, tuple[int, int]]:
    """Return the later of two positions in each log, so that a stream never moves back."""
    logs = sorted({*start, *newest})
    return {log: max(start.get(log, NOWHERE), newest.get(log, NOWHERE)) for log in logs}


def capped(newest: Offset, target: Offset | None) -> dict[int, tuple[int, int]]:
    """Limit each log to a target, if there is one. Logs that the target does not name were added later and are left out."""
    if target is None:
        return dict(newest)
    return {log: min(place, target[log]) for log, place in newest.items() if log in target}


def bounds(start: Beginning | BatchEnd, end: Beginning | BatchEnd) -> tuple[Offset, BatchEnd]:
    """Return the range of a batch from the start and end that Spark names. Raises BadOffset."""
    if not isinstance(end, BatchEnd):
        raise BadOffset("expected the end of a batch, found where a stream begins")
    if isinstance(start, BatchEnd):
        return start.logs, end
    if end.begin is None:
        raise BadOffset('expected "from" at the end of the first batch, found none')
    return end.begin, end


class RangeContent(NamedTuple):
    """The number of committed rows of a range, and its spans that are lost or given up."""

    rows: int
    lost: tuple[Span, ...]


def check_same(end: BatchEnd, now: RangeContent) -> None:
    """Compare a batch that is run again with its end.

    Raises:
        DataLoss: the batch would have other rows.
    """
    if now.rows != end.rows:
        raise DataLoss(
            f"a batch that is run again had {end.rows} committed records and has {now.rows} now: some were trimmed with all of their "
            "term, or declared lost; with failOnDataLoss=false the others are shown",
            expected=end.rows,
            found=now.rows,
        )
    gone = missing(now.lost, end.lost)
    if gone:
        raise DataLoss(
            f"records of a batch that is run again were declared lost after it was planned: {listed(gone)}; with failOnDataLoss=false the "
            "others are shown",
            lost=[list(span) for span in gone[:16]],
        )


def missing(now: Iterable[Span], then: Iterable[Span]) -> list[Span]:
    """Return the spans that are lost now and were not entirely lost before."""
    known = sorted(then)
    return [
        span for span in now if not any(one[0] == span[0] and one[1] <= span[1] and span[2] <= one[2] for one in known)
    ]


def listed(spans: Sequence[Span]) -> str:
    """Format the first spans for an error."""
    listed = ", ".join(f"term {term}, positions {first} to {stop - 1}" for term, first, stop in spans[:4])
    return listed if len(spans) <= 4 else f"{listed} and {len(spans) - 4} more"


# -- offsets as JSON


def encode_offset(offset: Offset) -> dict[str, Any]:
    """Return an offset as JSON values, with logs in the order of their text."""
    return {"v": VERSION, "logs": {key: list(offset[int(key)]) for key in sorted(map(str, offset))}}


def decode_offset(value: Any) -> dict[int, tuple[int, int]]:
    """Parse an offset. Raises BadOffset."""
    if not isinstance(value, dict) or value.get("v") != VERSION or not isinstance(value.get("logs"), dict):
        raise BadOffset(f'expected an offset {{"v":{VERSION},"logs":{{"0":[term,position]}}}}, found {value!r}')
    found: dict[int, tuple[int, int]] = {}
    for log, place in value["logs"].items():
        if not (isinstance(log, str) and log.isascii() and log.isdigit() and _is_place(place)):
            raise BadOffset(f"expected a log and its [term, position], found {log!r}: {place!r}")
        found[int(log)] = place[0], place[1]
    return found


def _is_place(place: Any) -> bool:
    if not isinstance(place, (list, tuple)) or len(place) != 2:
        return False
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in place):
        return False
    term, pos = place
    return 0 <= term <= limits.TERM_MAX and 0 <= pos <= limits.POSITION_MAX and bool(term or not pos)
