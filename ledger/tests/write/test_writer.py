"""The writer, message by message: acks, bookies that fail, ensemble changes, fences, closing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.writers import RecordedAcks

from boki_common.bookkeeper.digests import CRC32C
from boki_common.bookkeeper.entry_body import verify_body
from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import (
    ClosedError,
    LedgerClosed,
    LedgerFenced,
    MetadataUnavailable,
    NoSuchLedger,
    Overloaded,
    RecordTooLarge,
    Unauthorized,
)
from boki_common.limits import ENTRY_BYTES, KIB
from boki_common.metadata.memory import Fault
from boki_ledger.testing.ledgers import QUICK, Ledgers, deliver, ensemble, submit, turns, until
from boki_ledger.write.replicated_adds import EARLY_SEND_BYTES
from boki_ledger.write.writer import LedgerWriter

# -- acks


async def test_appended_entries_are_stored_on_all_replicas_as_the_protocol_says(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create(custom={"role": b"test"})
    assert await writer.append(b"one") == 0
    assert await writer.append(b"t", memoryview(b"wo")) == 1
    for bookie in ("b1", "b2", "b3"):
        body = memoryview(ledgers.bookies[bookie].entries[writer.ledger_id][1])
        header, payload = verify_body(body, writer.ledger_id, 1, CRC32C)
        assert bytes(payload) == b"two"
        assert header == (writer.ledger_id, 1, 0, 6), "LAC and cumulative length ride in the header"
    metadata = await ledgers.metadata(writer.ledger_id)
    assert metadata.ensembles == ((0, ("b1", "b2", "b3")),)
    assert (metadata.write_quorum, metadata.ack_quorum, metadata.custom) == (3, 2, (("role", b"test"),))


async def test_entries_complete_in_order_when_their_prefix_has_the_ack_quorum(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    acks = RecordedAcks(writer)
    held = ledgers.bookies.hold(kind="add", entry_id=0)
    await submit(writer, *(b"%d" % number for number in range(3)))
    assert acks.acked == [] and writer.last_acked == -1 and writer.last_submitted == 2
    await deliver(held)
    assert acks.acked == [2] and writer.last_acked == 2


async def test_one_slow_bookie_delays_nothing_and_its_late_acks_change_nothing(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    held = ledgers.bookies.hold(bookie="b2", kind="add")
    assert [await writer.append(b"x") for _ in range(3)] == [0, 1, 2]
    held.release(reverse=True)
    await turns()
    assert writer.last_acked == 2 and writer.failed is None
    assert ledgers.bookies.stored("b2", writer.ledger_id) == [0, 1, 2]


async def test_a_full_window_refuses_and_takes_again_after_acks(ledgers: Ledgers) -> None:
    client = await ledgers.other_client(replace(QUICK, window_entries=2, window_bytes=100))
    writer = await client.create()
    held = ledgers.bookies.hold(kind="add")
    writer.submit(b"a" * 50)
    with pytest.raises(Overloaded):
        writer.submit(b"b" * 51)
    writer.submit(b"b" * 50)
    with pytest.raises(Overloaded, match="wait for acks"):
        writer.submit(b"")
    await deliver(held)
    assert writer.submit(b"c" * 101) == 2, "a single entry may be larger than the window"
    await turns()
    assert writer.last_acked == 2


async def test_entries_of_one_turn_reach_each_bookie_once_and_in_order(ledgers: Ledgers, writer: LedgerWriter) -> None:
    """They leave at the end of the turn: a connection that is lost and made again before gets them once, not twice."""
    await writer.append(b"0")
    ledgers.bookies.seen.clear()
    for number in range(1, 4):
        writer.submit(b"%d" % number)
    assert not ledgers.bookies.seen
    ledgers.bookies.reconnect("b1")
    await submit(writer, b"4")
    for bookie in ("b1", "b2", "b3"):
        adds = [one.entry_id for one in ledgers.bookies.seen if one.bookie == bookie and not one.answer]
        assert adds == [1, 2, 3, 4], bookie
    assert writer.last_acked == 4


async def test_what_is_submitted_now_leaves_with_what_waited_and_once(ledgers: Ledgers, writer: LedgerWriter) -> None:
    await writer.append(b"0")
    ledgers.bookies.seen.clear()
    writer.submit(b"1")
    assert not ledgers.bookies.seen
    for number in (2, 3):
        writer.submit(b"%d" % number, now=True)
        for bookie in ("b1", "b2", "b3"):
            adds = [one.entry_id for one in ledgers.bookies.seen if one.bookie == bookie and not one.answer]
            assert adds == list(range(1, number + 1)), bookie
    await turns()
    assert len([one for one in ledgers.bookies.seen if not one.answer]) == 9
    assert writer.last_acked == 3


async def test_much_that_one_turn_submits_does_not_wait_for_its_end(ledgers: Ledgers, writer: LedgerWriter) -> None:
    await writer.append(b"0")
    ledgers.bookies.seen.clear()
    while not ledgers.bookies.seen:
        assert writer.submit(bytes(KIB)) <= EARLY_SEND_BYTES // KIB
    last = writer.last_submitted
    assert [one.entry_id for one in ledgers.bookies.seen if one.bookie == "b2"] == list(range(1, last + 1))
    await turns()
    assert writer.last_acked == last


async def test_an_entry_over_the_limit_is_refused_and_takes_no_id(writer: LedgerWriter) -> None:
    with pytest.raises(RecordTooLarge):
        writer.submit(bytes(ENTRY_BYTES), b"1")
    assert await writer.append(b"x") == 0


# -- bookies that fail, without a spare


async def test_without_a_spare_the_ensemble_stays_and_a_bookie_that_returns_catches_up(
    ledgers: Ledgers, writer: LedgerWriter
) -> None:
    await writer.append(b"0")
    ledgers.bookies.crash("b1")
    await writer.append(b"1")
    ledgers.bookies.crash("b2")
    await submit(writer, b"2", b"3")
    assert writer.last_acked == 1 and writer.failed is None
    assert sorted(writer.failing_bookies) == ["b1", "b2"]
    ledgers.bookies.restart("b1")
    await turns()
    assert writer.last_acked == 3
    assert writer.failing_bookies == ["b2"]
    assert ledgers.bookies.stored("b1", writer.ledger_id) == [0, 2, 3], "entry 1 had its ack quorum: not sent again"
    assert ledgers.store.swaps == 0


async def test_two_of_five_may_die_without_a_change_when_three_acks_suffice(ledgers: Ledgers) -> None:
    ledgers.bookies.register("b1", "b2", "b3", "b4", "b5")
    writer = await ledgers.client.create(replicas=5, acks=3)
    ledgers.bookies.crash("b1", "b4")
    assert [await writer.append(b"x") for _ in range(3)] == [0, 1, 2]
    ledgers.bookies.crash("b5")
    entry = writer.submit(b"y")
    await turns()
    assert writer.last_acked == entry - 1
    ledgers.bookies.restart("b4")
    await turns()
    assert writer.last_acked == entry and ledgers.store.swaps == 0


@pytest.mark.parametrize("status", [V2Status.READ_ONLY, V2Status.TOO_MANY_REQUESTS, V2Status.IO_ERROR])
async def test_a_bookie_that_refuses_adds_is_tried_again_after_a_pause(ledgers: Ledgers, status: V2Status) -> None:
    writer = await ledgers.client.create()
    stop = ledgers.bookies.answer(status, bookie="b1", kind="add")
    ledgers.bookies.crash("b2")
    await submit(writer, b"x")
    assert writer.last_acked == -1
    stop()
    await until(lambda: writer.last_acked == 0)
    assert writer.failed is None and ledgers.store.swaps == 0


# -- ensemble changes


async def test_a_failed_bookie_is_replaced_with_one_metadata_write(ledgers: Ledgers, writer: LedgerWriter) -> None:
    await writer.append(b"0")
    ledgers.bookies.register("b2", "b3", "b4")
    held = ledgers.bookies.hold(bookie="b3", kind="add", entry_id=1)
    writer.submit(b"1")
    ledgers.bookies.crash("b1")
    await turns()
    metadata = await ledgers.metadata(writer.ledger_id)
    assert metadata.ensembles == ((0, ("b1", "b2", "b3")), (1, ("b4", "b2", "b3")))
    assert ledgers.store.swaps == 1
    assert ledgers.bookies.stored("b4", writer.ledger_id) == [1]
    held.release()
    assert await writer.append(b"2") == 2
    assert writer.last_acked == 2 and ledgers.store.swaps == 1


async def test_an_idle_writer_replaces_at_its_next_entry_who_fails(ledgers: Ledgers, writer: LedgerWriter) -> None:
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    ledgers.bookies.crash("b2")
    await turns()
    assert ledgers.store.swaps == 0
    await writer.append(b"0")
    await turns()
    assert (await ledgers.metadata(writer.ledger_id)).ensembles[-1][1] == ("b1", "b4", "b3")


async def test_a_bookie_that_registers_later_takes_the_failed_place(ledgers: Ledgers, writer: LedgerWriter) -> None:
    ledgers.bookies.crash("b1", "b2")
    await submit(writer, b"0")
    assert writer.last_acked == -1
    ledgers.bookies.register("b3", "b5")
    await turns()
    assert writer.last_acked == 0
    assert (await ledgers.metadata(writer.ledger_id)).ensembles == ((0, ("b5", "b2", "b3")),)


async def test_a_second_failure_during_a_change_is_taken_by_the_next_one(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    await writer.append(b"0")
    ledgers.bookies.register("b1", "b2", "b3", "b4", "b5")
    ledgers.store.gate.clear()
    held = ledgers.bookies.hold(bookie="b3", kind="add", answer=True)
    writer.submit(b"1")
    ledgers.bookies.crash("b1")
    await turns()
    ledgers.bookies.crash("b2")
    await deliver(held)
    assert writer.last_acked == 0, "two of three are gone, and nothing completes during a change"
    ledgers.store.gate.set()
    await turns()
    assert ledgers.store.swaps == 2
    metadata = await ledgers.metadata(writer.ledger_id)
    assert metadata.ensembles == ((0, ("b1", "b2", "b3")), (1, ("b4", "b5", "b3")))
    assert writer.last_acked == 1


async def test_nothing_is_acknowledged_while_the_change_is_not_committed(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    ledgers.store.gate.clear()
    held = ledgers.bookies.hold(bookie="b3", kind="add", answer=True)
    for _ in range(5):
        writer.submit(b"x")
    ledgers.bookies.crash("b1")
    await turns()
    await deliver(held)
    assert ledgers.bookies.stored("b2", writer.ledger_id) == [0, 1, 2, 3, 4], "two of three hold everything"
    assert writer.last_acked == -1
    assert ledgers.bookies.stored("b4", writer.ledger_id) == [], "a bookie that the metadata does not name gets nothing"
    ledgers.store.gate.set()
    await turns()
    assert writer.last_acked == 4


async def test_after_two_slots_are_replaced_entries_are_where_the_metadata_says(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    acks = RecordedAcks(writer)
    ledgers.bookies.register("b1", "b2", "b3", "b4", "b5")
    held = ledgers.bookies.hold(kind="add", entry_id=0, answer=True)
    await submit(writer, *[b"x"] * 3)
    ledgers.store.gate.clear()
    ledgers.bookies.crash("b1")
    await turns()
    ledgers.bookies.crash("b2")
    held.release()
    ledgers.store.gate.set()
    fresh = ledgers.bookies.hold(bookie="b4", kind="add")
    await turns()
    metadata = await ledgers.metadata(writer.ledger_id)
    for entry_id in range(writer.last_acked + 1):
        assert len(ledgers.copies(writer.ledger_id, metadata, entry_id)) >= 2
    await deliver(fresh)
    assert acks.acked[-1] == 2
    for entry_id in range(3):
        assert len(ledgers.copies(writer.ledger_id, metadata, entry_id)) == 3


async def test_a_change_that_leads_back_to_the_same_bookies_sends_again_and_completes(ledgers: Ledgers) -> None:
    client = await ledgers.other_client(replace(QUICK, suspect_s=0.0))
    ledgers.store = ledgers.stores[-1]
    writer = await client.create()
    ledgers.bookies.register("b2", "b3", "b4")
    held = ledgers.bookies.hold(bookie="b3", kind="add")
    ledgers.bookies.crash("b1")
    dropped = ledgers.bookies.hold(bookie="b4", kind="add")
    await submit(writer, b"0")
    assert (await ledgers.metadata(writer.ledger_id)).ensembles == ((0, ("b4", "b2", "b3")),)
    ledgers.bookies.restart("b1")
    ledgers.bookies.register("b1", "b2", "b3")
    ledgers.bookies.crash("b4")
    dropped.discard()
    await turns()
    assert (await ledgers.metadata(writer.ledger_id)).ensembles == ((0, ("b1", "b2", "b3")),)
    assert writer.last_acked == 0, "b1 was sent the entry again, though the list of bookies is what it once was"
    held.discard()


async def test_a_bookie_that_fails_between_its_entries_is_replaced_for_the_next(ledgers: Ledgers) -> None:
    writer = await ledgers.striped(3, 2, 2)  # which `create` never makes but BookKeeper knows
    ledger_id = writer.ledger_id
    await writer.append(b"0")
    ledgers.bookies.crash("b3")
    writer.submit(b"1")
    ledgers.bookies.register("b1", "b2", "b4")
    await turns()
    assert writer.last_acked == 1 and writer.failed is None
    assert (await ledgers.metadata(ledger_id)).ensembles == ((0, ("b1", "b2", "b3")), (1, ("b1", "b2", "b4")))
    writer.abandon()


async def test_striped_entries_go_to_their_write_sets_also_after_a_change(ledgers: Ledgers) -> None:
    writer = await ledgers.striped(3, 2, 2)  # which `create` never makes but BookKeeper knows
    ledger_id = writer.ledger_id
    assert [await writer.append(b"x") for _ in range(4)] == [0, 1, 2, 3]
    assert ledgers.bookies.stored("b1", ledger_id) == [0, 2, 3]
    assert ledgers.bookies.stored("b2", ledger_id) == [0, 1, 3]
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    ledgers.bookies.crash("b2")
    assert [await writer.append(b"x") for _ in range(4)] == [4, 5, 6, 7]
    metadata = await ledgers.metadata(ledger_id)
    assert metadata.ensembles[-1][1] == ("b1", "b4", "b3")
    for entry_id in range(8):
        assert len(ledgers.copies(ledger_id, metadata, entry_id)) == 2
    writer.abandon()


async def test_a_replacement_that_is_down_too_is_replaced(ledgers: Ledgers, writer: LedgerWriter) -> None:
    ledgers.bookies.register("b2", "b3", "b4", "b5")
    ledgers.bookies.crash("b4", "b1")
    await writer.append(b"0")
    await turns()
    await writer.append(b"1")
    await turns()
    assert (await ledgers.metadata(writer.ledger_id)).ensembles[-1][1] == ("b5", "b2", "b3")


async def test_a_hung_bookie_is_dropped_after_the_time_out_and_replaced(ledgers: Ledgers) -> None:
    client = await ledgers.other_client(replace(QUICK, answer_timeout_s=0.25))
    writer = await client.create(replicas=2, acks=2)
    held = ledgers.bookies.hold(bookie="b1", kind="add")
    writer.submit(b"x")
    ledgers.bookies.register("b2", "b3")
    await until(lambda: writer.last_acked == 0)
    assert (await ledgers.metadata(writer.ledger_id)).ensembles == ((0, ("b3", "b2")),)
    await deliver(held)
    assert writer.last_acked == 0 and writer.failed is None


# -- somebody else's change


@pytest.mark.parametrize("state", [LedgerState.IN_RECOVERY, LedgerState.CLOSED])
async def test_a_writer_whose_ledger_is_no_longer_open_fails_at_the_next_change(
    ledgers: Ledgers, writer: LedgerWriter, state: LedgerState
) -> None:
    acks = RecordedAcks(writer)
    await ledgers.change(writer.ledger_id, state=state, last_entry=-1)
    ledgers.bookies.register("b2", "b3", "b4")
    ledgers.bookies.crash("b1")
    ledgers.bookies.hold(bookie="b2", kind="add")
    with pytest.raises(LedgerFenced):
        await writer.append(b"x")
    assert len(acks.failed) == 1 and acks.acked == []
    with pytest.raises(LedgerFenced):
        writer.submit(b"y")
    with pytest.raises(LedgerFenced):
        await writer.close()
    assert ledgers.bookies.channels == []


async def test_a_writer_whose_ensemble_somebody_else_changed_fails(ledgers: Ledgers, writer: LedgerWriter) -> None:
    await ledgers.change(writer.ledger_id, ensembles=((0, ensemble("b5", "b2", "b3")),))
    ledgers.bookies.register("b2", "b3", "b4")
    ledgers.bookies.crash("b1")
    ledgers.bookies.hold(bookie="b2", kind="add")
    with pytest.raises(LedgerFenced, match="b5"):
        await writer.append(b"x")


async def test_a_writer_of_a_deleted_ledger_fails_at_the_next_change(ledgers: Ledgers, writer: LedgerWriter) -> None:
    await ledgers.client.delete(writer.ledger_id)
    ledgers.bookies.register("b2", "b3", "b4")
    ledgers.bookies.crash("b1")
    ledgers.bookies.hold(bookie="b2", kind="add")
    with pytest.raises(NoSuchLedger):
        await writer.append(b"x")
    with pytest.raises(NoSuchLedger):
        await ledgers.client.delete(writer.ledger_id)


# -- fences


async def test_a_fenced_writer_fails_once_with_an_unknown_outcome(ledgers: Ledgers, writer: LedgerWriter) -> None:
    acks = RecordedAcks(writer)
    await writer.append(b"0")
    for bookie in ("b1", "b2"):
        ledgers.bookies[bookie].fenced[writer.ledger_id] = True
    with pytest.raises(LedgerFenced) as caught:
        await writer.append(b"1")
    assert not caught.value.definite
    assert [type(error) for error in acks.failed] == [LedgerFenced] and acks.acked == [0]
    assert writer.last_acked == 0


async def test_a_wrong_password_fails_the_writer(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create(password=b"right")
    for bookie in ("b1", "b2", "b3"):
        ledgers.bookies[bookie].keys[writer.ledger_id] = b"other"
    with pytest.raises(Unauthorized):
        await writer.append(b"0")
    assert isinstance(writer.failed, Unauthorized)


# -- closing


async def test_closing_fixes_the_end_at_lac_with_its_length(ledgers: Ledgers, writer: LedgerWriter) -> None:
    for payload in (b"a", b"bb", b"ccc"):
        await writer.append(payload)
    held = ledgers.bookies.hold(kind="add")
    in_flight = asyncio.ensure_future(writer.append(b"dddd"))
    await turns()
    assert await writer.close() == 2 == await writer.close()
    with pytest.raises(LedgerClosed, match="not in it"):
        await in_flight
    await deliver(held)
    metadata = await ledgers.metadata(writer.ledger_id)
    assert (metadata.state, metadata.last_entry, metadata.length) == (LedgerState.CLOSED, 2, 6)
    with pytest.raises(ClosedError):
        writer.submit(b"x")


async def test_an_empty_ledger_closes_at_minus_one(ledgers: Ledgers, writer: LedgerWriter) -> None:
    assert await writer.close() == -1
    metadata = await ledgers.metadata(writer.ledger_id)
    assert (metadata.state, metadata.last_entry, metadata.length) == (LedgerState.CLOSED, -1, 0)


async def test_a_writer_cannot_close_a_ledger_in_recovery(ledgers: Ledgers, writer: LedgerWriter) -> None:
    await writer.append(b"0")
    await ledgers.change(writer.ledger_id, state=LedgerState.IN_RECOVERY, last_entry=-1)
    with pytest.raises(LedgerFenced):
        await writer.close()
    assert (await ledgers.metadata(writer.ledger_id)).state is LedgerState.IN_RECOVERY


async def test_a_close_waits_for_the_change_in_flight(ledgers: Ledgers, writer: LedgerWriter) -> None:
    ledgers.bookies.register("b2", "b3", "b4")
    ledgers.store.gate.clear()
    held = ledgers.bookies.hold(kind="add", answer=True)
    ledgers.bookies.crash("b1")
    await submit(writer, b"0")
    held.release()
    closing = asyncio.ensure_future(writer.close())
    await turns()
    assert not closing.done()
    ledgers.store.gate.set()
    assert await closing == 0
    metadata = await ledgers.metadata(writer.ledger_id)
    assert metadata.ensembles == ((0, ("b4", "b2", "b3")),) and metadata.last_entry == 0


async def test_a_close_whose_answer_is_lost_is_settled(ledgers: Ledgers, writer: LedgerWriter) -> None:
    await writer.append(b"0")
    ledgers.store.fail_next_write(Fault.ANSWER_LOST)
    assert await writer.close() == 0


async def test_a_close_without_the_metadata_store_can_be_tried_again(ledgers: Ledgers, writer: LedgerWriter) -> None:
    await writer.append(b"0")
    ledgers.store.disconnect()
    with pytest.raises(MetadataUnavailable):
        await writer.close()
    assert await writer.append(b"1") == 1, "still open"
    ledgers.store.reconnect()
    assert await writer.close() == 1


async def test_an_abandoned_writer_touches_nothing(ledgers: Ledgers, writer: LedgerWriter) -> None:
    held = ledgers.bookies.hold(kind="add")
    waiting = asyncio.ensure_future(writer.append(b"0"))
    await turns()
    writer.abandon()
    writer.abandon()
    with pytest.raises(ClosedError, match="abandoned"):
        await waiting
    with pytest.raises(ClosedError):
        writer.submit(b"x")
    with pytest.raises(ClosedError):
        await writer.close()
    await deliver(held)
    assert (await ledgers.metadata(writer.ledger_id)).state is LedgerState.OPEN


async def test_a_closed_writer_stays_closed_when_it_is_abandoned(writer: LedgerWriter) -> None:
    """Whoever is cancelled while it closes abandons the writer; the close may have ended in the same turn of the loop."""
    await writer.append(b"0")
    assert await writer.close() == 0
    writer.abandon()
    with pytest.raises(ClosedError, match="closed for writing"):
        writer.submit(b"x")
    assert await writer.close() == 0


async def test_a_listener_may_submit_and_close_from_its_callback(writer: LedgerWriter) -> None:
    seen: list[int] = []

    def acked(lac: int) -> None:
        seen.append(lac)
        if lac < 5:
            writer.submit(b"next")
        else:
            writer.abandon()

    writer.listen(acked, lambda error: None)
    writer.submit(b"first")
    await turns(200)
    assert seen == [0, 1, 2, 3, 4, 5]
