"""Lines about what goes on for hours are few, and count what they leave out."""

from __future__ import annotations

import asyncio
from typing import Any

from boki_common.log_pace import LogPace


async def test_a_line_a_period_with_the_count_of_those_left_out() -> None:
    lines: list[dict[str, Any]] = []
    pace = LogPace(lambda event, **facts: lines.append({"event": event} | facts), "full", every_s=0.01)
    for number in range(3):
        pace.say(number=number)
    assert lines == [{"event": "full", "count": 1, "number": 0}]
    pace._next_at = asyncio.get_running_loop().time()
    pace.say(number=3)
    assert lines[1:] == [{"event": "full", "count": 3, "number": 3}]
    pace.say()
    pace.over()
    pace.say(number=5)
    assert lines[2:] == [{"event": "full", "count": 1, "number": 5}]
