"""The board asks while somebody looks, once for all who do, and keeps what it knew when it cannot ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from boki_common.errors import MetadataUnavailable
from boki_gateway.calls import board as module
from boki_gateway.calls.board import StatusBoard
from boki_gateway.calls.cluster_state import ClusterState
from boki_gateway.testing import Facts, cluster_state


def board_of(facts: Facts) -> StatusBoard:
    return StatusBoard(facts, every_s=0.01, requests=lambda: 7, streams=lambda: 2)


@pytest.fixture
def facts() -> Facts:
    return Facts(cluster_state())


@pytest.fixture
async def board(facts: Facts) -> AsyncIterator[StatusBoard]:
    board = board_of(facts)
    yield board
    await board.close()


async def asked(facts: Facts, times: int) -> None:
    while facts.asked < times:
        await asyncio.sleep(0)


async def test_all_who_look_share_one_question(facts: Facts, board: StatusBoard) -> None:
    assert facts.asked == 0, "nobody looked yet"
    answers = await asyncio.gather(*(board.look() for _ in range(5)))
    assert facts.asked == 2, "two, so that there is a rate"
    rates = answers[0].history.records_per_s
    assert len(rates) == 1 and rates[0] is not None and rates[0] > 0
    assert {len(answer.cluster.engines) for answer in answers} == {2}
    assert (answers[0].gateway.requests, answers[0].gateway.streams) == (7, 2)
    await asked(facts, 4)
    found = await board.look()
    assert len(found.history.records_per_s) >= 2
    assert all(rate is not None and rate > 0 for rate in found.history.records_per_s)
    assert found.age_s < 5
    await board.close()
    await board.close()


async def test_it_stops_when_nobody_looks_and_begins_again(
    facts: Facts, board: StatusBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNWATCHED_S", 0.0)
    with pytest.raises(asyncio.CancelledError):
        # It ends before the first question: whoever waited is not left waiting.
        async with asyncio.timeout(5):
            looking = asyncio.ensure_future(board.look())
            await asyncio.sleep(0)
            await board.close()
            await looking
    monkeypatch.setattr(module, "UNWATCHED_S", 0.05)
    again = board_of(facts)
    await again.look()
    assert again._task is not None
    await again._task
    rested = facts.asked
    await again.look()
    assert facts.asked > rested
    await again.close()


async def test_what_cannot_be_asked_is_a_problem_beside_what_was_known(facts: Facts, board: StatusBoard) -> None:
    await board.look()
    facts.error = MetadataUnavailable("no ZooKeeper")
    known = facts.asked
    await asked(facts, known + 2)
    found = await board.look()
    assert found.cluster.problem == "the cluster cannot be asked: no ZooKeeper"
    assert len(found.cluster.bookies) == 3


async def test_a_fault_of_the_port_is_the_lookers() -> None:
    class Broken(Facts):
        async def collect(self) -> ClusterState:
            raise RuntimeError("a fault")

    board = board_of(Broken(cluster_state()))
    with pytest.raises(RuntimeError, match="a fault"):
        await board.look()
    await board.close()
