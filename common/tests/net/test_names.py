"""Names are looked up once at a time, and one that the resolver is silent about keeps no other from being found."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from boki_common.net.names import NAMES, SOON_S, Names, connect_by_name
from boki_common.testing.virtual_time import VirtualTimeLoop, let_pass


class Resolver:
    """Answers after `late_s`: with what is in `known`, or that it cannot say."""

    def __init__(self, late_s: float = 0.0) -> None:
        self.late_s = late_s
        self.known: dict[str, list[str]] = {}
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        await let_pass(self.late_s)
        if host not in self.known:
            raise socket.gaierror(-3, "Temporary failure in name resolution")
        return self.known[host]


def on_virtual_time(routine: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(routine)


def test_whoever_gives_up_and_asks_again_waits_for_the_same_look_up() -> None:
    async def routine() -> None:
        resolver = Resolver(late_s=10.0)
        names = Names(resolver)
        for _ in range(9):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.0):
                    await names.addresses_of("gone")
        with pytest.raises(OSError, match="name resolution"):
            await names.addresses_of("gone")
        assert resolver.asked == ["gone"]
        resolver.late_s, resolver.known = 0.0, {"gone": ["10.0.0.1"]}
        assert await names.addresses_of("gone") == ["10.0.0.1"], "a look-up that is over is no answer for later"

    on_virtual_time(routine())


def test_addresses_from_before_are_taken_while_the_resolver_is_silent() -> None:
    async def routine() -> None:
        resolver = Resolver()
        resolver.known = {"here": ["10.0.0.1", "10.0.0.2"]}
        names, loop = Names(resolver), asyncio.get_running_loop()
        assert await names.addresses_of("here") == ["10.0.0.1", "10.0.0.2"]
        resolver.late_s, resolver.known = 10.0, {"here": ["10.0.0.3"]}
        began = loop.time()
        for tries in range(1, 4):
            assert await names.addresses_of("here") == ["10.0.0.1", "10.0.0.2"]
            assert loop.time() - began == pytest.approx(tries * SOON_S)
        await let_pass(10.0)
        resolver.late_s = 0.0
        assert await names.addresses_of("here") == ["10.0.0.3"]
        assert len(resolver.asked) == 3

    on_virtual_time(routine())


def test_so_many_names_are_remembered() -> None:
    async def routine() -> None:
        resolver = Resolver()
        resolver.known = {str(number): ["10.0.0.1"] for number in range(NAMES + 10)}
        names = Names(resolver)
        for host in resolver.known:
            assert await names.addresses_of(host) == ["10.0.0.1"]
        assert len(names._names) == NAMES

    on_virtual_time(routine())


async def test_a_name_leads_to_the_address_that_answers() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for host in ("localhost", "127.0.0.1"):
        protocol = await connect_by_name(asyncio.Protocol, host, port)
        assert isinstance(protocol, asyncio.Protocol)
    server.close()
    await server.wait_closed()
    with pytest.raises(OSError):
        await connect_by_name(asyncio.Protocol, "localhost", port)
