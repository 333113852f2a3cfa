"""The PoolServer of the paper (§5): pools of resources that a provider allocates; allocations fail, and resources go sick.

    PoolManager ── creates, Dispose ──► ResourceManager ── Allocate, Free ──► Provider (a mock machine)
                ◄── Ready, Gone ──────                  ◄── Allocated, Failed, Sick, Freed ──

A pool that is resized while it grows aims at its new size at once. Three variants have the bugs that properties 1 to 3 find.
"""

from __future__ import annotations

from typing import Any

from bokirsm import App, Ask, Event, Machine, Ref, Refused, Register, State, Table, Volatile
from bokirsm.testing import Mock, Monitor, Program, TestRsm

FAILS = 2
"""Allocations that may fail one after the other."""
SICK = 2
"""Resources that may go sick in a run."""


class Allocate(Event):
    by: Ref[Any]


class Free(Event):
    by: Ref[Any]
    id: int


class Allocated(Event):
    id: int


class Failed(Event):
    pass


class Sick(Event):
    pass


class Freed(Event):
    pass


class Ready(Event):
    resource: Ref[Any]


class Gone(Event):
    resource: Ref[Any]


class Dispose(Event):
    pass


class Serve(Event):
    pool: Ref[Any]
    provider: Ref[Any]


class Open(Event):
    owner: str
    provider: Ref[Any]
    count: int


class Resize(Ask[int]):
    owner: str
    count: int


class Get(Ask[tuple[int, int]]):
    """A question for the size of a pool, and its resources that are ready."""


class Delete(Ask[int]):
    owner: str


class Scaled(Event):
    """What a pool has just after it was scaled."""

    wanted: int
    creating: int
    created: int


class ResourceManager(Machine[Serve | Allocated | Failed | Sick | Freed | Dispose]):
    """Looks after one resource."""

    pool: Register[Ref[Ready | Gone]] = Register()
    provider: Register[Ref[Allocate | Free]] = Register()
    id: Register[int] = Register(0)
    tells = True
    creating = State(start=True, defer=(Dispose,))
    created = State()
    deleting = State(ignore=(Dispose, Sick))

    @creating.on(Serve)
    def begin(self, e: Serve) -> None:
        self.pool, self.provider = e.pool, e.provider
        self.send(self.provider, Allocate(self.me))

    @creating.on(Failed)
    def retry(self, e: Failed) -> None:
        self.send(self.provider, Allocate(self.me))

    @creating.on(Allocated)
    def have(self, e: Allocated) -> None:
        self.id = e.id
        self.send(self.pool, Ready(self.me))
        self.jump(self.created)

    @created.on(Sick, Dispose)
    def free(self, e: Sick | Dispose) -> None:
        self.send(self.provider, Free(self.me, self.id))
        self.jump(self.deleting)

    @deleting.on(Freed)
    def end(self, e: Freed) -> None:
        if self.tells:
            self.send(self.pool, Gone(self.me))
        self.halt()


class Pool(Machine[Open | Resize | Get | Delete | Ready | Gone]):
    """Keeps a pool at its size."""

    owner: Register[str] = Register("")
    provider: Register[Ref[Any]] = Register()
    goal: Register[int] = Register(0)
    creating: Register[int] = Register(0)
    created: Register[int] = Register(0)
    deleting: Register[int] = Register(0)
    resources: Table[Ref[Any], str] = Table()
    asked: Register[Delete | None] = Register(None)
    counts_creating = True
    resource: type[ResourceManager] = ResourceManager
    serving = State(start=True)
    ending = State(ignore=(Ready,), defer=(Get,))

    @serving.on(Open)
    def open(self, e: Open) -> None:
        self.owner, self.provider, self.goal = e.owner, e.provider, e.count
        self.scale()

    @serving.on(Resize)
    def resize(self, e: Resize) -> None:
        self.check(e.owner)
        self.goal = e.count
        self.scale()
        self.reply(e, e.count)

    @serving.on(Get)
    def get(self, e: Get) -> None:
        self.reply(e, (self.goal, self.created))

    @serving.on(Delete)
    def delete(self, e: Delete) -> None:
        self.check(e.owner)
        self.goal, self.asked = 0, e
        self.scale()
        self.jump(self.ending)
        self.end_if_empty()

    @serving.on(Ready)
    def ready(self, e: Ready) -> None:
        if self.resources.get(e.resource) == "creating":
            self.resources[e.resource] = "created"
            self.creating -= self.counts_creating
            self.created += 1

    @serving.on(Gone)
    @ending.on(Gone)
    def gone(self, e: Gone) -> None:
        state = self.resources.pop(e.resource)
        if state == "created":
            self.created -= 1
            self.scale()
        else:
            self.deleting -= 1
            self.end_if_empty()

    @ending.on(Resize, Delete)
    def refuse(self, e: Resize | Delete) -> None:
        raise Refused("the pool is deleted")

    def check(self, owner: str) -> None:
        if owner != self.owner:
            raise Refused(f"the pool is of {self.owner}")

    def end_if_empty(self) -> None:
        if self.asked is not None and not self.resources:
            self.reply(self.asked, 0)
            self.halt()

    def scale(self) -> None:
        """Create or dispose so many resources that there are as many as wanted."""
        more = self.goal - self.creating - self.created
        for _ in range(more):
            self.resources[self.create(self.resource, Serve(self.me, self.provider))] = "creating"
            self.creating += self.counts_creating
        alive = [(ref, state) for ref, state in self.resources.items() if state != "deleting"]
        for ref, state in alive[: max(-more, 0)]:
            self.send(ref, Dispose())
            self.resources[ref] = "deleting"
            self.deleting += 1
            if state == "creating":
                self.creating -= 1
            else:
                self.created -= 1
        self.announce(Scaled(self.goal, self.creating, self.created))


class Rot(Event):
    by: Ref[Any]
    id: int


class Provider(Mock[Allocate | Free | Rot]):
    """The provider of resources: allocations fail, and resources go sick at any time."""

    live: Register[list[int]] = Register([])
    newest: Register[int] = Register(0)
    failed: Register[int] = Register(0)
    sick: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Allocate)
    def allocate(self, e: Allocate) -> None:
        if self.failed < FAILS and self.choose([False, True]):
            self.failed += 1
            self.send(e.by, Failed())
            return
        self.failed = 0
        self.newest += 1
        self.live.append(self.newest)
        self.send(e.by, Allocated(self.newest))
        if self.sick < SICK and self.choose([False, True]):
            self.sick += 1
            self.send(self.me, Rot(e.by, self.newest))

    @run.on(Rot)
    def rot(self, e: Rot) -> None:
        if e.id in self.live:
            self.send(e.by, Sick())

    @run.on(Free)
    def free(self, e: Free) -> None:
        self.live.remove(e.id)
        self.send(e.by, Freed())


class ScaledToGoal(Monitor, observes=(Scaled,)):
    """Property 1: just after it was scaled, a pool has, or creates, as many resources as wanted."""

    def announced(self, event: Scaled, by: Ref[Any]) -> None:
        assert event.creating + event.created == event.wanted, f"{event}"


class ReachesItsSize(Monitor):
    """Property 2, and no garbage: in the end a pool has as many resources as it should, and the provider no others."""

    def ended(self) -> None:
        (provider,) = self.machines(Provider)
        pools = [one for one in self.machines(Pool) if one.state]
        for pool in pools:
            states = list(pool.resources.values())
            assert states == ["created"] * pool.goal, f"the pool of {pool.goal} has {states}"
        assert len(provider.live) == sum(pool.goal for pool in pools), f"{provider.live} are live"


class DeletedIsDisposed(Monitor, observes=(Delete,)):
    """Property 3: all resources of a deleted pool are disposed in the end, and its machines have ended."""

    def taken(self, event: Delete, by: Ref[Any]) -> None:
        self.hot("a deleted pool has resources")

    def committed(self, machine: object) -> None:
        if self.heat and not any(one.state for one in self.machines(Pool)):
            self.cold()


async def _resize(rsm: TestRsm, pool: Ref[Any], count: int) -> None:
    await rsm.ask(Resize("ann", count).to(pool))


async def _delete(rsm: TestRsm, pool: Ref[Any]) -> None:
    await rsm.ask(Delete("ann").to(pool))


def pools(kind: type[Pool] = Pool, *, deletes: bool = True) -> Program:
    """Return the PoolServer as the subject of a test: a pool that is resized twice at once, and deleted meanwhile, or not."""

    async def main(rsm: TestRsm) -> None:
        provider = await rsm.create(Provider, key="provider")
        pool = await rsm.create(kind, Open("ann", provider, rsm.choose([1, 3])), key="pool")
        try:
            await rsm.ask(Resize("bob", 9).to(pool))
        except Refused:
            pass
        else:
            raise AssertionError("a pool is resized by its owner alone")
        for count in (2, 0) if not deletes else (2,):
            await rsm.ask(Resize("ann", count).to(pool))
        if deletes:
            rsm.start(_delete(rsm, pool))
        else:
            rsm.start(_resize(rsm, pool, rsm.choose([1, 2, 3])))

    return Program(App("pools", [kind, kind.resource]), main, [ScaledToGoal, ReachesItsSize, DeletedIsDisposed])


# -- with bugs


class ForgetfulPool(Pool):
    """A pool that does not count the resources that it creates."""

    counts_creating = False


class VolatilePool(Pool):
    """A pool that counts the resources that are ready in memory."""

    created: Volatile[int] = Volatile(int)  # pyright: ignore[reportIncompatibleVariableOverride]  # that is the bug


class SilentManager(ResourceManager):
    """A manager that does not tell its pool that it has ended."""

    tells = False


class DeafPool(Pool):
    """A pool whose managers do not tell."""

    resource = SilentManager
