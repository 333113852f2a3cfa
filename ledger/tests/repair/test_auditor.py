"""The auditor over a cluster of scripted bookies, in virtual time: who counts as lost and when, what comes first, what is told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

import pytest
from tests.repair.conftest import LIMITS, closed_on, lose, members, register

from boki_common.bookkeeper import layout
from boki_common.ids import BookieId
from boki_common.metadata.store import ensure_path
from boki_common.metrics import Metrics
from boki_common.testing.virtual_time import let_pass
from boki_ledger.repair.auditor import Auditor
from boki_ledger.repair.autorecovery import APACHES_ELECTION
from boki_ledger.repair.settings import Mode
from boki_ledger.testing.ledgers import Ledgers

pytestmark = pytest.mark.usefixtures("virtual_time")

GRACE_S: Final = LIMITS.grace_s


async def retire(ledgers: Ledgers, bookie: str) -> None:
    path = layout.cookie_path(bookie)
    await ledgers.store.delete(path, version=(await ledgers.store.get(path)).version)


async def test_copies_are_made_anew_once_a_bookie_is_away_for_the_grace(
    ledgers: Ledgers, ledger_id: int, auditor: Auditor
) -> None:
    await lose(ledgers, "b1")
    await auditor.round(Mode.OURS)
    assert await members(ledgers, ledger_id) == {"b1", "b2", "b3"}
    audit = auditor.status()["audit"]
    assert (audit["missing_ledgers"], audit["missing_entries"], audit["due_ledgers"]) == (1, 3, 0)
    assert audit["ledgers_by_copies_left"] == {"2": 1}
    await let_pass(GRACE_S - 1)
    await auditor.round(Mode.OURS)
    assert "b1" in await members(ledgers, ledger_id)
    await let_pass(1)
    await auditor.round(Mode.OURS)
    assert "b1" not in await members(ledgers, ledger_id)
    status = auditor.status()
    assert (status["repaired_ledgers"], status["copied_entries"], status["audit"]["missing_ledgers"]) == (1, 3, 0)


async def test_one_that_returns_in_time_is_not_replaced(ledgers: Ledgers, ledger_id: int, auditor: Auditor) -> None:
    for _ in range(3):
        await lose(ledgers, "b1")
        await auditor.round(Mode.OURS)
        await let_pass(GRACE_S - 1)
        await auditor.round(Mode.OURS)
        ledgers.bookies.restart("b1")
        await register(ledgers, "b1")
        await auditor.round(Mode.OURS)
    assert await members(ledgers, ledger_id) == {"b1", "b2", "b3"}
    assert not [one for one in ledgers.bookies.seen if one.kind in ("hold", "add")]


async def test_where_one_copy_is_left_nothing_is_waited_for(ledgers: Ledgers, ledger_id: int, auditor: Auditor) -> None:
    await lose(ledgers, "b1", "b2")
    await auditor.round(Mode.OURS)
    assert await members(ledgers, ledger_id) == {"b3", "b4", "b5"}


async def test_one_that_is_retired_is_replaced_at_once(ledgers: Ledgers, ledger_id: int, auditor: Auditor) -> None:
    await lose(ledgers, "b2")
    await retire(ledgers, "b2")
    await auditor.round(Mode.OURS)
    assert "b2" not in await members(ledgers, ledger_id)


async def test_in_a_mass_outage_only_single_copies_are_made(ledgers: Ledgers, ledger_id: int, auditor: Auditor) -> None:
    other = await closed_on(ledgers, "b1", "b2", "b5")
    ledgers.bookies.register("b1", "b2", "b3", "b4", "b5")
    await lose(ledgers, "b2", "b5")
    for _ in range(2):
        await auditor.round(Mode.OURS)
        await let_pass(GRACE_S)
    assert auditor.status()["audit"]["mass_outage"]
    assert await members(ledgers, ledger_id) == {"b1", "b2", "b3"}
    assert await members(ledgers, other) == {"b1", "b3", "b4"}


async def test_one_that_answers_without_a_registration_is_there(
    ledgers: Ledgers, ledger_id: int, auditor: Auditor
) -> None:
    await ledgers.store.delete(layout.bookie_path("b1"), version=0)
    for _ in range(2):
        await auditor.round(Mode.OURS)
        await let_pass(GRACE_S)
    assert auditor.status()["audit"]["away"] == []
    assert await members(ledgers, ledger_id) == {"b1", "b2", "b3"}


async def test_a_session_that_was_lost_makes_the_grace_begin_again(
    ledgers: Ledgers, ledger_id: int, auditor: Auditor
) -> None:
    await lose(ledgers, "b1")
    await auditor.round(Mode.OURS)
    await let_pass(GRACE_S)
    for bookie in ("b2", "b3", "b4", "b5"):
        await ledgers.store.delete(layout.bookie_path(bookie), version=0)
        await ledgers.store.create(layout.bookie_path(bookie), b"")
    ledgers.store.expire_session()
    await asyncio.sleep(0)
    await auditor.round(Mode.OURS)
    assert "b1" in await members(ledgers, ledger_id)


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.OFF])
async def test_nothing_is_copied_unless_it_was_asked_for(
    ledgers: Ledgers, ledger_id: int, auditor: Auditor, mode: Mode
) -> None:
    await lose(ledgers, "b1", "b2")
    await auditor.round(mode)
    assert await members(ledgers, ledger_id) == {"b1", "b2", "b3"}
    assert not [one for one in ledgers.bookies.seen if one.kind in ("hold", "add")]
    audit = auditor.status()["audit"]
    assert audit is None if mode is Mode.OFF else audit["due_ledgers"] == 1


async def test_beside_the_auditor_of_apache_it_only_looks(ledgers: Ledgers, ledger_id: int, auditor: Auditor) -> None:
    await ensure_path(ledgers.store, APACHES_ELECTION)
    await ledgers.store.create(f"{APACHES_ELECTION}/V_0000000001", b"")
    await lose(ledgers, "b1", "b2")
    await auditor.round(Mode.OURS)
    assert await members(ledgers, ledger_id) == {"b1", "b2", "b3"}
    status = auditor.status()
    assert (status["mode"], status["why"][:21]) == ("observe", "the auditor of Apache")


async def test_what_is_blocked_is_told_and_tried_again(ledgers: Ledgers, ledger_id: int, auditor: Auditor) -> None:
    await lose(ledgers, "b4", "b5", "b1", "b2")
    await auditor.round(Mode.OURS)
    (blocked,) = auditor.status()["blocked"]
    assert blocked["ledger_id"] == ledger_id
    assert "no bookie can take it" in blocked["why"][0]
    ledgers.bookies.restart("b4", "b5")
    await register(ledgers, "b4", "b5")
    await auditor.round(Mode.OURS)
    assert await members(ledgers, ledger_id) == {"b3", "b4", "b5"}
    assert auditor.status()["blocked"] == []


async def test_the_fewest_copies_come_first_then_the_smallest(ledgers: Ledgers, ledger_id: int) -> None:
    large = await closed_on(ledgers, "b1", "b3", "b4", count=9)
    single = await closed_on(ledgers, "b1", "b2", "b5", count=20)
    await closed_on(ledgers, "b3", "b4", "b5")
    await lose(ledgers, "b1", "b5")
    audit = await ledgers.client.auditor(replace(LIMITS, grace_s=0.0)).audit()
    assert [one.urgency.ledger_id for one in audit.missing][:2] == [single, ledger_id]
    assert [one.urgency.ledger_id for one in audit.due] == [single], "two of five are a mass outage"
    assert large in [one.urgency.ledger_id for one in audit.missing]


async def test_figures_are_those_of_the_last_look(ledgers: Ledgers, ledger_id: int, auditor: Auditor) -> None:
    metrics = Metrics()
    auditor.measure(metrics)
    assert "boki_repair_missing_ledgers 0" in metrics.render().decode()
    await ledgers.client.begin_drain(BookieId("b5"))
    await lose(ledgers, "b1", "b2")
    await auditor.round(Mode.OBSERVE)
    text = metrics.render().decode()
    for line in (
        "missing_ledgers 1",
        "single_copy_ledgers 1",
        "due_bytes 30",
        "blocked_ledgers 0",
        "draining_bookies 1",
    ):
        assert f"boki_repair_{line}" in text
    await ledgers.client.cancel_drain(BookieId("b5"))
    await auditor.round(Mode.OURS)
    text = metrics.render().decode()
    assert "boki_repair_missing_ledgers 0" in text and "boki_repair_copied_bytes_total 0" not in text


async def test_rounds_go_on_after_errors(ledgers: Ledgers, ledger_id: int, auditor: Auditor) -> None:
    await lose(ledgers, "b1", "b2")
    ledgers.store.disconnect()
    running = asyncio.create_task(auditor.run(Mode.OURS))
    await let_pass(3 * LIMITS.round_s)
    ledgers.store.reconnect()
    await let_pass(2 * LIMITS.round_s)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await members(ledgers, ledger_id) == {"b3", "b4", "b5"}
