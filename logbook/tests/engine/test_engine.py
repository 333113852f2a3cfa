"""The engine process on real sockets: real sequencer and ledger client, bookies and metadata store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from boki_common.engine import engine_protocol as wire
from boki_common.engine.answers import AnswerRow, decode_answers
from boki_common.engine.engine_protocol import Verdict
from boki_common.engine.read_reply import decode_read_reply
from boki_common.errors import BokiError, SettingsError
from boki_common.metadata.membership import members
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer, connect_messages
from boki_common.testing.machine import ManualClock
from boki_logbook.engine import Engine
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.cluster import RunSpec, data_of, make_batch, plain_records, query
from boki_logbook.testing.engines import ANYWHERE, EngineCluster

ALICE = bytes(15) + b"a"
SETTINGS = EngineSettings(retry_first_s=0.005, retry_limit_s=0.01)
NO_TOKEN = wire.encode_token({})


class Sdk:
    """A client that keeps its verdicts."""

    def __init__(self) -> None:
        self.peer: MessagePeer
        self.rows: list[AnswerRow] = []
        self.pushed = asyncio.Event()

    @classmethod
    async def connect(cls, address: Address) -> Sdk:
        made = cls()
        made.peer = await connect_messages(address, made)
        await made.peer.call(wire.OP_HELLO, msgspec.msgpack.encode({"versions": [1]}))
        return made

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        self.rows.extend(decode_answers(body)[1])
        self.pushed.set()

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        self.pushed.set()

    async def append(self, *runs: RunSpec) -> list[AnswerRow]:
        self.rows.clear()
        self.peer.push(wire.OP_APPEND, NO_TOKEN, make_batch(*runs)._view)
        while sum(row.count for row in self.rows) < sum(len(run.records) for run in runs):
            self.pushed.clear()
            await self.pushed.wait()
        return self.rows

    async def read(self) -> list[bytes]:
        body = await self.peer.call(wire.OP_READ, *wire.encode_read({}, query()), timeout_s=30.0)
        return data_of(decode_read_reply(body))


class Cluster(EngineCluster):
    """Everything but the engines' SDKs, in one process."""

    async def engine(self, *addresses: Address) -> Engine:
        return await self.make_engine(SETTINGS, addresses=addresses or (ANYWHERE,))


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    await made.ledgers.start()
    yield made
    await made.close()


async def test_append_and_read_through_real_parts(cluster: Cluster) -> None:
    await cluster.start_sequencer()
    engine = await cluster.engine()
    await engine.ready()
    sdk = await Sdk.connect(engine.addresses[0])
    (row,) = await sdk.append(RunSpec(1, ALICE, 1, plain_records("x", "y", tags=(5,))))
    assert (row.verdict, row.count) == (Verdict.COMMITTED, 2)
    assert await sdk.read() == [b"x", b"y"]
    status = engine.status()
    assert status["addresses"] == [str(engine.addresses[0])]
    assert (status["connections"], status["records"], status["lag_entries"]) == (1, 2, 0)


async def test_it_lists_itself_and_takes_itself_off(cluster: Cluster) -> None:
    engine = await cluster.engine()
    listed = await members(cluster.ledgers.store, "engine")
    assert listed == {engine.incarnation: {"addresses": [str(engine.addresses[0])], "index_slots": "all"}}
    await engine.close()
    assert await members(cluster.ledgers.store, "engine") == {}


async def test_several_addresses(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = str(tmp_path_factory.mktemp("engine") / "engine.sock")
    await cluster.start_sequencer()
    engine = await cluster.engine(ANYWHERE, Address("", 0, path))
    for address in engine.addresses:
        sdk = await Sdk.connect(address)
        assert await sdk.read() == []
        sdk.peer.close()


async def test_a_port_in_use_is_refused_and_nothing_stays_behind(cluster: Cluster) -> None:
    engine = await cluster.engine()
    with pytest.raises(SettingsError, match="another process listens there"):
        await cluster.engine(ANYWHERE, engine.addresses[0])
    assert list(await members(cluster.ledgers.store, "engine")) == [engine.incarnation]


async def test_a_new_engine_rebuilds_from_the_ledgers(cluster: Cluster) -> None:
    await cluster.start_sequencer()
    first = await cluster.engine()
    sdk = await Sdk.connect(first.addresses[0])
    for number in range(1, 21):
        await sdk.append(RunSpec(1, ALICE, number, plain_records(str(number))))
    await first.close()
    second = await cluster.engine()
    again = await Sdk.connect(second.addresses[0])
    assert await again.read() == [str(number).encode() for number in range(1, 21)]
    (row,) = await again.append(RunSpec(1, ALICE, 20, plain_records("20")))
    assert (row.verdict, row.first) == (Verdict.COMMITTED, 20)
    assert len(await again.read()) == 20


async def test_two_engines_serve_one_book(cluster: Cluster) -> None:
    await cluster.start_sequencer()
    one, two = await cluster.engine(), await cluster.engine()
    a, b = await Sdk.connect(one.addresses[0]), await Sdk.connect(two.addresses[0])
    (first,) = await a.append(RunSpec(1, ALICE, 1, plain_records("x")))
    (second,) = await b.append(RunSpec(1, ALICE, 2, plain_records("y")))
    assert second.first_seqnum > first.first_seqnum
    assert await b.read() == [b"x", b"y"]


async def test_appends_go_on_in_the_next_term(cluster: Cluster) -> None:
    sequencer = await cluster.start_sequencer()
    engine = await cluster.engine()
    sdk = await Sdk.connect(engine.addresses[0])
    await sdk.append(RunSpec(1, ALICE, 1, plain_records("x")))
    await sequencer.close()
    waiting = asyncio.ensure_future(sdk.append(RunSpec(1, ALICE, 2, plain_records("y"))))
    await cluster.start_sequencer()
    (row,) = await waiting
    assert row.first_seqnum >> 35 == 2
    assert await sdk.read() == [b"x", b"y"]
    assert not engine.failed.done()


async def test_reads_wait_for_a_sequencer_after_the_start(cluster: Cluster) -> None:
    engine = await cluster.engine()
    sdk = await Sdk.connect(engine.addresses[0])
    reading = asyncio.ensure_future(sdk.read())
    status = msgspec.json.decode(await sdk.peer.call(wire.OP_STATUS))
    assert status["ready"] is False
    assert not reading.done()
    await cluster.start_sequencer()
    assert await reading == []


async def test_what_ends_the_engine_is_reported(cluster: Cluster) -> None:
    engine = await cluster.engine()
    engine.core.fail(ValueError("for a test"))
    with pytest.raises(ValueError, match="for a test"):
        await engine.ready()
    with pytest.raises(ValueError, match="for a test"):
        await engine.failed


async def test_an_engine_that_was_stopped_for_long_ends_its_connections_unread(
    cluster: Cluster,
) -> None:
    await cluster.start_sequencer()
    clock = ManualClock(now_s=0.0)
    engine = await cluster.make_engine(SETTINGS, clock=clock)
    one, other = [await Sdk.connect(engine.addresses[0]) for _ in range(2)]
    await one.append(RunSpec(1, ALICE, 1, plain_records("a")))
    clock.now_s = 0.6 * SETTINGS.append_age_s
    one.peer.push(wire.OP_APPEND, NO_TOKEN, make_batch(RunSpec(1, ALICE, 2, plain_records("b")))._view)
    for sdk in (one, other):
        while not sdk.peer.closed:
            sdk.pushed.clear()
            await sdk.pushed.wait()
    assert engine.status()["connections"] == 0
    again = await Sdk.connect(engine.addresses[0])
    assert await again.read() == [b"a"]
    await again.append(RunSpec(1, ALICE, 2, plain_records("b")))
    assert await again.read() == [b"a", b"b"]


async def test_closing_twice_is_fine(cluster: Cluster) -> None:
    engine = await cluster.engine()
    await engine.close()
    await engine.close()
