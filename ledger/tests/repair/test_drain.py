"""Drains over scripted bookies: the check, the moves, what is waited for, and the end, interrupted anywhere."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import pytest
from tests.repair.conftest import LIMITS, closed_on, lose, members

from boki_common.bookkeeper import layout
from boki_common.bookkeeper.bookie_mark import DRAINING, RETIRED, retired
from boki_common.bookkeeper.bookie_marks import read_mark, write_mark
from boki_common.errors import InvalidArgument
from boki_common.ids import BookieId
from boki_common.metadata.memory import Fault
from boki_common.metadata.store import ensure_path
from boki_common.testing.machine import CountingRandom
from boki_common.testing.virtual_time import let_pass
from boki_ledger.repair.auditor import Auditor
from boki_ledger.repair.autorecovery import APACHES_LOCKS
from boki_ledger.repair.drain_rules import Refusal
from boki_ledger.repair.settings import Mode
from boki_ledger.testing.ledgers import Ledgers

pytestmark = pytest.mark.usefixtures("virtual_time")

B1: Final = BookieId("b1")


async def notes(ledgers: Ledgers, *, empty: bool = True) -> None:
    """What the bookie notes in its mark, once it refuses and once it is empty."""
    seen = await read_mark(ledgers.store, B1)
    wanted = msgspec.structs.replace(seen.mark, refuses=True, empty=empty)
    await write_mark(ledgers.store, B1, wanted, seen=seen, rng=CountingRandom(77))


async def state(ledgers: Ledgers) -> str:
    return (await read_mark(ledgers.store, B1)).mark.state


async def has_cookie(ledgers: Ledgers) -> bool:
    return await ledgers.store.exists(layout.cookie_path(B1))


async def test_copies_move_then_the_bookie_is_retired(ledgers: Ledgers, ledger_id: int, auditor: Auditor) -> None:
    assert await ledgers.client.check_drain(B1) == []
    await ledgers.client.begin_drain(B1)
    await auditor.round(Mode.OURS)
    assert B1 not in await members(ledgers, ledger_id)
    (drain,) = auditor.status()["drains"]
    assert "not noted yet that it refuses" in drain["waits_for"][0]
    await notes(ledgers, empty=False)
    await auditor.round(Mode.OURS)
    assert await state(ledgers) == DRAINING
    await notes(ledgers)
    await auditor.round(Mode.OURS)
    assert (await state(ledgers), await has_cookie(ledgers)) == (RETIRED, False)
    await auditor.round(Mode.OURS)
    assert auditor.status()["drains"] == []


async def test_it_is_a_source_while_it_drains(ledgers: Ledgers, ledger_id: int, auditor: Auditor) -> None:
    """The only one that is there: another bookie that is lost costs nothing."""
    await ledgers.client.begin_drain(B1)
    await lose(ledgers, "b2", "b3")
    await auditor.round(Mode.OURS)
    assert {"b4", "b5"} <= await members(ledgers, ledger_id)


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.OFF])
async def test_nothing_moves_unless_it_was_asked_for(
    ledgers: Ledgers, ledger_id: int, auditor: Auditor, mode: Mode
) -> None:
    await ledgers.client.begin_drain(B1)
    await notes(ledgers)
    await auditor.round(mode)
    assert B1 in await members(ledgers, ledger_id)
    assert (await state(ledgers), await has_cookie(ledgers)) == (DRAINING, True)


async def test_a_cancelled_drain_leaves_the_rest_where_it_is(
    ledgers: Ledgers, ledger_id: int, auditor: Auditor
) -> None:
    await ledgers.client.begin_drain(B1)
    await ledgers.client.cancel_drain(B1)
    await auditor.round(Mode.OURS)
    assert B1 in await members(ledgers, ledger_id)
    with pytest.raises(InvalidArgument, match="no drain to cancel"):
        await ledgers.client.cancel_drain(B1)


async def test_a_cancellation_between_listing_and_retiring_wins(
    ledgers: Ledgers, ledger_id: int, auditor: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ledgers.client.begin_drain(B1)
    await auditor.round(Mode.OURS)
    await notes(ledgers)
    real = layout.list_ledgers

    async def cancelling(store: object) -> list[int]:
        found = await real(ledgers.store)
        if (await read_mark(ledgers.store, B1)).mark.state == DRAINING:
            await ledgers.client.cancel_drain(B1)
        return [*found]

    monkeypatch.setattr(layout, "list_ledgers", cancelling)
    await auditor.round(Mode.OURS)
    assert (await state(ledgers), await has_cookie(ledgers)) == ("active", True)


async def test_a_ledger_that_is_written_is_waited_for_and_a_spare_is_not(
    ledgers: Ledgers, ledger_id: int, auditor: Auditor
) -> None:
    ledgers.bookies.register("b1", "b2", "b3")
    spare = await ledgers.client.create()
    writer = await ledgers.client.create()
    await writer.append(b"entry")
    ledgers.bookies.register("b2", "b3", "b4", "b5")
    await ledgers.client.begin_drain(B1)
    await notes(ledgers)
    await auditor.round(Mode.OURS)
    (drain,) = auditor.status()["drains"]
    assert drain["waits_for"] == [
        f"ledgers {writer.ledger_id} are written still: their writers replace it, or their logs are rolled"
    ]
    assert auditor.written() == [writer.ledger_id], "its log may be rolled"
    await writer.close()
    await auditor.round(Mode.OURS)
    assert auditor.written() == []
    assert (await state(ledgers), B1 in await members(ledgers, writer.ledger_id)) == (RETIRED, False)
    assert B1 in await members(ledgers, spare.ledger_id), "it has no entry, and gets none there"


async def test_a_spare_keeps_no_place_of_a_bookie_that_is_gone(
    ledgers: Ledgers, ledger_id: int, auditor: Auditor
) -> None:
    """Two of three bookies deny its first entry: it is not acknowledged, whatever the one that is gone would say."""
    ledgers.bookies.register("b1", "b2", "b3")
    spare = await ledgers.client.create()
    written = await ledgers.client.create()
    await written.append(b"entry")
    await lose(ledgers, "b1")
    metadata = [await ledgers.metadata(one.ledger_id) for one in (spare, written)]
    drains = auditor._drains
    assert not await drains.is_written(spare.ledger_id, metadata[0], B1, ())
    assert await drains.is_written(written.ledger_id, metadata[1], B1, ())
    gone = (BookieId("b2"),)
    assert await drains.is_written(spare.ledger_id, metadata[0], B1, gone), "without both nobody could recover it"
    await lose(ledgers, "b2")
    assert await drains.is_written(spare.ledger_id, metadata[0], B1, ()), "one of three does not say enough"


async def test_what_the_bookie_holds_of_open_ledgers_is_told(
    ledgers: Ledgers, ledger_id: int, auditor: Auditor
) -> None:
    """It names the bookie no more, but of what is open nothing is dropped."""
    ledgers.bookies.register("b2", "b3", "b4")
    writer = await ledgers.client.create()
    await ledgers.client.begin_drain(B1)
    seen = await read_mark(ledgers.store, B1)
    wanted = msgspec.structs.replace(seen.mark, refuses=True, ledgers=1, left=(writer.ledger_id,))
    await write_mark(ledgers.store, B1, wanted, seen=seen, rng=CountingRandom(77))
    await auditor.round(Mode.OURS)
    assert auditor.written() == [writer.ledger_id]
    assert "are written still" in auditor.status()["drains"][0]["waits_for"][0]


async def test_an_audit_changes_nothing(ledgers: Ledgers, ledger_id: int, auditor: Auditor) -> None:
    """Not the cookie of one that was retired a moment ago either."""
    seen = await ledgers.client.begin_drain(B1)
    await write_mark(ledgers.store, B1, retired(seen.mark), seen=seen, rng=CountingRandom(77))
    await auditor.audit()
    await auditor.round(Mode.OBSERVE)
    assert await has_cookie(ledgers)
    await auditor.round(Mode.OURS)
    assert not await has_cookie(ledgers)


async def test_a_ledger_made_meanwhile_by_an_old_list_is_found_by_the_last_listing(
    ledgers: Ledgers, ledger_id: int, auditor: Auditor
) -> None:
    await ledgers.client.begin_drain(B1)
    await auditor.round(Mode.OURS)
    late = await closed_on(ledgers, "b1", "b2", "b3")
    ledgers.bookies.register("b2", "b3", "b4", "b5")
    await notes(ledgers)
    await auditor.round(Mode.OURS)
    assert (await state(ledgers), auditor.status()["drains"][0]["waits_for"]) == (
        DRAINING,
        ["1 ledgers that were made meanwhile name it"],
    )
    await auditor.round(Mode.OURS)
    assert (await state(ledgers), B1 in await members(ledgers, late)) == (RETIRED, False)


async def test_a_dead_bookie_is_drained_without_its_word(ledgers: Ledgers, ledger_id: int, auditor: Auditor) -> None:
    await lose(ledgers, "b1")
    assert await ledgers.client.check_drain(B1) == []
    await ledgers.client.begin_drain(B1)
    await auditor.round(Mode.OURS)
    assert B1 not in await members(ledgers, ledger_id), "its copies are made anew at once"
    assert await state(ledgers) == DRAINING
    await let_pass(LIMITS.grace_s)
    await auditor.round(Mode.OURS)
    assert (await state(ledgers), await has_cookie(ledgers)) == (RETIRED, False)


async def test_refusals_are_named(ledgers: Ledgers, ledger_id: int) -> None:
    with pytest.raises(InvalidArgument, match="expected the id of a bookie"):
        await ledgers.client.check_drain(BookieId("nobody"))
    await lose(ledgers, "b4", "b5")
    assert [one.why for one in await ledgers.client.check_drain(B1)] == [Refusal.TOO_FEW_BOOKIES]
    await lose(ledgers, "b1", "b2", "b3")
    assert {one.why for one in await ledgers.client.check_drain(B1)} == {Refusal.TOO_FEW_BOOKIES, Refusal.LAST_COPY}


async def test_beside_apaches_autorecovery_none_begins(ledgers: Ledgers, ledger_id: int) -> None:
    await ensure_path(ledgers.store, APACHES_LOCKS)
    assert await ledgers.client.check_drain(B1) == []
    await ledgers.store.create(f"{APACHES_LOCKS}/urL0000000007", b"")
    (refused,) = await ledgers.client.check_drain(B1)
    assert refused.why is Refusal.AUTORECOVERY and "1 ledgers locked" in refused.text


async def test_another_one_that_drains_is_no_target(ledgers: Ledgers, ledger_id: int) -> None:
    await ledgers.client.begin_drain(BookieId("b4"))
    await ledgers.client.begin_drain(BookieId("b5"))
    assert [one.why for one in await ledgers.client.check_drain(B1)] == [Refusal.TOO_FEW_BOOKIES]


@pytest.mark.parametrize("stop_after", range(0, 40, 3))
async def test_a_controller_that_ends_anywhere_is_followed_by_another(
    ledgers: Ledgers, ledger_id: int, stop_after: int
) -> None:
    await ledgers.client.begin_drain(B1)
    await notes(ledgers)
    running = asyncio.create_task(ledgers.client.auditor(LIMITS).round(Mode.OURS))
    for _ in range(stop_after):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    other = ledgers.client.auditor(LIMITS)
    for _ in range(2):
        await other.round(Mode.OURS)
    assert (await state(ledgers), await has_cookie(ledgers)) == (RETIRED, False)
    assert B1 not in await members(ledgers, ledger_id)
    for entry_id in range(3):
        assert len(ledgers.copies(ledger_id, await ledgers.metadata(ledger_id), entry_id)) == 3


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.DELAYED])
async def test_lost_answers_of_its_end_are_settled(ledgers: Ledgers, ledger_id: int, fault: Fault) -> None:
    await ledgers.client.begin_drain(B1)
    auditor = ledgers.client.auditor(LIMITS)
    await auditor.round(Mode.OURS)
    await notes(ledgers)
    ledgers.store.fail_next_write(fault, count=2)
    running = asyncio.create_task(auditor.round(Mode.OURS))
    await let_pass(1)
    ledgers.tree.deliver_delayed()
    await asyncio.gather(running, return_exceptions=True)
    for _ in range(2):
        await auditor.round(Mode.OURS)
    assert (await state(ledgers), await has_cookie(ledgers)) == (RETIRED, False)
