"""Keys of machines: used again after their retention, created after an event came, created and skipped."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from boki.testing import MemoryCluster
from bokilib.records import tags
from bokirsm import App, Ask, Event, Host, IdReused, Machine, MachineFaulted, NoSuchMachine, Ref, Register, State
from libs.tests.conftest import SetClock
from libs.tests.rsm.conftest import NewHost
from libs.tests.rsm.upkeep import carry, checkpoint

DAY_MS = 24 * 3_600_000
BROKEN = {"now": False}


class Write(Event):
    text: str


class Read(Ask[str]):
    pass


class Halt(Event):
    pass


class Leaf(Machine[Write | Read]):
    text: Register[str] = Register("new")
    run = State(start=True)

    @run.on(Write)
    def write(self, e: Write) -> None:
        self.text = e.text

    @run.on(Read)
    def read(self, e: Read) -> None:
        self.reply(e, self.text)


class Tree(Machine[Write | Read | Halt]):
    """A machine that has a leaf for each text."""

    leaf: Register[Ref[Write | Read]] = Register()
    run = State(start=True)

    @run.on(Write)
    def write(self, e: Write) -> None:
        self.leaf = self.create(Leaf)

    @run.on(Read)
    def read(self, e: Read) -> None:
        self.reply(e, str(self.leaf))

    @run.on(Halt)
    def end(self, e: Halt) -> None:
        self.halt()


TREES = App("trees", [Tree, Leaf])


async def leaf_of(host: Host, tree: Ref[Write | Read | Halt]) -> Ref[Write | Read]:
    return Ref.parse(await host.ask(Read().to(tree)))


async def retire(host: Host, tree: Ref[Write | Read | Halt], cluster: MemoryCluster, clock: SetClock) -> None:
    """Halt a machine, and let the retention of its key pass."""
    await host.send(tree, Halt())
    for _ in range(10):
        with pytest.raises(NoSuchMachine):
            await host.ask(Read().to(tree))
        await checkpoint(host, tree.partition)
        clock.ms += DAY_MS
        await carry(cluster)


@pytest.mark.parametrize("moved", [False, True])
async def test_a_key_that_is_used_again_gives_children_of_its_own(
    new_host: NewHost, cluster: MemoryCluster, clock: SetClock, moved: bool
) -> None:
    async with await new_host(TREES, name="h") as host:
        tree = await host.create(Tree, Write("1"), key="t")
        old = await leaf_of(host, tree)
        await host.send(old, Write("secret of the first"))
        await retire(host, tree, cluster, clock)
        assert await host.ask(Read().to(old)) == "secret of the first"
        if not moved:
            assert await host.create(Tree, Write("1"), key="t") == tree
            young = await leaf_of(host, tree)
            assert young != old and await host.ask(Read().to(young)) == "new"
    async with await new_host(TREES, name="i") as host:
        if moved:
            assert await host.create(Tree, Write("1"), key="t") == tree
        young = await leaf_of(host, tree)
        assert young != old and await host.ask(Read().to(young)) == "new"
        await host.send(young, Write("written now"))
        assert await host.ask(Read().to(young)) == "written now"
        await host.send(tree, Write("2"))
        assert await leaf_of(host, tree) not in (old, young), "a machine that was loaded gives no name twice"
        await checkpoint(host, tree.partition)
    async with await new_host(TREES, name="j") as host:
        assert await host.ask(Read().to(young)) == "written now"
        assert await host.ask(Read().to(old)) == "secret of the first"
        await host.send(tree, Write("3"))
        assert (await leaf_of(host, tree)).name.startswith(young.name.partition(".")[0])


async def test_a_machine_that_got_events_before_its_creation_keeps_its_key(
    new_host: NewHost, cluster: MemoryCluster, clock: SetClock
) -> None:
    ref: Ref[Write | Read | Halt] = Ref("trees", tags.partition_of("t"), "t")
    async with await new_host(TREES, name="h") as host:
        with pytest.raises(NoSuchMachine):
            await host.ask(Read().to(ref))
        assert await host.create(Tree, Write("1"), key="t") == ref
        leaf = await leaf_of(host, ref)
        await checkpoint(host, ref.partition)
        assert await host.create(Tree, Write("1"), key="t") == ref, "the same creation is that of the machine"
        await host.send(ref, Halt())
        for _ in range(3):
            with pytest.raises(NoSuchMachine):
                await host.ask(Read().to(ref))
            await checkpoint(host, ref.partition)
            clock.ms += DAY_MS
            await carry(cluster)
        assert await host.create(Tree, Write("1"), key="t") == ref
        with pytest.raises(NoSuchMachine):
            await host.ask(Read().to(ref))
        assert await host.ask(Read().to(leaf)) == "new"


class Fragile(Machine[Write | Read]):
    """A machine whose creation fails until a test mends it."""

    broken = MappingProxyType(BROKEN)
    run = State(start=True)

    @run.on(Write)
    def write(self, e: Write) -> None:
        assert not self.broken["now"]

    @run.on(Read)
    def read(self, e: Read) -> None:
        self.reply(e, "alive")


async def test_the_key_of_a_creation_that_was_skipped_is_free_after_its_retention(
    new_host: NewHost, cluster: MemoryCluster, clock: SetClock
) -> None:
    app = App("fragile", [Fragile])
    async with await new_host(app, name="h") as host:
        BROKEN["now"] = True
        ref = await host.create(Fragile, Write("1"), key="f")
        with pytest.raises(MachineFaulted):
            await host.ask(Read().to(ref))
        await host.rsm.skip(ref)
        BROKEN["now"] = False
        for day in range(10):
            with pytest.raises(NoSuchMachine):
                await host.ask(Read().to(ref))
            assert day > 6 or await host.create(Fragile, Write("1"), key="f") == ref
            await checkpoint(host, ref.partition)
            clock.ms += DAY_MS
            await carry(cluster)
        assert await host.create(Fragile, Write("1"), key="f") == ref
        assert await host.ask(Read().to(ref)) == "alive"


async def test_a_key_that_is_free_again_meanwhile_is_created(
    new_host: NewHost, cluster: MemoryCluster, clock: SetClock
) -> None:
    book = (await cluster.connect()).book("b")
    tag = tags.rsm_machine("trees", "t")
    last = await book.append(b"old", tags=[tag])
    clock.ms += DAY_MS
    async with await new_host(TREES, name="h") as host:
        append = host.rsm.log.append

        async def forgotten(*args: Any, **options: Any) -> int:
            """Append a creation, after which a carrier forgets the machine that refuses it."""
            host.rsm.log.append = append  # type: ignore[method-assign]
            try:
                return await append(*args, **options)
            finally:
                await book.trim([(tag, last + 1)], forget=True)

        host.rsm.log.append = forgotten  # type: ignore[method-assign]
        tree = await host.create(Tree, key="t")
        assert await host.create(Tree, key="t") == tree


async def test_a_key_whose_stream_is_not_one_of_a_machine_is_refused(new_host: NewHost, cluster: MemoryCluster) -> None:
    async with await new_host(TREES, name="h") as host:
        book = (await cluster.connect()).book("b")
        await book.append(b"junk", tags=[tags.rsm_machine("trees", "t")])
        with pytest.raises(IdReused, match="take another key"):
            await host.create(Tree, key="t")
