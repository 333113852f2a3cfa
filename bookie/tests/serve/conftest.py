"""Who asks the storage that a test serves."""

from __future__ import annotations

import pytest
from tests.serve.requester import Requester, Served


@pytest.fixture
async def client(served: Served) -> Requester:
    return await served.connect()
