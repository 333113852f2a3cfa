"""A writer asks at any moment whether anybody fenced its ledger, while bookies fail, return and are replaced and others recover it.

A schedule is a seed: which message travels next, who crashes or comes back, what the metadata store does late, how long nothing
happens. Time is virtual. What must hold of each question:

- who is answered that nobody fenced was answered rightly: when he asked, no recovery had ended (the committed metadata was not CLOSED), and
  of some write set of the writer's bookies an ack quorum was not fenced;
- each is answered once, or never when the writer ended before;
- a writer that nobody fenced can prove it once all is back and another entry is acknowledged.

Bugs are planted too: each is found, so schedules are able to.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.schedules import one_travels

from boki_common.bookkeeper import layout, ledger_metadata, v2
from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import LedgerFenced, NotEnoughBookies, Overloaded, RecoveryFailed
from boki_common.testing.virtual_time import VirtualTimeLoop, let_pass
from boki_ledger.read.reader import LedgerReader
from boki_ledger.rules.unfenced import Mark, UnfencedChecks
from boki_ledger.rules.write_set import write_set
from boki_ledger.settings import LedgerSettings
from boki_ledger.testing.held_messages import Message
from boki_ledger.testing.ledgers import GatedStore, Ledgers, turns
from boki_ledger.testing.scripted_bookies import ScriptedBookie, ScriptedBookies
from boki_ledger.write import replicated_adds
from boki_ledger.write.replicated_adds import ReplicatedAdds

BOOKIES: Final = ("b1", "b2", "b3", "b4", "b5", "b6")
GEOMETRIES: Final = ((3, 3, 2), (3, 3, 2), (3, 3, 2), (2, 2, 1), (3, 3, 1), (3, 3, 3), (3, 2, 1), (4, 3, 2), (5, 3, 2))
"""E, write quorum, ack quorum."""

WEIGHTS: Final = {
    "submit": 12,
    "ask": 25,
    "travel": 80,
    "travel some": 12,
    "crash": 3,
    "restart": 8,
    "reconnect": 3,
    "register": 4,
    "recover": 2,
    "hurry recoveries": 4,
    "change late": 2,
    "shut the gate": 2,
    "open the gates": 3,
    "pass time": 3,
    "other weather": 4,
}
STEPS: Final = 200
SETTINGS: Final = LedgerSettings(
    retry_least_s=0.05, suspect_s=0.5, retry_for_s=5.0, answer_timeout_s=5.0, window_entries=8
)
RECOVERED: Final = "answered that nobody fenced, though a recovery had ended"
FENCED: Final = "answered that nobody fenced, though no write set had an ack quorum without a fence"


class LateAnswers:
    """Lets a store do what it is asked for at once, and answer when `gate` is open."""

    def __init__(self, store: GatedStore) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self._set = store.set
        store.set = self._set_late  # type: ignore[method-assign]

    async def _set_late(self, path: str, value: bytes, **options: object) -> int:
        version = await self._set(path, value, **options)  # type: ignore[arg-type]
        await self.gate.wait()
        return version


class Schedule:
    """One seed. `run` it on a `VirtualTimeLoop`; returns what was wrong."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.ledgers = Ledgers()
        self.bookies = self.ledgers.bookies = ScriptedBookies(BOOKIES)
        self.size, self.write_quorum, self.ack_quorum = self.draw.choice(GEOMETRIES)
        self.weights = [weight * self.draw.choice([0.3, 1, 1, 3]) for weight in WEIGHTS.values()]
        self.slow: dict[str, float] = {}
        self.sent = 0
        self.recoveries: list[asyncio.Task[LedgerReader]] = []
        self.open: set[int] = set()
        """Questions that were taken and not answered."""
        self.asked = 0
        self.proven = 0
        self.wrong: list[str] = []

    async def run(self) -> list[str]:
        await self.start()
        try:
            for _ in range(STEPS):
                await self.step()
                await turns(6)
                if self.wrong or self.writer.failed is not None:
                    break
            await self.finish()
        finally:
            await self.ledgers.close()
        return self.wrong

    async def start(self) -> None:
        await self.ledgers.start()
        self.bookies.register(*BOOKIES[: self.size + self.draw.randrange(2)])
        client = await self.ledgers.other_client(SETTINGS)
        self.store = self.ledgers.stores[-1]
        self.answers_of_store = LateAnswers(self.store).gate
        self.writer = await self.ledgers.striped(
            self.size, self.write_quorum, self.ack_quorum, client=client, settings=SETTINGS
        )
        self.submit()
        await turns()
        self.requests = self.bookies.hold()
        self.answers = self.bookies.hold(answer=True)

    # -- steps

    async def step(self) -> None:
        [name] = self.draw.choices(list(WEIGHTS), self.weights)
        match name:
            case "submit":
                self.submit()
            case "ask":
                for _ in range(self.draw.choice([1, 1, 1, 2, 6])):
                    self.ask()
            case "travel":
                self.travel()
            case "travel some":
                for _ in range(self.draw.randrange(30)):
                    self.travel()
                    await asyncio.sleep(0)
            case "recover" if len(self.recoveries) < 2:
                if self.draw.random() < 0.5:
                    await self.add_before_a_recovery()
                await self.begin_a_recovery()
            case "hurry recoveries" if self.recoveries:
                await self.hurry_recoveries()
            case "other weather":
                self.slow = {bookie: self.draw.choice([0.0, 0.0, 0.5, 0.98]) for bookie in BOOKIES}
            case "change late":
                await self.change_late()
            case "pass time":
                await let_pass(self.draw.choice([0.02, 0.06, 0.5, 6.0]))
            case _:
                self.break_or_mend(name)

    def break_or_mend(self, name: str) -> None:
        match name:
            case "crash":
                self.bookies.crash(self.draw.choice(BOOKIES))
            case "restart":
                self.bookies.restart(self.draw.choice(BOOKIES))
            case "reconnect":
                self.reconnect(self.draw.choice([1, len(BOOKIES)]))
            case "register":
                self.bookies.register(*self.draw.sample(BOOKIES, self.draw.randint(self.size, len(BOOKIES))))
            case "shut the gate":
                self.store.gate.clear()
            case "open the gates":
                self.store.gate.set()
                self.answers_of_store.set()

    def reconnect(self, count: int) -> None:
        for bookie in self.draw.sample(BOOKIES, count):
            self.bookies.reconnect(bookie)

    def submit(self) -> None:
        try:
            self.writer.submit(b"%d" % self.sent)
            self.sent += 1
        except (Overloaded, LedgerFenced):
            pass  # a full window, or fenced by one of the recoveries

    async def change_late(self) -> None:
        """A bookie is replaced, which the writer learns late, and perhaps comes back before that."""
        self.answers_of_store.clear()
        gone = self.draw.choice(self.writer._adds.ensemble)
        self.bookies.crash(gone)
        self.bookies.register(*BOOKIES)
        self.submit()
        await turns(30)
        if self.draw.random() < 0.7:
            self.bookies.restart(gone)
        if self.draw.random() < 0.4 and not self.recoveries:
            await self.begin_a_recovery()

    async def add_before_a_recovery(self) -> None:
        """Entries arrive whose acknowledgements are late, perhaps again after a reconnect."""
        self.submit()
        await turns()
        if self.draw.random() < 0.5:
            self.reconnect(len(BOOKIES))
        await self.hurry(lambda one: not one.answer)

    async def begin_a_recovery(self) -> None:
        self.recoveries.append(asyncio.ensure_future(self.recover()))
        if self.draw.random() < 0.7:
            await self.hurry_recoveries()

    def ask(self) -> None:
        wrong = [text for text, so in ((RECOVERED, self.is_closed()), (FENCED, not self.has_unfenced_quorum())) if so]
        number, self.asked = self.asked, self.asked + 1

        def answered(proven: bool) -> None:
            self.open.remove(number)
            self.proven += proven
            if proven:
                self.wrong += wrong

        self.open.add(number)
        if not self.writer.ask_unfenced(answered):
            self.open.remove(number)

    def is_closed(self) -> bool:
        """As the committed metadata says: the writer never closes, so that somebody's recovery has ended."""
        found = self.ledgers.tree.get(layout.ledger_path(self.writer.ledger_id))
        return ledger_metadata.decode(found.value).state is LedgerState.CLOSED

    def is_fenced(self, bookie: str) -> bool:
        return self.bookies[bookie].fenced.get(self.writer.ledger_id, False)

    def has_unfenced_quorum(self) -> bool:
        members = self.writer._adds.ensemble
        free = [not self.is_fenced(bookie) for bookie in members]
        sets = [write_set(entry_id, self.size, self.write_quorum) for entry_id in range(self.size)]
        return any(sum(free[slot] for slot in slots) >= self.ack_quorum for slots in sets)

    def travel(self) -> None:
        one_travels(self.draw, self.requests, self.answers, lambda one: self.slow.get(one.bookie, 0.0))

    async def hurry_recoveries(self) -> None:
        """Messages of those who recover arrive at once, perhaps but for one bookie.

        Then perhaps what bookies answered already, or what goes between the writer and those that nobody fenced.
        """
        left_out = self.draw.choice([None, *self.writer._adds.ensemble])
        await self.hurry(lambda one: (one.kind == "read" or one.recovery) and one.bookie != left_out)
        if self.draw.random() < 0.7:
            self.slow = {name: 0.95 for name in BOOKIES if self.is_fenced(name)}
        match self.draw.randrange(3):
            case 0:
                await self.hurry(lambda one: one.answer)
            case 1:
                await self.hurry(lambda one: one.kind == "add" and not self.is_fenced(one.bookie))

    async def hurry(self, chosen: Callable[[Message], bool]) -> None:
        for _ in range(60):
            going = []
            for kept in (self.requests.kept, self.answers.kept):
                going += [go for message, go in kept if chosen(message)]
                kept[:] = [one for one in kept if not chosen(one[0])]
            for go in going:
                go()
            await turns(3)

    async def recover(self) -> LedgerReader:
        """When it has ended the writer asks: then at the latest nobody may be answered that nobody fenced."""
        client = await self.ledgers.other_client(replace(SETTINGS, retry_for_s=60.0))
        reader = await client.open(self.writer.ledger_id, recover=True)
        for _ in range(self.draw.choice([0, 1, 5])):
            self.ask()
        return reader

    # -- the end

    async def finish(self) -> None:
        self.store.gate.set()
        self.answers_of_store.set()
        self.requests.release()
        self.answers.release()
        self.bookies.restart(*BOOKIES)
        self.bookies.register(*BOOKIES)
        await let_pass(200.0)
        for result in await asyncio.gather(*self.recoveries, return_exceptions=True):
            if not isinstance(result, (LedgerReader, RecoveryFailed, NotEnoughBookies)):
                self.wrong.append(f"a recovery ended with {result}")
        if self.writer.failed is not None:
            if not isinstance(self.writer.failed, LedgerFenced) or not self.recoveries:
                self.wrong.append(f"the writer failed: {self.writer.failed}")
            return
        if self.open:
            self.wrong.append(f"{len(self.open)} questions of a writer that goes on are never answered")
        if not self.recoveries:
            self.submit()
            await let_pass(1.0)
            before = self.proven
            self.ask()
            await let_pass(1.0)
            if self.proven == before:
                self.wrong.append("nobody fenced, all is back, and nothing is proven")


def run(seed: int) -> Schedule:
    one = Schedule(seed)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(one.run())
    return one


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a seed has no smaller one that means the same
)
@given(st.integers(0, 2**32))
def test_whoever_gets_a_proof_that_nobody_fenced_asked_before_any_recovery_ended(seed: int) -> None:
    assert run(seed).wrong == []


def test_schedules_prove_something_and_ask_after_recoveries_too() -> None:
    made = [run(seed) for seed in range(20)]
    assert sum(one.proven for one in made) > 100
    assert sum(isinstance(one.writer.failed, LedgerFenced) for one in made) > 3


# -- planted bugs


def found(wanted: str, *, seeds: int = 400) -> bool:
    """Whether one of the first schedules shows it."""
    return any(wanted in run(seed).wrong for seed in range(seeds))


def answers_to_earlier_adds_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replicated_adds, "Mark", lambda replica, connection, sent: Mark(replica, connection, sent - 1))


def one_answer_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replicated_adds, "UnfencedChecks", lambda _quorum, ask_again: UnfencedChecks(1, ask_again))


def it_is_asked_while_a_change_is_under_way(patch: pytest.MonkeyPatch) -> None:
    repeat = ReplicatedAdds._repeat

    def while_frozen(adds: ReplicatedAdds) -> list[Mark] | None:
        frozen, adds.acks.frozen = adds.acks.frozen, False
        try:
            return repeat(adds)
        finally:
            adds.acks.frozen = frozen

    patch.setattr(ReplicatedAdds, "_repeat", while_frozen)


def answers_of_an_earlier_connection_count(patch: pytest.MonkeyPatch) -> None:
    channel_up = replicated_adds._Slot.channel_up

    def without_reset(slot: replicated_adds._Slot) -> None:
        answered = slot.answered
        channel_up(slot)
        slot.answered += answered

    patch.setattr(replicated_adds._Slot, "channel_up", without_reset)


def what_is_sent_again_after_a_reconnect_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    resend = ReplicatedAdds.resend

    def uncounted(adds: ReplicatedAdds, slot: replicated_adds._Slot) -> None:
        resend(adds, slot)
        slot.sent = 0

    patch.setattr(ReplicatedAdds, "resend", uncounted)


def bookies_take_repeats_though_the_ledger_is_fenced(patch: pytest.MonkeyPatch) -> None:
    add = ScriptedBookie.add

    def lenient(bookie: ScriptedBookie, request: v2.AddRequest, *, deferred_sync: bool = False) -> V2Status:
        held = bookie.entries.get(request.ledger_id, {}).get(request.entry_id)
        return (
            V2Status.OK
            if held is not None and held == bytes(request.body)
            else add(bookie, request, deferred_sync=deferred_sync)
        )

    patch.setattr(ScriptedBookie, "add", lenient)


@pytest.mark.parametrize(
    "plant",
    [
        answers_to_earlier_adds_count,
        one_answer_is_enough,
        it_is_asked_while_a_change_is_under_way,
        answers_of_an_earlier_connection_count,
        what_is_sent_again_after_a_reconnect_is_not_counted,
        bookies_take_repeats_though_the_ledger_is_fenced,
    ],
)
def test_a_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert found(RECOVERED)
