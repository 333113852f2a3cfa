"""The v3 protocol over a real connection, beside v2 on the same one: recorded frames of Apache BookKeeper, and faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from tests.serve.requester import Recorded, Requester, Served, serving
from tests.turns import prepared, turns

from boki_common import limits
from boki_common.bookkeeper import auth, availability, v2, v3, v3_messages
from boki_common.bookkeeper.status import V2Status
from boki_common.runtime.memory_disk import MemoryDisk

RECORDED: Final = (
    "add-crc32c", "add-crc32", "add-hmac", "add-dummy", "add-empty", "read-crc32c", "read-crc32", "read-hmac",
    "read-dummy", "read-last", "read-no-entry", "read-no-ledger", "fence-read-wrong-key", "add-wrong-key", "fence-read",
    "fence-read-entry", "fence-read-unknown-ledger", "add-fenced", "recovery-add", "add-again", "add-deferred-sync",
    "force-ledger", "force-no-ledger", "list-of-entries-no-ledger", "long-poll-bad-request",
)  # fmt: skip
LACS: Final = "add-deferred-sync", "write-lac", "read-lac", "add-crc32", "read-lac-no-explicit", "read-lac-no-ledger"
POLLS: Final = "add-deferred-sync", "write-lac", "long-poll-now", "long-poll-timeout", "long-poll-no-ledger"


def read(txn_id: int, ledger_id: int, entry_id: int, key: bytes | None = None) -> v3_messages.ReadRequest:
    return v3_messages.ReadRequest(txn_id, None, ledger_id, entry_id, key, False, -1, 0)


@pytest.fixture
async def served(world: Any, disk: MemoryDisk) -> AsyncIterator[Served]:
    async with serving(await world.open(disk), world, disk, bookie_id="b1") as made:
        yield made


@pytest.mark.parametrize("names", [RECORDED, LACS, POLLS], ids=["adds and reads", "LACs", "long polls"])
@pytest.mark.parametrize("stored", [False, True])
async def test_recorded_requests_get_the_recorded_responses(
    served: Served, client: Requester, recorded: Recorded, stored: bool, names: tuple[str, ...]
) -> None:
    """In the order in which Apache's client sent them to Apache's bookie; once from memory, once from the entry log."""
    for name in names:
        await client.replay(recorded(f"v3-{name}"), name)
        if stored:
            await served.storage.checkpoint()


async def test_recorded_lists_of_entries(served: Served, client: Requester, recorded: Recorded) -> None:
    for entry_id in range(3):
        await client.ask_v3(served.add_v3(1, 2030, entry_id))
    cases = [*recorded("v3-list-of-entries"), *recorded("v3-list-of-entries-gaps")]
    assert len(cases) == 5
    await client.replay(cases)


async def test_recorded_life_of_a_ledger(client: Requester, recorded: Recorded) -> None:
    """A full client: adds, a LAC, fencing read, recovery reads and adds, the old writer that learns of it, reads."""
    for name in ("1-write", "2-open-no-recovery", "3-recover", "4-fenced-append", "5-read"):
        await client.replay(recorded(f"trace-v3-{name}"), name)


async def test_recorded_tail_of_an_open_ledger(client: Requester, recorded: Recorded) -> None:
    """A long poll that the second add after it wakes; it is answered last, and may be before that add here."""
    exchanges = recorded("trace-v3-6-tail")
    expected: dict[int, Any] = {
        found.txn_id: found for found in (v3.decode_response(memoryview(frame)[4:]) for _, frame in exchanges)
    }
    answers: dict[int, Any] = {}
    for request, _ in exchanges:
        client.connection.send(request)
        asked = v3.decode_request(memoryview(request)[4:])
        waits = isinstance(asked, v3_messages.ReadRequest)
        while not waits and asked.txn_id not in answers:
            answer = await client.next_v3()
            answers[answer.txn_id] = answer
    while len(answers) < len(exchanges):
        answer = await client.next_v3()
        answers[answer.txn_id] = answer
    woken = next(number for number, answer in answers.items() if isinstance(answer, v3_messages.ReadResponse))
    assert answers[woken].lac_time_ms is not None
    answers[woken] = answers[woken]._replace(lac_time_ms=expected[woken].lac_time_ms)
    assert answers == expected


async def test_v2_and_v3_share_a_connection_and_a_batch(served: Served, client: Requester) -> None:
    await client.ask_v3(served.add_v3(1, 1, 0))
    frames: list[Any] = []
    for entry_id in range(1, 9):
        request = served.add_v3(entry_id, 1, entry_id)
        if entry_id % 2:
            frames += v2.encode_add_body([request.body], served.world.key)
        else:
            frames.append(v3.encode_request(request))
    client.connection.send(*frames, v2.encode_read(1, 0), v3.encode_request(read(99, 1, 0)))
    answers = [await client.frames.get() for _ in range(10)]
    ours = [v3.decode_response(memoryview(frame)) for frame in answers if frame[0] == v3.FIRST_BYTE]
    theirs = [v2.decode_response(memoryview(frame)) for frame in answers if frame[0] == v2.VERSION]
    assert {one.status for one in ours + theirs} == {V2Status.OK}
    assert sorted(one.txn_id for one in ours) == [2, 4, 6, 8, 99]
    assert sorted(one.entry_id for one in theirs if not isinstance(one, v2.HoldResponse)) == [0, 1, 3, 5, 7]


async def test_high_priority_uses_the_reserve_of_a_full_disk_in_both_protocols(
    served: Served, client: Requester
) -> None:
    """As of Apache's bookie; a run of such adds is taken at once, too."""
    await client.ask_v3(served.add_v3(1, 1, 0))
    served.storage.set_read_only(True)
    served.storage.room.control_bytes = 1 << 20
    assert (await client.ask_v3(served.add_v3(2, 1, 1))).status is V2Status.READ_ONLY
    assert (await client.ask_v3(served.add_v3(3, 1, 1)._replace(priority=100))).status is V2Status.OK
    bodies = [served.world.body(1, entry_id) for entry_id in (2, 3, 4)]
    frames = [v2.as_control(v2.encode_add_body([body], served.world.key)) for body in bodies]
    client.connection.send(*(b"".join(frame) for frame in frames))
    answers = [v2.decode_response(memoryview(await client.frames.get() or b"")) for _ in frames]
    assert [one.status for one in answers] == [V2Status.OK] * 3
    served.storage.room.control_bytes = 0
    assert (await client.ask_v3(served.add_v3(4, 1, 5)._replace(priority=100))).status is V2Status.READ_ONLY


async def test_adds_are_answered_only_when_durable(served: Served, disk: MemoryDisk, client: Requester) -> None:
    await client.ask_v3(served.add_v3(1, 1, 0))
    disk.hold("sync")
    client.connection.send(v3.encode_request(served.add_v3(2, 1, 1)))
    client.connection.send(v3.encode_request(served.add_v3(3, 1, 2)))
    await turns()
    assert client.frames.empty()
    disk.release("sync")
    assert [(await client.next_v3()).txn_id for _ in range(2)] == [2, 3]


async def test_adds_with_deferred_sync_are_answered_before_they_are_durable_force_after(
    served: Served, disk: MemoryDisk, client: Requester
) -> None:
    await client.ask_v3(served.add_v3(1, 1, 0))
    disk.hold("sync")
    client.connection.send(v3.encode_request(served.add_v3(2, 1, 1)))
    client.connection.send(v3.encode_request(served.add_v3(3, 1, 2)._replace(deferred_sync=True)))
    assert (await client.next_v3()).txn_id == 3, "only what was asked so is answered early"
    client.connection.send(v3.encode_request(v3_messages.ForceRequest(4, None, 1)))
    await turns()
    assert client.frames.empty()
    disk.release("sync")
    assert [(await client.next_v3()).txn_id for _ in range(2)] == [2, 4]


async def test_adds_with_deferred_sync_cannot_outrun_the_disk_for_ever(served: Served, disk: MemoryDisk) -> None:
    """Half of the 50 requests of the connection are answered early, the others when durable."""
    client = await served.connect()
    await client.ask_v3(served.add_v3(1, 1, 0))
    disk.hold("sync")
    for entry_id in range(1, 51):
        client.connection.send(v3.encode_request(served.add_v3(entry_id, 1, entry_id)._replace(deferred_sync=True)))
    assert [(await client.next_v3()).entry_id for _ in range(25)] == list(range(1, 26))
    await turns()
    assert client.frames.empty()
    disk.release("sync")
    assert [(await client.next_v3()).entry_id for _ in range(25)] == list(range(26, 51))
    client.connection.send(v3.encode_request(served.add_v3(99, 1, 51)._replace(deferred_sync=True)))
    assert (await client.next_v3()).status is V2Status.OK, (
        "what was answered early counts until it is durable, no longer"
    )


async def test_force_is_answered_after_what_was_taken_before_is_durable(served: Served, disk: MemoryDisk) -> None:
    client, other = await served.connect(), await served.connect()
    await client.ask_v3(served.add_v3(1, 1, 0))
    assert await client.ask_v3(v3_messages.ForceRequest(2, None, 1)) == v3_messages.ForceResponse(2, V2Status.OK, 1)
    disk.hold("sync")
    client.connection.send(v3.encode_request(served.add_v3(3, 1, 1)))
    await turns()
    other.connection.send(v3.encode_request(v3_messages.ForceRequest(4, None, 1)))
    await turns()
    assert client.frames.empty() and other.frames.empty()
    disk.release("sync")
    assert await other.next_v3() == v3_messages.ForceResponse(4, V2Status.OK, 1)
    assert (await client.next_v3()).txn_id == 3


async def test_a_fencing_read_is_answered_only_when_the_fence_is_durable(served: Served, disk: MemoryDisk) -> None:
    client = await served.connect()
    await client.ask_v3(served.add_v3(1, 1, 0))
    for ledger_id, status in ((1, V2Status.OK), (9, V2Status.NO_ENTRY)):
        disk.hold("sync")
        client.connection.send(v3.encode_request(read(7, ledger_id, -1, served.world.key)))
        client.connection.send(v3.encode_request(read(8, 1, 0)))
        assert (await client.next_v3()).txn_id == 8, "a plain read does not wait"
        await turns()
        assert client.frames.empty()
        disk.release("sync")
        fenced = await client.next_v3()
        assert (fenced.txn_id, fenced.ledger_id, fenced.status) == (7, ledger_id, status)
    assert (await client.ask_v3(served.add_v3(9, 1, 1))).status is V2Status.FENCED
    assert (await client.ask_v3(served.add_v3(10, 1, 1, recovery=True))).status is V2Status.OK


async def test_reads_carry_the_lac_of_the_last_entry_in_memory_and_stored(served: Served, client: Requester) -> None:
    for entry_id in range(5):
        await client.ask_v3(served.add_v3(1, 1, entry_id))
    assert (await client.ask_v3(read(2, 1, 0))).lac == 3
    await served.storage.checkpoint()
    for _ in range(2):
        answer = await client.ask_v3(read(3, 1, 1))
        assert (answer.lac, bytes(answer.body)) == (3, bytes(served.world.body(1, 1)))
    await client.ask_v3(served.add_v3(4, 1, 5))
    assert (await client.ask_v3(read(5, 1, 1))).lac == 4
    await served.storage.checkpoint()
    assert (await client.ask_v3(read(6, 1, 1))).lac == 4


async def test_a_damaged_entry_is_io_error_and_a_damaged_last_one_costs_only_the_lac(
    served: Served, disk: MemoryDisk, client: Requester
) -> None:
    for entry_id, letter in enumerate(b"abc"):
        await client.ask_v3(served.add_v3(1, 1, entry_id, payload=bytes([letter]) * 50))
    await served.storage.checkpoint()
    served.world.damage(disk, b"c" * 50)
    assert await client.ask_v3(read(1, 1, 2)) == v3_messages.ReadResponse(1, V2Status.IO_ERROR, 1, 2)
    answer = await client.ask_v3(read(2, 1, 0))
    assert (answer.status, answer.lac) == (V2Status.OK, None)


async def test_lists_of_entries_join_what_is_stored_and_what_is_cached(served: Served, client: Requester) -> None:
    for entry_id in (0, 1, 4):
        await client.ask_v3(served.add_v3(1, 1, entry_id))
    await served.storage.checkpoint()
    for entry_id in (2, 7):
        await client.ask_v3(served.add_v3(1, 1, entry_id))
    answer = await client.ask_v3(v3_messages.ListEntriesRequest(2, None, 1))
    assert [entry for run in availability.decode(answer.availability) for entry in run] == [0, 1, 2, 4, 7]


async def test_a_list_has_nothing_that_a_crash_may_take(served: Served, client: Requester, disk: MemoryDisk) -> None:
    """A repair names the bookie for what is listed, also for what another repair is just adding."""
    await client.ask_v3(served.add_v3(1, 1, 0))
    other = await served.connect()
    disk.hold("sync")
    other.connection.send(v3.encode_request(served.add_v3(2, 1, 1, recovery=True)))
    await turns(50)
    client.connection.send(v3.encode_request(v3_messages.ListEntriesRequest(3, None, 1)))
    await turns(50)
    assert client.frames.empty() and other.frames.empty()
    disk.release("sync")
    assert (await other.next_v3()).status is V2Status.OK
    answer = await client.next_v3()
    assert [entry for run in availability.decode(answer.availability) for entry in run] == [0, 1]


async def test_bookie_info_has_what_was_asked_for(disk: MemoryDisk, client: Requester) -> None:
    free = await disk.free_bytes()
    info = await client.ask_v3(v3_messages.BookieInfoRequest(1, None, v3.INFO_TOTAL | v3.INFO_FREE))
    assert (info.status, info.free_bytes) == (V2Status.OK, free)
    assert info.total_bytes > free
    assert await client.ask_v3(v3_messages.BookieInfoRequest(2, None, v3.INFO_FREE)) == v3_messages.BookieInfoResponse(
        2, V2Status.OK, None, free
    )


async def test_first_adds_and_repeats_are_answered_with_the_number_of_their_request(served: Served) -> None:
    served.world.validations[5] = V2Status.FENCED
    client = await served.connect()
    assert await client.ask_v3(served.add_v3(11, 5, 0)) == v3_messages.AddResponse(11, V2Status.FENCED, 5, 0)
    await client.ask_v3(served.add_v3(12, 1, 0))
    await served.storage.checkpoint()
    assert await client.ask_v3(served.add_v3(13, 1, 0)) == v3_messages.AddResponse(13, V2Status.OK, 1, 0)
    contradicting = served.add_v3(14, 1, 0, payload=b"another")
    assert await client.ask_v3(contradicting) == v3_messages.AddResponse(14, V2Status.BAD_REQUEST, 1, 0)


async def test_a_client_that_begins_with_a_handshake_is_answered_that_there_is_none(served: Served) -> None:
    """As Apache's bookie does by default, whatever the client's plugin is."""
    client = await served.connect()
    for message in (auth.NO_AUTHENTICATION, auth.AuthMessage("sasl", b"token")):
        answer = await client.ask_v3(v3_messages.AuthRequest(7, None, message))
        assert answer == v3_messages.AuthResponse(7, V2Status.OK, auth.NO_AUTHENTICATION)
    assert (await client.ask_v3(served.add_v3(8, 1, 0))).status is V2Status.OK


async def test_who_asks_for_a_bookie_is_answered_with_the_id_of_this_one(client: Requester) -> None:
    for meant in ("b1", "another"):
        answer = await client.ask_v3(v3_messages.AuthRequest(7, None, auth.greeting(meant)))
        assert answer == v3_messages.AuthResponse(7, V2Status.OK, auth.greeting("b1"))


async def test_encryption_is_refused_as_apache_refuses_it_unconfigured(served: Served, client: Requester) -> None:
    start_tls = bytes.fromhex("0a06080310091805" + "d20600")
    client.connection.send(len(start_tls).to_bytes(4, "big") + start_tls)
    assert (await client.frames.get()).hex() == "0a06080310091805" + "109403", "status 404 and nothing else"
    assert (await client.ask_v3(served.add_v3(8, 1, 0))).status is V2Status.OK


async def test_what_is_not_served_is_a_bad_request_and_ends_nothing(served: Served, client: Requester) -> None:
    unknown = bytes.fromhex("0a060803106318 05".replace(" ", ""))
    client.connection.send(len(unknown).to_bytes(4, "big") + unknown)
    assert await client.next_v3() == v3_messages.UnknownResponse(5, 0x63, V2Status.BAD_REQUEST)
    answer = await client.ask_v3(served.add_v3(6, 1, 0, lac=0))
    assert answer == v3_messages.AddResponse(6, V2Status.BAD_REQUEST, 1, 0), "an entry cannot confirm itself"
    assert (await client.ask_v3(served.add_v3(7, 1, 0))).status is V2Status.OK


@pytest.mark.parametrize("damaged", [b"\x0a\x06\x08\x03", b"\x0a\xff\xff\xff\xff", bytes.fromhex("0a06080310021801")])
async def test_messages_that_cannot_be_end_the_connection_and_nothing_else(served: Served, damaged: bytes) -> None:
    client, other = await served.connect(), await served.connect()
    client.connection.send(v3.encode_request(served.add_v3(1, 1, 0)), len(damaged).to_bytes(4, "big") + damaged)
    assert await client.lost is not None
    assert (await other.ask_v3(served.add_v3(2, 1, 1))).status is V2Status.OK
    assert (await other.ask_v3(read(3, 1, 0))).status is V2Status.OK


async def test_too_many_unanswered_requests_are_refused(served: Served, disk: MemoryDisk, client: Requester) -> None:
    await client.ask_v3(served.add_v3(1, 9, 0, payload=bytes(32 * limits.KIB)))  # one read now takes all that follows
    await client.ask_v3(served.add_v3(2, 1, 0))
    disk.hold("sync")
    for entry_id in range(1, 61):
        client.connection.send(v3.encode_request(served.add_v3(entry_id, 1, entry_id)))
    client.connection.send(v3.encode_request(read(99, 1, 0)), v3.encode_request(v3_messages.ForceRequest(98, None, 1)))
    refused = [await client.next_v3() for _ in range(12)]
    assert {one.status for one in refused} == {V2Status.TOO_MANY_REQUESTS}
    disk.release("sync")
    assert {(await client.next_v3()).status for _ in range(50)} == {V2Status.OK}
    assert (await client.ask_v3(read(100, 1, 0))).status is V2Status.OK


async def test_a_failed_journal_ends_connections_without_an_answer(served: Served, disk: MemoryDisk) -> None:
    client = await served.connect()
    await client.ask_v3(served.add_v3(1, 1, 0))
    await prepared(disk, 3)
    disk.fail("sync")
    client.connection.send(
        v3.encode_request(served.add_v3(2, 1, 1)), v3.encode_request(v3_messages.ForceRequest(3, None, 1))
    )
    await client.lost
    assert client.frames.get_nowait() is None
    await served.storage.failed


def written(txn_id: int, ledger_id: int, lac: int, key: bytes) -> v3_messages.WriteLacRequest:
    body = ledger_id.to_bytes(8, "big") + lac.to_bytes(8, "big") + bytes(4)
    return v3_messages.WriteLacRequest(txn_id, None, ledger_id, lac, key, memoryview(body))


async def test_a_written_lac_is_answered_when_durable_and_carried_by_reads(served: Served, disk: MemoryDisk) -> None:
    client = await served.connect()
    for entry_id in range(3):
        await client.ask_v3(served.add_v3(1, 1, entry_id))
    assert (await client.ask_v3(read(2, 1, 0))).lac == 1
    disk.hold("sync")
    client.connection.send(v3.encode_request(written(3, 1, 2, served.world.key)))
    await turns()
    assert client.frames.empty()
    disk.release("sync")
    assert await client.next_v3() == v3_messages.WriteLacResponse(3, V2Status.OK, 1)
    assert (await client.ask_v3(read(4, 1, 0))).lac == 2


async def test_a_written_lac_never_falls_and_needs_the_key(served: Served, client: Requester) -> None:
    await client.ask_v3(served.add_v3(1, 1, 0))
    for lac in (5, 4, 5):
        assert (await client.ask_v3(written(2, 1, lac, served.world.key))).status is V2Status.OK
        answer = await client.ask_v3(v3_messages.ReadLacRequest(3, None, 1))
        assert bytes(answer.lac_body)[:16] == (1).to_bytes(8, "big") + (5).to_bytes(8, "big")
    assert (await client.ask_v3(written(4, 1, 9, served.world.other_key))).status is V2Status.UNAUTHORIZED
    served.storage.set_read_only(True)
    assert (await client.ask_v3(written(5, 1, 9, served.world.key))).status is V2Status.READ_ONLY
    served.storage.set_read_only(False)
    assert bytes((await client.ask_v3(v3_messages.ReadLacRequest(6, None, 1))).lac_body)[15] == 5


async def test_a_ledger_with_nothing_in_it_has_no_lac_to_read(served: Served, client: Requester) -> None:
    await client.ask_v3(read(1, 1, -1, served.world.key))
    assert await client.ask_v3(v3_messages.ReadLacRequest(2, None, 1)) == v3_messages.ReadLacResponse(
        2, V2Status.NO_ENTRY, 1
    )
    assert (await client.ask_v3(written(3, 7, 0, served.world.key))).status is V2Status.OK
    answer = await client.ask_v3(v3_messages.ReadLacRequest(4, None, 7))
    assert (answer.status, answer.last_entry_body, len(answer.lac_body)) == (V2Status.OK, None, 20)


async def test_a_damaged_last_entry_is_an_io_error_of_the_lac(served: Served, disk: MemoryDisk) -> None:
    client = await served.connect()
    await client.ask_v3(served.add_v3(1, 1, 0, payload=b"c" * 50))
    await served.storage.checkpoint()
    served.world.damage(disk, b"c" * 50)
    assert await client.ask_v3(v3_messages.ReadLacRequest(2, None, 1)) == v3_messages.ReadLacResponse(
        2, V2Status.IO_ERROR, 1
    )


@pytest.mark.parametrize("checkpointed", ["no", "before", "after", "twice"])
async def test_written_lacs_survive_a_crash(world: Any, disk: MemoryDisk, checkpointed: str) -> None:
    storage = await world.open(disk)
    await world.put(storage, world.add(1, 0))
    if checkpointed in ("before", "twice"):
        await storage.checkpoint()
    for ledger_id, lac in ((1, 8), (9, 3), (1, 2)):
        body = bytes(written(0, ledger_id, lac, world.key).body)
        assert storage.write_lac(ledger_id, world.key, body) is V2Status.OK
    await storage.journal.flushed()
    if checkpointed in ("after", "twice"):
        await storage.checkpoint()
    again = await world.open(disk.crash(world.seeded(3)))
    assert [again.explicit_lac(ledger_id)[8:16] for ledger_id in (1, 9, 2)] == [
        (8).to_bytes(8, "big"),
        (3).to_bytes(8, "big"),
        b"",
    ]
    assert await world.read(again, 1, 0) == bytes(world.body(1, 0))


def poll(txn_id: int, ledger_id: int, previous_lac: int, timeout_ms: int) -> v3_messages.ReadRequest:
    return v3_messages.ReadRequest(txn_id, None, ledger_id, -1, None, True, previous_lac, timeout_ms)


@pytest.mark.parametrize("waker", ["v2", "v3", "explicit"])
@pytest.mark.parametrize("stored", [False, True])
async def test_a_long_poll_ends_when_the_lac_advances(served: Served, waker: str, stored: bool) -> None:
    client, writer = await served.connect(), await served.connect()
    for entry_id in range(2):
        await writer.ask_v3(served.add_v3(1, 1, entry_id))
    if stored:
        await served.storage.checkpoint()
    client.connection.send(v3.encode_request(poll(7, 1, 0, 600_000)))
    await client.ask_v3(v3_messages.ForceRequest(8, None, 1))
    add = served.add_v3(2, 1, 2)
    if waker == "explicit":
        writer.connection.send(v3.encode_request(written(2, 1, 1, served.world.key)))
    elif waker == "v3":
        writer.connection.send(v3.encode_request(add))
    else:
        writer.connection.send(*v2.encode_add_body([add.body], served.world.key))
    answer = await client.next_v3()
    assert (answer.txn_id, answer.status, answer.entry_id, answer.lac) == (7, V2Status.OK, 1, 1)
    assert answer.lac_time_ms == served.world.clock.now_ms()
    assert bytes(answer.body) == bytes(served.world.body(1, 1))


async def test_a_long_poll_without_the_entry_brings_the_lac(served: Served, client: Requester) -> None:
    await client.ask_v3(served.add_v3(1, 1, 5))
    assert await client.ask_v3(poll(2, 1, 0, 600_000)) == v3_messages.ReadResponse(2, V2Status.OK, 1, -1, None, 4)


@pytest.mark.parametrize("version", [2, 3])
async def test_a_fence_ends_long_polls_and_later_ones_do_not_wait(served: Served, version: int) -> None:
    client, other = await served.connect(), await served.connect()
    await client.ask_v3(served.add_v3(1, 1, 0))
    client.connection.send(v3.encode_request(poll(2, 1, 0, 600_000)))
    await client.ask_v3(v3_messages.ForceRequest(3, None, 1))
    if version == 2:
        other.connection.send(v2.encode_read(1, -1, fence_key=served.world.key))
    else:
        other.connection.send(v3.encode_request(read(4, 1, -1, served.world.key)))
    assert await client.next_v3() == v3_messages.ReadResponse(2, V2Status.OK, 1, -1, None, -1)
    assert (await client.ask_v3(poll(5, 1, 0, 600_000))).txn_id == 5


async def test_a_client_that_leaves_is_not_waited_for(served: Served) -> None:
    client, other = await served.connect(), await served.connect()
    await client.ask_v3(served.add_v3(1, 1, 0))
    client.connection.send(v3.encode_request(poll(2, 1, 0, 600_000)))
    await client.ask_v3(v3_messages.ForceRequest(3, None, 1))
    assert served.requests.watchers
    client.connection.close()
    while served.requests.watchers:
        await asyncio.sleep(0)
    for entry_id in (1, 2):
        assert (await other.ask_v3(served.add_v3(4, 1, entry_id))).status is V2Status.OK
