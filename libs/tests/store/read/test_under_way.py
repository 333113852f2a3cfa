"""Who waits for reads of others: for how long, and for which."""

from __future__ import annotations

import asyncio

import pytest

from bokistore.model.fold import gone
from bokistore.read.under_way import UnderWay
from bokistore.read.view_cache import ViewCache


async def _turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_one_waits_until_nobody_reads_any_of_them() -> None:
    under_way = UnderWay(ViewCache(10))
    first, second = under_way.reading(["a"]), under_way.reading(["b"])
    first.__enter__()
    waiting = asyncio.ensure_future(under_way.ended(["a", "b"]))
    await _turns()
    second.__enter__()  # of which nobody knew when the other began to wait
    first.__exit__(None, None, None)
    await _turns()
    assert not waiting.done()
    second.__exit__(None, None, None)
    await waiting


async def test_what_is_kept_or_read_by_nobody_is_not_waited_for() -> None:
    cache = ViewCache(10)
    under_way = UnderWay(cache)
    with under_way.reading(["a"]):
        await under_way.ended(["b"])
        cache.put(gone("a", 1))
        await under_way.ended(["a"])


async def test_who_fails_is_waited_for_no_longer() -> None:
    under_way = UnderWay(ViewCache(10))

    async def reads() -> None:
        with under_way.reading(["a"]):
            await _turns()
            raise ValueError("broken")

    reading = asyncio.ensure_future(reads())
    await asyncio.sleep(0)
    await under_way.ended(["a"])
    with pytest.raises(ValueError, match="broken"):
        await reading


async def test_two_who_read_the_same_do_not_end_each_others_reads() -> None:
    under_way = UnderWay(ViewCache(10))
    with under_way.reading(["a"]):
        with under_way.reading(["a", "b"]):
            pass
        waiting = asyncio.ensure_future(under_way.ended(["a", "b"]))
        await _turns()
        assert not waiting.done()
    await waiting


async def test_where_nothing_is_kept_nobody_waits() -> None:
    under_way = UnderWay(ViewCache(0))
    with under_way.reading(["a"]):
        await under_way.ended(["a"])
