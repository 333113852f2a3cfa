"""What is asked in v3 over loopback sockets: matching by ids, time-outs, late answers, lost connections, bad frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from tests.bookies import wires
from tests.bookies.wires import B1, KEY, LEDGER, Listener, SocketBookie

from boki_common import limits
from boki_common.bookkeeper import availability, v2, v3, v3_messages
from boki_common.bookkeeper.digests import CRC32C
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import CallTimeout, ConnectionLost, Overloaded, ProtocolError, Unreachable
from boki_common.net.connection import FrameConnection
from boki_common.runtime.ports import Buffer
from boki_ledger.bookies import v3_link
from boki_ledger.rules.lac_body import encode_lac
from boki_ledger.settings import WIRE_V3
from boki_ledger.testing.ledgers import turns, until


class Bookie(SocketBookie[v3.Request]):
    """It speaks v3. It leaves `ignored` operations unanswered, and sends what `change` makes of an answer."""

    ignored: type[v3.Request] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.change: Callable[[v3.Response], v3.Response | bytes] = lambda response: response

    def decode(self, frame: memoryview) -> v3.Request:
        return v3.decode_request(frame)

    def answer(self, connection: FrameConnection, request: v3.Request) -> None:
        if self.ignored is not None and isinstance(request, self.ignored):
            return
        txn_id = request.txn_id

        def send(response: v3.Response) -> None:
            changed = self.change(response)
            connection.send(changed if isinstance(changed, bytes) else v3.encode_response(changed))

        state = self.state
        if isinstance(request, v3_messages.AddRequest):
            flags = v2.FLAG_RECOVERY_ADD if request.recovery else 0
            add = v2.AddRequest(flags, request.master_key, request.ledger_id, request.entry_id, -1, request.body)
            status = state.add(add, deferred_sync=request.deferred_sync)
            send(v3_messages.AddResponse(txn_id, status, request.ledger_id, request.entry_id))
        elif isinstance(request, v3_messages.ReadRequest) and request.waits:
            ledger_id, entry_id = request.ledger_id, request.entry_id
            state.poll(
                ledger_id,
                request.previous_lac,
                lambda one: send(
                    v3_messages.ReadResponse(txn_id, one.status or V2Status.OK, ledger_id, entry_id, one.body, one.lac)
                ),
            )
        elif isinstance(request, v3_messages.ReadRequest):
            status, body = state.read(request.ledger_id, request.entry_id, request.master_key)
            send(v3_messages.ReadResponse(txn_id, status, request.ledger_id, request.entry_id, body))
        elif isinstance(request, v3_messages.WriteLacRequest):
            status = state.write_lac(request.ledger_id, request.master_key, bytes(request.body))
            send(v3_messages.WriteLacResponse(txn_id, status, request.ledger_id))
        elif isinstance(request, v3_messages.ReadLacRequest):
            found = state.read_lac(request.ledger_id)
            assert found.status is not None
            send(v3_messages.ReadLacResponse(txn_id, found.status, request.ledger_id, found.explicit, found.last_entry))
        elif isinstance(request, v3_messages.ForceRequest):
            send(v3_messages.ForceResponse(txn_id, state.force(request.ledger_id), request.ledger_id))
        elif isinstance(request, v3_messages.ListEntriesRequest):
            listed = availability.encode(sorted(state.entries.get(request.ledger_id, {})))
            send(v3_messages.ListEntriesResponse(txn_id, V2Status.OK, request.ledger_id, listed))
        else:
            send(v3_messages.UnknownResponse(txn_id, v3.OP_BOOKIE_INFO, V2Status.BAD_REQUEST))


def add(entry_id: int, *, recovery: bool = False) -> list[Buffer]:
    return v2.encode_add(v2.EntryHeader(LEDGER, entry_id, -1, 1), CRC32C, KEY, [b"x"], recovery=recovery)


Wire = wires.Wire[Bookie]


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    async with Wire(Bookie(), wire_protocol=WIRE_V3).running() as made:
        yield made


@pytest.fixture
async def short_timeout() -> AsyncIterator[Wire]:
    """As `wire`, with a time-out of 40 ms."""
    async with Wire(Bookie(), answer_timeout_s=0.04, wire_protocol=WIRE_V3).running() as made:
        yield made


async def test_every_operation_is_answered_and_all_share_one_connection(wire: Wire) -> None:
    network = wire.network
    listener = Listener()
    channel = network.open_channel(B1, LEDGER, listener)
    await until(lambda: channel.up)
    for entry_id in range(3):
        channel.send(add(entry_id))
    await until(lambda: sum(count for _, count in listener.acked) == 3)
    assert (await network.read(B1, LEDGER, 1)).status is V2Status.OK
    assert (await network.read(B1, LEDGER, 9)).status is V2Status.NO_ENTRY
    assert (await network.read(B1, 99, 0)).status is V2Status.NO_LEDGER
    body = encode_lac(LEDGER, 2, CRC32C)
    assert (await network.write_lac(B1, LEDGER, KEY, body)).status is V2Status.OK
    answer = await network.read_lac(B1, LEDGER)
    assert bytes(answer.explicit or b"") == body and answer.last_entry is not None
    assert (await network.force(B1, LEDGER)).status is V2Status.OK
    listed = await network.list_entries(B1, LEDGER)
    assert list(availability.decode(listed.availability or b"")) == [range(3)]
    polled = await network.wait_for_lac(B1, LEDGER, 0, wait_s=1.0)
    assert (polled.status, polled.lac) == (V2Status.OK, 2) and polled.body is not None
    assert (await network.bookie_info(B1)).status is V2Status.BAD_REQUEST, "as one that does not serve it answers"
    assert not network.serves_batches(B1) and network.seems_up(B1)
    assert len(wire.bookie.connections) == 1


async def test_recovery_adds_and_fencing_reads_have_high_priority_deferred_adds_a_flag(wire: Wire) -> None:
    plain, deferred = Listener(), Listener()
    channel = wire.network.open_channel(B1, LEDGER, plain)
    late = wire.network.open_channel(B1, LEDGER, deferred, deferred_sync=True)
    await until(lambda: channel.up)
    channel.send(add(0))
    channel.send(add(1, recovery=True))
    late.send(add(2))
    await wire.network.read(B1, LEDGER, -1, fence_key=KEY)
    await until(lambda: bool(deferred.acked))
    assert plain.acked == [(0, 2)] and deferred.acked == [(2, 1)], "each channel of the ledger hears its own"
    adds = [one for one in wire.bookie.requests if isinstance(one, v3_messages.AddRequest)]
    assert [(one.recovery, one.deferred_sync, one.priority) for one in adds] == [
        (False, False, None),
        (True, False, v3_link.HIGH_PRIORITY),
        (False, True, None),
    ]
    fence = wire.bookie.requests[-1]
    assert isinstance(fence, v3_messages.ReadRequest)
    assert (fence.master_key, fence.priority) == (KEY, v3_link.HIGH_PRIORITY)
    channel.send(add(3))
    await until(lambda: bool(plain.refused))
    assert plain.refused == [(3, V2Status.FENCED)]


async def test_answers_in_any_order_reach_their_requests(wire: Wire) -> None:
    wire.bookie.state.entries[LEDGER] = {number: b"body %d" % number for number in range(4)}
    wire.bookie.mute = True
    asked = [wire.network.read(B1, LEDGER, number) for number in (0, 1, 1, 3)]
    fencing = wire.network.read(B1, LEDGER, 1, fence_key=KEY)
    await until(lambda: len(wire.bookie.waiting) == 5)
    asked[1].cancel()
    wire.bookie.waiting.reverse()
    wire.bookie.speak()
    assert [bytes((await one).body or b"") for one in (asked[0], asked[2], asked[3], fencing)] == [
        b"body 0",
        b"body 1",
        b"body 3",
        b"body 1",
    ]


async def test_what_is_unanswered_is_unknown_in_time_and_its_late_answer_is_dropped(wire: Wire) -> None:
    """As Apache's bookies on DbLedgerStorage leave lists of entries; the others on the connection are not disturbed.

    The test lets the time-out pass: no real time of the other requests runs out.
    """
    bookie, network, timeout_s = wire.bookie, wire.network, wire.settings.answer_timeout_s
    bookie.ignored = v3_messages.ListEntriesRequest
    before = asyncio.get_running_loop().time()
    listing = network.list_entries(B1, LEDGER)
    assert (await network.force(B1, LEDGER)).status is V2Status.OK
    (request,) = [one for one in bookie.requests if isinstance(one, v3_messages.ListEntriesRequest)]
    link = network._v3_links[B1]
    timer = link._calls[request.txn_id].timer
    assert timer is not None and timer.when() >= before + timeout_s - 0.01  # a loop may count milliseconds
    link._time_is_over(request.txn_id, timeout_s)
    answer = await listing
    assert answer.status is None and isinstance(answer.error, CallTimeout)
    assert timer.cancelled() and len(bookie.connections) == 1
    bookie.ignored = None
    bookie.answer(bookie.connections[0], request)
    assert (await network.force(B1, LEDGER)).status is V2Status.OK
    assert len(bookie.connections) == 1


async def test_a_bookie_that_answers_nothing_is_dropped_but_not_for_a_poll_that_waits(short_timeout: Wire) -> None:
    short_timeout.bookie.state.entries[LEDGER] = {}
    poll = short_timeout.network.wait_for_lac(B1, LEDGER, 5, wait_s=30.0)
    await until(lambda: bool(short_timeout.bookie.requests))
    await asyncio.wait([poll], timeout=0.1)
    assert not poll.done(), "waiting is what it is asked for"
    short_timeout.bookie.mute = True
    read = await short_timeout.network.read(B1, LEDGER, 0)
    assert read.status is None and isinstance(read.error, CallTimeout)
    answer = await poll
    assert answer.status is None and answer.error is not None


async def test_a_poll_without_an_answer_in_time_drops_a_silent_connection(short_timeout: Wire) -> None:
    short_timeout.bookie.mute = True
    answer = await short_timeout.network.wait_for_lac(B1, LEDGER, 5, wait_s=0.01)
    assert answer.status is None and isinstance(answer.error, CallTimeout)
    short_timeout.bookie.mute = False
    await until(lambda: short_timeout.bookie.connections[0].closed)


async def test_a_lost_connection_makes_everything_unknown_and_is_made_again(wire: Wire) -> None:
    channel, listener = await wire.channel()
    wire.bookie.mute = True
    channel.send(add(0))
    force, poll = wire.network.force(B1, LEDGER), wire.network.wait_for_lac(B1, LEDGER, 0, wait_s=9.0)
    await until(lambda: len(wire.bookie.waiting) == 3)
    wire.bookie.waiting.clear()
    wire.bookie.mute = False
    wire.bookie.connections[0].close()
    assert (await force).status is None and (await poll).status is None
    assert listener.acked == [] and [type(one) for one in listener.downs] == [ConnectionLost]
    await until(lambda: listener.ups == 2)
    channel.send(add(0))
    await until(lambda: listener.acked == [(0, 1)])


async def test_a_bookie_that_cannot_be_reached_is_unknown_at_once(wire: Wire) -> None:
    await wire.bookie.server.close()
    answer = await wire.network.force(B1, LEDGER)
    assert answer.status is None and isinstance(answer.error, Unreachable)
    assert not wire.network.seems_up(B1)


@pytest.mark.parametrize(
    "change",
    [
        lambda response: response._replace(txn_id=response.txn_id + 1),
        lambda response: response._replace(ledger_id=LEDGER + 1),
        lambda response: v3_messages.WriteLacResponse(response.txn_id, V2Status.OK, LEDGER),
        lambda response: b"\0\0\0\4junk",
    ],
    ids=["id", "ledger", "operation", "bytes"],
)
async def test_an_answer_to_something_else_ends_the_connection(
    wire: Wire, change: Callable[[v3.Response], v3.Response | bytes]
) -> None:
    wire.bookie.change = change
    answer = await wire.network.force(B1, LEDGER)
    assert answer.status is None and isinstance(answer.error, ProtocolError)


async def test_an_add_answered_with_another_entry_ends_the_connection(wire: Wire) -> None:
    wire.bookie.change = lambda response: v3_messages.AddResponse(response.txn_id, V2Status.OK, LEDGER, 5)
    channel, listener = await wire.channel()
    channel.send(add(0))
    await until(lambda: bool(listener.downs))
    assert isinstance(listener.downs[0], ProtocolError) and listener.acked == []


async def test_a_read_answered_without_a_body_ends_the_connection(wire: Wire) -> None:
    wire.bookie.change = lambda response: v3_messages.ReadResponse(
        response.txn_id, V2Status.OK, LEDGER, v2.LAST_ENTRY, None
    )
    answer = await wire.network.read(B1, LEDGER, v2.LAST_ENTRY)
    assert answer.status is None and isinstance(answer.error, ProtocolError)


async def test_requests_are_bounded(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECTION_CALLS", 3)
    wire.bookie.mute = True
    asked = [wire.network.force(B1, LEDGER) for _ in range(4)]
    last = await asked[3]
    assert last.status is None and isinstance(last.error, Overloaded)
    await until(lambda: len(wire.bookie.waiting) == 3)
    wire.bookie.speak()
    assert [(await one).status for one in asked[:3]] == [V2Status.OK] * 3


async def test_answers_that_never_come_are_bounded(short_timeout: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LEDGER_LATE_ANSWERS", 2)
    short_timeout.bookie.ignored = v3_messages.ListEntriesRequest
    listings = [short_timeout.network.list_entries(B1, LEDGER) for _ in range(3)]
    while not all(one.done() for one in listings):
        await short_timeout.network.force(B1, LEDGER)
        await asyncio.wait(listings, timeout=0.005)
    await until(lambda: short_timeout.bookie.connections[0].closed)


async def test_a_closed_network_leaves_nothing_unanswered(wire: Wire) -> None:
    wire.bookie.mute = True
    asked = wire.network.force(B1, LEDGER)
    await turns()
    await wire.network.close()
    assert isinstance((await asked).error, ConnectionLost)
