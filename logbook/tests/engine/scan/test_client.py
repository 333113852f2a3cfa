"""Plans of engines over real sockets: equal to what the SDK reads, also when scans are lost, and never of half an engine."""

from __future__ import annotations

import dataclasses

import pytest

import boki
from boki_common.engine import engine_protocol as wire
from boki_common.errors import NotPermitted, Overloaded, ProtocolError, Unreachable
from boki_common.ids import book_id, tag_id
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer
from boki_logbook.engine import Engine
from boki_logbook.scan import pages
from boki_logbook.scan.client import PlanningEngines
from boki_logbook.scan.facts import COMMITTED, LIVE, ScanRange
from boki_logbook.scan.messages import VERSION, ScanRequest, decode_answer, encode_request
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.engines import EngineCluster
from boki_logbook.testing.plans import seqnums_of

SETTINGS = EngineSettings(replicas=3, acks=2, retry_first_s=0.005, retry_limit_s=0.01)


async def scan_client(*engines: Engine, timeout_s: float = 5.0) -> PlanningEngines:
    return PlanningEngines([engine.addresses[0] for engine in engines], timeout_s=timeout_s)


async def append(engine: Engine, count: int, *, book: str = "orders") -> list[int]:
    async with boki.connect(f"boki://{engine.addresses[0]}") as client:
        return list(await client.book(book).append_many([(b"%d" % at, [f"tag/{at % 3}"]) for at in range(count)]))


async def test_a_plan_has_what_was_appended_and_the_terms_of_the_log(engines: EngineCluster) -> None:
    engine = await engines.start_engine(SETTINGS)
    seqnums = await append(engine, 30)
    client = await scan_client(engine)
    try:
        committed = (await client.plan(ScanRange({}, {}), LIVE)).committed
        assert committed.end == {0: (1, 30)}
        assert committed.terms[0].metalog_ledger >= 0 and committed.terms[0].metalog_stop > 0
        for mode in (LIVE, COMMITTED):
            assert seqnums_of(await client.plan(ScanRange({}, committed.end), mode)) == seqnums
        tagged = ScanRange({}, committed.end, book_id("orders"), (tag_id("tag/0"), tag_id("tag/1")))
        assert seqnums_of(await client.plan(tagged, LIVE)) == [one for at, one in enumerate(seqnums) if at % 3 < 2]
        assert (await client.status())["role"] == "engine"
    finally:
        await client.close()


async def test_a_lost_engine_between_pages_is_replaced_by_another_one(
    engines: EngineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await engines.start_engine(SETTINGS), await engines.start_engine(SETTINGS)
    seqnums = await append(first, 40)
    await append(second, 1, book="other")
    monkeypatch.setattr(pages, "PAGE_ROWS", 4)
    client = await scan_client(first, second)
    asked = ScanRange({}, {0: (1, 41)}, book_id("orders"))
    served = 0
    answer = first._scans.answer

    def until_it_is_lost(owner: object, body: memoryview) -> bytes:
        nonlocal served
        served += 1
        if served == 3:
            for connection in list(first._connections):
                connection.end()
        return answer(owner, body)

    monkeypatch.setattr(first._scans, "answer", until_it_is_lost)
    try:
        assert seqnums_of(await client.plan(asked, LIVE)) == seqnums
        assert served == 3, "the rest came from the other one"
    finally:
        await client.close()


async def raw(engine: Engine) -> MessagePeer:
    client = await scan_client(engine)
    return await client._connected()


async def test_a_third_scan_waits_and_one_that_is_closed_makes_room(engines: EngineCluster) -> None:
    engine = await engines.start_engine(SETTINGS)
    await append(engine, 3)
    peer, other, third_peer = [await raw(engine) for _ in range(3)]
    try:
        begin = encode_request(ScanRequest(VERSION, 0, ScanRange({}, {0: (1, 3)}), LIVE))
        handles = [decode_answer(await one.call(wire.OP_SCAN, begin)).handle for one in (peer, other)]
        with pytest.raises(Overloaded, match="2 scans go on"):
            await third_peer.call(wire.OP_SCAN, begin)
        with pytest.raises(Overloaded, match="plan again"):
            await third_peer.call(wire.OP_SCAN, encode_request(ScanRequest(VERSION, handles[0], close=True)))
        await peer.call(wire.OP_SCAN, encode_request(ScanRequest(VERSION, handles[0], close=True)))
        third = decode_answer(await third_peer.call(wire.OP_SCAN, begin))
        assert third.handle not in handles
        with pytest.raises(Overloaded, match="plan again"):
            await peer.call(wire.OP_SCAN, encode_request(ScanRequest(VERSION, handles[0])))
        assert engine._scans.open == 2
        other.close()
        await engines.until(lambda: engine._scans.open == 1)
    finally:
        for one in (peer, other, third_peer):
            one.close()


@pytest.mark.parametrize("body", [b"", b"\x90", encode_request(ScanRequest(VERSION, 0, ScanRange({}, {}, -4)))])
async def test_a_scan_that_cannot_be_right_ends_the_connection(engines: EngineCluster, body: bytes) -> None:
    engine = await engines.start_engine(SETTINGS)
    peer = await raw(engine)
    with pytest.raises(ProtocolError):
        await peer.call(wire.OP_SCAN, body or b"\xc1")
    peer.close()


async def test_an_engine_of_some_slots_makes_no_plans(engines: EngineCluster) -> None:
    engine = await engines.start_engine(dataclasses.replace(SETTINGS, index_slots="0-511"))
    client = await scan_client(engine, timeout_s=0.3)
    try:
        with pytest.raises(Unreachable, match="indexes all slots") as error:
            await client.plan(ScanRange({}, {}), LIVE)
        assert isinstance(error.value.__cause__, NotPermitted)
    finally:
        await client.close()


async def test_nobody_at_the_address_is_an_error_in_time() -> None:
    client = PlanningEngines([Address("127.0.0.1", 1)], timeout_s=0.2)
    with pytest.raises(Unreachable, match="expected a plan"):
        await client.plan(ScanRange({}, {}), LIVE)
    await client.close()
