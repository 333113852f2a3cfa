"""What must never pass for a proof that a metalog is not fenced: barriers on the real ledger client, message by message, and on
real bookies.

In each, somebody recovers the metalog of a sequencer that does not know, and some bookies do not hear of it, or are slow. The
next term may acknowledge anything from then on, so no barrier may be answered with what the sequencer remembers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from boki_bookie.bookie import Bookie
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper import layout
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import TermOver
from boki_common.ids import Position
from boki_common.metadata.memory import MemoryStore, MemoryTree
from boki_common.metadata.store import NOTHING
from boki_common.net.connection import Address
from boki_common.runtime.memory_disk import MemoryDisk
from boki_common.runtime.process import SystemClock, SystemRandom
from boki_ledger.client import LedgerClient
from boki_ledger.rules import unfenced
from boki_ledger.testing.ledgers import QUICK, make_cookie
from boki_ledger.testing.scripted_bookies import ScriptedBookies
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.metalog_entry import Trim
from boki_metalog.sequencer.sequencer import Sequencer

TRIM = Trim(1, ((0, 99),), False)


class SlowAnswers(MemoryStore):
    """Changes are made at once; while the gate is shut their answers wait."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.gate = asyncio.Event()
        self.gate.set()
        self.made = 0

    async def set(self, path: str, value: bytes, *, version: int, creating: Mapping[str, bytes] = NOTHING) -> int:
        answer = await super().set(path, value, version=version, creating=creating)
        self.made += 1
        await self.gate.wait()
        return answer


class World:
    """A sequencer, an engine of it, and somebody else's ledger client. Bookies are b1, b2 and b3, with b4 to spare, or real."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.bookies = ScriptedBookies(["b1", "b2", "b3", "b4"])
        self.bookies.register("b1", "b2", "b3")
        self.store = SlowAnswers(cluster.tree)
        self.real: list[Bookie] = []
        self.sequencer: Sequencer
        self.engine: Any
        self.stranger: LedgerClient

    async def start(self, *, real: int = 0) -> None:
        await self.store.start()
        await layout.init_cluster(self.store)
        for bookie in self.bookies.bookies if not real else ():
            await make_cookie(self.store, bookie)
        for number in range(real):
            self.real.append(await self._bookie(number))
        self.cluster.ledgers = await self._client(self.store)
        self.stranger = await self._client(await self.cluster.store())
        self.sequencer = await self.cluster.sequencer()
        await self.sequencer.serving()
        self.engine = await self.cluster.participant(self.sequencer.address)

    async def barrier(self) -> Position:
        answer = await self.engine.peer.call(protocol.OP_BARRIER, protocol.encode_term(1))
        return protocol.decode_position(answer)

    async def order(self) -> Position:
        answer = await self.engine.peer.call(protocol.OP_ORDER, protocol.encode_order(1, TRIM))
        return protocol.decode_position(answer)

    async def settle(self) -> None:
        """All that can happen without time passing has happened."""
        for _ in range(5):
            await self.engine.round_trip()

    async def recover(self) -> int:
        """Behind the sequencer's back; returns the last entry."""
        reader = await self.stranger.open(self.sequencer.status()["term"]["metalog_ledger"], recover=True)
        last = reader.last_entry
        await reader.close()
        assert self.sequencer.term == 1, "it does not know"
        return last

    def fenced(self) -> list[str]:
        """Bookies that are."""
        ledger = self.sequencer.status()["term"]["metalog_ledger"]
        return [str(name) for name, one in self.bookies.bookies.items() if one.fenced.get(ledger)]

    async def _bookie(self, number: int) -> Bookie:
        return await Bookie.start(
            disk=MemoryDisk(f"bookie {number}"),
            metadata=await self.cluster.store(),
            address=Address("127.0.0.1", 0),
            clock=SystemClock(),
            rng=SystemRandom(),
        )

    async def _client(self, store: MemoryStore) -> LedgerClient:
        scripted = None if self.real else self.bookies
        settings = replace(QUICK, connect_timeout_s=60.0, retry_for_s=60.0) if self.real else QUICK
        client = LedgerClient(metadata=store, rng=self.cluster.rng, settings=settings, bookies=scripted)
        await client.start()
        self.cluster._closing.append(client.close)
        return client


@pytest.fixture
async def real(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """With three bookies of ours, which have all the time to answer."""
    monkeypatch.setattr(unfenced, "UNPROVEN_S", 60.0)
    made = World(cluster)
    await made.start(real=3)
    yield made
    await cluster.close()
    cluster._closing.clear()
    for bookie in made.real:
        await bookie.close()


@pytest.fixture
async def world(cluster: Any) -> World:
    made = World(cluster)
    await made.start()
    return made


async def test_a_late_acknowledgement_of_an_old_entry_proves_nothing(world: World) -> None:
    """The third bookie acknowledged the last entry before it was fenced, and its word comes when a barrier waits."""
    late = world.bookies.hold(bookie="b3", kind="add", answer=True)
    assert await world.order() == Position(1, 1)
    assert len(late) == 1
    assert await world.recover() == 0 and world.fenced() == ["b1", "b2", "b3"]
    slow = world.bookies.hold(kind="add")
    waiting = asyncio.ensure_future(world.barrier())
    await world.settle()
    late.release()
    await world.settle()
    assert not waiting.done()
    slow.release()
    with pytest.raises(TermOver):
        await waiting


async def test_the_word_of_one_bookie_proves_nothing(world: World) -> None:
    """Recovery needs two of three, so the third may know nothing of it."""
    assert await world.order() == Position(1, 1)
    cut_off = world.bookies.hold(bookie="b3", kind="read")
    assert await world.recover() == 0 and world.fenced() == ["b1", "b2"]
    slow = [world.bookies.hold(bookie=name, kind="add") for name in ("b1", "b2")]
    waiting = asyncio.ensure_future(world.barrier())
    await world.settle()
    assert not waiting.done()
    for hold in slow:
        hold.release()
    with pytest.raises(TermOver):
        await waiting
    cut_off.discard()


async def test_bookies_of_the_old_ensemble_prove_nothing_while_it_changes(world: World) -> None:
    """The change is made and its answer under way: who recovers now fences two of the new ensemble, and two of the old one
    are left that know nothing."""
    assert await world.order() == Position(1, 1)
    world.bookies.register("b1", "b2", "b4")
    world.store.gate.clear()
    made = world.store.made
    world.bookies.crash("b3")
    ordering = asyncio.ensure_future(world.order())
    while world.store.made == made:
        await asyncio.sleep(0)
    assert await ordering == Position(1, 2), "two had it before the change began"
    world.bookies.restart("b3")
    await world.settle()
    cut_off = world.bookies.answer(V2Status.IO_ERROR, bookie="b2", kind="read")
    assert await world.recover() == 1 and world.fenced() == ["b1", "b4"]
    slow = world.bookies.hold(bookie="b1", kind="add")
    waiting = asyncio.ensure_future(world.barrier())
    await world.settle()
    assert not waiting.done()
    slow.release()
    world.store.gate.set()
    with pytest.raises(TermOver):
        await waiting
    cut_off()


@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "on disk"])
async def test_bookies_vouch_for_a_metalog_until_it_is_fenced(real: World, stored: bool) -> None:
    """They hold the entry that they are sent again, and look at the fence first."""
    assert await real.order() == Position(1, 1)
    for bookie in real.real if stored else ():
        assert isinstance(bookie.storage, Storage)
        await bookie.storage.checkpoint()
    assert [await real.barrier() for _ in range(3)] == [Position(1, 1)] * 3
    assert real.sequencer.status()["term"]["entries"] == 1, "the bookies were asked, and made no entry"
    assert await real.recover() == 0
    with pytest.raises(TermOver) as caught:
        await real.barrier()
    assert caught.value.definite
