"""What the layers above count on, of the model of ledgers and of the real client over scripted bookies alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.errors import BokiError, ClosedError, LedgerDataMissing, LedgerFenced, NoSuchEntry, NoSuchLedger
from boki_ledger.ledgers import Ledgers as Port
from boki_ledger.ledgers import LedgerWriter
from boki_ledger.testing.ledgers import Ledgers, turns
from boki_ledger.testing.model_ledgers import ModelLedgers


class Case:
    """One implementation of the port, and the hand that keeps entries from their acknowledgement."""

    def __init__(self, ledgers: Port, hold: Callable[[], object]) -> None:
        self.ledgers = ledgers
        self.hold = hold

    async def filled(self, *payloads: bytes) -> LedgerWriter:
        """A new ledger with these entries acknowledged."""
        writer = await self.ledgers.create()
        entries = [writer.submit(payload) for payload in payloads]
        if entries:
            await writer.acknowledged(entries[-1])
        return writer


@pytest.fixture(params=["model", "client"])
async def case(request: pytest.FixtureRequest) -> AsyncIterator[Case]:
    if request.param == "model":
        model = ModelLedgers()
        yield Case(model, lambda: setattr(model, "hold_acks", True))
        return
    real = Ledgers()
    await real.start()
    yield Case(real.client, lambda: real.bookies.hold(kind="add"))
    await real.close()


async def test_entries_are_numbered_acknowledged_in_order_and_read_back(case: Case) -> None:
    writer = await case.ledgers.create(custom={"made by": b"a test"})
    acked: list[int] = []
    failed: list[BokiError] = []
    writer.listen(acked.append, failed.append)
    assert [writer.submit(b"a", b"b"), writer.submit(b"c", now=True), writer.submit(b"d")] == [0, 1, 2]
    await writer.acknowledged(2)
    assert acked == sorted(acked) and acked[-1] == 2 and writer.failing_bookies == []
    assert await writer.close() == 2
    reader = await case.ledgers.open(writer.ledger_id, recover=False)
    assert (reader.closed, reader.last_entry) == (True, 2)
    assert [bytes(one) for one in await reader.read(0, 2)] == [b"ab", b"c", b"d"]
    await reader.close()
    metadata = await case.ledgers.metadata_of(writer.ledger_id)
    assert (metadata.state, metadata.last_entry) == (LedgerState.CLOSED, 2)
    assert ("made by", b"a test") in metadata.custom
    assert failed == []


async def test_a_ledger_closes_behind_what_is_acknowledged(case: Case) -> None:
    writer = await case.filled(b"a")
    case.hold()
    writer.submit(b"b")
    assert await writer.close() == 0
    reader = await case.ledgers.open(writer.ledger_id, recover=False)
    assert (reader.closed, reader.last_entry) == (True, 0)
    with pytest.raises(ClosedError):
        writer.submit(b"c")


async def test_an_open_ledger_shows_what_is_confirmed(case: Case) -> None:
    writer = await case.filled(b"a", b"b")
    reader = await case.ledgers.open(writer.ledger_id, recover=False)
    assert not reader.closed and reader.last_entry < 1
    reader.confirm(1)
    assert [bytes(one) for one in await reader.read(0, 1)] == [b"a", b"b"]
    assert [bytes(one) for one in await reader.read_unconfirmed(1, 1)] == [b"b"]
    with pytest.raises(NoSuchEntry):
        await reader.read_unconfirmed(2, 2)
    await reader.close()


async def test_recovery_fences_the_writer_and_keeps_what_was_acknowledged(case: Case) -> None:
    writer = await case.filled(b"a", b"b")
    failed: list[BokiError] = []
    writer.listen(lambda _: None, failed.append)
    reader = await case.ledgers.open(writer.ledger_id, recover=True)
    assert (reader.closed, reader.last_entry) == (True, 1)
    assert len(await reader.read(0, 1)) == 2
    writer.submit(b"too late")
    await turns()
    assert [type(error) for error in failed] == [LedgerFenced]
    with pytest.raises(LedgerFenced):
        writer.submit(b"again")
    with pytest.raises(LedgerFenced):
        await writer.close()
    assert (await case.ledgers.metadata_of(writer.ledger_id)).last_entry == 1


async def test_who_recovered_a_ledger_to_its_end_closed_it_for_its_writer(case: Case) -> None:
    writer = await case.filled(b"a")
    await (await case.ledgers.open(writer.ledger_id, recover=True)).close()
    assert await writer.close() == 0


async def test_nothing_is_closed_below_its_floor_but_with_what_is_carried(case: Case) -> None:
    writer = await case.filled(b"a")
    with pytest.raises(LedgerDataMissing):
        await case.ledgers.open(writer.ledger_id, recover=True, floor=2)
    reader = await case.ledgers.open(writer.ledger_id, recover=True, floor=2, carried={1: b"b"})
    assert (reader.closed, reader.last_entry) == (True, 1)
    assert [bytes(one) for one in await reader.read(0, 1)] == [b"a", b"b"]


async def test_who_abandons_a_ledger_leaves_it_open(case: Case) -> None:
    writer = await case.filled(b"a")
    writer.abandon()
    writer.abandon()
    with pytest.raises(ClosedError):
        writer.submit(b"b")
    assert (await case.ledgers.metadata_of(writer.ledger_id)).state is LedgerState.OPEN


async def test_ledgers_are_listed_until_they_are_deleted(case: Case) -> None:
    first, second = [(await case.filled()).ledger_id for _ in range(2)]
    assert await case.ledgers.list() == [first, second] and first < second
    await case.ledgers.delete(first)
    assert await case.ledgers.list() == [second]
    for gone in (
        case.ledgers.delete(first),
        case.ledgers.metadata_of(first),
        case.ledgers.open(first, recover=False),
        case.ledgers.open(first, recover=True),
    ):
        with pytest.raises(NoSuchLedger):
            await gone
