"""A writer that is idle replaces who fails after a while, with or without entries, and keeps who returns. Time is virtual."""

from __future__ import annotations

from typing import Final

import pytest

from boki_common.testing.virtual_time import let_pass
from boki_ledger.settings import LedgerSettings
from boki_ledger.testing.ledgers import Ledgers
from boki_ledger.write.writer import LedgerWriter

pytestmark = pytest.mark.usefixtures("virtual_time")

WHILE_S: Final = LedgerSettings().idle_change_s


async def test_a_bookie_that_fails_for_long_is_replaced(ledgers: Ledgers, writer: LedgerWriter) -> None:
    await writer.append(b"0")
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    ledgers.bookies.crash("b2")
    await let_pass(0.9 * WHILE_S)
    assert ledgers.store.swaps == 0
    await let_pass(0.2 * WHILE_S)
    assert (await ledgers.metadata(writer.ledger_id)).ensembles == ((0, ("b1", "b2", "b3")), (1, ("b1", "b4", "b3")))
    assert await writer.append(b"1") == 1
    assert (writer.last_acked, writer.failed, ledgers.store.swaps) == (1, None, 1)
    assert ledgers.bookies.stored("b4", writer.ledger_id) == [1]


async def test_a_spare_without_entries_replaces_who_fails_once_another_is_there(
    ledgers: Ledgers, writer: LedgerWriter
) -> None:
    ledgers.bookies.crash("b2")
    await let_pass(3 * WHILE_S)
    assert ledgers.store.swaps == 0
    ledgers.bookies.register("b1", "b3", "b4")
    await let_pass(1.1 * WHILE_S)
    assert (await ledgers.metadata(writer.ledger_id)).ensembles == ((0, ("b1", "b4", "b3")),)


async def test_a_bookie_that_returns_keeps_its_place(ledgers: Ledgers, writer: LedgerWriter) -> None:
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    ledgers.bookies.crash("b2")
    await let_pass(0.5 * WHILE_S)
    ledgers.bookies.restart("b2")
    await let_pass(2 * WHILE_S)
    assert (ledgers.store.swaps, writer.failing_bookies) == (0, [])


async def test_a_bookie_that_takes_no_writes_for_long_is_replaced_though_it_answers(
    ledgers: Ledgers, writer: LedgerWriter
) -> None:
    """It may be drained, and refuses the next entry."""
    ledgers.bookies.register("b1", "b3", "b4")
    await let_pass(0.9 * WHILE_S)
    assert ledgers.store.swaps == 0
    await let_pass(0.2 * WHILE_S)
    assert (await ledgers.metadata(writer.ledger_id)).ensembles == ((0, ("b1", "b4", "b3")),)


async def test_a_closed_writer_changes_nothing(ledgers: Ledgers, writer: LedgerWriter) -> None:
    await writer.append(b"0")
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    ledgers.bookies.crash("b2")
    await let_pass(0.5 * WHILE_S)
    await writer.close()
    swaps = ledgers.store.swaps
    await let_pass(2 * WHILE_S)
    assert ledgers.store.swaps == swaps


async def test_two_that_fail_one_after_another_are_both_replaced(ledgers: Ledgers, writer: LedgerWriter) -> None:
    ledgers.bookies.register("b1", "b2", "b3", "b4", "b5")
    ledgers.bookies.crash("b2")
    await let_pass(0.9 * WHILE_S)
    ledgers.bookies.crash("b3")
    await let_pass(1.1 * WHILE_S)
    (last,) = (await ledgers.metadata(writer.ledger_id)).ensembles
    assert last[1][0] == "b1" and {*last[1][1:]} == {"b4", "b5"}
