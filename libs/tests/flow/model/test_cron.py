"""When something is due, over summer time, over gaps, and however it is asked."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import boki
from bokiflow.model.cron import FIRINGS_AT_ONCE, Missed, Skipped, Timing, check, due, next_ms, skipped, text

DAY_MS = 86_400_000


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


def times(timing: Timing, after: str, count: int) -> list[str]:
    found, at = [], ms(after)
    for _ in range(count):
        at = next_ms(timing, at)
        found.append(datetime.fromtimestamp(at / 1_000, UTC).strftime("%d %H:%M"))
    return found


def test_a_fixed_hour_is_due_once_a_day_also_where_it_does_not_exist_or_twice() -> None:
    berlin = Timing("30 2 * * *", timezone="Europe/Berlin")
    assert times(berlin, "2026-03-27T12:00:00+00:00", 3) == ["28 01:30", "29 01:00", "30 00:30"], "03:00 in summer time"
    assert times(berlin, "2026-10-23T12:00:00+00:00", 3) == ["24 00:30", "25 00:30", "26 01:30"], (
        "the first 02:30 of both"
    )


def test_whoever_begins_in_an_hour_that_comes_twice_is_not_early() -> None:
    berlin = Timing("30 2 * * *", timezone="Europe/Berlin")
    second = ms("2026-10-25T02:10:00+01:00")
    assert next_ms(berlin, second) == ms("2026-10-26T02:30:00+01:00")


def test_what_is_due_every_hour_goes_by_real_time() -> None:
    berlin = Timing("15 * * * *", timezone="Europe/Berlin")
    assert times(berlin, "2026-10-25T00:00:00+00:00", 3) == ["25 00:15", "25 01:15", "25 02:15"]
    assert times(berlin, "2026-03-29T00:00:00+00:00", 3) == ["29 00:15", "29 01:15", "29 02:15"]


ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
CRONS = st.sampled_from(["30 2 * * *", "*/7 * * * *", "0 */3 * * *", "15 1,2,3 * * SUN", "5 4 1 * *", "0 2 * * 1-5"])


@settings(max_examples=40)
@given(
    ZONES, CRONS, st.sampled_from(["2026-03-27", "2026-03-07", "2026-10-23", "2026-10-31"]), st.integers(0, 4 * DAY_MS)
)
def test_the_next_time_is_the_same_from_wherever_it_is_asked(zone: str, cron: str, day: str, offset: int) -> None:
    timing = Timing(cron, timezone=zone)
    after = ms(f"{day}T00:00:00+00:00") + offset
    first = next_ms(timing, after)
    assert first > after
    for between in (min(after + 1, first - 1), (after + first) // 2, first - 1):
        assert next_ms(timing, between) == first
    assert next_ms(timing, first) > first


@given(st.floats(1, 100_000), st.integers(0, 10**12), st.integers(0, 10**8), st.sampled_from(["skip", "last", "all"]))
def test_intervals_do_not_drift_and_looks_give_each_time_once(
    every: float, after: int, passed: int, missed: Missed
) -> None:
    timing = Timing(every_s=every, missed=missed, late_s=1e9)
    found: list[int] = []
    at, now = after, after + passed
    for _ in range(3):
        looked = due(timing, at, now)
        found += looked.times
        at = looked.until_ms
    assert found == sorted(set(found)) and all(after < one <= now for one in found)
    assert all(one % round(every * 1_000) == 0 for one in found)
    assert at == now or len(found) == 3 * FIRINGS_AT_ONCE


@given(
    st.integers(1, 90),
    st.integers(0, 5_000),
    st.integers(0, 5_000),
    st.integers(0, 600),
    st.sampled_from(["skip", "last", "all"]),
)
def test_each_time_is_started_or_skipped(every: int, after: int, passed: int, late: int, missed: Missed) -> None:
    timing = Timing(every_s=every, missed=missed, late_s=late)
    wanted = [one * 1_000 for one in range(after + 1, after + passed + 1) if one % every == 0]
    started = due(timing, after * 1_000, (after + passed) * 1_000).times
    left = skipped(timing, after * 1_000, (after + passed) * 1_000)
    if left is None:
        assert list(started) == wanted[:FIRINGS_AT_ONCE]
    else:
        out = [one for one in wanted if one not in started]
        out = out[: next((at for at, one in enumerate(out) if one > left.last_ms), len(out))]
        assert left == Skipped(min(FIRINGS_AT_ONCE, len(out)), out[0], out[-1])
        assert all(one in started for one in wanted if one > left.last_ms) or len(started) >= FIRINGS_AT_ONCE


def test_a_time_is_told_in_the_zone_of_its_timing() -> None:
    assert (
        text(Timing("30 2 * * *", timezone="Europe/Berlin"), ms("2026-03-30T00:30:00+00:00"))
        == "2026-03-30T02:30:00+02:00"
    )
    assert text(Timing(every_s=0.2), 200) == "1970-01-01T00:00:00.200+00:00"


HOURLY = Timing("0 * * * *", late_s=60)


@pytest.mark.parametrize(("missed", "hours"), [("skip", []), ("last", [5]), ("all", [1, 2, 3, 4, 5])])
def test_what_was_missed_is_left_out_or_made_up_for(missed: Missed, hours: list[int]) -> None:
    hour = DAY_MS // 24
    looked = due(HOURLY._replace(missed=missed), 0, 5 * hour + 61_000)
    assert looked == (tuple(one * hour for one in hours), 5 * hour + 61_000)
    assert due(HOURLY._replace(missed=missed), looked.until_ms, 5 * hour + 62_000).times == ()
    on_time = due(HOURLY._replace(missed=missed), looked.until_ms, 6 * hour + 59_000)
    assert on_time.times == (6 * hour,)


def test_the_newest_of_a_long_gap_is_found_beside_what_is_on_time() -> None:
    yearly = Timing("0 0 1 1 *", missed="last")
    assert due(yearly, 0, ms("2026-11-26T00:00:00+00:00")).times == (ms("2026-01-01T00:00:00+00:00"),)
    often = Timing("* * * * *", missed="last", late_s=90)
    now = ms("2026-11-26T00:00:30+00:00")
    assert due(often, 0, now).times == (now - 150_000, now - 90_000, now - 30_000)


def test_all_that_was_missed_comes_in_parts() -> None:
    timing = Timing(every_s=1, missed="all")
    first = due(timing, 0, 250_000)
    assert len(first.times) == FIRINGS_AT_ONCE and first.until_ms == FIRINGS_AT_ONCE * 1_000
    assert len(due(timing, first.until_ms, 250_000).times) == FIRINGS_AT_ONCE


@pytest.mark.parametrize(
    "wrong",
    [
        Timing(),
        Timing("* * * * *", every_s=1),
        Timing("* * * *"),
        Timing("61 * * * *"),
        Timing("0 0 30 2 *"),
        Timing("* * * * * *"),
        Timing("* * * * *", timezone="Europe/Atlantis"),
        Timing("* * * * *", timezone="../etc"),
        Timing(every_s=0.01),
        Timing(every_s=float("inf")),
        Timing(every_s=float("nan")),
        Timing(every_s=1, late_s=float("inf")),
        Timing(every_s=1, late_s=float("nan")),
        Timing(every_s=1, late_s=-1),
        Timing(every_s=1, missed="some"),  # type: ignore[arg-type]
    ],
)
def test_timings_that_mean_nothing_are_refused(wrong: Timing) -> None:
    with pytest.raises(boki.InvalidArgument, match="expected"):
        check(wrong)
