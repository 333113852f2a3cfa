"""Slow replicas: the next one is asked too, the first valid copy counts, and what is known stays three-valued."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from boki_common.errors import EntryUnknown, NoSuchEntry
from boki_ledger.client import LedgerClient
from boki_ledger.read.reader import LedgerReader
from boki_ledger.settings import LedgerSettings
from boki_ledger.testing.ledgers import QUICK, Ledgers, deliver, turns, until

SPECULATIVE = replace(QUICK, speculative_read_s=0.002)
WANTED = [b"payload %d" % number for number in range(6)]


async def opened(ledgers: Ledgers, settings: LedgerSettings = SPECULATIVE) -> tuple[LedgerClient, LedgerReader]:
    await ledgers.closed(*WANTED)
    client = await ledgers.other_client(settings)
    reader = await client.open(0, recover=False)
    ledgers.bookies.seen.clear()
    return client, reader


def asked(ledgers: Ledgers) -> list[tuple[str, int]]:
    return [(one.bookie, one.entry_id) for one in ledgers.bookies.seen if not one.answer]


def speculated(client: LedgerClient) -> float:
    value: float = client._metrics.speculative_reads.value
    return value


@pytest.mark.parametrize("last", [0, 5], ids=["one entry", "a range"])
async def test_a_slow_replica_is_not_waited_for_alone(ledgers: Ledgers, last: int) -> None:
    client, reader = await opened(ledgers)
    held = [ledgers.bookies.hold(bookie=bookie, kind="read") for bookie in ("b1", "b2")]
    assert [bytes(one) for one in await reader.read(0, last)] == WANTED[: last + 1]
    assert asked(ledgers) == [("b1", 0), ("b2", 0), ("b3", 0)]
    assert speculated(client) == 2
    await deliver(*held)


async def test_quick_replicas_are_asked_once(ledgers: Ledgers) -> None:
    client, reader = await opened(ledgers, replace(QUICK, speculative_read_s=10.0))
    await reader.read(0, 5)
    await reader.read(3, 3)
    assert asked(ledgers) == [("b1", 0), ("b1", 3)] and speculated(client) == 0


@pytest.mark.parametrize("last", [0, 5], ids=["one entry", "a range"])
async def test_the_slow_replica_may_answer_first_after_all(ledgers: Ledgers, last: int) -> None:
    _, reader = await opened(ledgers)
    slow = ledgers.bookies.hold(bookie="b1", kind="read")
    ledgers.bookies.hold(bookie="b2", kind="read")
    ledgers.bookies.hold(bookie="b3", kind="read")
    reading = asyncio.ensure_future(reader.read(0, last))
    await until(lambda: len(asked(ledgers)) == 3)
    slow.release()
    assert [bytes(one) for one in await reading] == WANTED[: last + 1]


async def test_a_damaged_copy_that_comes_first_does_not_win(ledgers: Ledgers) -> None:
    _, reader = await opened(ledgers)
    slow = ledgers.bookies.hold(bookie="b1", kind="read")
    for bookie in ("b2", "b3"):
        ledgers.bookies.damage(bookie, 0, 0)
    reading = asyncio.ensure_future(reader.read(0, 0))
    await until(lambda: len(asked(ledgers)) == 3)
    await turns()
    assert not reading.done()
    slow.release()
    assert bytes((await reading)[0]) == WANTED[0]


async def test_a_replica_that_stays_silent_is_unknown_though_the_others_deny(ledgers: Ledgers) -> None:
    _, reader = await opened(ledgers, replace(SPECULATIVE, answer_timeout_s=0.25))
    for bookie in ("b1", "b2", "b3"):
        del ledgers.bookies[bookie].entries[0][0]
    silent = ledgers.bookies.hold(bookie="b1", kind="read")
    with pytest.raises(EntryUnknown, match="b1 gave no answer"):
        await reader.read(0, 0)
    silent.release()
    with pytest.raises(NoSuchEntry):
        await reader.read(0, 0)
