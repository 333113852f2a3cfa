"""Code that must reach nothing outside: a workflow's, which runs again in every replay, and would do it again each time.

The event loop of such code is a `Confined`, listed in `running` while it runs. Clients and their threads ask before they do anything:

    confined.check("boki.connect(...)")     # raises what the loop says about it; nothing outside of such code

This module does not know workflows: the libraries stand on the SDK.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, runtime_checkable

from boki_common.errors import BokiError

A_CLIENT: Final = "a client, or a store, queue or worker on one"


@runtime_checkable
class Confined(Protocol):
    """An event loop whose code must reach nothing outside."""

    def refused(self, what: str) -> BokiError:
        """Return the error of code that tries; `what` it tried."""


running: Final[list[Confined]] = []
"""Loops of confined code that run now, in any thread. Each runs within a turn of an ordinary event loop: meanwhile, what a client knows
about that turn says nothing about its caller."""


def check(what: str) -> None:
    """Raise the error of confined code that calls this; nothing if the caller is no such code."""
    if running:
        loop = asyncio._get_running_loop()
        if isinstance(loop, Confined):
            raise loop.refused(what)
