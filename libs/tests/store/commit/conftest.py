"""Commits in virtual time.

A record waits milliseconds for bodies that read. On a busy machine such a wait ends early, and which transactions share a record would
depend on the load.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from boki_common.testing.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualTimeLoop}
