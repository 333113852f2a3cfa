"""Objects whose time is over go by themselves, with their names."""

from __future__ import annotations

import boki
from bokilib.ports import BookPort
from bokilib.testing import start_anywhere
from bokistore import BokiStore, StoreSettings
from libs.tests.store.conftest import Another, SetClock

BARE = StoreSettings(checkpoints=False, cached_views=0, aux_data=False)


async def test_objects_whose_time_is_over_go_by_themselves(store: BokiStore, another: Another, clock: SetClock) -> None:
    things = store.collection("c", dict)
    await things.create("k", {})
    await things.create("l", {})
    for name in ("x", "y", "z"):
        await store.object(name).set("n", 1)
    for name in ("x", "y", "c/k"):
        await store.expire(name, clock.ms + 1_000)
    await store.expire("y", clock.ms + 10**9)
    assert await store.sweep() == []
    clock.ms += 1_000
    await store.carrier("a").round()
    reader = await another(BARE)
    values = await reader.values(["x", "y", "z", "c/k"], consistency="linearizable")
    assert values == [None, {"n": 1}, {"n": 1}, None]
    assert await reader.collection("c", dict).ids() == ["l"], "its name went with it"
    assert await store.sweep() == []


async def test_a_sweep_at_any_point_of_another_and_of_who_gives_more_time(clock: SetClock) -> None:
    async def begun(book: boki.Book) -> None:
        clock.ms = 1_000_000
        store = BokiStore(book, settings=BARE)
        for name in ("x", "y"):
            await store.object(name).set("n", 1)
            await store.expire(name, clock.ms)
        await store.object("clock").inc("n")

    async def sweep(book: BookPort) -> None:
        await BokiStore(book, settings=BARE).sweep()

    async def second(book: BookPort) -> None:
        store = BokiStore(book, settings=BARE)
        if await store.object("y").exists(consistency="linearizable"):
            await store.expire("y", clock.ms + 10**9)
            kept.append(True)
        await store.sweep()

    async def check(book: boki.Book) -> None:
        x, y = await BokiStore(book, settings=BARE).values(["x", "y"], consistency="linearizable")
        assert x is None and (y is not None) == bool(kept)
        kept.clear()

    kept: list[bool] = []
    assert (await start_anywhere(sweep, second, check, clock=clock, before=begun)).runs > 10
