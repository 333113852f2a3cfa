"""A storage through a long life against plain dicts: adds, fences, checkpoints, deletions, collections, crashes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boki_common.bookkeeper.status import V2Status
from boki_common.limits import KIB
from boki_common.runtime.memory_disk import MemoryDisk

LEDGERS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), LEDGERS, st.integers(1, 12)),
        st.tuples(st.just("add"), LEDGERS, st.integers(1, 12)),
        st.tuples(st.just("fence"), LEDGERS, st.just(0)),
        st.tuples(st.just("delete"), LEDGERS, st.just(0)),
        st.tuples(st.just("checkpoint"), st.just(0), st.just(0)),
        st.tuples(st.just("collect"), st.just(0), st.just(0)),
        st.tuples(st.just("collect"), st.just(0), st.just(0)),
        st.tuples(st.just("crash"), st.just(0), st.integers(0, 1_000)),
    ),
    min_size=5,
    max_size=60,
)
Steps = list[tuple[str, int, int]]


class Life:
    """What must be there, by what was acknowledged; `gone` are ledgers whose deletion is durable."""

    def __init__(self, collected: Any) -> None:
        self.collected = collected
        self.world = collected.world
        self.disk = MemoryDisk()
        self.bodies: dict[int, dict[int, bytes]] = {}
        self.fenced: dict[int, None] = {}
        self.deleted: dict[int, None] = {}
        self.gone: dict[int, None] = {}

    async def run(self, steps: Steps) -> None:
        self.storage = await self.collected.open(self.disk)
        for step, ledger_id, number in steps:
            await getattr(self, step)(ledger_id, number)
        await self.check()
        await self.crash(0, 1)
        await self.check()

    async def add(self, ledger_id: int, count: int) -> None:
        held = self.bodies.setdefault(ledger_id, {})
        if not held and ledger_id not in self.deleted and ledger_id not in self.fenced:
            await self.collected.ledger(ledger_id)
        first = max(held, default=-1) + 1
        adds = [self.world.add(ledger_id, entry, bytes([entry % 251]) * 600) for entry in range(first, first + count)]
        for request, status in zip(adds, await self.world.put(self.storage, *adds), strict=True):
            if ledger_id in self.gone or ledger_id in self.fenced:
                assert status is V2Status.FENCED
            elif status is V2Status.OK:
                held[request.entry_id] = bytes(request.body)

    async def fence(self, ledger_id: int, _: int) -> None:
        assert await self.world.fence(self.storage, ledger_id) is V2Status.OK
        self.fenced[ledger_id] = None

    async def delete(self, ledger_id: int, _: int) -> None:
        if self.bodies.get(ledger_id) and ledger_id not in self.deleted:
            await self.collected.forget(ledger_id)
            self.deleted[ledger_id] = None

    async def checkpoint(self, _: int, __: int) -> None:
        await self.storage.checkpoint()

    async def collect(self, _: int, __: int) -> None:
        before = self.storage.gc_state().deleted_ledgers
        state = await self.storage.collect_garbage(major=True)
        await self.storage.journal.flushed()
        if state.deleted_ledgers > before:
            held = set(self.storage.ledger_ids)
            self.gone.update({ledger: None for ledger in (*self.deleted, *self.fenced) if ledger not in held})

    async def crash(self, _: int, seed: int) -> None:
        self.disk = self.disk.crash(self.world.seeded(seed))
        await self.storage.close()
        self.storage = await self.collected.open(self.disk)

    async def check(self) -> None:
        for ledger_id, held in self.bodies.items():
            for entry_id, body in held.items():
                found = await self.world.read(self.storage, ledger_id, entry_id)
                if ledger_id in self.gone:
                    assert found is V2Status.NO_LEDGER
                elif ledger_id not in self.deleted:
                    assert found == body
                else:
                    assert found in (body, V2Status.NO_LEDGER)
        for ledger_id in self.fenced:
            assert self.storage.is_fenced(ledger_id)
        for ledger in self.storage._ledgers.values():
            ledger.check_invariants()


async def live(make: Any, steps: Steps) -> None:
    collected = await make()
    collected.settings = collected.world.tiny(
        gc_grace_s=0.0,
        gc_reads_per_s=10**9,
        compaction_bytes_per_s=2**40,
        write_cache_bytes=64 * KIB,
        compact_below=0.8,
    )
    await Life(collected).run(steps)


@given(steps=STEPS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_storage_is_a_dict_of_ledgers_whatever_is_collected(new_collected: Any, steps: Steps) -> None:
    asyncio.run(live(new_collected, steps))


@pytest.mark.nightly
@given(steps=STEPS)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_storage_is_a_dict_of_ledgers_for_long(new_collected: Any, steps: Steps) -> None:
    asyncio.run(live(new_collected, steps))
