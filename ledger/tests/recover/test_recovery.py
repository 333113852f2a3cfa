"""Recovery, message by message: the known ways in which ledgers lost data, and the end that all recoverers agree on."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.recover.recoveries import begun, payloads_of, put, recovered, written
from tests.writers import RecordedAcks

from boki_common.bookkeeper import layout
from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import (
    LedgerDataMissing,
    LedgerFenced,
    MetadataUnavailable,
    NoSuchLedger,
    NotEnoughBookies,
    RecoveryFailed,
    Unauthorized,
)
from boki_common.metadata.memory import Fault
from boki_ledger.testing.ledgers import QUICK, Ledgers, ensemble, submit, turns, until
from boki_ledger.write.writer import LedgerWriter

# -- what is acknowledged survives, what is not may


async def test_all_acknowledged_entries_are_there_and_the_ledger_is_closed_once(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"a", b"bb", b"ccc")
    reader = await recovered(ledgers, writer.ledger_id)
    assert await payloads_of(reader) == [b"a", b"bb", b"ccc"]
    metadata = await ledgers.metadata(writer.ledger_id)
    assert (metadata.last_entry, metadata.length) == (2, 6)
    swaps = sum(store.swaps for store in ledgers.stores)
    assert swaps == 2, "in recovery, closed"
    again = await recovered(ledgers, writer.ledger_id)
    assert again.last_entry == 2 and sum(store.swaps for store in ledgers.stores) == swaps


async def test_an_empty_ledger_closes_at_minus_one_and_its_writer_is_fenced(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    reader = await recovered(ledgers, writer.ledger_id)
    assert reader.last_entry == -1 and await payloads_of(reader) == []
    with pytest.raises(LedgerFenced):
        await writer.append(b"late")
    with pytest.raises(LedgerFenced):
        await writer.close()


async def test_an_entry_on_one_bookie_only_is_kept_and_brought_to_its_quorum(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0")
    held = ledgers.bookies.hold(kind="add", entry_id=1, recovery=False)
    await submit(writer, b"1")
    held.kept.sort(key=lambda one: one[0].bookie)
    held.kept[2][1]()
    held.discard()
    await turns()
    assert ledgers.bookies.stored("b3", writer.ledger_id) == [0, 1]
    ledgers.bookies.hold(bookie="b1", kind="read", entry_id=1)
    reader = await recovered(ledgers, writer.ledger_id)
    assert await payloads_of(reader) == [b"0", b"1"]
    metadata = await ledgers.metadata(writer.ledger_id)
    assert len(ledgers.copies(writer.ledger_id, metadata, 1)) >= 2


async def test_lac_on_one_bookie_is_where_recovery_starts(ledgers: Ledgers) -> None:
    writer = await written(ledgers, *[b"x"] * 10)
    ledgers.bookies.seen.clear()
    await recovered(ledgers, writer.ledger_id)
    asked = {message.entry_id for message in ledgers.bookies.seen if message.kind == "read" and message.fence}
    assert min(asked - {-1}) == 9, "LAC 8 rides in entry 9"


async def test_the_length_is_read_when_nothing_lies_beyond_lac(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"aa", b"bb", b"cc")
    for bookie in ("b1", "b2", "b3"):
        entries = ledgers.bookies[bookie].entries[writer.ledger_id]
        if bookie == "b3":
            put(ledgers, bookie, writer.ledger_id, 7, lac=2, length=100)
        assert sorted(entries)[:3] == [0, 1, 2]
    reader = await recovered(ledgers, writer.ledger_id)
    assert reader.last_entry == 2 and reader.metadata.length == 6


# -- fencing


async def test_first_writer_cannot_commit_after_second_writer_closed(ledgers: Ledgers) -> None:
    """The fence of b2 is lost at the LAC read; entry 2 is on b3 alone, which hangs for the recovery read."""
    writer = await written(ledgers, b"0", b"1")
    acks = RecordedAcks(writer)
    on_the_way = ledgers.bookies.hold(kind="add", entry_id=2, recovery=False)
    await submit(writer, b"2")
    [to_b1, to_b2, to_b3] = sorted(on_the_way.kept, key=lambda one: one[0].bookie)
    to_b3[1]()
    await turns()
    ledgers.bookies.hold(bookie="b2", kind="read", entry_id=-1)
    ledgers.bookies.hold(bookie="b3", kind="read", entry_id=2)
    reader = await recovered(ledgers, writer.ledger_id)
    assert reader.last_entry == 1
    to_b2[1]()
    await turns()
    to_b1[1]()
    await turns()
    assert acks.acked == [] and writer.last_acked == 1
    assert isinstance(writer.failed, LedgerFenced)


async def test_recovery_reads_fence_every_bookie_they_reach(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0")
    await recovered(ledgers, writer.ledger_id)
    reads = [one for one in ledgers.bookies.seen if one.kind == "read" and not one.answer]
    assert reads and all(one.fence for one in reads)


async def test_one_hung_bookie_does_not_hold_up_a_recovery(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0", b"1")
    ledgers.bookies.hold(bookie="b2")
    reader = await recovered(ledgers, writer.ledger_id)
    assert reader.last_entry == 1


async def test_two_hung_bookies_of_three_make_it_fail_and_a_later_try_succeed(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0", b"1")
    held = [ledgers.bookies.hold(bookie=bookie, kind="read") for bookie in ("b1", "b2")]
    client = await ledgers.other_client(replace(QUICK, answer_timeout_s=0.25))
    with pytest.raises(RecoveryFailed, match="b1, b2"):
        await client.open(writer.ledger_id, recover=True)
    assert (await ledgers.metadata(writer.ledger_id)).state is LedgerState.IN_RECOVERY
    for one in held:
        one.discard()
        one.active = False
    assert (await recovered(ledgers, writer.ledger_id)).last_entry == 1


async def test_with_all_bookies_down_it_fails_and_a_later_try_succeeds(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0")
    ledgers.bookies.crash("b1", "b2", "b3")
    with pytest.raises(RecoveryFailed, match="try again"):
        await recovered(ledgers, writer.ledger_id)
    ledgers.bookies.restart("b1", "b2", "b3")
    assert await payloads_of(await recovered(ledgers, writer.ledger_id)) == [b"0"]


async def test_bookies_that_come_back_in_time_are_waited_for(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0")
    ledgers.bookies.crash("b1", "b2")
    client = await ledgers.other_client(replace(QUICK, retry_for_s=10.0))
    opening = asyncio.ensure_future(client.open(writer.ledger_id, recover=True))
    await until(lambda: ledgers.bookies.unreached > 2 * 2)  # neither answered, twice
    assert not opening.done()
    ledgers.bookies.restart("b2")
    assert (await opening).last_entry == 0


@pytest.mark.parametrize("status", [V2Status.IO_ERROR, V2Status.UNKNOWN_LEDGER_STATE, V2Status.TOO_MANY_REQUESTS])
async def test_a_bookie_that_is_not_sure_never_counts_as_a_negative(ledgers: Ledgers, status: V2Status) -> None:
    writer = await written(ledgers, b"0")
    put(ledgers, "b3", writer.ledger_id, 1)
    ledgers.bookies.crash("b3")
    stop = ledgers.bookies.answer(status, bookie="b2", kind="read", entry_id=1)
    with pytest.raises(RecoveryFailed):
        await recovered(ledgers, writer.ledger_id)
    stop()
    ledgers.bookies.restart("b3")
    ledgers.bookies.crash("b2")
    assert (await recovered(ledgers, writer.ledger_id)).last_entry == 1


async def test_a_damaged_copy_is_no_answer(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0", b"1")
    for bookie in ("b1", "b2"):
        ledgers.bookies.damage(bookie, writer.ledger_id, 1)
    ledgers.bookies.crash("b3")
    with pytest.raises(RecoveryFailed):
        await recovered(ledgers, writer.ledger_id)
    ledgers.bookies.restart("b3")
    reader = await recovered(ledgers, writer.ledger_id)
    assert await payloads_of(reader) == [b"0", b"1"]


async def test_a_wrong_password_fails_without_fencing(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create(password=b"right")
    await writer.append(b"0")
    client = await ledgers.other_client()
    for recover in (True, False):
        with pytest.raises(Unauthorized, match="nothing was fenced"):
            await client.open(writer.ledger_id, recover=recover, password=b"wrong")
    assert (await ledgers.metadata(writer.ledger_id)).state is LedgerState.OPEN
    assert await writer.append(b"1") == 1
    reader = await client.open(writer.ledger_id, recover=True, password=b"right")
    assert reader.last_entry == 1


async def test_opening_without_recovery_fences_nobody(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0", b"1")
    client = await ledgers.other_client()
    reader = await client.open(writer.ledger_id, recover=False)
    assert not reader.closed and await reader.read_lac() == 0
    assert await writer.append(b"2") == 2
    assert await reader.read_lac() == 1
    assert not any(one.fence for one in ledgers.bookies.seen)
    await reader.close()


# -- fragments


async def test_recovery_of_a_new_fragment_starts_there_although_its_bookies_know_no_lac(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0", b"1", b"2")
    fragments = (0, ensemble("b1", "b2", "b3")), (3, ensemble("b1", "b4", "b5"))
    await ledgers.change(writer.ledger_id, ensembles=fragments)
    ledgers.bookies.hold(bookie="b1", kind="read", fence=True)
    reader = await recovered(ledgers, writer.ledger_id)
    metadata = await ledgers.metadata(writer.ledger_id)
    assert metadata.ensembles == fragments and metadata.last_entry == 2
    assert metadata.length == 3, "read from the earlier fragment"
    assert await payloads_of(reader) == [b"0", b"1", b"2"]


async def test_a_bookie_lost_before_the_write_back_is_replaced_in_the_last_fragment(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0")
    ledgers.bookies.crash("b1")
    ledgers.bookies.register("b2", "b3", "b4")
    held = ledgers.bookies.hold(bookie="b2", kind="add", recovery=True)
    opening = await begun(recovered(ledgers, writer.ledger_id))
    held.release()
    await opening
    metadata = await ledgers.metadata(writer.ledger_id)
    assert metadata.ensembles == ((0, ("b4", "b2", "b3")),) and metadata.last_entry == 0
    assert len(ledgers.copies(writer.ledger_id, metadata, 0)) == 3


@pytest.mark.parametrize(
    ("spares", "lost", "fragment"),
    [(("b1", "b3", "b4"), ("b2",), ("b1", "b4", "b3")), (("b3", "b4", "b5"), ("b2", "b1"), ("b5", "b4", "b3"))],
    ids=["one", "two at once"],
)
async def test_bookies_lost_amid_the_write_back_begin_one_fragment_there(
    ledgers: Ledgers, writer: LedgerWriter, spares: tuple[str, ...], lost: tuple[str, ...], fragment: tuple[str, ...]
) -> None:
    for entry_id in range(3):
        for bookie in ("b1", "b2", "b3"):
            put(ledgers, bookie, writer.ledger_id, entry_id, length=entry_id + 1)
    ledgers.bookies.register(*spares)
    held = ledgers.bookies.hold(kind="add", entry_id=1, recovery=True, answer=True)
    opening = await begun(recovered(ledgers, writer.ledger_id))
    ledgers.bookies.crash(*lost)
    await turns()
    held.release()
    reader = await opening
    metadata = await ledgers.metadata(writer.ledger_id)
    assert metadata.ensembles == ((0, ("b1", "b2", "b3")), (1, fragment))
    assert reader.last_entry == 2
    assert ledgers.bookies.stored("b4", writer.ledger_id) == [1, 2]
    assert await reader.read(reader.last_entry, reader.last_entry) == [b"x"]


async def test_replacements_reach_the_metadata_only_with_the_close(ledgers: Ledgers) -> None:
    """A recovery that dies after replacing bookies leaves no trace that a later one would read from."""
    writer = await written(ledgers, b"0")
    ledgers.bookies.register("b2", "b3", "b4")
    ledgers.bookies.crash("b1")
    held = ledgers.bookies.hold(kind="add", recovery=True, answer=True)
    opening = await begun(recovered(ledgers, writer.ledger_id))
    opening.cancel()
    held.discard()
    await turns()
    metadata = await ledgers.metadata(writer.ledger_id)
    assert metadata.ensembles == ((0, ("b1", "b2", "b3")),) and metadata.state is LedgerState.IN_RECOVERY
    held.active = False
    assert await payloads_of(await recovered(ledgers, writer.ledger_id)) == [b"0"]


async def test_entries_that_no_quorum_takes_fail_the_recovery_and_a_later_try_succeeds(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0")
    stop = ledgers.bookies.answer(V2Status.READ_ONLY, kind="add", recovery=True)
    with pytest.raises(NotEnoughBookies, match="stays in recovery"):
        await recovered(ledgers, writer.ledger_id)
    assert (await ledgers.metadata(writer.ledger_id)).state is LedgerState.IN_RECOVERY
    stop()
    assert (await recovered(ledgers, writer.ledger_id)).last_entry == 0


# -- gaps and floors


async def test_a_gap_ends_the_ledger_before_it(ledgers: Ledgers, writer: LedgerWriter) -> None:
    for entry_id in [*range(10), 14]:
        put(ledgers, "b1", writer.ledger_id, entry_id, length=entry_id + 1)
        put(ledgers, "b2", writer.ledger_id, entry_id, length=entry_id + 1)
    reader = await recovered(ledgers, writer.ledger_id)
    assert reader.last_entry == 9 and reader.metadata.length == 10
    assert len(await payloads_of(reader)) == 10


async def test_many_entries_are_recovered_through_a_small_window(ledgers: Ledgers, writer: LedgerWriter) -> None:
    for entry_id in range(50):
        put(ledgers, "b2", writer.ledger_id, entry_id, length=entry_id + 1)
        put(ledgers, f"b{entry_id % 2 * 2 + 1}", writer.ledger_id, entry_id, length=entry_id + 1)
    client = await ledgers.other_client(replace(QUICK, reads_in_flight=4))
    reader = await client.open(writer.ledger_id, recover=True)
    assert reader.last_entry == 49
    metadata = await ledgers.metadata(writer.ledger_id)
    assert all(len(ledgers.copies(writer.ledger_id, metadata, entry_id)) >= 2 for entry_id in range(50))


async def test_an_end_below_the_floor_closes_nothing_and_is_evidence(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0", b"1")
    for bookie in ("b1", "b2", "b3"):
        ledgers.bookies[bookie].entries[writer.ledger_id].pop(1)
    with pytest.raises(LedgerDataMissing) as caught:
        await recovered(ledgers, writer.ledger_id, floor=2)
    assert (caught.value.expected, caught.value.found) == (2, 1)
    assert (await ledgers.metadata(writer.ledger_id)).state is LedgerState.IN_RECOVERY


async def test_below_the_floor_two_negatives_wait_for_the_third_bookie(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0", b"1")
    for bookie in ("b1", "b2"):
        ledgers.bookies[bookie].entries[writer.ledger_id].pop(1)
    ledgers.bookies.crash("b3")
    with pytest.raises(RecoveryFailed):
        await recovered(ledgers, writer.ledger_id, floor=2)
    ledgers.bookies.restart("b3")
    reader = await recovered(ledgers, writer.ledger_id, floor=2)
    assert await payloads_of(reader) == [b"0", b"1"]


async def test_a_ledger_closed_below_the_floor_is_an_error(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0")
    await writer.close()
    for recover in (True, False):
        with pytest.raises(LedgerDataMissing):
            await ledgers.client.open(writer.ledger_id, recover=recover, floor=2)


# -- several at once


@pytest.mark.parametrize("count", [2, 5])
async def test_concurrent_recoveries_agree(ledgers: Ledgers, count: int) -> None:
    writer = await written(ledgers, *[b"x"] * 6)
    put(ledgers, "b1", writer.ledger_id, 6, lac=4, length=7)
    readers = await asyncio.gather(*(recovered(ledgers, writer.ledger_id) for _ in range(count)))
    assert {(reader.last_entry, reader.metadata.length) for reader in readers} == {(6, 7)}
    for reader in readers:
        assert len(await payloads_of(reader)) == 7


async def test_the_loser_adopts_the_end_of_who_closed_first(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0", b"1")
    held = ledgers.bookies.hold(kind="add", recovery=True, answer=True)
    opening = await begun(recovered(ledgers, writer.ledger_id))
    await ledgers.change(writer.ledger_id, state=LedgerState.CLOSED, last_entry=-1, length=0)
    held.release()
    reader = await opening
    assert reader.last_entry == -1 and await payloads_of(reader) == []


async def test_a_foreign_fragment_during_recovery_aborts_it(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0", b"1")
    held = ledgers.bookies.hold(kind="add", recovery=True, answer=True)
    opening = await begun(recovered(ledgers, writer.ledger_id))
    fragments = (0, ensemble("b1", "b2", "b3")), (2, ensemble("b4", "b2", "b3"))
    await ledgers.change(writer.ledger_id, ensembles=fragments)
    held.release()
    with pytest.raises(RecoveryFailed, match="changed while"):
        await opening
    assert (await ledgers.metadata(writer.ledger_id)).ensembles == fragments


async def test_a_writer_and_a_recovery_race_for_the_end(ledgers: Ledgers) -> None:
    """Entries go on being added while the recovery runs: what was acknowledged is in the closed ledger."""
    writer = await written(ledgers, b"0")
    acks = RecordedAcks(writer)
    opening = asyncio.ensure_future(recovered(ledgers, writer.ledger_id))
    for _ in range(50):
        if writer.failed is None:
            writer.submit(b"x")
        await asyncio.sleep(0)
    reader = await opening
    await turns()
    assert isinstance(writer.failed, LedgerFenced)
    assert reader.last_entry >= max(acks.acked, default=0)
    assert len(await payloads_of(reader)) == reader.last_entry + 1


# -- the metadata store


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST, Fault.DELAYED])
@pytest.mark.parametrize("write", [0, 1])
async def test_lost_answers_of_the_store_change_nothing_about_the_end(
    ledgers: Ledgers, fault: Fault, write: int
) -> None:
    writer = await written(ledgers, b"0", b"1")
    client = await ledgers.other_client()
    if write:
        ledgers.stores[-1].fail_next_write(Fault.NONE)
    ledgers.stores[-1].fail_next_write(fault)
    reader = await client.open(writer.ledger_id, recover=True)
    ledgers.tree.deliver_delayed()
    assert reader.last_entry == 1
    assert (await ledgers.metadata(writer.ledger_id)).last_entry == 1


async def test_without_the_metadata_store_nothing_is_fenced(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0")
    client = await ledgers.other_client()
    ledgers.stores[-1].disconnect()
    with pytest.raises(MetadataUnavailable):
        await client.open(writer.ledger_id, recover=True)
    assert await writer.append(b"1") == 1


async def test_a_ledger_that_does_not_exist(ledgers: Ledgers) -> None:
    with pytest.raises(NoSuchLedger):
        await ledgers.client.open(12_345, recover=True)


async def test_a_striped_ledger_needs_an_answer_in_every_window(ledgers: Ledgers) -> None:
    """E = 4, Qw = Qa = 2: one bookie down leaves windows in which one answer is enough; two neighbours down do not."""
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    ledger_id = (await ledgers.striped(4, 2, 2)).ledger_id
    ledgers.bookies.register("b1", "b2", "b3")
    for entry_id in range(5):
        for slot in (entry_id % 4, (entry_id + 1) % 4):
            put(ledgers, f"b{slot + 1}", ledger_id, entry_id, lac=entry_id - 1, length=entry_id + 1)
    ledgers.bookies.crash("b2", "b3")
    with pytest.raises(RecoveryFailed):
        await recovered(ledgers, ledger_id)
    ledgers.bookies.restart("b3")
    ledgers.bookies.register("b1", "b3", "b4", "b5")
    reader = await recovered(ledgers, ledger_id)
    assert reader.last_entry == 4
    assert len(await payloads_of(reader)) == 5


async def test_opening_reads_the_metadata_once(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"one")
    client = await ledgers.other_client()
    calls: list[tuple[str, str]] = []

    def seen(operation: str, path: str) -> Fault:
        if path == layout.LedgerLayout.HIERARCHICAL.path(writer.ledger_id):
            calls.append((operation, path))
        return Fault.NONE

    ledgers.stores[-1].faults = seen
    reader = await client.open(writer.ledger_id, recover=True)
    assert [operation for operation, _ in calls] == ["get", "set", "set"], "into recovery, closed"
    await reader.close()
