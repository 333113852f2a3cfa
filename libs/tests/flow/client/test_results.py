"""Calls that wait for ends of workflows."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import ClosedError
from boki_common.testing.virtual_time import let_pass
from bokiflow import NoSuchWorkflow, ResultExpired, WorkflowBlocked
from bokiflow.client.results import PATIENCE_S, Results
from bokiflow.model.flow_events import Claimed, Ended, Resulted, Started, Tombed
from bokiflow.model.outcomes import Outcome
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.records.contribution import Contribution

ENDED = Ended("x", 1, "n", "d", Outcome(1), 0)


async def test_an_end_elsewhere_is_followed_and_one_here_is_reported(log: Log) -> None:
    start = await log.append(Contribution(("flow/own/x",), {}, (Started("x", "n", "d", [], 0),)))
    ended = msgspec.structs.replace(ENDED, start=start)
    async with Results(log) as results:
        elsewhere = [results.wait("x", one, follow=True) for one in (start, 0, start)]
        here = results.wait("y", 1, follow=False)
        await log.append(Contribution(("flow/own/x",), {}, (ended,)))
        assert await asyncio.gather(*elsewhere) == [ended] * 3
        results.ended("y", ENDED)
        results.ended("nobody", ENDED)
        assert await here == ENDED


async def test_nobody_takes_the_result_of_another_run(log: Log) -> None:
    """The id was forgotten, and used again."""
    start = await log.append(Contribution(("flow/own/x",), {}, (Started("x", "n", "d", [], 0),)))
    ended = msgspec.structs.replace(ENDED, start=start)
    async with Results(log) as results:
        waiting = [results.wait("x", one, follow=True) for one in (start - 1, start, 0)]
        await log.append(Contribution(("flow/own/x",), {}, (ended,)))
        with pytest.raises(ResultExpired):
            await waiting[0]
        assert await asyncio.gather(*waiting[1:]) == [ended] * 2


async def test_an_end_that_was_repeated_is_taken_though_the_first_was_trimmed(log: Log, book: boki.Book) -> None:
    own = "flow/own/x"
    start = await log.append(Contribution((own,), {}, (Started("x", "n", "d", [], 0),)))
    ended = msgspec.structs.replace(ENDED, start=start)
    large = await log.append(Contribution(("flow/out/x/result",), {}, (Resulted("x", Outcome("large")),)))
    short = msgspec.structs.replace(ended, outcome=Outcome())
    last = await log.append(Contribution((own,), {}, (Tombed("x", short, 0, large),)))
    await book.trim(before=last, tag=own)
    async with Results(log) as results:
        assert (await results.wait("x", start, follow=True)).outcome.value == "large"
        assert (await results.wait("x", 0, follow=True)).outcome.value == "large"


async def test_what_is_not_kept_any_more_is_expired(log: Log, book: boki.Book) -> None:
    seqnum = await log.append(Contribution(("flow/own/x",), {}, (ENDED,)))
    await book.trim(before=seqnum + 1, tag="flow/own/x")
    async with Results(log) as results:
        with pytest.raises(ResultExpired):
            await results.wait("x", seqnum, follow=True)


async def test_a_process_that_cannot_go_on_fails_all_who_wait_and_come(log: Log) -> None:
    async with Results(log) as results:
        waiting = results.wait("x", 1, follow=False)
        results.failed_all(RuntimeError("died"))
        for one in (waiting, results.wait("y", 1, follow=False)):
            with pytest.raises(RuntimeError, match="died"):
                await one


async def blocked(log: Log, claim: int, why: str = "NotRegistered: …") -> int:
    return await log.append(Contribution(("flow/own/x",), {"flow/own/x": claim}, (Claimed("x", "", blocked=why),)))


@in_virtual_time
async def test_a_blocked_one_is_told_at_once_or_after_a_while_or_never() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        log = Log((await cluster.connect()).book("shop"))
        start = await log.append(Contribution(("flow/own/x",), {}, (Started("x", "n", "d", [], 0),)))
        async with Results(log) as results:
            waits = results.wait("x", 0, follow=True, blocked="wait")
            patient = results.wait("x", 0, follow=True, blocked=None)
            stack = 'NotRegistered: …\n  File "instance.py", line 7, in run'
            first = await blocked(log, start, stack)
            with pytest.raises(WorkflowBlocked, match="is blocked: NotRegistered: …; it goes on") as told:
                await results.wait("x", 0, follow=True, blocked="raise")
            assert "instance.py" not in str(told.value) and told.value.facts["found"] == stack
            await let_pass(PATIENCE_S - 0.1)
            taken = await log.append(Contribution(("flow/own/x",), {"flow/own/x": first}, (Claimed("x", "w"),)))
            await let_pass(60)
            assert not patient.done(), "another worker took it up in time"
            began_s = asyncio.get_running_loop().time()
            last = await blocked(log, taken, "NonDeterminism: …")
            with pytest.raises(WorkflowBlocked, match="NonDeterminism"):
                await patient
            assert asyncio.get_running_loop().time() - began_s >= PATIENCE_S
            await let_pass(3_600)
            assert not waits.done()
            await log.append(Contribution(("flow/own/x",), {"flow/own/x": last}, (ENDED,)))
            assert await waits == ENDED


async def test_one_that_was_blocked_once_and_runs_is_not_told(log: Log) -> None:
    start = await log.append(Contribution(("flow/own/x",), {}, (Started("x", "n", "d", [], 0),)))
    claim = await blocked(log, start)
    claim = await log.append(Contribution(("flow/own/x",), {"flow/own/x": claim}, (Claimed("x", "w"),)))
    async with Results(log) as results:
        waits = results.wait("x", 0, follow=True, blocked="raise")
        for _ in range(100):
            await asyncio.sleep(0)
        await log.append(Contribution(("flow/own/x",), {"flow/own/x": claim}, (ENDED,)))
        assert await waits == ENDED


async def test_a_missing_one_is_told_unless_the_call_waits_for_its_start(log: Log) -> None:
    async with Results(log) as results:
        with pytest.raises(NoSuchWorkflow, match="there is no workflow 'x'"):
            await results.wait("x", 0, follow=True, missing="raise")
        waits = results.wait("x", 0, follow=True, missing="wait")
        with pytest.raises(NoSuchWorkflow):
            await results.wait("x", 0, follow=True, missing="raise")
        await log.append(Contribution(("flow/own/x",), {}, (ENDED,)))
        assert await waits == ENDED


async def test_calls_fail_when_the_client_is_left_and_wait_again_once_it_is_entered(log: Log) -> None:
    start = await log.append(Contribution(("flow/own/x",), {}, (Started("x", "n", "d", [], 0),)))
    results = Results(log)
    async with results:
        waiting = [results.wait("x", start, follow=follow) for follow in (True, False)]
    for one in [*waiting, results.wait("x", start, follow=True)]:
        with pytest.raises(ClosedError, match="was left"):
            await one
    async with results:
        again = results.wait("x", start, follow=True)
        ended = msgspec.structs.replace(ENDED, start=start)
        await log.append(Contribution(("flow/own/x",), {}, (ended,)))
        assert await again == ended


async def test_calls_that_are_given_up_are_forgotten_and_their_workflows_unfollowed(log: Log) -> None:
    start = await log.append(Contribution(("flow/own/x",), {}, (Started("x", "n", "d", [], 0),)))
    async with Results(log) as results:
        given_up, stays = [results.wait("x", start, follow=True) for _ in range(2)]
        given_up.cancel()
        await asyncio.sleep(0)
        assert [one.future for one in results._waiting["x"]] == [stays] and "flow/own/x" in results._follower
        stays.cancel()
        await asyncio.sleep(0)
        assert not results._waiting and not results._followed and results._follower.cursors == 0
        again = results.wait("x", start, follow=True)
        ended = msgspec.structs.replace(ENDED, start=start)
        await log.append(Contribution(("flow/own/x",), {}, (ended,)))
        assert await again == ended
