"""SDKs of another network get the addresses that they reach, and nothing else differs for them."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
from tests.engine.silent import Silent

from boki_common.engine import engine_protocol as wire
from boki_common.net.messages import connect_messages
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.engines import ANYWHERE, EngineCluster

SETTINGS = EngineSettings(retry_first_s=0.005, retry_limit_s=0.01)


async def test_who_comes_from_outside_gets_the_outside_addresses_of_all_engines(engines: EngineCluster) -> None:
    def with_a_door(name: str) -> EngineSettings:
        return dataclasses.replace(
            SETTINGS, advertise=(name,), outside_listen=("127.0.0.1:0",), outside_advertise=(f"{name}.example:7040",)
        )

    first = await engines.make_engine(with_a_door("one"), addresses=(ANYWHERE,))
    second = await engines.make_engine(with_a_door("two"), addresses=(ANYWHERE,))
    await engines.make_engine(SETTINGS, addresses=(ANYWHERE,))  # nobody from outside reaches this one
    inside = {f"one:{first.addresses[0].port}", f"two:{second.addresses[0].port}"}
    while len(first.known_engines) < 3:
        await asyncio.sleep(0)
    assert inside < set(first.known_engines)
    (door,) = first._outside._servers
    peer = await connect_messages(door.address, Silent())
    answer = msgspec.msgpack.decode(await peer.call(wire.OP_HELLO, msgspec.msgpack.encode({"versions": [1]})))
    peer.close()
    assert set(answer["engines"]) == {"one.example:7040", "two.example:7040"}
    assert answer["engine"] == first.incarnation
