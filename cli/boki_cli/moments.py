"""Moments as people write them on a command line, in milliseconds since 1970 UTC.

    90s  15m  2h  7d  1w           so long ago
    2026-11-22  2026-11-22T06:00   a date, or a date and a time; UTC unless it ends with an offset such as +01:00
    1795330391730                  what records show as time_ms

Pure: what time it is now comes from the caller.
"""

from __future__ import annotations

import datetime
import re
from typing import Final

from boki_common.errors import InvalidArgument

_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|w)")
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_FEWEST_DIGITS: Final = 12
"""Of milliseconds: fewer are before 1973, and more likely a duration without its unit."""


def moment_ms(text: str, *, now_ms: int) -> int:
    """The moment that `text` names. Raises InvalidArgument: it is none of the forms above, or lies before 1970."""
    found = _parse(text.strip(), now_ms)
    if found is None or found < 0:
        raise InvalidArgument(
            "expected a time such as 2026-11-22, 2026-11-22T06:00, 2026-11-22T07:00+01:00 (UTC where it says no offset), "
            f"90s, 15m, 2h, 7d (ago), or a time_ms, found {text!r}",
            found=text,
        )
    return found


def _parse(text: str, now_ms: int) -> int | None:
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_ms - round(float(ago[1]) * _UNIT_MS[ago[2]])
    if text.isascii() and text.isdigit() and len(text) >= _FEWEST_DIGITS:
        return int(text)
    if "-" not in text:
        return None  # the short forms of ISO 8601 look like numbers
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return round(moment.timestamp() * 1000)
