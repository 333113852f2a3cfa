"""Offsets of streams: where a stream begins, how far it may advance, and what each end records so that a batch can be run again. Pure.

- A stream begins at a constant that only states the user's choice ("latest"). Spark requests the beginning again when it reruns the
  first batch, and a position that was looked up then would have moved. The first end records the position, as `from`.
- An end records the number of committed records of its batch, the bounds of its partitions, and the spans that were lost by then. A batch
  that is run again is planned by these: it has the same records in the same partitions, or it fails.
- No end lies before its start in any log: an engine that lags would move the stream back.
- If there is nothing new, the end is the start itself, with the same text.
- A stream begins at what is there: terms that were gone (all of their records trimmed) when it began are no loss, so an end records
  those that lie ahead, as `gone`. A term that is gone later and has unread positions is a loss. So is one ahead of a position that the
  user named, by offsets or a seqnum.

    {"cuts": [[7, 0, 900]], "from": {...}, "gone": [[8, 9]], "logs": {"0": [7, 900]}, "lost": [[7, 12, 14]], "rows": 890, "v": 1}

An offset alone is {"v": 1, "logs": {"0": [term, position]}}. Spark compares texts, so keys have one order and equal offsets equal texts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from boki_common import limits
from boki_logbook.scan.facts import NOWHERE, Committed, Offset
from boki_spark.errors import BadOffset, DataLoss

VERSION: Final = 1
EARLIEST: Final = "earliest"
LATEST: Final = "latest"

Span = tuple[int, int, int]
"""(term, first position, stop position)."""
TermRun = tuple[int, int]
"""The first and the last term of a run: all terms between them that were known, of any log, belong to it."""


class Beginning(NamedTuple):
    """The user's choice of a beginning: one of the words, or an offset, a time or a seqnum."""

    word: str = LATEST
    offset: Offset | None = None
    time_ms: int | None = None
    seqnum: int | None = None

    @property
    def names_a_position(self) -> bool:
        """True if records that are missing from this position on are a loss. From "earliest" or a time on, they are not."""
        return self.offset is not None or bool(self.seqnum)

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
    """The end of a batch and what it records.

    Attributes:
        begin: the start of the first batch; None in later ones.
        gone: terms ahead that were gone when the stream began.
    """

    logs: Offset
    begin: Offset | None
    rows: int
    cuts: tuple[Span, ...]
    lost: tuple[Span, ...]
    gone: tuple[TermRun, ...] = ()

    def encode(self) -> dict[str, Any]:
        """Return JSON values with keys in a fixed order."""
        begin = {} if self.begin is None else {"from": encode_logs(self.begin)}
        gone = {"gone": [list(run) for run in self.gone]} if self.gone else {}
        return {
            "cuts": [list(span) for span in self.cuts],
            **begin,
            **gone,
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
    logs, cuts, lost = decode_logs(found.get("logs")), _spans(found.get("cuts")), _spans(found.get("lost"))
    return BatchEnd(logs, begin, rows, cuts, lost, _runs(found.get("gone", [])))


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


def _runs(found: object) -> tuple[TermRun, ...]:
    if not isinstance(found, list):
        raise BadOffset(f"expected [term, term] for each run of terms, found {found!r:.200}")
    runs = []
    for run in found:
        if not (isinstance(run, list) and len(run) == 2 and all(isinstance(number, int) for number in run)):
            raise BadOffset(f"expected [term, term] for each run of terms, found {run!r:.80}")
        runs.append((run[0], run[1]))
    return tuple(runs)


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


def gone_ahead(committed: Committed, offset: Offset, known: Iterable[TermRun] | None = None) -> tuple[TermRun, ...]:
    """Return the terms that are gone and lie ahead of an offset, as runs.

    Args:
        known: only terms in these runs; None for all.
    """
    among = None if known is None else tuple(known)
    if among == ():
        return ()
    runs: list[TermRun] = []
    extends = False
    for one in committed.terms:
        ahead = (one.term, one.end_pos) > offset.get(one.log, NOWHERE)
        chosen = one.gone and ahead and (among is None or in_runs(one.term, among))
        if chosen and extends:
            runs[-1] = runs[-1][0], one.term
        elif chosen:
            runs.append((one.term, one.term))
        extends = chosen
    return tuple(runs)


def in_runs(term: int, runs: Sequence[TermRun]) -> bool:
    """Return whether a term belongs to one of these runs, which ascend."""
    at = bisect_right(runs, (term, limits.TERM_MAX)) - 1
    return at >= 0 and term <= runs[at][1]


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
