"""One cluster of scripted bookies per test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from boki_ledger.testing.ledgers import Ledgers


@pytest.fixture
async def ledgers() -> AsyncIterator[Ledgers]:
    made = Ledgers()
    await made.start()
    yield made
    await made.close()
