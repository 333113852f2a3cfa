"""Moments are what a person meant, or refused with what would have been one."""

from __future__ import annotations

import pytest

from boki_cli.moments import moment_ms
from boki_common.errors import InvalidArgument

NOW = 1_795_330_391_730  # 2026-11-22T06:53:11.730 UTC


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-22", 1_795_305_600_000),
        ("2026-11-22T06:53:11.730", NOW),
        ("2026-11-22 06:53:11.730Z", NOW),
        ("2026-11-22T07:53:11.730+01:00", NOW),
        ("1795330391730", NOW),
        ("0s", NOW),
        ("1.5s", NOW - 1500),
        ("15m", NOW - 900_000),
        (" 2h ", NOW - 7_200_000),
        ("7d", NOW - 7 * 86_400_000),
        ("1w", NOW - 7 * 86_400_000),
        ("1970-01-01", 0),
    ],
)
def test_moments(text: str, expected: int) -> None:
    assert moment_ms(text, now_ms=NOW) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "20261122",
        "5 minutes",
        "2026-13-01",
        "1969-12-31",
        "60000d",
        "-1h",
        "1795330391",
        "1M",
        "١٢٣٤٥٦٧٨٩٠١٢",
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"expected a time such as 2026-11-22, .*15m.*, found "):
        moment_ms(text, now_ms=NOW)
