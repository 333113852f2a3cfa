"""Writer, recoverers, crashes and late messages in any order: what was acknowledged is in the ledger, for every reader.

Hypothesis draws the seed of a schedule: which message travels next, who crashes, returns, registers, recovers. Nothing else
is random, so a failure replays from its seed.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.errors import BokiError, LedgerFenced, NotEnoughBookies, Overloaded, RecoveryFailed
from boki_ledger.read.reader import LedgerReader
from boki_ledger.testing.ledgers import QUICK, Ledgers, RecordedAcks, turns

BOOKIES = ("b1", "b2", "b3", "b4", "b5")

WEIGHTS = {
    "submit": 20,
    "travel": 100,
    "travel some": 12,
    "crash": 4,
    "restart": 8,
    "register": 6,
    "recover": 1,
    "shut the gate": 3,
    "open the gate": 6,
    "turns": 4,
}
"""How often each kind of step is drawn: bookies are mostly up, and messages mostly travel one at a time."""
STEPS = 250


class Run:
    """One schedule: every message is kept until the schedule lets it travel."""

    def __init__(self, ledgers: Ledgers, seed: int) -> None:
        self.draw = random.Random(seed)
        self.ledgers = ledgers
        self.requests = ledgers.bookies.hold()
        self.answers = ledgers.bookies.hold(answer=True)
        self.sent: list[bytes] = []
        self.recoveries: list[asyncio.Task[LedgerReader]] = []

    async def start(self) -> None:
        client = await self.ledgers.other_client(replace(QUICK, suspect_s=0.0, window_entries=12))
        self.store = self.ledgers.stores[-1]
        self.writer = await client.create()
        self.acks = RecordedAcks(self.writer)

    def travel(self) -> None:
        """One message arrives, an early one more often than a late one."""
        kept = self.draw.choice([self.answers.kept, self.requests.kept]) or self.requests.kept or self.answers.kept
        if kept:
            _, go = kept.pop(min(self.draw.randrange(len(kept)), self.draw.randrange(len(kept))))
            go()

    async def step(self) -> None:
        bookies = self.ledgers.bookies
        [name] = self.draw.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if name == "submit":
            try:
                self.writer.submit(b"%d" % len(self.sent))
                self.sent.append(b"%d" % len(self.sent))
            except (Overloaded, LedgerFenced):
                pass  # a full window, or fenced by one of the recoveries
        elif name == "travel":
            self.travel()
        elif name == "travel some":
            for _ in range(self.draw.randrange(30)):
                self.travel()
                await asyncio.sleep(0)
        elif name == "crash":
            bookies.crash(self.draw.choice(BOOKIES))
        elif name == "restart":
            bookies.restart(self.draw.choice(BOOKIES))
        elif name == "register":
            bookies.register(*self.draw.sample(BOOKIES, self.draw.randint(3, 5)))
        elif name == "shut the gate":
            self.store.gate.clear()
        elif name == "open the gate":
            self.store.gate.set()
        elif name == "recover" and len(self.recoveries) < 3:
            self.recoveries.append(asyncio.ensure_future(self.recover()))
        await turns(8)
        await self.check()

    async def recover(self) -> LedgerReader:
        client = await self.ledgers.other_client()
        return await client.open(self.writer.ledger_id, recover=True)

    async def check(self) -> None:
        """Invariant 1 of the design: acknowledged entries have their quorum where the committed metadata says."""
        metadata = await self.ledgers.metadata(self.writer.ledger_id)
        for entry_id in range(self.writer.last_acked + 1):
            assert len(self.ledgers.copies(self.writer.ledger_id, metadata, entry_id)) >= 2, entry_id
        if metadata.state is LedgerState.CLOSED:
            assert metadata.last_entry >= self.writer.last_acked

    async def finish(self) -> None:
        """All bookies return, all messages travel: everybody ends, and agrees."""
        self.store.gate.set()
        self.requests.release()
        self.answers.release()
        for bookie in BOOKIES:
            self.ledgers.bookies.restart(bookie)
        await turns(200)
        ends = set()
        for result in await asyncio.gather(*self.recoveries, return_exceptions=True):
            if isinstance(result, LedgerReader):
                ends.add((result.last_entry, result.metadata.length))
            else:
                assert isinstance(result, (RecoveryFailed, NotEnoughBookies)), result
        reader = await self.recover()
        ends.add((reader.last_entry, reader.metadata.length))
        assert len(ends) == 1, "every reader has one end"
        assert self.writer.last_acked <= reader.last_entry < len(self.sent) or not self.sent
        assert self.acks.acked == sorted(self.acks.acked)
        if reader.last_entry >= 0:
            payloads = [bytes(one) for one in await reader.read(0, reader.last_entry)]
            assert payloads == self.sent[: reader.last_entry + 1]


async def run(seed: int) -> None:
    ledgers = Ledgers()
    await ledgers.start()
    try:
        one = Run(ledgers, seed)
        await one.start()
        for _ in range(STEPS):
            await one.step()
        await one.finish()
    finally:
        await ledgers.close()


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_any_schedule_keeps_what_was_acknowledged(seed: int) -> None:
    asyncio.run(run(seed))


@pytest.mark.parametrize("error", [RecoveryFailed, NotEnoughBookies])
def test_the_errors_a_schedule_may_end_with_can_be_retried(error: type[BokiError]) -> None:
    assert error.retryable
