"""Who waits for which end."""

from __future__ import annotations

import asyncio

import pytest

import boki
from bokiflow import ResultExpired
from bokiflow.flow_events import Ended
from bokiflow.outcomes import Outcome
from bokiflow.results import Results
from bokilib.contribution import Contribution
from bokilib.log import Log

ENDED = Ended("x", 1, "n", "d", Outcome(1), 0)


async def test_an_end_elsewhere_is_followed_and_one_here_is_told(log: Log) -> None:
    async with Results(log) as results:
        elsewhere = [results.wait("x", 1, follow=True) for _ in range(2)]
        here = results.wait("y", 1, follow=False)
        await log.append(Contribution(("flow/own/x",), {}, (ENDED,)))
        assert await asyncio.gather(*elsewhere) == [ENDED, ENDED]
        results.ended("y", ENDED)
        results.ended("nobody", ENDED)
        assert await here == ENDED


async def test_what_is_not_kept_any_more_is_said(log: Log, book: boki.Book) -> None:
    seqnum = await log.append(Contribution(("flow/own/x",), {}, (ENDED,)))
    await book.trim(before=seqnum + 1, tag="flow/own/x")
    async with Results(log) as results:
        with pytest.raises(ResultExpired):
            await results.wait("x", seqnum, follow=True)


async def test_a_process_that_cannot_go_on_tells_all_who_wait_and_come(log: Log) -> None:
    async with Results(log) as results:
        waiting = results.wait("x", 1, follow=False)
        results.failed_all(RuntimeError("died"))
        for one in (waiting, results.wait("y", 1, follow=False)):
            with pytest.raises(RuntimeError, match="died"):
                await one
