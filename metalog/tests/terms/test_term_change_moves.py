"""Moving slots: every step interrupted, movers and fail-over drivers racing at every pair of steps, drafts that were wrong.

`GuardedTree` looks at each value that the view ever had: it raises when a term is in the view before the earlier terms of
its slots are sealed, when numbers go back for a slot, when a running term's slots change, or when a ledger is the metalog of
two terms. The drivers of drafts (findings F1, F2, F3 of the design's review) are planted below, and found by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from boki_common.errors import NoSequencer
from boki_common.metadata.memory import Fault, MemoryStore, MemoryTree
from boki_common.metadata.store import NOTHING, Versioned
from boki_metalog.entries.metalog_entry import MetalogEntry, Open, ShardEnd, encode
from boki_metalog.errors import SpareTaken
from boki_metalog.terms import slot_rules, term_change, term_plan
from boki_metalog.terms.metadata_tree import create_record, ensure_view, read_record, read_view
from boki_metalog.terms.term_change import change_term, change_terms
from boki_metalog.terms.term_plan import Candidate
from boki_metalog.terms.term_record import term_path
from boki_metalog.terms.view import VIEW_PATH, NewTerm, View, decode_view, encode_view

ENGINE = "ee" * 16
OPENED = MetalogEntry(0, 0, 700, (ShardEnd(0, 0, 0),), (Open(0, ENGINE, 90),))
MOVED = range(512, 600)
HALVES = (*[0] * 512, *[1] * 512)
AFTER = (*[0] * 600, *[1] * 424)
CALLS = range(3)
"""More than a move has: the last ones interrupt nothing."""


class Broken(AssertionError):
    """A view that must never be."""


class GuardedTree(MemoryTree):
    """See the module."""

    def __init__(self, ledgers: Any) -> None:
        super().__init__()
        self.ledgers = ledgers
        self.metalogs: dict[int, int] = {}
        self.views: list[View] = []

    def set(self, path: str, value: bytes, version: int, creating: Mapping[str, bytes] = NOTHING) -> int:
        if path == VIEW_PATH and self.get(path).version == version:
            self._look(decode_view(self.get(path).value), decode_view(value), creating)
            self.views.append(decode_view(value))
        return super().set(path, value, version, creating)

    def _look(self, old: View, new: View, creating: Mapping[str, bytes]) -> None:
        for log, installed in sorted(new.logs.items()):
            before = old.installed(log)
            if installed is not None and installed != before:
                if self.metalogs.setdefault(installed.metalog_ledger, installed.term) != installed.term:
                    raise Broken(f"ledger {installed.metalog_ledger} is the metalog of two terms")
                if installed.term < old.next_term:
                    raise Broken(f"term {installed.term} was drawn before and arrives late")
            elif old.slots_of(log) != new.slots_of(log) and installed is not None:
                raise Broken(f"the slots of running term {installed.term} changed")
        for log, before in sorted(old.logs.items()):
            if before is not None and new.installed(log) != before:
                ledger = self.ledgers.ledgers[before.metalog_ledger]
                recorded = self.exists(term_path(before.term)) or term_path(before.term) in creating
                if not recorded or not ledger.closed:
                    raise Broken(f"term {before.term} left the view before it was sealed")
        for slot, (was, now) in enumerate(zip(old.per_slot, new.per_slot, strict=True)):
            if was != now and 0 < old.term_of(was) >= new.term_of(now):
                raise Broken(f"slot {slot} went from term {old.term_of(was)} back to term {new.term_of(now)}")


class World:
    """Log 0 in term 1 and log 1 in term 2, each with half of the slots and one ordered entry; standbys offer spares."""

    def __init__(self, ledgers: Any, rng: Any) -> None:
        self.tree = GuardedTree(ledgers)
        self.ledgers = ledgers
        self.rng = rng
        self.sequencers = 0

    async def begin(self) -> None:
        store = await self.store()
        _, version = await ensure_view(store)
        view = (await read_view(store)).view.with_logs([1]).spread_at_first({0: 1, 1: 1})
        await store.set(VIEW_PATH, encode_view(view), version=version)
        for log in (0, 1):
            await self.fail_over(log, 0)
            ledger = (await read_view(store)).view.installed(log).metalog_ledger  # type: ignore[union-attr]
            self.ledgers.ledgers[ledger].submit(encode(OPENED))
        while not all(ledger.acked for ledger in self.ledgers.ledgers.values()):
            await asyncio.sleep(0)

    async def store(self, gate: Gate | None = None) -> MemoryStore:
        store = MemoryStore(self.tree) if gate is None else GatedStore(self.tree, gate)
        await store.start()
        return store

    async def candidate(self) -> Candidate:
        self.sequencers += 1
        return Candidate(f"{self.sequencers:032x}", (await self.ledgers.create()).ledger_id)

    async def choose(self, _view: View, logs: tuple[int, ...]) -> Mapping[int, Candidate]:
        return {log: await self.candidate() for log in logs}

    async def move(self, store: MemoryStore | None = None, to: int = 0, slots: Any = MOVED) -> View:
        return await self.change(partial(term_plan.move, slots=slots, to=to), store)

    async def fail_over(self, log: int, suspect: int, store: MemoryStore | None = None) -> View:
        return await self.change(partial(term_plan.replace, log=log, suspect=suspect), store)

    async def change(self, decide: Any, store: MemoryStore | None = None, choose: Any = None) -> View:
        found = await change_terms(
            metadata=store or await self.store(),
            ledgers=self.ledgers,
            rng=self.rng,
            decide=decide,
            choose=choose or self.choose,
        )
        return found.view

    async def install(self, log: int, suspect: int, candidate: Candidate) -> None:
        store = await self.store()
        await change_term(
            metadata=store, ledgers=self.ledgers, rng=self.rng, log=log, suspect=suspect, candidate=candidate
        )

    async def view(self) -> View:
        return (await read_view(await self.store())).view

    async def add_third(self) -> None:
        """Log 2, without slots."""
        store = await self.store()
        view, version = await read_view(store)
        await store.set(VIEW_PATH, encode_view(view.with_logs([2])), version=version)
        await self.fail_over(2, 0)

    async def check(self, slots: tuple[int, ...], terms: int) -> View:
        """Slots as they should be, and every number below the next has a record or is current."""
        store = await self.store()
        view = (await read_view(store)).view
        assert view.per_slot == slots and view.next_term == terms + 1
        current = {view.term_of(log) for log in view.logs}
        held: dict[int, int] = {}
        for term in range(1, view.next_term):
            if term not in current:
                record = await read_record(store, term)
                held[record.metalog_ledger] = held.get(record.metalog_ledger, 0) + 1
                assert record.last_time_ms == 700
        assert set(held.values()) == {1}
        for installed in view.logs.values():
            assert installed is not None and not self.ledgers.ledgers[installed.metalog_ledger].closed
        return view


class Gate:
    """Holds a driver before its `at`-th call until it may go on."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.calls = 0
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    async def led_to(self, driver: Coroutine[Any, Any, View]) -> asyncio.Task[View]:
        """Starts a driver; it is at the gate now, or over."""
        task = asyncio.get_running_loop().create_task(driver)
        reached = asyncio.ensure_future(self.reached.wait())
        await asyncio.wait([task, reached], return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        return task

    async def call(self) -> None:
        self.calls += 1
        if self.calls == self.at + 1:
            self.reached.set()
            await self.go_on.wait()


class GatedStore(MemoryStore):
    """A store whose calls pass a gate."""

    def __init__(self, tree: MemoryTree, gate: Gate) -> None:
        super().__init__(tree)
        self.gate = gate

    async def get(self, path: str) -> Versioned:
        await self.gate.call()
        return await super().get(path)

    async def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        await self.gate.call()
        await super().create(path, value, ephemeral=ephemeral)

    async def set(self, path: str, value: bytes, *, version: int, creating: Mapping[str, bytes] = NOTHING) -> int:
        await self.gate.call()
        return await super().set(path, value, version=version, creating=creating)


@pytest.fixture
async def world(model_ledgers: Any, rng: Any) -> World:
    world = World(model_ledgers, rng)
    await world.begin()
    return world


async def test_slots_move_with_one_swap(world: World) -> None:
    before = len(world.tree.views)
    view = await world.move()
    assert len(world.tree.views) == before + 1
    assert (view.term_of(0), view.term_of(1)) == (3, 4)
    await world.check(AFTER, 4)
    assert await world.move() == view, "a move that is done does nothing"


async def test_a_removed_log_leaves_with_its_last_term_sealed(world: World) -> None:
    await world.change(partial(term_plan.remove, log=1))
    view = await world.check((0,) * 1024, 3)
    assert sorted(view.logs) == [0]
    assert (await read_record(await world.store(), 2)).slots == ((512, 1023),)


async def test_an_added_log_gets_a_term_and_then_slots(world: World) -> None:
    await world.add_third()
    await world.move(to=2)
    view = await world.view()
    assert [view.term_of(log) for log in (0, 1, 2)] == [1, 4, 5]
    assert view.per_slot == slot_rules.moved(HALVES, MOVED, 2)


class Stopped(BaseException):
    """The driver's process is gone."""


def dying(call: int) -> Callable[[str, str], Fault]:
    calls = iter(range(1000))

    def plan(_operation: str, _path: str) -> Fault:
        if next(calls) >= call:
            raise Stopped
        return Fault.NONE

    return plan


@pytest.mark.parametrize("call", range(8))
async def test_a_mover_that_finds_one_record_made_may_stop_anywhere(world: World, call: int) -> None:
    store = await world.store()
    view = (await read_view(store)).view
    await create_record(store, await term_change._seal(world.ledgers, view, 1))
    store.faults = dying(call)
    try:
        await world.move(store)
    except Stopped:
        assert call < 6, "the view, the swap that is refused, a record made, one found, the swap"
    await world.move()
    await world.check(AFTER, 4)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("then", ["the same move", "a move back", "plain next terms"])
async def test_a_mover_that_stops_at_any_metadata_call(world: World, call: int, then: str) -> None:
    store = await world.store()
    store.faults = dying(call)
    done = False
    try:
        await world.move(store)
        done = True
    except Stopped:
        done = (await world.view()).per_slot == AFTER
    assert done == (call >= 2), "before the swap nothing has moved, after it all has"
    if then == "the same move":
        await world.move()
        await world.check(AFTER, 4)
    elif then == "a move back":
        await world.move(to=1)
        if done:
            await world.check(HALVES, 6)
    else:
        view = await world.view()
        for log in (0, 1):
            await world.fail_over(log, view.term_of(log))
        await world.check(AFTER if done else HALVES, 6 if done else 4)


@pytest.mark.parametrize("step", ["recover", "recovery fenced", "recovery closed", "open"])
@pytest.mark.parametrize("nth", [1, 2])
async def test_a_mover_that_fails_around_a_recovery(world: World, step: str, nth: int) -> None:
    class Failed(NoSequencer):
        pass

    met = 0
    original = world.ledgers.step

    async def failing(operation: str) -> None:
        nonlocal met
        await original(operation)
        if operation == step:
            met += 1
            if met == nth:
                raise Failed("the bookies are away")

    world.ledgers.step = failing
    with pytest.raises(Failed):
        await world.move()
    world.ledgers.step = original
    await world.move()
    await world.check(AFTER, 4)


def pairs_of_drivers() -> Iterator[Any]:
    yield "mover and fail-over of the source", ("move", "fail source"), AFTER
    yield "mover and fail-over of the target", ("move", "fail target"), AFTER
    yield "two movers of the same slots", ("move", "move"), AFTER
    yield "two movers of other slots", ("move", "move others"), slot_rules.moved(AFTER, range(1000, 1024), 0)
    yield "fail-overs of both logs", ("fail source", "fail target"), HALVES


def driver(world: World, name: str, store: MemoryStore) -> Any:
    return {
        "move": lambda: world.move(store),
        "move others": lambda: world.move(store, slots=range(1000, 1024)),
        "fail target": lambda: world.fail_over(0, 1, store),
        "fail source": lambda: world.fail_over(1, 2, store),
    }[name]()


@pytest.mark.parametrize(
    ("names", "slots"), [one[1:] for one in pairs_of_drivers()], ids=[one[0] for one in pairs_of_drivers()]
)
async def test_drivers_that_race_at_every_pair_of_steps(
    names: tuple[str, str], slots: tuple[int, ...], model_ledgers: Any, rng: Any
) -> None:
    """The first stops before its n-th call; the second goes on to before its m-th; the first ends; the second ends."""
    for first_at in CALLS:
        for second_at in (*CALLS, 99):
            world = World(type(model_ledgers)(), rng)
            await world.begin()
            first, second = Gate(first_at), Gate(second_at)
            tasks = []
            for gate, name in zip((first, second), names, strict=True):
                tasks.append(await gate.led_to(driver(world, name, await world.store(gate))))
            for gate, task in zip((first, second), tasks, strict=True):
                gate.go_on.set()
                await task
            await world.check(slots, (await world.view()).next_term - 1)


async def test_a_fail_over_of_a_third_log_never_brings_slots_back(model_ledgers: Any, rng: Any) -> None:
    """F1: it reads who has which slot, slots of two other logs move, and it goes on; stopped before each of its calls."""
    for at in CALLS:
        world = World(type(model_ledgers)(), rng)
        await world.begin()
        await world.add_third()
        gate = Gate(at)
        failing_over = await gate.led_to(world.fail_over(2, 3, await world.store(gate)))
        await world.move()
        gate.go_on.set()
        await failing_over
        view = await world.view()
        assert view.per_slot == AFTER
        assert len({3, *(view.term_of(log) for log in (0, 1, 2))}) == 4, "all three have later terms"


async def test_a_move_whose_answer_is_lost_or_late(world: World) -> None:
    for fault in (Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.DELAYED):
        store = await world.store()
        left = [fault]

        def plan(operation: str, _path: str, left: list[Fault] = left) -> Fault:
            return left.pop() if operation == "set" and left else Fault.NONE

        store.faults = plan
        to = (await read_view(store)).view.log_of(MOVED[0]) ^ 1
        view = await world.move(store, to=to)
        outcomes = world.tree.deliver_delayed()
        assert all(outcome is not None for outcome in outcomes), "what lands late meets a newer version"
        assert view.log_of(MOVED[0]) == to
        assert (await world.view()) == view
    await world.check(AFTER, 8)


async def test_nothing_is_sealed_without_a_candidate(world: World) -> None:
    async def nobody(_view: View, _logs: tuple[int, ...]) -> Mapping[int, Candidate]:
        raise NoSequencer("none is free")

    with pytest.raises(NoSequencer):
        await world.change(partial(term_plan.move, slots=MOVED, to=0), choose=nobody)
    assert not any(ledger.closed for ledger in world.ledgers.ledgers.values())


async def _reuse(world: World) -> None:
    """A driver that saw a spare listed, and comes back after it was installed and replaced elsewhere."""
    seen = await world.candidate()
    await world.install(0, 1, seen)
    await world.fail_over(0, 3)
    await world.install(1, 2, seen)


async def test_a_spare_that_was_a_metalog_is_refused_whoever_lists_it_still(world: World) -> None:
    with pytest.raises(SpareTaken, match="closed"):
        await _reuse(world)
    assert not world.ledgers.ledgers[(await world.view()).installed(1).metalog_ledger].closed  # type: ignore[union-attr]


async def test_a_spare_that_is_gone_is_refused(world: World) -> None:
    candidate = await world.candidate()
    del world.ledgers.ledgers[candidate.ledger_id]
    with pytest.raises(SpareTaken, match="gone"):
        await world.install(0, 1, candidate)


# -- drafts, and whether the guard finds what is wrong with them


async def test_without_the_look_at_the_spare_a_ledger_serves_two_terms(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def trusting(_ledgers: object, _candidate: Candidate) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(term_change, "_check_spare", trusting)
    with pytest.raises(Broken, match="two terms"):
        await _reuse(world)


async def _seal(world: World, view: View, *logs: int) -> None:
    store = await world.store()
    for log in logs:
        await create_record(store, await term_change._seal(world.ledgers, view, log))


async def _swap(world: World, view: View) -> None:
    store = await world.store()
    await store.set(VIEW_PATH, encode_view(view), version=(await read_view(store)).version)


async def _terms(world: World, *logs: int) -> dict[int, NewTerm]:
    return {log: NewTerm((await world.candidate()).ledger_id, "x" * log, 700) for log in logs}


async def test_draft_placement_read_before_and_swapped_later(world: World) -> None:
    """F1: a fail-over driver that knows the slots of before writes them at whatever version it finds."""
    stale = await world.view()
    await world.move()
    now = await world.view()
    await _seal(world, now, 1)
    terms = await _terms(world, 1)
    with pytest.raises(Broken, match="slot"):
        await _swap(world, View(1, now.next_term + 1, stale.slots, now.with_terms(terms, token="t").logs))


async def test_draft_number_drawn_before_the_swap(world: World) -> None:
    """F2: the mover draws numbers, stalls; the log fails over; it comes with the numbers it has."""
    drawn = await world.view()
    await world.fail_over(1, 2)
    now = await world.view()
    await _seal(world, now, 0, 1)
    late = View(1, drawn.next_term, now.slots, now.logs).with_terms(await _terms(world, 0, 1), token="t", slots=AFTER)
    with pytest.raises(Broken, match="drawn before"):
        await _swap(world, View(1, now.next_term + 2, late.slots, {**late.logs, 1: late.logs[1]}))


async def test_draft_target_keeps_its_running_term(world: World) -> None:
    """F3: only the source is sealed, and the target's term gets the slots."""
    now = await world.view()
    await _seal(world, now, 1)
    after = now.with_terms(await _terms(world, 1), token="t")
    with pytest.raises(Broken, match="slots of running term 1"):
        await _swap(world, View(1, after.next_term, slot_rules.to_ranges(AFTER), after.logs))


async def test_draft_swap_before_the_record(world: World) -> None:
    """F4: the view drops a term whose end is written nowhere yet."""
    now = await world.view()
    with pytest.raises(Broken, match="before it was sealed"):
        await _swap(world, now.with_terms(await _terms(world, 1), token="t"))
