"""What the newest records of a book are about, whoever else writes there."""

from __future__ import annotations

from boki.testing import MemoryCluster
from bokistore import BokiStore
from bokistore_tools.listing import recent


async def another_program(cluster: MemoryCluster) -> None:
    await (await cluster.connect()).book("shop").append(b"of another program")


async def test_what_the_newest_records_are_about(store: BokiStore, cluster: MemoryCluster) -> None:
    await store.collection("user", dict).create("ann", {})
    for name in ("a", "b", "a"):
        await store.object(name).inc("n")
    await store.delete("b")
    await another_program(cluster)
    await store.log.book.now(consistency="linearizable")
    found = await recent(store, 100)
    assert [(one.name, one.kind) for one in found.objects] == [
        ("b", "deleted"), ("a", "operations"), ("user/ann", "transaction"),
    ]  # fmt: skip
    assert (found.collections, found.whole) == (["user"], True)
    assert await store.checkpointer.checkpoint("a")
    assert (await recent(store, 1)).objects[0][::3] == ("a", "checkpoint")
    some = await recent(store, 4)
    assert ([one.name for one in some.objects], some.whole, some.records) == (["a", "b"], False, 4)
    await (await cluster.connect()).book("shop").trim(before=2**62)
    assert (await recent(store, 100)).whole
