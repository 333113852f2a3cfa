"""A pause is one word for all controllers; what is under way is finished, and nothing else begins."""

from __future__ import annotations

import asyncio

import pytest
from tests.repair.conftest import closed_on, lose, members, register

from boki_common.errors import CorruptData, InvalidArgument
from boki_common.metadata.memory import Fault
from boki_common.testing.machine import CountingRandom
from boki_common.testing.virtual_time import let_pass
from boki_ledger.repair.pause import PAUSE_PATH, REASON_LIMIT, Pause, read_pause, write_pause
from boki_ledger.repair.settings import Mode, RepairLimits
from boki_ledger.testing.ledgers import Ledgers

pytestmark = pytest.mark.usefixtures("virtual_time")
LIMITS = RepairLimits(grace_s=0.0, bytes_per_s=0, ledgers_at_once=1)


async def set_pause(ledgers: Ledgers, paused: bool, reason: str = "") -> Pause:
    return await write_pause(ledgers.store, paused=paused, reason=reason, rng=CountingRandom())


async def test_nothing_is_copied_while_it_is_paused(ledgers: Ledgers) -> None:
    ledger_id = await closed_on(ledgers, "b1", "b2", "b3")
    await register(ledgers, "b1", "b2", "b3", "b4", "b5")
    await lose(ledgers, "b1")
    await set_pause(ledgers, True, "works")
    auditor = ledgers.client.auditor(LIMITS)
    await auditor.round(Mode.OURS)
    assert "b1" in await members(ledgers, ledger_id)
    status = auditor.status()
    assert (status["mode"], status["paused"], status["why"]) == (
        "observe",
        True,
        "paused (works): boki repair resume ends that",
    )
    assert status["audit"]["due_ledgers"] == 1, "it is told all the same"
    other = ledgers.client.auditor(LIMITS)
    await set_pause(ledgers, False)
    await other.round(Mode.OURS)
    assert "b1" not in await members(ledgers, ledger_id)
    assert not other.status()["paused"]


async def test_no_bookie_is_retired_and_no_log_rolled(ledgers: Ledgers) -> None:
    await register(ledgers, "b1", "b2", "b3", "b4", "b5")
    ledgers.bookies.register("b1", "b2", "b3")
    writer = await ledgers.client.create()
    await writer.append(b"entry")
    await lose(ledgers, "b1")
    auditor = ledgers.client.auditor(LIMITS)
    await auditor.round(Mode.OURS)
    assert auditor.written() == [], "a new ledger would have a copy less"
    ledgers.bookies.register("b2", "b3", "b4", "b5")
    await auditor.round(Mode.OURS)
    assert auditor.written() == [writer.ledger_id]
    await set_pause(ledgers, True)
    await auditor.round(Mode.OURS)
    assert auditor.written() == []


async def test_a_pause_ends_a_round_between_two_ledgers(ledgers: Ledgers) -> None:
    found = [await closed_on(ledgers, "b1", "b2", "b3") for _ in range(5)]
    await register(ledgers, "b1", "b2", "b3", "b4", "b5")
    await lose(ledgers, "b1")
    held = ledgers.bookies.hold(kind="hold")
    auditor = ledgers.client.auditor(LIMITS)
    running = asyncio.create_task(auditor.round(Mode.OURS))
    await let_pass(1)
    await set_pause(ledgers, True)
    await let_pass(LIMITS.round_s)
    held.release()
    await running
    left = [one for one in found if "b1" in await members(ledgers, one)]
    assert len(left) == 4, "the one that was being repaired is finished"
    assert auditor.status()["drains"] == []


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
async def test_lost_answers_are_settled(ledgers: Ledgers, fault: Fault) -> None:
    await set_pause(ledgers, False)
    for paused in (True, False, True):
        ledgers.store.fail_next_write(fault)
        assert await set_pause(ledgers, paused) == await read_pause(ledgers.store)


@pytest.mark.parametrize("value", [b"", b"[]", b'{"version": 2}', b'{"paused": 3}'])
async def test_what_is_no_pause_is_refused(ledgers: Ledgers, value: bytes) -> None:
    await set_pause(ledgers, True)
    await ledgers.store.set(PAUSE_PATH, value, version=0)
    with pytest.raises(CorruptData, match=PAUSE_PATH):
        await read_pause(ledgers.store)


async def test_a_reason_is_short(ledgers: Ledgers) -> None:
    with pytest.raises(InvalidArgument, match="characters at most"):
        await set_pause(ledgers, True, "x" * (REASON_LIMIT + 1))
