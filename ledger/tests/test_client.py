"""The client itself: what it makes, lists, deletes and refuses. Writers, readers and recovery have tests of their own."""

from __future__ import annotations

import pytest

from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.errors import (
    ClosedError,
    InvalidArgument,
    MetadataUnavailable,
    NodeExists,
    NotEnoughBookies,
)
from boki_common.metadata.memory import Fault, MemoryStore
from boki_common.testing.machine import CountingRandom, ManualClock
from boki_ledger.client import LedgerClient
from boki_ledger.testing.ledgers import Ledgers


async def test_with_fewer_bookies_a_ledger_has_fewer_replicas_never_fewer_than_acks(
    ledgers: Ledgers,
) -> None:
    ledgers.bookies.register("b1", "b2")
    metadata = await ledgers.metadata((await ledgers.client.create()).ledger_id)
    assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (2, 2, 2)
    ledgers.bookies.register("b1")
    with pytest.raises(NotEnoughBookies, match="found 1"):
        await ledgers.client.create()
    with pytest.raises(InvalidArgument):
        await ledgers.client.create(replicas=1, acks=2)
    assert len(await ledgers.client.list()) == 1


@pytest.mark.parametrize(("replicas", "acks"), [(3, 0), (0, 0), (2, 3), (10_000, 2)])
async def test_quorums_that_cannot_be_are_refused(ledgers: Ledgers, replicas: int, acks: int) -> None:
    with pytest.raises(InvalidArgument, match="0 < acks <= replicas"):
        await ledgers.client.create(replicas=replicas, acks=acks)
    assert await ledgers.client.list() == []


async def test_an_unknown_digest_makes_no_ledger(ledgers: Ledgers) -> None:
    with pytest.raises(InvalidArgument, match="MD5"):
        await ledgers.client.create(digest="MD5")
    assert await ledgers.client.list() == []


async def test_a_ledger_that_the_store_did_not_take_is_not_made(ledgers: Ledgers) -> None:
    ledgers.store.fail_next_write(Fault.UNAVAILABLE)
    with pytest.raises(MetadataUnavailable):
        await ledgers.client.create()
    assert await ledgers.client.list() == []
    metadata = await ledgers.client.metadata_of((await ledgers.client.create()).ledger_id)
    assert (metadata.state, metadata.last_entry) == (LedgerState.OPEN, -1)


async def test_closing_abandons_writers_and_refuses_from_then_on(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    held = ledgers.bookies.hold(kind="add")
    writer.submit(b"x")
    await ledgers.client.close()
    await ledgers.client.close()
    with pytest.raises(ClosedError, match="abandoned"):
        writer.submit(b"y")
    held.release()
    with pytest.raises(ClosedError):
        await ledgers.client.create()
    other = await ledgers.other_client()
    assert (await other.metadata_of(writer.ledger_id)).state is LedgerState.OPEN, "its end is for recovery to find"


async def test_a_client_that_was_not_started_says_so() -> None:
    client = LedgerClient(metadata=MemoryStore(), rng=CountingRandom())
    with pytest.raises(ClosedError, match="not started"):
        await client.open(0, recover=False)
    await client.close()


async def test_a_ledger_says_when_it_was_made_if_somebody_knows(ledgers: Ledgers) -> None:
    store = ledgers.store
    client = LedgerClient(
        metadata=store, rng=CountingRandom(900), clock=ManualClock(1_700_000_000_123), bookies=ledgers.bookies
    )
    await client.start()
    made = await client.create()
    assert (await client.metadata_of(made.ledger_id)).ctime == 1_700_000_000_123
    await made.close()
    assert (await client.metadata_of(made.ledger_id)).ctime == 1_700_000_000_123
    other = await ledgers.client.create()
    assert (await client.metadata_of(other.ledger_id)).ctime is None
    await client.close()


async def test_a_ledger_gets_the_id_that_the_caller_names_once(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create(ledger_id=2**40)
    assert writer.ledger_id == 2**40
    await writer.append(b"x")
    with pytest.raises(NodeExists):
        await ledgers.client.create(ledger_id=2**40)
    with pytest.raises(InvalidArgument, match="expected a ledger id"):
        await ledgers.client.create(ledger_id=-1)
    assert await ledgers.client.list() == [2**40]
