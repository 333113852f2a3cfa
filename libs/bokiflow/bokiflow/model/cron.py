"""Due times of cron expressions in a time zone, and of intervals. Pure; the only module that imports `cronsim`.

- Expressions have the five fields of Debian's cron, with names of months and days, steps, "L" and "#".
- Summer time follows Debian's cron. A time at a fixed hour is due once a day: right after an hour that does not exist, and in the first of
  two equal hours. Times every hour or more often go by real time.
- Intervals are multiples since 1970 UTC, so all processes compute the same times, without drift.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from itertools import islice, takewhile
from typing import Final, Literal, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from boki_common.errors import InvalidArgument

FIELDS: Final = 5
FIRINGS_AT_ONCE: Final = 100
"""The most firings that one call returns; the next call returns later ones."""
LEAST_S: Final = 0.1

Missed: TypeAlias = Literal["skip", "last", "all"]


class Timing(NamedTuple):
    """The times at which a schedule fires.

    Attributes:
        cron: a cron expression; "" for every `every_s` seconds.
        timezone: the IANA time zone of the expression.
        missed: the firings to start of those more than `late_s` late, because no worker ran: none, the newest, or all.
        late_s: how late a firing may be, in seconds, before it counts as missed.
    """

    cron: str = ""
    every_s: float = 0.0
    timezone: str = "UTC"
    missed: Missed = "last"
    late_s: float = 60.0


class DueTimes(NamedTuple):
    """The times that are due.

    `times` are in milliseconds since 1970 UTC, ascending. Nothing else is due up to `until_ms`.
    """

    times: tuple[int, ...]
    until_ms: int


class Skipped(NamedTuple):
    """Firings that were not started, because no worker ran when they were due.

    Attributes:
        number: their number; `FIRINGS_AT_ONCE` means that many or more.
        first_ms: the time of the oldest.
        last_ms: the time of the newest.
    """

    number: int
    first_ms: int
    last_ms: int


def check(timing: Timing) -> Timing:
    """Return the timing if it is valid. Raises InvalidArgument."""
    if bool(timing.cron) == bool(timing.every_s):
        raise InvalidArgument(
            f"expected either cron or every_s, found cron={timing.cron!r} and every_s={timing.every_s}"
        )
    if timing.every_s and not LEAST_S <= timing.every_s < math.inf:
        raise InvalidArgument(f"expected an interval of at least {LEAST_S} s, found {timing.every_s}")
    if timing.missed not in ("skip", "last", "all"):
        raise InvalidArgument(f"expected missed to be 'skip', 'last' or 'all', found {timing.missed!r}")
    if not 0 <= timing.late_s < math.inf:
        raise InvalidArgument(f"expected late_s of at least 0, found {timing.late_s}")
    if timing.cron:
        if len(timing.cron.split()) != FIELDS:
            raise InvalidArgument(
                f"expected a cron expression of five fields (minute, hour, day, month, day of the week), found {timing.cron!r}"
            )
        next_ms(timing, 0)
    return timing


def next_ms(timing: Timing, after_ms: int) -> int:
    """Return the first due time after `after_ms`. Raises InvalidArgument."""
    return next(_times(timing, after_ms))


def _times(timing: Timing, after_ms: int) -> Iterator[int]:
    if timing.every_s:
        every_ms = round(timing.every_s * 1_000)
        at = after_ms // every_ms * every_ms
        while True:
            at += every_ms
            yield at
    zone = _zone(timing.timezone)
    try:
        for found in CronSim(timing.cron, datetime.fromtimestamp(after_ms / 1_000, zone)):
            at = round(found.astimezone(UTC).timestamp() * 1_000)
            if at > after_ms:  # in the second of two equal hours, `cronsim` may return the first one
                yield at
    except CronSimError as fault:
        raise InvalidArgument(f"expected a cron expression, found {timing.cron!r}: {fault}") from fault
    raise InvalidArgument(f"expected a cron expression that is due some day, found {timing.cron!r}")


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as fault:
        raise InvalidArgument(
            f"expected a time zone of IANA such as 'Europe/Berlin', found {name!r}: {fault}; "
            "where the machine has no time zones, `pip install tzdata`"
        ) from fault


def due(timing: Timing, after_ms: int, now_ms: int, until_ms: int | None = None) -> DueTimes:
    """Return the times to fire of those due after `after_ms`, at most `FIRINGS_AT_ONCE`; call again after the result's `until_ms` for more.

    Args:
        after_ms: the time up to which firings are done.
        now_ms: the time from which lateness is counted.
        until_ms: the last time to return; by default `now_ms`.
    """
    until_ms = now_ms if until_ms is None else until_ms
    late_ms = now_ms - round(timing.late_s * 1_000)
    if timing.missed == "all":
        return _up_to(timing, after_ms, until_ms)
    fresh = _up_to(timing, max(after_ms, min(late_ms - 1, until_ms)), until_ms)
    if timing.missed == "skip" or after_ms >= late_ms - 1:
        return fresh
    newest = _newest(timing, after_ms, min(late_ms - 1, until_ms))
    return fresh if newest is None else DueTimes((newest, *fresh.times), fresh.until_ms)


def skipped(timing: Timing, after_ms: int, now_ms: int, until_ms: int | None = None) -> Skipped | None:
    """Return the firings that `due` with the same arguments leaves out; None if there are none."""
    if timing.missed == "all":
        return None
    until_ms = now_ms if until_ms is None else until_ms
    last = _newest(timing, after_ms, min(now_ms - round(timing.late_s * 1_000) - 1, until_ms))
    if last is not None and timing.missed == "last":
        last = _newest(timing, after_ms, last - 1)
    if last is None:
        return None
    times = list(islice(takewhile(lambda at: at <= last, _times(timing, after_ms)), FIRINGS_AT_ONCE))
    return Skipped(len(times), times[0], last)


def text(timing: Timing, at_ms: int) -> str:
    """Return a time in ISO 8601, in the time zone of a timing."""
    return iso(moment(timing, at_ms))


def iso(at: datetime) -> str:
    """Return a moment in ISO 8601, with milliseconds if it has any."""
    return at.isoformat(timespec="milliseconds" if at.microsecond else "seconds")


def moment(timing: Timing, at_ms: int) -> datetime:
    """Return a time as a moment in the time zone of a timing."""
    return datetime.fromtimestamp(at_ms / 1_000, _zone(timing.timezone))


def newest(timing: Timing, at_ms: int) -> int | None:
    """Return the newest due time at or before `at_ms`; None if there is none since 1970."""
    return _newest(timing, 0, at_ms)


def _up_to(timing: Timing, after_ms: int, now_ms: int) -> DueTimes:
    found: list[int] = []
    for at in _times(timing, after_ms):
        if at > now_ms:
            return DueTimes(tuple(found), max(after_ms, now_ms))
        found.append(at)
        if len(found) == FIRINGS_AT_ONCE:
            break
    return DueTimes(tuple(found), found[-1])


def _newest(timing: Timing, after_ms: int, last_ms: int) -> int | None:
    """Return the newest due time after `after_ms` and up to `last_ms`. The search begins near `last_ms`."""
    if timing.every_s:
        every_ms = round(timing.every_s * 1_000)
        at = last_ms // every_ms * every_ms
        return at if at > after_ms else None
    reach_ms = 3_600_000
    while True:
        start = max(after_ms, last_ms - reach_ms)
        newest = None
        for at in _times(timing, start):
            if at > last_ms:
                break
            newest = at
        if newest is not None or start == after_ms:
            return newest
        reach_ms *= 8
