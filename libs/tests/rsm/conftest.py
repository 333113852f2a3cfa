"""Hosts of machines on a cluster in memory. Each host and client is a process: it has its own session and incarnation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from boki.testing import MemoryCluster
from bokilib.append.log import Log
from bokirsm import App, Host, Rsm
from libs.tests.conftest import SetClock as SetClock
from libs.tests.rsm.words import Counter, Max

WORDS = App("words", [Counter, Max])

NewHost = Callable[..., Awaitable[Host]]
NewRsm = Callable[..., Awaitable[Rsm]]


@pytest.fixture
def new_host(cluster: MemoryCluster) -> NewHost:
    """A function that makes a host of another process, which is not entered."""

    async def make(app: App = WORDS, **options: Any) -> Host:
        options = {"stuck_after_s": None, **options}
        return Host(app, Log((await cluster.connect()).book("b")), **options)

    return make


@pytest.fixture
def new_rsm(cluster: MemoryCluster) -> NewRsm:
    """A function that makes a client of another process."""

    async def make(app: App = WORDS) -> Rsm:
        return Rsm(app, Log((await cluster.connect()).book("b")))

    return make
