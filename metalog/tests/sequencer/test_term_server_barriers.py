"""Barriers that bookies vouch for, without an entry: one term on loopback, with proofs given by hand where it matters."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest

from boki_common import limits
from boki_common.errors import LedgerFenced, Overloaded, TermEndedMeanwhile, TermOver
from boki_common.ids import Position
from boki_common.net.messages import MessagePeer
from boki_common.runtime.ports import Buffer
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.metalog_entry import Trim, decode
from boki_metalog.sequencer.sequencer import Sequencer

A = "aa" * 16
TRIM = Trim(1, ((0, 99),), False)


async def asked(engine: Any, *calls: Coroutine[Any, Any, Position]) -> list[asyncio.Task[Position]]:
    """These are under way, and have reached the sequencer."""
    tasks = [asyncio.get_running_loop().create_task(call) for call in calls]
    await engine.round_trip()
    return tasks


def metalog(cluster: Any) -> Any:
    """The ledger of term 1."""
    return cluster.ledgers.ledgers[0]


def proven(sequencer: Sequencer) -> int:
    """As the metric has it."""
    lines = sequencer._metrics.render().decode().splitlines()
    rows = [line for line in lines if line.startswith("boki_sequencer_barriers_proven_total{")]
    return int(float(rows[0].split()[-1])) if rows else 0


def tell(cluster: Any, answer: bool) -> int:
    """The bookies say this to all who asked; returns how many did."""
    waiting = list(cluster.ledgers.asked)
    cluster.ledgers.asked.clear()
    for on_answer in waiting:
        on_answer(answer)
    return len(waiting)


@pytest.fixture
async def sequencer(cluster: Any) -> Sequencer:
    """Serves term 1, whose metalog has one entry: shard 0 is open. Proofs are held."""
    cluster.ledgers.proves = cluster.ledgers.hold_proofs = True
    made: Sequencer = await cluster.sequencer()
    await made.serving()
    opener = await cluster.participant(made.address)
    assert await opener.open(1, A, 50) == 0
    return made


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Request → how often it was answered, with whatever; of one engine."""
    counts: Counter[int] = Counter()
    respond, respond_error = MessagePeer.respond, MessagePeer.respond_error

    def counted(peer: MessagePeer, request_id: int, opcode: int, *body: Buffer) -> None:
        if opcode == protocol.OP_BARRIER:
            counts[request_id] += 1
        respond(peer, request_id, opcode, *body)

    def counted_error(peer: MessagePeer, request_id: int, error: BaseException) -> None:
        counts[request_id] += 1
        respond_error(peer, request_id, error)

    monkeypatch.setattr(MessagePeer, "respond", counted)
    monkeypatch.setattr(MessagePeer, "respond_error", counted_error)
    return counts


async def test_a_proven_barrier_makes_no_entry(cluster: Any, sequencer: Sequencer) -> None:
    cluster.ledgers.hold_proofs = False
    engine = await cluster.participant(sequencer.address)
    assert await engine.subscribe(1) == (0, 1)
    await engine.entries()
    assert [await engine.barrier() for _ in range(5)] == [Position(1, 1)] * 5
    assert len(metalog(cluster).entries) == cluster.server_of(sequencer).recent.end == 1
    assert engine.received == [], "nothing to apply"
    assert proven(sequencer) == 5


async def test_the_first_barrier_of_an_empty_term_makes_an_entry(cluster: Any) -> None:
    """There is nothing yet that could be sent again."""
    cluster.ledgers.proves = True
    sequencer, engine = await cluster.served()
    assert [await engine.barrier() for _ in range(3)] == [Position(1, 1)] * 3
    assert len(metalog(cluster).entries) == 1 and proven(sequencer) == 2


async def test_a_barrier_is_answered_with_what_was_ordered_when_it_came(cluster: Any, sequencer: Sequencer) -> None:
    engine = await cluster.participant(sequencer.address)
    (early,) = await asked(engine, engine.barrier())
    assert await engine.order(1, TRIM) == Position(1, 2), "acknowledged meanwhile"
    (late,) = await asked(engine, engine.barrier())
    assert not early.done()
    assert tell(cluster, True) == 2
    assert (await early, await late) == (Position(1, 1), Position(1, 2))


async def test_a_barrier_waits_for_no_entry_in_flight(cluster: Any, engine: Any, sequencer: Sequencer) -> None:
    cluster.ledgers.hold_acks = True
    (ordering, waiting) = await asked(engine, engine.order(1, TRIM), engine.barrier())
    assert tell(cluster, True) == 1
    assert await waiting == Position(1, 1), "what is in flight is not ordered"
    assert not ordering.done()
    metalog(cluster).ack()
    assert await ordering == Position(1, 2)
    assert len(metalog(cluster).entries) == 2, "no entry for the barrier"


async def test_where_nothing_is_proven_an_entry_is_made_and_answers(cluster: Any, sequencer: Sequencer) -> None:
    engine = await cluster.participant(sequencer.address)
    waiting = await asked(engine, *(engine.barrier() for _ in range(3)))
    assert len(metalog(cluster).entries) == 1
    assert tell(cluster, False) == 3
    found = sorted([await one for one in waiting])
    assert found == [Position(1, 2), Position(1, 3), Position(1, 3)], (
        "the first began an entry, the others share the next"
    )
    assert [decode(entry).commands for entry in metalog(cluster).entries[1:]] == [(), ()]
    assert proven(sequencer) == 0 and cluster.ledgers.asked == [], "they are not asked twice"


async def test_a_barrier_without_proof_is_not_answered_by_an_entry_that_began_before(
    cluster: Any, engine: Any, sequencer: Sequencer
) -> None:
    cluster.ledgers.hold_acks = True
    ledger = metalog(cluster)
    (ordering, waiting) = await asked(engine, engine.order(1, TRIM), engine.barrier())
    tell(cluster, False)
    ledger.ack()
    assert await ordering == Position(1, 2)
    await engine.round_trip()
    assert not waiting.done()
    ledger.ack()
    assert await waiting == Position(1, 3)


@pytest.mark.parametrize("in_flight", [False, True], ids=["idle", "an entry in flight"])
async def test_a_fenced_sequencer_has_no_barrier_proven(cluster: Any, sequencer: Sequencer, in_flight: bool) -> None:
    engine = await cluster.participant(sequencer.address)
    if in_flight:
        cluster.ledgers.hold_acks = True
        engine.report(1, s0=(3, 1))
        await engine.round_trip()
    await cluster.ledgers.open(metalog(cluster).ledger_id, recover=True)
    assert cluster.server_of(sequencer).over is None, "it does not know"
    waiting = await asked(engine, engine.barrier(), engine.barrier())
    for one in waiting:
        with pytest.raises(TermOver) as caught:
            await one
        assert caught.value.definite
    assert isinstance(cluster.server_of(sequencer).over, LedgerFenced)
    assert proven(sequencer) == 0


@pytest.mark.parametrize("late", [True, False])
async def test_the_end_of_a_term_answers_all_who_wait_for_proof_once(
    cluster: Any, sequencer: Sequencer, answers: Counter[int], late: bool
) -> None:
    engine = await cluster.participant(sequencer.address)
    waiting = await asked(engine, *(engine.barrier() for _ in range(3)))
    server = cluster.server_of(sequencer)
    await cluster.replace()
    for one in waiting:
        with pytest.raises(TermOver) as caught:
            await one
        assert caught.value.definite and not isinstance(caught.value, TermEndedMeanwhile)
    assert tell(cluster, late) == 3, "later answers of the bookies go to nobody"
    await engine.round_trip()
    assert sorted(answers.values()) == [1, 1, 1]
    assert server.status()["barriers_waiting"] == 0 and proven(sequencer) == 0
    with pytest.raises(TermOver):
        await engine.barrier()


async def test_a_term_that_ends_orderly_answers_those_who_wait_for_proof(cluster: Any, sequencer: Sequencer) -> None:
    """It closes its metalog itself, so no bookie ever says that it is fenced."""
    engine = await cluster.participant(sequencer.address)
    (waiting,) = await asked(engine, engine.barrier())
    await engine.peer.call(protocol.OP_YIELD, protocol.encode_term(1))
    with pytest.raises(TermOver) as caught:
        await waiting
    assert caught.value.definite
    assert tell(cluster, False) == 1, "no entry is made any more"
    assert len(metalog(cluster).entries) <= 1


async def test_barriers_of_a_lost_connection_are_forgotten(
    cluster: Any, sequencer: Sequencer, answers: Counter[int]
) -> None:
    engine, other = await cluster.participant(sequencer.address), await cluster.participant(sequencer.address)
    gone = await asked(engine, engine.barrier(), engine.barrier())
    (stays,) = await asked(other, other.barrier())
    server = cluster.server_of(sequencer)
    assert server.status()["barriers_waiting"] == 3
    engine.peer.close()
    assert {type(one).__name__ for one in await asyncio.gather(*gone, return_exceptions=True)} == {"ConnectionLost"}
    while server.status()["barriers_waiting"] > 1:
        await other.round_trip()
    assert tell(cluster, False) == 3
    assert await stays == Position(1, 2)
    assert len(metalog(cluster).entries) == 2, "one entry, for the one who is left"
    assert sum(answers.values()) == 1


async def test_those_who_wait_for_proof_are_bounded(
    cluster: Any, sequencer: Sequencer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many may wait for an entry besides, which is what others get."""
    monkeypatch.setattr(limits, "BARRIERS_WAITING", 2)
    engine = await cluster.participant(sequencer.address)
    cluster.ledgers.hold_acks = True
    in_flight = await asked(engine, engine.order(1, TRIM))
    waiting = await asked(engine, *(engine.barrier() for _ in range(4)))
    assert len(cluster.ledgers.asked) == 2 and cluster.server_of(sequencer).status()["barriers_waiting"] == 4
    with pytest.raises(Overloaded):
        await engine.barrier()
    cluster.ledgers.hold_acks = False
    metalog(cluster).ack()
    assert [await one for one in waiting[2:]] == [Position(1, 3)] * 2
    tell(cluster, True)
    assert [await one for one in waiting[:2]] == [Position(1, 1)] * 2
    await in_flight[0]


async def test_whoever_finds_no_place_when_nothing_is_proven_is_answered_overloaded(
    cluster: Any, sequencer: Sequencer, answers: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await cluster.participant(sequencer.address)
    cluster.ledgers.hold_acks = True
    (ordering, *waiting) = await asked(engine, engine.order(1, TRIM), *(engine.barrier() for _ in range(4)))
    monkeypatch.setattr(limits, "BARRIERS_WAITING", 3)
    tell(cluster, False)
    with pytest.raises(Overloaded) as caught:
        await waiting[-1]
    assert caught.value.definite and caught.value.retryable
    cluster.ledgers.hold_acks = False
    metalog(cluster).ack()
    await ordering
    assert [await one for one in waiting[:-1]] == [Position(1, 3)] * 3
    assert sorted(answers.values()) == [1, 1, 1, 1]


async def test_people_see_how_many_barriers_wait_in_all(cluster: Any, engine: Any, sequencer: Sequencer) -> None:
    cluster.ledgers.hold_acks = True
    first = await asked(engine, engine.order(1, TRIM), engine.barrier(), engine.barrier())
    status = cluster.server_of(sequencer).status
    assert (status()["barriers_waiting"], status()["orders_waiting"]) == (2, 0)
    tell(cluster, False)
    assert status()["barriers_waiting"] == 2, "they wait for an entry now"
    second = await asked(engine, engine.barrier(), engine.order(1, TRIM))
    assert (status()["barriers_waiting"], status()["orders_waiting"]) == (3, 1)
    tell(cluster, True)
    cluster.ledgers.hold_acks = False
    metalog(cluster).ack()
    await asyncio.gather(*first, *second)
    assert (status()["barriers_waiting"], status()["orders_waiting"]) == (0, 0)


async def test_orders_and_barriers_mixed_are_each_answered_once_and_never_from_the_past(
    cluster: Any, sequencer: Sequencer, answers: Counter[int]
) -> None:
    engine, other = await cluster.participant(sequencer.address), await cluster.participant(sequencer.address)
    last = Position(1, 1)
    asked_for = 0
    for turn in range(30):
        proves = bool(turn % 3)
        waiting = await asked(engine, *(engine.barrier() for _ in range(turn % 3)), other.barrier())
        await other.round_trip()
        asked_for += len(waiting)
        ordered = await engine.order(1, TRIM)
        tell(cluster, proves)
        found = {await one for one in waiting}
        if proves:
            assert found == {last}, "what is acknowledged meanwhile does not matter"
        else:
            assert min(found) > ordered, "the entry began when nothing was proven"
        last = max(ordered, *found)
    assert cluster.server_of(sequencer).status()["barriers_waiting"] == 0
    assert sum(answers.values()) == asked_for
    assert proven(sequencer) == sum(turn % 3 + 1 for turn in range(30) if turn % 3)
    commands = [command for entry in metalog(cluster).entries for command in decode(entry).commands]
    assert commands.count(TRIM) == 30, "each order is in one entry"


async def test_a_proof_that_fails_while_the_term_ends_is_answered_by_its_end(
    cluster: Any, sequencer: Sequencer, answers: Counter[int]
) -> None:
    """Nothing is proven, an entry is made for it, and the metalog turns out to be fenced: recovery has no such entry."""
    engine = await cluster.participant(sequencer.address)
    (waiting,) = await asked(engine, engine.barrier())
    await cluster.ledgers.open(metalog(cluster).ledger_id, recover=True)
    tell(cluster, False)
    with pytest.raises(TermOver):
        await waiting
    assert list(answers.values()) == [1]
