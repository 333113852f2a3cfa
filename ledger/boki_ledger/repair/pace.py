"""A rate that copies keep to together: whoever is ahead of it waits."""

from __future__ import annotations

import asyncio
from typing import Final

AHEAD_S: Final = 0.1
"""So much may be sent at once after a pause."""


class RatePace:
    """See the module. A `replica_copies.Pace`; 0 bytes a second are no bound."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    async def __call__(self, size: int) -> None:
        if not self._bytes_per_s:
            return
        now_s = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now_s) + size / self._bytes_per_s
        if self._free_at > now_s + AHEAD_S:
            await asyncio.sleep(self._free_at - now_s - AHEAD_S)
