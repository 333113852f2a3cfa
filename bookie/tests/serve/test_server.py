"""The v2 protocol over a real connection: recorded frames of Apache BookKeeper, faults on the wire, batching, bounds."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from tests.serve.requester import Recorded, Requester, Served, serving
from tests.turns import prepared, turns

from boki_common import limits
from boki_common.bookkeeper import auth
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v2 import (
    ReadResponse,
    decode_auth,
    encode_add_body,
    encode_auth,
    encode_batch_read,
    encode_hold,
    encode_read,
)
from boki_common.runtime.memory_disk import MemoryDisk

RECORDED: Final = (
    "add-crc32c", "add-crc32", "add-hmac", "add-dummy", "add-empty", "read-crc32c", "read-crc32", "read-hmac",
    "read-dummy", "read-last", "read-no-entry", "read-no-ledger", "fence-read-wrong-key", "add-wrong-key", "fence-read",
    "fence-read-entry", "fence-read-unknown-ledger", "add-fenced", "recovery-add", "add-again", "batch-setup",
    "batch-read-0", "batch-read-1", "batch-read-2", "batch-read-3", "batch-read-4", "batch-read-5", "batch-read-fence",
    "batch-read-no-ledger",
)  # fmt: skip


@pytest.fixture(params=["disk", "cache"])
async def served(world: Any, disk: MemoryDisk, request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """Twice: what is stored has to be read from the disk, and the system has all of it in memory."""
    disk.cached = request.param == "cache"
    async with serving(await world.open(disk), world, disk, bookie_id="b1") as made:
        yield made


@pytest.mark.parametrize("stored", [False, True])
async def test_recorded_requests_get_the_recorded_responses(served: Served, recorded: Recorded, stored: bool) -> None:
    """In the order in which Apache's client sent them to Apache's bookie; once from memory, once from the entry log."""
    client = await served.connect()
    for name in RECORDED:
        await client.replay(recorded(f"v2-{name}"), name)
        if stored:
            await served.storage.checkpoint()


async def test_recorded_life_of_a_ledger(client: Requester, recorded: Recorded) -> None:
    """A full client: adds, fencing read, recovery reads and adds, the old writer that learns of it, reads."""
    for name in ("1-write", "2-open-no-recovery", "3-recover", "4-fenced-append", "5-read"):
        await client.replay(recorded(f"trace-v2-{name}"), name)


async def test_acks_of_one_batch_leave_together(served: Served, client: Requester) -> None:
    assert (await client.ask(*served.add(1, 0))).status is V2Status.OK
    before = served.storage.journal.groups_written
    for entry in range(1, 41):
        client.connection.send(*served.add(1, entry))
    answers = [await client.next() for _ in range(40)]
    assert [(one.status, one.entry_id) for one in answers] == [(V2Status.OK, entry) for entry in range(1, 41)]
    assert served.storage.journal.groups_written - before <= 2
    assert len(client.batches) <= 3


async def test_a_fencing_read_is_answered_only_when_the_fence_is_durable(served: Served, disk: MemoryDisk) -> None:
    client = await served.connect()
    await client.ask(*served.add(1, 0))
    for ledger_id, status in ((1, V2Status.OK), (9, V2Status.NO_ENTRY)):
        disk.hold("sync")
        for entry_id in (-1, 0):
            client.connection.send(encode_read(ledger_id, entry_id, fence_key=served.world.key))
        client.connection.send(encode_read(1, 0))
        assert (await client.next()).entry_id == 0, "a plain read does not wait"
        await turns(50)
        assert client.frames.empty()
        disk.release("sync")
        answers = [await client.next() for _ in range(2)]
        assert {(one.ledger_id, one.entry_id, one.status) for one in answers} == {
            (ledger_id, entry_id, status) for entry_id in (-1, 0)
        }


async def test_a_hold_is_answered_only_when_it_is_durable(served: Served, disk: MemoryDisk) -> None:
    client = await served.connect()
    disk.hold("sync")
    for _ in range(2):  # the second one is there already, and on its way
        client.connection.send(encode_hold(9, served.world.key, 3))
    client.connection.send(encode_read(1, 0))
    assert (await client.next()).status is V2Status.NO_LEDGER, "a plain read does not wait"
    await turns(50)
    assert client.frames.empty()
    disk.release("sync")
    assert [await client.next() for _ in range(2)] == [(V2Status.OK, 9, 3)] * 2
    assert await client.ask(encode_hold(9, served.world.key, 2)) == (V2Status.OK, 9, 2)


@pytest.mark.parametrize(
    ("ledger_id", "version", "key", "status"),
    [
        (-1, 3, True, V2Status.BAD_REQUEST),
        (1, -1, True, V2Status.BAD_REQUEST),
        (1, 2**32, True, V2Status.BAD_REQUEST),
        (1, 3, False, V2Status.UNAUTHORIZED),
        (1, 3, True, V2Status.OK),
    ],
)
async def test_holds_that_cannot_be_are_refused(
    served: Served, ledger_id: int, version: int, key: bool, status: V2Status
) -> None:
    client = await served.connect()
    await client.ask(*served.add(1, 0))
    master_key = served.world.key if key else served.world.other_key
    assert (await client.ask(encode_hold(ledger_id, master_key, version))).status is status
    ledger = served.storage.ledger(1)
    assert ledger is not None
    assert ledger.hold == (3 if status is V2Status.OK else -1)


async def test_many_reads_at_once_get_the_answers_of_each(served: Served, client: Requester) -> None:
    """Of several ledgers, stored, cached and absent, between other requests."""
    for ledger_id in (1, 2):
        for entry_id in range(6):
            await client.ask(*served.add(ledger_id, entry_id, b"%d/%d" % (ledger_id, entry_id)))
        if ledger_id == 1:
            await served.storage.checkpoint()
    reads = [(ledger_id, entry_id) for ledger_id in (1, 2, 3) for entry_id in range(-2, 9)]
    alone = {read: await client.ask(encode_read(*read)) for read in reads}
    rng = random.Random(4)
    for _ in range(20):
        asked = rng.sample(reads, 20)
        requests = [encode_read(*read, high_priority=rng.random() < 0.3) for read in asked]
        requests.insert(rng.randrange(20), encode_read(1, 0, fence_key=served.world.key))
        requests.insert(rng.randrange(20), encode_batch_read(2, 1, request_id=5, max_count=3, max_bytes=10_000))
        client.connection.send(*requests)
        answers = [await client.next() for _ in range(22)]
        found = [one for one in answers if isinstance(one, ReadResponse)]
        expected = [alone[read] for read in asked] + [alone[1, 0]]
        assert sorted(map(repr_of, found)) == sorted(map(repr_of, expected))


def repr_of(answer: ReadResponse) -> tuple[int, int, str, bytes]:
    return answer.ledger_id, answer.entry_id, answer.status.name, bytes(answer.body or b"")


async def test_reads_beyond_what_may_be_unanswered_are_refused_one_by_one(served: Served, disk: MemoryDisk) -> None:
    client = await served.connect()
    await client.ask(*served.add(1, 0))
    disk.hold("sync")
    client.connection.send(*served.add(1, 1))
    client.connection.send(*(encode_read(1, 0) for _ in range(60)))
    answers = [await client.next() for _ in range(60)]
    assert [one.status for one in answers].count(V2Status.TOO_MANY_REQUESTS) == 11, "of 50 one is the add"
    disk.release("sync")
    assert (await client.ask(encode_read(1, 0))).status is V2Status.OK


async def test_a_fencing_read_waits_for_the_entry_it_finds(served: Served, disk: MemoryDisk, client: Requester) -> None:
    await client.ask(encode_read(1, -1, fence_key=served.world.key))
    disk.hold("sync")
    client.connection.send(*served.add(1, 0, recovery=True))
    client.connection.send(encode_read(1, 0, fence_key=served.world.key))
    await turns(50)
    assert client.frames.empty()
    disk.release("sync")
    first, second = [await client.next() for _ in range(2)]
    assert first.status is second.status is V2Status.OK


async def test_a_damaged_entry_is_io_error_and_a_batch_ends_before_it(served: Served, disk: MemoryDisk) -> None:
    client = await served.connect()
    for entry, letter in enumerate(b"abc"):
        await client.ask(*served.add(1, entry, bytes([letter]) * 50))
    await served.storage.checkpoint()
    served.world.damage(disk, b"b" * 50)
    assert (await client.ask(encode_read(1, 1))).status is V2Status.IO_ERROR
    assert (await client.ask(encode_read(1, 2))).status is V2Status.OK
    batch = await client.ask(encode_batch_read(1, 0, request_id=5, max_count=3, max_bytes=10_000))
    assert (batch.status, len(batch.bodies)) == (V2Status.OK, 1)
    assert (await client.ask(encode_batch_read(1, 1, request_id=5, max_count=3, max_bytes=10_000))).status is (
        V2Status.IO_ERROR
    )


async def test_many_stored_entries_come_back_to_a_pipelining_client(served: Served, client: Requester) -> None:
    for entry in range(40):
        await client.ask(*served.add(1, entry, bytes([entry]) * 300))
    await served.storage.checkpoint()
    for entry in range(40):
        client.connection.send(encode_read(1, entry))
    found = {}
    for _ in range(40):
        answer = await client.next()
        assert isinstance(answer, ReadResponse) and answer.body is not None
        found[answer.entry_id] = bytes(answer.body)
    assert found == {entry: bytes(served.world.body(1, entry, bytes([entry]) * 300)) for entry in range(40)}


@pytest.mark.parametrize("opcode", [1, 2, 7])
async def test_another_version_is_refused_under_its_own_version_and_numbers(served: Served, opcode: int) -> None:
    client = await served.connect()
    numbers = b"".join(number.to_bytes(8, "big") for number in (11, 12, 13))
    frame = bytes((3, opcode, 0, 0)) + (bytes(20) if opcode == 1 else b"") + numbers + bytes(30)
    client.connection.send(len(frame).to_bytes(4, "big") + frame)
    expected = bytes((3, opcode, 0, 0)) + (103).to_bytes(4, "big") + numbers[: 24 if opcode == 7 else 16]
    assert (await client.frames.get()).hex() == expected.hex()
    assert (await client.ask(*served.add(1, 0))).status is V2Status.OK


async def test_a_client_that_begins_with_a_handshake_is_answered_that_there_is_none(served: Served) -> None:
    """As Apache's bookie does by default, whatever the client's plugin is."""
    client = await served.connect()
    for message in (auth.NO_AUTHENTICATION, auth.AuthMessage("sasl", b"token")):
        client.connection.send(encode_auth(message))
        assert (await client.frames.get()).hex() == "02030000" + "0a12" + b"AuthDisabledPlugin".hex() + "1200"
    assert (await client.ask(*served.add(1, 0))).status is V2Status.OK


async def test_who_asks_for_a_bookie_is_answered_with_the_id_of_this_one(served: Served, client: Requester) -> None:
    """Not whether it is the one that is meant: that is the client's to say."""
    for meant in ("b1", "another"):
        client.connection.send(encode_auth(auth.greeting(meant)))
        assert decode_auth(memoryview(await client.frames.get())) == auth.greeting("b1")
    assert (await client.ask(*served.add(1, 0))).status is V2Status.OK


@pytest.mark.parametrize(
    "frame",
    [
        b"\x02",
        b"\x02\x09\0\0",
        b"\x03\x09\0\0",
        b"\x03\x01\0\0",
        b"\x02\x03\0\0\xff",
        b"\x02\x01\0\0" + bytes(30),
        b"\x02\x02\0\0" + bytes(17),
        b"\x02\x02\0\x01" + bytes(16),
    ],
)
async def test_impossible_lengths_and_opcodes_end_the_connection_and_nothing_else(served: Served, frame: bytes) -> None:
    client = await served.connect()
    other = await served.connect()
    client.connection.send(*served.add(1, 0), len(frame).to_bytes(4, "big") + frame)
    assert await client.lost is not None
    assert (await other.ask(*served.add(1, 1))).status is V2Status.OK
    assert (await other.ask(encode_read(1, 0))).status is V2Status.OK


@pytest.mark.parametrize(
    ("ledger_id", "entry_id", "lac", "length"),
    [(-1, 0, -1, 0), (1, -1, -2, 0), (1, 5, 5, 0), (1, 5, -2, 0), (1, 5, 4, -1)],
)
async def test_headers_that_cannot_be_are_bad_requests(
    served: Served, client: Requester, ledger_id: int, entry_id: int, lac: int, length: int
) -> None:
    body = b"".join(number.to_bytes(8, "big", signed=True) for number in (ledger_id, entry_id, lac, length)) + bytes(8)
    answer = await client.ask(*encode_add_body([body], served.world.key))
    assert (answer.status, answer.ledger_id, answer.entry_id) == (V2Status.BAD_REQUEST, ledger_id, entry_id)


async def test_an_entry_larger_than_a_segment_is_a_bad_request(served: Served, client: Requester) -> None:
    assert (await client.ask(*served.add(1, 0, bytes(20_000)))).status is V2Status.BAD_REQUEST
    assert (await client.ask(*served.add(1, 0, bytes(10_000)))).status is V2Status.OK


async def test_reads_of_impossible_entries_are_bad_requests(served: Served, client: Requester) -> None:
    await client.ask(*served.add(1, 0))
    assert (await client.ask(encode_read(1, -5))).status is V2Status.BAD_REQUEST
    answer = await client.ask(encode_batch_read(1, -1, request_id=1, max_count=1, max_bytes=100))
    assert answer.status is V2Status.BAD_REQUEST


async def test_too_many_unanswered_requests_are_refused(served: Served, disk: MemoryDisk, client: Requester) -> None:
    await client.ask(*served.add(9, 0, bytes(32 * limits.KIB)))  # one read now takes all that follows
    await client.ask(*served.add(1, 0))
    disk.hold("sync")
    for entry in range(1, 61):
        client.connection.send(*served.add(1, entry))
    client.connection.send(encode_read(1, 0))
    refused = [await client.next() for _ in range(11)]
    assert {one.status for one in refused} == {V2Status.TOO_MANY_REQUESTS}
    disk.release("sync")
    accepted = [await client.next() for _ in range(50)]
    assert {one.status for one in accepted} == {V2Status.OK}
    assert (await client.ask(encode_read(1, 0))).status is V2Status.OK


async def test_a_failed_journal_ends_connections_without_an_answer(served: Served, disk: MemoryDisk) -> None:
    client = await served.connect()
    await client.ask(*served.add(1, 0))
    await prepared(disk, 3)
    disk.fail("sync")
    client.connection.send(*served.add(1, 1))
    await client.lost
    assert client.frames.get_nowait() is None
    await served.storage.failed


async def test_answers_to_a_client_that_left_go_nowhere(served: Served, disk: MemoryDisk, client: Requester) -> None:
    await client.ask(*served.add(1, 0))
    disk.hold("sync")
    client.connection.send(*served.add(1, 1), encode_read(1, 0, fence_key=served.world.key), encode_read(1, 0))
    await client.frames.get()
    client.connection.close()
    await client.lost
    disk.release("sync")
    other = await served.connect()
    assert (await other.ask(encode_read(1, 1))).status is V2Status.OK
    assert (await other.ask(*served.add(1, 2))).status is V2Status.FENCED


@pytest.mark.parametrize("seed", range(20))
async def test_adds_get_the_same_answers_in_one_batch_and_one_by_one(served: Served, seed: int) -> None:
    """Runs are only a faster way: repeats, contradictions, gaps, steps back, several ledgers, keys and a fence."""
    rng = random.Random(seed)
    rows = [(rng.choice((1, 1, 1, 2)), rng.randrange(12), rng.choice((b"x", b"x", b"other"))) for _ in range(40)]
    rows.sort(key=lambda row: rng.random() * 6 + row[1])
    fenced = rng.random() < 0.3
    answers = []
    for together in (True, False):
        base = 10 if together else 20
        client = await served.connect()
        for ledger in (1, 2):
            assert (await client.ask(*served.add(base + ledger, 0, b"x"))).status is V2Status.OK
        if fenced:
            await client.ask(encode_read(base + 2, -1, fence_key=served.world.key))
        by_entry: dict[tuple[int, int], list[V2Status]] = {}
        frames = [
            served.add(base + ledger, entry, payload, recovery=payload == b"other") for ledger, entry, payload in rows
        ]
        if together:
            client.connection.send(*[buffer for frame in frames for buffer in frame])
            found = [await client.next() for _ in rows]
        else:
            found = [await client.ask(*frame) for frame in frames]
        for one in found:
            by_entry.setdefault((one.ledger_id - base, one.entry_id), []).append(one.status)
        ids = [served.storage.entry_ids(base + ledger) for ledger in (1, 2)]
        answers.append(({key: sorted(statuses) for key, statuses in by_entry.items()}, ids))
    assert answers[0] == answers[1]
