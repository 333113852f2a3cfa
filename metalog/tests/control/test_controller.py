"""A group of controllers: elected, killed at each step of what the leader does, two at once."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from boki_common.errors import ConnectionLost, InvalidArgument, ProtocolError
from boki_common.metadata.memory import Fault, MemoryStore
from boki_common.net.connection import Address
from boki_metalog.control.controller import Controller, Duty
from boki_metalog.control.controller_rules import WEIGHTS_PATH, encode_weights
from boki_metalog.control.log_changes import LogChanges
from boki_metalog.control.policies import Cluster
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.settings import ControllerSettings
from boki_metalog.terms.metadata_tree import read_record, read_view

FAST = ControllerSettings(round_s=0.01, vacant_grace_s=0.05, retry_first_s=0.005, retry_limit_s=0.02, retry_for_s=1.0)


async def controller(
    cluster: Any, store: MemoryStore | None = None, policies: Any = None, duties: Any = ()
) -> Controller:
    made = await Controller(
        metadata=store or await cluster.store(),
        ledgers=cluster.ledgers,
        rng=cluster.rng,
        settings=FAST,
        policies=policies,
        duties=duties,
    ).start(Address.parse("127.0.0.1:0"))
    cluster._closing.append(made.close)
    return made


async def two_logs(cluster: Any, sequencers: int = 3) -> list[Any]:
    made = [await cluster.sequencer() for _ in range(sequencers)]
    await cluster.until(lambda: any(one.term for one in made))
    await LogChanges(await cluster.store(), cluster.ledgers, cluster.rng, retry_first_s=0.005).add(1)
    await cluster.until(lambda: sum(one.term > 0 for one in made) == 2)
    return made


async def test_one_leads_and_the_next_when_it_stops(cluster: Any) -> None:
    first = await controller(cluster)
    await cluster.until(lambda: first.leading)
    second = await controller(cluster)
    assert not second.leading and second.status()["leading"] is False
    await first.close()
    await cluster.until(lambda: second.leading)
    await first.close()
    assert second.leading


@pytest.mark.parametrize("call", [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 20, 25, 30, 40])
async def test_a_leader_that_dies_at_any_step_is_followed_by_one_that_ends_it(cluster: Any, call: int) -> None:
    """It is killed before the `call`-th use of the store after it was asked to move slots."""
    sequencers = await two_logs(cluster)
    store = await cluster.store()
    first = await controller(cluster, store)
    await cluster.until(lambda: first.leading)
    calls = 0

    def dying(_operation: str, _path: str) -> Fault:
        nonlocal calls
        calls += 1
        if calls > call:
            store.crash()
            return Fault.UNAVAILABLE
        return Fault.NONE

    second = await controller(cluster)
    store.faults = dying
    await (await cluster.store()).create(WEIGHTS_PATH, encode_weights({}))
    await cluster.until(lambda: calls > call)
    store.expire_session()
    await cluster.until(lambda: second.leading)
    reader = await cluster.store()
    async with asyncio.timeout(15):
        while (view := (await read_view(reader)).view).per_slot.count(1) != 512:
            await asyncio.sleep(0)
        while sorted(one.term for one in sequencers if one.term) != sorted(view.term_of(log) for log in (0, 1)):
            view = (await read_view(reader)).view
            await asyncio.sleep(0)
    assert view.per_slot.count(0) == 512
    current = {view.term_of(log) for log in view.logs}
    for term in range(1, view.next_term):
        if term not in current:
            await read_record(reader, term)


async def test_two_leaders_at_once_do_no_harm(cluster: Any) -> None:
    """The first was cut off, the second elected, and the first comes back before it learns it."""
    await two_logs(cluster)
    first, second = await controller(cluster), await controller(cluster)
    await cluster.until(lambda: first.leading)
    second._election.leading = True
    leading = [asyncio.ensure_future(one._lead()) for one in (first, second)]
    await (await cluster.store()).create(WEIGHTS_PATH, encode_weights({1: 3}))
    reader = await cluster.store()
    async with asyncio.timeout(15):
        while (await read_view(reader)).view.per_slot.count(1) != 768:
            await asyncio.sleep(0)
    for task in leading:
        task.cancel()
    await asyncio.gather(*leading, return_exceptions=True)
    assert not first.failed.done() and not second.failed.done()


async def test_a_policy_that_fails_is_reported_and_stops_no_other(cluster: Any) -> None:
    class Failing:
        name = "failing"

        async def run(self, cluster: Cluster) -> None:
            raise ConnectionLost("somebody is away")

    class Counting:
        name = "counting"
        rounds = 0

        async def run(self, cluster: Cluster) -> None:
            self.rounds += 1

    counting = Counting()
    one = await controller(cluster, policies=(Failing(), counting))
    await cluster.until(lambda: counting.rounds > 2)
    assert one.status()["policies"] == [
        {"name": "failing", "fault": "somebody is away"}, {"name": "counting", "fault": None},
    ]  # fmt: skip


async def test_a_duty_runs_while_its_controller_leads_and_one_that_fails_ends_it(cluster: Any) -> None:
    runs: list[str] = []

    async def run() -> None:
        runs.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            runs.append("ended")

    async def failing() -> None:
        raise ValueError("a defect")

    first = await controller(cluster, duties=[Duty("watched", run, lambda: {"runs": len(runs)})])
    await cluster.until(lambda: runs == ["begun"])
    assert first.status()["duties"] == {"watched": {"runs": 1}}
    second = await controller(cluster, duties=[Duty("failing", failing, dict)])
    await first.close()
    assert runs == ["begun", "ended"]
    with pytest.raises(ValueError, match="a defect"):
        await second.failed


async def test_it_says_how_it_is(cluster: Any) -> None:
    one = await controller(cluster)
    await cluster.until(lambda: one.leading)
    visitor = await cluster.stranger(one.address)
    with pytest.raises(ProtocolError, match="HELLO"):
        await visitor.peer.call(protocol.OP_STATUS)
    visitor = await cluster.participant(one.address)
    status = msgspec.json.decode(await visitor.peer.call(protocol.OP_STATUS))
    assert (status["role"], status["leading"], status["incarnation"]) == ("controller", True, one.incarnation)
    with pytest.raises(InvalidArgument, match="opcode"):
        await visitor.peer.call(protocol.OP_OPEN, protocol.encode_open(1, "aa" * 16, 5))
