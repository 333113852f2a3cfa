"""Many records as one call: chunks in order, and a committed prefix when it fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import boki
from boki._append_many import CHUNK_RECORDS
from boki._book import Book
from boki_common import limits

if TYPE_CHECKING:
    from tests.sdk.conftest import FaultyEngine

    from boki.testing import MemoryCluster


async def test_more_records_than_a_window_has_go_in_order_in_chunks(client: boki.Client, engine: FaultyEngine) -> None:
    count = limits.WINDOW_RECORDS + CHUNK_RECORDS + 1
    seqnums = await client.book(1).append_many([(b"%d" % number, []) for number in range(count)])
    assert len(seqnums) == count and seqnums == sorted(seqnums)
    assert engine.ordered(1) == [b"%d" % number for number in range(count)]


async def test_what_is_not_a_prefix_is_not_called_definite(memory: MemoryCluster) -> None:
    one, two = await memory.connect(), await memory.connect()
    mine, other = await one.book("b").writer("w"), await two.book("b").writer("w")
    await other.append_many([(b"other", [])] * CHUNK_RECORDS)
    with pytest.raises(boki.OutcomeUnknown, match=r"is another record already.* 256 behind the first") as caught:
        await mine.append_many([(b"mine", [])] * (CHUNK_RECORDS + 256))
    assert (caught.value.committed, caught.value.seqnums, caught.value.behind) == (0, [], 256)
    assert caught.value.number == 1 and isinstance(caught.value.__cause__, boki.NumberReused)
    await mine.refresh()
    await other.refresh()
    await other.append(b"other")
    with pytest.raises(boki.NumberReused) as definite:
        await mine.append_many([(b"mine", [])])
    assert definite.value.definite and definite.value.behind == 0, "nothing of the call is in the log"


async def test_append_many_reports_its_prefix(client: boki.Client, book: Book, engine: FaultyEngine) -> None:
    warm = await book.append(b"warm")

    def stop_answering() -> None:
        engine.mute = engine.frames > 1 and bool(engine.ordered(1)[256:])
        if not engine.mute:
            loop.call_soon(stop_answering)

    loop = asyncio.get_running_loop()
    stop_answering()
    with pytest.raises(boki.OutcomeUnknown) as caught:
        await book.append_many([(b"%d" % number, []) for number in range(3_000)], timeout=0.3)
    committed, seqnums = caught.value.committed, caught.value.seqnums
    assert len(seqnums) == committed < 3_000
    assert warm not in seqnums
    ordered = engine.ordered(1)[1:]
    assert ordered == [b"%d" % number for number in range(len(ordered))]
    assert len(ordered) >= committed
    assert client._connection is not None
    await client._connection.close(0)
