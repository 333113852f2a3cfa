"""Defects, as of the library itself: the member that meets one ends with its error, and no caller waits without end."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest

from boki_common.logs import configured
from bokiqueue import popper
from bokiqueue.checkpoint import old_messages
from bokiqueue.consume.consumer import Consumer
from libs.tests.queue.conftest import Another


class Defect(RuntimeError):
    """An error that no code provokes but a test."""


def _raise(*args: object, **options: object) -> Any:
    raise Defect("defect")


async def test_a_shard_whose_messages_cannot_be_read_ends_its_member(
    another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_messages, "newest", _raise)
    queue = await another(shards=1)
    await queue.push(1)
    async with queue.consume() as messages:
        with pytest.raises(Defect):
            async with asyncio.timeout(30):
                await anext(messages)


async def test_a_member_without_its_guard_ends(another: Another, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Consumer, "_guard", _raise)
    queue = await another(shards=1)
    async with queue.consume() as messages:
        messages._guard_rounds.wake()
        with pytest.raises(Defect):
            async with asyncio.timeout(30):
                await anext(messages)


async def test_decisions_of_a_record_that_a_defect_keeps_back_are_answered(
    another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await another(shards=1)
    await queue.push(1)
    stream = io.StringIO()
    async with queue.consume() as messages:
        message = await anext(messages)
        while messages._owners[0]._driver.busy:
            await asyncio.sleep(0)
        with configured(stream=stream), monkeypatch.context() as patched:
            patched.setattr(messages.batcher._log, "append", _raise)
            acked = message.ack()
            async with asyncio.timeout(30):
                with pytest.raises(Defect):
                    await acked
            while messages._owners.get(0) is not None and messages._owners[0]._driver.busy:
                await asyncio.sleep(0)
        async with asyncio.timeout(30):
            assert (await anext(messages)).body == 1, "this member takes the shard again"
    assert "owner of a shard ended" in stream.getvalue()


async def test_a_checkpoint_of_pops_that_a_defect_keeps_back_is_logged(
    another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(popper.ShardPopper, "_checkpoint", _raise)
    queue = await another(mode="pop", shards=1)
    shard = popper.ShardPopper(queue.log, "jobs", 0, pops_between=1)
    await queue.push(1)
    stream = io.StringIO()
    with configured(stream=stream):
        assert await shard.pop() is not None
        while shard._tasks:
            await asyncio.sleep(0)
    assert "checkpoint not made: a defect" in stream.getvalue()
