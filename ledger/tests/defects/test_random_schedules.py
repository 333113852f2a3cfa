"""A writer, recoverers, readers, crashes, damage, lost answers of the store and late messages, in any order.

A schedule is a seed: which message travels next, who crashes or comes back, how long nothing happens; and what it is made of:
some have no crashes, some many recoveries, some bookies that fence and do not answer. Time is virtual, so time-outs fire
inside of schedules too. After every step, and for ever after:

- an acknowledged entry has Ack-quorum copies, byte for byte, in the write set that the *committed* metadata names;
- the metadata is well formed, its state never goes back, and once closed its end, length and fragments stay;
- nothing is acknowledged beyond the end of a closed ledger, and acknowledgements come once and in order.

In half of the schedules entries are *carried*: acknowledged elsewhere before the writer has them, which adds them later, or
never. Nobody closes the ledger below them: those who recover it know how many there must be, and some of them the payloads.

At the end everything comes back, and then: all recoveries that ended have one end and one length, everything up to it is
read, what a reader took for acknowledged is in it; and a writer that nobody fenced has every entry acknowledged.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.schedules import one_travels
from tests.writers import RecordedAcks

from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.errors import (
    BokiError,
    ClosedError,
    DigestMismatch,
    EntryUnknown,
    LedgerClosed,
    LedgerDataMissing,
    LedgerFenced,
    MetadataUnavailable,
    NotEnoughBookies,
    Overloaded,
    RecoveryFailed,
)
from boki_common.metadata.memory import Fault
from boki_common.testing.virtual_time import VirtualTimeLoop, let_pass
from boki_ledger.read.reader import LedgerReader
from boki_ledger.settings import LedgerSettings
from boki_ledger.testing.held_messages import Message
from boki_ledger.testing.ledgers import Ledgers, turns
from boki_ledger.testing.scripted_bookies import ScriptedBookies

BOOKIES: Final = ("b1", "b2", "b3", "b4", "b5", "b6", "b7")
GEOMETRIES: Final = (
    (3, 3, 2),
    (3, 3, 2),
    (2, 2, 1),
    (3, 3, 1),
    (3, 3, 3),
    (3, 2, 2),
    (4, 3, 2),
    (5, 3, 2),
    (4, 2, 1),
    (5, 5, 3),
)
"""E, write quorum, ack quorum."""

WEIGHTS: Final = {
    "submit": 20,
    "carry": 30,
    "add what is carried": 2,
    "travel": 100,
    "travel some": 12,
    "crash": 4,
    "restart": 8,
    "register": 6,
    "recover": 1.5,
    "kill a recovery": 0.5,
    "tail": 1.5,
    "close": 0.3,
    "abandon": 0.15,
    "shut a gate": 3,
    "open the gates": 6,
    "fail a write": 2,
    "deliver late writes": 2,
    "damage": 1,
    "pass time": 3,
    "other weather": 1,
}
ALWAYS: Final = frozenset({"travel", "open the gates"})
"""Every schedule has these; of the others each has some, seldom or often."""
BEHIND: Final = 8
"""Carried entries that the writer lacks, at most."""
CLOSE_TIMEOUT_S: Final = 30.0
STEPS: Final = 250
STATES: Final = (LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED)
FAULTS: Final = (Fault.UNAVAILABLE, Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.DELAYED)


class Schedule:
    """One seed. `run` it on a `VirtualTimeLoop`."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.ledgers = Ledgers()
        self.ledgers.bookies = ScriptedBookies(BOOKIES)
        self.bookies = self.ledgers.bookies
        self.size, self.write_quorum, self.ack_quorum = self.draw.choice(GEOMETRIES)
        often: dict[str, float] = {"carry": 0, "add what is carried": 0}
        if self.draw.random() < 0.5:
            often = {"carry": 30, "add what is carried": self.draw.choice([0, 2, 10]), "submit": 5, "recover": 2}
        self.weights = [
            often[name] if name in often else weight if name in ALWAYS else weight * self.draw.choice([0, 0.3, 1, 1, 3])
            for name, weight in WEIGHTS.items()
        ]
        self.requests_slow = self.draw.choice([(0.0,), (0.0, 0.0, 0.9), (0.0, 1.0)])
        self.answers_slow = self.draw.choice([(0.0,), (0.0,), (0.0, 0.0, 0.9, 1.0)])
        self.slowness: dict[tuple[str, str, bool, bool, bool], float] = {}
        self.sent: list[bytes] = []
        """Payloads by entry."""
        self.carried: dict[int, bytes] = {}
        self.unadded: list[bytes] = []
        """Of those that are carried the last ones, which the writer was not given."""
        self.recoveries: list[asyncio.Task[LedgerReader]] = []
        self.know: dict[asyncio.Task[LedgerReader], bool] = {}
        self.killed = 0
        self.tails: list[asyncio.Task[int]] = []
        self.closing: asyncio.Task[int] | None = None
        self.abandoned = False
        self.damaged: dict[tuple[str, int], tuple[bytes, bytes]] = {}
        self.was: LedgerMetadata | None = None

    async def run(self) -> None:
        await self.start()
        try:
            for _ in range(STEPS):
                await self.step()
                await turns(8)
                await self.check()
            await self.finish()
        finally:
            await self.ledgers.close()

    async def start(self) -> None:
        await self.ledgers.start()
        self.bookies.register(*BOOKIES[: self.size + self.draw.randrange(2)])
        self.settings = LedgerSettings(
            retry_least_s=0.05,
            suspect_s=self.draw.choice([0.05, 0.5, 10.0]),
            retry_for_s=5.0,
            answer_timeout_s=5.0,
            window_entries=12,
            reads_in_flight=self.draw.choice([1, 4, 64]),
        )
        client = await self.ledgers.other_client(self.settings)
        self.writer = await self.ledgers.striped(
            self.size, self.write_quorum, self.ack_quorum, client=client, settings=self.settings
        )
        self.acks = RecordedAcks(self.writer)
        self.requests = self.bookies.hold()
        self.answers = self.bookies.hold(answer=True)

    # -- steps

    async def step(self) -> None:
        [name] = self.draw.choices(list(WEIGHTS), self.weights)
        match name:
            case "submit":
                self.submit()
            case "carry":
                self.carry()
            case "add what is carried":
                self.add_carried()
            case "travel":
                self.travel()
            case "travel some":
                for _ in range(self.draw.randrange(30)):
                    self.travel()
                    await asyncio.sleep(0)
            case "recover" if len(self.recoveries) < 5:
                knows = self.draw.random() < 0.7
                self.recoveries.append(asyncio.ensure_future(self.recover(knows=knows)))
                self.know[self.recoveries[-1]] = knows
            case "tail":
                self.tails.append(asyncio.ensure_future(self.tail()))
            case "close" if self.closing is None and not self.abandoned:
                self.closing = asyncio.ensure_future(self.close())
            case "abandon" if self.closing is None:
                self.abandoned = True
                self.writer.abandon()
            case "pass time":
                await let_pass(self.draw.choice([0.06, 0.5, 3.0, 12.0]))
            case _:
                self.break_or_mend(name)

    def break_or_mend(self, name: str) -> None:
        match name:
            case "crash":
                self.bookies.crash(self.draw.choice(BOOKIES))
            case "restart":
                self.bookies.restart(self.draw.choice(BOOKIES))
            case "register":
                self.bookies.register(*self.draw.sample(BOOKIES, self.draw.randint(self.size, len(BOOKIES))))
            case "kill a recovery" if self.recoveries:
                self.killed += self.draw.choice(self.recoveries).cancel()
            case "shut a gate":
                self.draw.choice(self.ledgers.stores).gate.clear()
            case "open the gates":
                for store in self.ledgers.stores:
                    store.gate.set()
            case "fail a write":
                self.draw.choice(self.ledgers.stores).fail_next_write(self.draw.choice(FAULTS))
            case "deliver late writes":
                self.ledgers.tree.deliver_delayed()
            case "damage":
                self.damage()
            case "other weather":
                self.slowness.clear()

    def submit(self) -> None:
        payload = b"%d" % len(self.sent)
        if self.add_carried() and self.given(payload):
            self.sent.append(payload)

    def given(self, payload: bytes) -> bool:
        try:
            self.writer.submit(payload)
        except (Overloaded, LedgerFenced, LedgerClosed, ClosedError):
            return False
        return True

    @property
    def floor(self) -> int:
        """So many entries there must be, whoever closes the ledger."""
        return max(self.carried, default=-1) + 1

    def carry(self) -> None:
        """Only behind entries that are all acknowledged, and only while nobody ended the ledger."""
        acked = self.writer.last_acked + 1
        over = self.recoveries or self.closing is not None or self.abandoned or self.writer.failed is not None
        if not over and acked > 0 and max(acked, self.floor) == len(self.sent) and len(self.sent) - acked < BEHIND:
            payload = b"carried %d" % len(self.sent)
            self.carried[len(self.sent)] = payload
            self.sent.append(payload)
            self.unadded.append(payload)

    def add_carried(self) -> bool:
        """False when the writer took not all of it."""
        while self.unadded and self.given(self.unadded[0]):
            self.unadded.pop(0)
        return not self.unadded

    async def close(self) -> int:
        """Behind what is carried, or not at all."""
        self.add_carried()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.writer.acknowledged(self.floor - 1)
        except TimeoutError:
            self.abandoned = True
            self.writer.abandon()
            raise
        return await self.writer.close()

    def travel(self) -> None:
        one_travels(self.draw, self.requests, self.answers, self.slowness_of)

    def slowness_of(self, message: Message) -> float:
        """Each bookie is slow or quick for each kind of message, until the weather changes."""
        way = (message.bookie, message.kind, message.fence and message.entry_id < 0, message.recovery, message.answer)
        if way not in self.slowness:
            self.slowness[way] = self.draw.choice(self.requests_slow if not message.answer else self.answers_slow)
        return self.slowness[way]

    def damage(self) -> None:
        """One copy fails its digest until `mend`: an answer that says nothing."""
        bookie = self.draw.choice(BOOKIES)
        stored = self.bookies[bookie].entries.get(self.writer.ledger_id, {})
        if stored:
            entry_id = self.draw.choice(sorted(stored))
            if (bookie, entry_id) not in self.damaged:
                good = stored[entry_id]
                stored[entry_id] = good[:-1] + bytes([good[-1] ^ 1])
                self.damaged[bookie, entry_id] = good, stored[entry_id]

    def mend(self) -> None:
        for (bookie, entry_id), (good, bad) in self.damaged.items():
            stored = self.bookies[bookie].entries[self.writer.ledger_id]
            if stored[entry_id] == bad:
                stored[entry_id] = good

    async def recover(self, *, knows: bool) -> LedgerReader:
        """Who `knows` has the payloads of what is carried, and uses them at once, or when the ledger lacks them."""
        first = {} if not knows or self.draw.random() < 0.5 else self.carried
        client = await self.ledgers.other_client(replace(self.settings, retry_for_s=self.draw.choice([0.0, 5.0, 60.0])))
        try:
            reader = await client.open(self.writer.ledger_id, recover=True, floor=self.floor, carried=first)
        except (LedgerDataMissing, RecoveryFailed):
            if not knows or first:
                raise
            reader = await client.open(self.writer.ledger_id, recover=True, floor=self.floor, carried=self.carried)
        assert reader.closed
        return reader

    async def tail(self) -> int:
        """A reader that fences nobody; returns the LAC that it read up to."""
        client = await self.ledgers.other_client(self.settings)
        reader = await client.open(self.writer.ledger_id, recover=False)
        try:
            lac = await reader.read_lac()
            if lac >= 0:
                payloads = [bytes(one) for one in await reader.read(0, lac)]
                assert payloads == self.sent[: lac + 1], "what a tailing reader gets was acknowledged"
            return lac
        finally:
            await reader.close()

    # -- what holds at every moment

    async def check(self) -> None:
        metadata = await self.ledgers.metadata(self.writer.ledger_id)
        for entry_id in range(self.writer.last_acked + 1):
            assert self.good_copies(metadata, entry_id) >= self.ack_quorum, (entry_id, metadata)
        firsts = [first for first, _ in metadata.ensembles]
        assert firsts[0] == 0 and firsts == sorted(set(firsts)), metadata
        assert all(len(set(members)) == self.size for _, members in metadata.ensembles), metadata
        if metadata.state is LedgerState.CLOSED:
            assert self.writer.last_acked <= metadata.last_entry < len(self.sent), metadata
            assert self.floor <= metadata.last_entry + 1, metadata
        if self.was is not None:
            assert STATES.index(metadata.state) >= STATES.index(self.was.state)
            if self.was.state is LedgerState.CLOSED:
                assert replace(metadata, ctoken=0) == replace(self.was, ctoken=0)
        self.was = metadata
        assert self.acks.acked == sorted(set(self.acks.acked)) and len(self.acks.failed) <= 1

    def good_copies(self, metadata: LedgerMetadata, entry_id: int) -> int:
        """Copies in the committed write set, those that are only damaged for a while included."""
        found = 0
        for bookie in self.ledgers.copies(self.writer.ledger_id, metadata, entry_id):
            body = self.bookies[bookie].entries[self.writer.ledger_id][entry_id]
            good, bad = self.damaged.get((bookie, entry_id), (body, b""))
            found += (good if body == bad else body).endswith(self.sent[entry_id])
        return found

    # -- the end

    async def finish(self) -> None:
        self.requests.release()
        self.answers.release()
        for store in self.ledgers.stores:
            store.gate.set()
            store.faults = lambda _operation, _path: Fault.NONE
        self.mend()
        self.bookies.restart(*BOOKIES)
        self.bookies.register(*BOOKIES)
        await let_pass(1_000.0)
        self.ledgers.tree.deliver_delayed()
        if self.unadded:
            self.add_carried()
            await let_pass(1_000.0)
        await self.check()
        ends = await self.ends_of_recoveries()
        await self.check_tails()
        await self.check_writer()
        reader = await self.recover(knows=True)
        ends.add((reader.last_entry, reader.metadata.length))
        assert len(ends) == 1, "every reader has one end and one length"
        assert self.writer.last_acked <= reader.last_entry
        assert reader.metadata.length == sum(len(one) for one in self.sent[: reader.last_entry + 1])
        if reader.last_entry >= 0:
            payloads = [bytes(one) for one in await reader.read(0, reader.last_entry)]
            assert payloads == self.sent[: reader.last_entry + 1]
        await self.check()

    async def ends_of_recoveries(self) -> set[tuple[int, int]]:
        ends = set()
        for task in self.recoveries:
            assert task.done(), "a recovery ends when everything is back"
            if task.cancelled():
                continue
            error = task.exception()
            if error is None:
                ends.add((task.result().last_entry, task.result().metadata.length))
            elif self.know[task] or not self.carried or not isinstance(error, LedgerDataMissing):
                assert isinstance(error, (RecoveryFailed, NotEnoughBookies, MetadataUnavailable)), error
                assert error.retryable
        return ends

    async def check_tails(self) -> None:
        metadata = await self.ledgers.metadata(self.writer.ledger_id)
        for task in self.tails:
            assert task.done(), "a read ends when everything is back"
            error = task.exception()
            if error is not None:
                assert isinstance(error, (EntryUnknown, MetadataUnavailable, DigestMismatch)), error
            elif metadata.state is LedgerState.CLOSED:
                assert task.result() <= metadata.last_entry, "a LAC that somebody saw is in the ledger"
            else:
                assert task.result() <= max(self.writer.last_acked, 0 if self.abandoned else -1)

    async def check_writer(self) -> None:
        if self.closing is not None:
            assert self.closing.done(), "closing ends when everything is back"
            error = self.closing.exception()
            metadata = await self.ledgers.metadata(self.writer.ledger_id)
            if error is None:
                assert (metadata.state, metadata.last_entry) == (LedgerState.CLOSED, self.closing.result())
            elif not isinstance(error, TimeoutError) or not self.carried:
                assert isinstance(error, (LedgerFenced, MetadataUnavailable)), error
        elif not self.abandoned and not self.recoveries:
            assert self.writer.failed is None
            assert self.writer.last_acked == len(self.sent) - 1, "nobody fenced it and everything is back"
        assert self.writer.failed is None or isinstance(self.writer.failed, LedgerFenced)


def run(seed: int) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(Schedule(seed).run())


@settings(
    max_examples=120,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a seed has no smaller one that means the same
)
@given(st.integers(0, 2**32))
def test_any_schedule_keeps_what_was_acknowledged_and_gives_every_reader_one_end(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("error", [RecoveryFailed, NotEnoughBookies, MetadataUnavailable])
def test_what_a_recovery_may_fail_with_can_be_retried(error: type[BokiError]) -> None:
    assert error.retryable
