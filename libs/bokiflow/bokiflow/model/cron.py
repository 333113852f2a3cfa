"""When something is due: cron expressions in a time zone, and intervals. Pure; the port of `cronsim`, which nothing else imports.

- Five fields, as Debian's cron has them; names of months and days, steps, "L" and "#" too.
- Summer time, as Debian's cron does it: what is due at a fixed hour is due once a day. In an hour that does not exist it is due
  right after; in one that happens twice, the first time. What is due every hour or more often goes by real time.
- Intervals are multiples since 1970 UTC: they do not drift, whoever computes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from itertools import islice, takewhile
from typing import Final, Literal, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from boki_common.errors import InvalidArgument

FIELDS: Final = 5
FIRINGS_AT_ONCE: Final = 100
"""Firings that one look gives; the next ones are given by the next look."""
LEAST_S: Final = 0.1

Missed: TypeAlias = Literal["skip", "last", "all"]


class Timing(NamedTuple):
    """When something is due, again and again.

    Attributes:
        cron: an expression; "": every `every_s` seconds.
        timezone: of IANA, for `cron`.
        missed: what becomes of firings that are more than `late_s` late, since nobody was there: none, the newest, or all.
    """

    cron: str = ""
    every_s: float = 0.0
    timezone: str = "UTC"
    missed: Missed = "last"
    late_s: float = 60.0


class DueTimes(NamedTuple):
    """What is due now.

    Attributes:
        times: in milliseconds since 1970 UTC, ascending. until_ms: all at or before it was looked at.
    """

    times: tuple[int, ...]
    until_ms: int


class Skipped(NamedTuple):
    """Firings that were left out, since no worker ran when they were due.

    Attributes:
        number: how many; `FIRINGS_AT_ONCE` stands for as many or more. first_ms, last_ms: the times of the oldest and the newest of them.
    """

    number: int
    first_ms: int
    last_ms: int


def check(timing: Timing) -> Timing:
    """Raises InvalidArgument."""
    if bool(timing.cron) == bool(timing.every_s):
        raise InvalidArgument(
            f"expected either cron or every_s, found cron={timing.cron!r} and every_s={timing.every_s}"
        )
    if timing.every_s and timing.every_s < LEAST_S:
        raise InvalidArgument(f"expected an interval of at least {LEAST_S} s, found {timing.every_s}")
    if timing.missed not in ("skip", "last", "all"):
        raise InvalidArgument(f"expected missed to be 'skip', 'last' or 'all', found {timing.missed!r}")
    if timing.late_s < 0:
        raise InvalidArgument(f"expected late_s of at least 0, found {timing.late_s}")
    if timing.cron:
        if len(timing.cron.split()) != FIELDS:
            raise InvalidArgument(
                f"expected a cron expression of five fields (minute, hour, day, month, day of the week), found {timing.cron!r}"
            )
        next_ms(timing, 0)
    return timing


def next_ms(timing: Timing, after_ms: int) -> int:
    """The first time after `after_ms` at which it is due. Raises InvalidArgument."""
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
            if at > after_ms:  # in an hour that happens twice, it may be the first of both
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
    """Return what became due after `after_ms`, and is to be done now; of much, the first: ask again with `until_ms`.

    Args:
        now_ms: "late" is counted from it. until_ms: what is due later is left for another look; by default `now_ms`.
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
    """Return what of the firings after `after_ms` is left out by `due` of the same times; None: nothing is."""
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
    """Return a time as people read it who set this timing: in its time zone."""
    return iso(moment(timing, at_ms))


def iso(at: datetime) -> str:
    """Return a moment in ISO 8601, with milliseconds where it has any."""
    return at.isoformat(timespec="milliseconds" if at.microsecond else "seconds")


def moment(timing: Timing, at_ms: int) -> datetime:
    """Return a time as a moment in the time zone of a timing."""
    return datetime.fromtimestamp(at_ms / 1_000, _zone(timing.timezone))


def newest(timing: Timing, at_ms: int) -> int | None:
    """Return the newest time at or before `at_ms` at which something was due; None: nothing was since 1970."""
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
    """The newest time after `after_ms` and up to `last_ms`; looked for near `last_ms` first."""
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
