"""What an engine says of new appends to those who are connected."""

from __future__ import annotations

import asyncio

import pytest
from tests.engine.scripted import until
from tests.engine.test_server import Served, served, url_of

import boki
from boki_common.engine.admission import TAKEN, Admission

__all__ = ["served"]


async def test_sdks_are_notified_when_appends_are_refused_and_taken_again(served: Served) -> None:
    """Behind the answer to HELLO, and when it changes; whoever is no SDK gets nothing."""
    full, room = Admission(1, 2, 2), Admission(3, 0, 2)
    other = await served.sdk()  # of a version that says no role
    served.engine.admission = full
    async with boki.connect(url_of(served)) as client:
        book = client.book(1)
        while book._appends._admission is TAKEN:
            await asyncio.sleep(0)
        assert other.rows == []
        with pytest.raises(
            boki.DiskFull, match="2 bookies have to take a record, 1 do, and 2 are up and read-only"
        ) as caught:
            await book.append(b"x")
        assert caught.value.definite and caught.value.retryable
        for connection in served.connections:
            connection.announce_admission(room)
        await until(lambda: book._appends._admission is TAKEN)
        await book.append(b"y")
