"""Offsets of streams as JSON, and the values of plans under one roof. Pure.

    {"v": 1, "logs": {"0": [term, position]}}

Spark compares the text: keys are in one order, and the same offset always has the same text.
"""

from __future__ import annotations

from typing import Any, Final

from boki_common import limits
from boki_logbook.scan.facts import COMMITTED as COMMITTED
from boki_logbook.scan.facts import LIVE as LIVE
from boki_logbook.scan.facts import NOWHERE as NOWHERE
from boki_logbook.scan.facts import Committed as Committed
from boki_logbook.scan.facts import Offset as Offset
from boki_logbook.scan.facts import ScanRange as ScanRange
from boki_logbook.scan.facts import TermFacts as TermFacts
from boki_logbook.scan.facts import reached as reached
from boki_spark.faults import BadOffset

Range = ScanRange
VERSION: Final = 1


def encode_offset(offset: Offset) -> dict[str, Any]:
    """An offset as plain values, logs ascending by their text."""
    return {"v": VERSION, "logs": {key: list(offset[int(key)]) for key in sorted(map(str, offset))}}


def decode_offset(value: Any) -> dict[int, tuple[int, int]]:
    """Raises BadOffset: it cannot be right."""
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
