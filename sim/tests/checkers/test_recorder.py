"""A recorded book behaves as the one it wraps, and its history is what happened."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from boki.testing import MemoryCluster
from boki_common.errors import Conflict
from boki_sim.checkers.check import check
from boki_sim.checkers.recorder import Recorder


async def test_a_history_of_the_memory_model_has_nothing_wrong() -> None:
    ticks = itertools.count()
    recorder = Recorder(clock=lambda: float(next(ticks)))
    async with MemoryCluster() as cluster:
        client = await cluster.connect()
        book = recorder.book(client.book("orders"), client_name="c1", name="orders")
        first = await book.append(b"one", tags=["a"])
        second = await book.append(b"two", tags=["a", "b"], expect={"a": first})
        with pytest.raises(Conflict):
            await book.append(b"three", tags=["a"], expect={"a": first})
        assert (await book.read_next("a")).seqnum == first
        assert (await book.read_prev("b")).seqnum == second
        assert (await book.check_tail()).seqnum == second
        assert await book.read_next("c") is None
        assert [record.seqnum async for record in book.read("a")] == [first, second]
    assert check(recorder.operations) == []
    outcomes = [(one.kind, one.outcome) for one in recorder.operations]
    assert outcomes == [("append", "ok"), ("append", "ok"), ("append", "conflict"), *[("read", "ok")] * 5]
    assert recorder.operations[-1].rows == ((first, "c1/1"), (second, "c1/2"))


async def test_what_a_session_took_over_is_part_of_the_history() -> None:
    ticks = itertools.count()
    recorder = Recorder(clock=lambda: float(next(ticks)))
    async with MemoryCluster() as cluster:
        client = await cluster.connect()
        await recorder.book(client.book("orders"), client_name="c1", name="orders").append(b"one")
        child = client.session(client.session_token())
        recorder.handed_over("c1", "c2")
        await recorder.book(child.book("orders"), client_name="c2", name="orders").check_tail()
    assert check(recorder.operations) == []
    blind = [msgspec.structs.replace(one, rows=()) if one.kind == "read" else one for one in recorder.operations]
    assert {finding.anomaly for finding in check(blind)} == {"lost"}
