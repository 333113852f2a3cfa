"""Whether bookies take writes is asked while appends wait, and announced when it changes."""

from __future__ import annotations

import asyncio

import pytest

from boki_common.bookkeeper.layout import register_bookie
from boki_common.engine.admission import TAKEN, Admission
from boki_common.errors import MetadataUnavailable
from boki_common.metadata.memory import MemoryStore
from boki_common.net.connection import Address
from boki_logbook.append.admission_watch import AdmissionWatch

AT = Address("127.0.0.1", 1)


def watch_of(store: object, changes: list[Admission], waiting_s: float = 9.0) -> AdmissionWatch:
    return AdmissionWatch(store, needed=2, waiting_s=lambda: waiting_s, on_change=changes.append)  # type: ignore[arg-type]


async def test_what_changes_is_announced_once() -> None:
    store, changes = MemoryStore(), list[Admission]()
    await store.start()
    watch = watch_of(store, changes)
    await register_bookie(store, "a", AT)
    await watch.look()
    assert changes == [] and watch.now.taken, "bookies that are away may come back"
    full = [await register_bookie(store, name, AT, read_only=True) for name in "bc"]
    await watch.look()
    await watch.look()
    assert changes == [Admission(1, 2, 2)]
    await full[0].leave()
    await register_bookie(store, "b", AT)
    await watch.look()
    assert changes[1:] == [Admission(2, 1, 2)] and changes[1].taken


async def test_what_cannot_be_found_out_changes_nothing() -> None:
    class Away:
        async def children(self, path: str) -> list[str]:
            raise MetadataUnavailable("away")

    changes: list[Admission] = []
    watch = watch_of(Away(), changes)
    await watch.look()
    assert watch.now == TAKEN and not changes


@pytest.mark.parametrize(("waiting_s", "due"), [(0.0, False), (0.5, False), (1.0, True)])
async def test_it_asks_nobody_while_nothing_waits_for_long(waiting_s: float, due: bool) -> None:
    watch = watch_of(store := MemoryStore(), [], waiting_s)
    await store.start()
    assert watch.due is due
    for name in "abc":
        await register_bookie(store, name, AT, read_only=True)
    await watch.look()
    assert watch.due, "it looks until appends are taken again"


async def test_it_looks_at_once_and_when_a_bookie_changes_though_nothing_waits() -> None:
    store, changes = MemoryStore(), list[Admission]()
    await store.start()
    full = await register_bookie(store, "a", AT, read_only=True)
    await register_bookie(store, "b", AT)
    watch = watch_of(store, changes, waiting_s=0.0)
    running = asyncio.ensure_future(watch.run())

    async def until(count: int) -> None:
        async with asyncio.timeout(5):
            while len(changes) < count:
                await asyncio.sleep(0)

    await until(1)
    assert changes == [Admission(1, 1, 2)]
    await full.leave()
    await register_bookie(store, "a", AT)
    await until(2)
    assert changes[1].taken
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
