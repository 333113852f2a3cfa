"""Time differences below a millisecond, for reports only.

`loop.time()` is no stopwatch: uvloop's has whole milliseconds and stands still during one turn of the loop. Nothing is
decided from what is measured here.
"""

from __future__ import annotations

from time import perf_counter as seconds_now

__all__ = ["seconds_now"]
