"""What cookies say about the members of a ledger, and when it is written down."""

from __future__ import annotations

from dataclasses import replace

from boki_common.bookkeeper import layout
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.ids import BookieId
from boki_common.metadata.memory import Fault, MemoryStore
from boki_common.testing.machine import CountingRandom
from boki_ledger.metadata.member_trust import Member, remembered_in
from boki_ledger.metadata.members import Members
from boki_ledger.metadata.metadata_update import LedgerUpdates
from boki_ledger.testing.ledgers import QUICK, Ledgers, make_cookie, turns

B1, B2, B3 = (BookieId(f"b{number}") for number in (1, 2, 3))
OURS = Member(ours=True, made=None)


async def test_cookies_distinguish_our_bookies_from_others(store: MemoryStore) -> None:
    await make_cookie(store, B1)
    await make_cookie(store, B2, ours=False)
    found = await Members(store).look((B1, B2, B3))
    assert found == {B1: OURS, B2: Member(False, await store.created(layout.cookie_path(B2))), B3: Member(False, None)}


async def test_a_cookie_that_cannot_be_read_is_not_ours(store: MemoryStore) -> None:
    await store.create(layout.cookie_path(B1), b"4\n" + layout.OUR_MARK)
    assert not (await Members(store).look((B1,)))[B1].ours


async def test_only_ours_are_looked_up_once(store: MemoryStore) -> None:
    members = Members(store)
    await make_cookie(store, B1)
    await make_cookie(store, B2, ours=False)
    first = await members.look((B1, B2))
    reads: list[str] = []

    def seen(operation: str, path: str) -> Fault:
        reads.append(path)
        return Fault.NONE

    store.faults = seen
    await make_cookie(store, B2, ours=False)
    reads.clear()
    second = await members.look((B1, B2))
    assert layout.cookie_path(B1) not in reads
    assert first[B1] == second[B1] and first[B2] != second[B2]


async def test_members_that_are_not_ours_are_remembered_as_they_join(store: MemoryStore) -> None:
    for bookie in (B1, B2, B3):
        await make_cookie(store, bookie, ours=bookie == B1)
    made = {bookie: await store.created(layout.cookie_path(bookie)) for bookie in (B2, B3)}
    updates = LedgerUpdates(store, CountingRandom(), QUICK)
    metadata = LedgerMetadata(ensemble_size=2, write_quorum=2, ack_quorum=2, ensembles=((0, (B1, B2)),))
    seen = await updates.create(1, metadata)
    assert remembered_in(seen.metadata) == {B2: made[B2]}
    seen = await updates.change(1, lambda current: replace(current, ensembles=((0, (B1, B3)),)), known=seen)
    assert remembered_in(seen.metadata) == made
    closing = await updates.change(1, lambda current: replace(current, state=LedgerState.CLOSED, last_entry=-1))
    assert remembered_in(closing.metadata) == made


async def test_a_writer_remembers_whom_it_brings_in(ledgers: Ledgers) -> None:
    await make_cookie(ledgers.store, "b4", ours=False)
    writer = await ledgers.client.create()
    assert (await ledgers.metadata(writer.ledger_id)).custom == ()
    ledgers.bookies.register("b2", "b3", "b4")
    ledgers.bookies.crash("b1")
    writer.submit(b"x")
    await turns(120)
    metadata = await ledgers.metadata(writer.ledger_id)
    assert metadata.ensembles[-1][1] == ("b4", "b2", "b3")
    assert list(remembered_in(metadata)) == ["b4"]
