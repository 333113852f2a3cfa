"""Asks engines for plans: a scan page by page, of the next engine when one is lost, anew when a scan was forgotten.

    client = PlanningEngines([Address("127.0.0.1", 7040)], token=token)
    plan = await client.plan(ScanRange(start, end), LIVE)
    await client.close()

One connection is kept. A plan is of one engine and of one moment: what came of a lost scan is never joined with another one's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from boki_common import limits
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.engine import engine_protocol as wire
from boki_common.errors import (
    DECODE_FAULTS,
    BokiError,
    NetworkError,
    NotPermitted,
    Overloaded,
    ProtocolError,
    Unreachable,
)
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer
from boki_logbook.peers.engine_dial import greet_engine
from boki_logbook.scan.facts import ScanRange
from boki_logbook.scan.messages import SCAN, VERSION, ScanRequest, decode_answer, encode_request
from boki_logbook.scan.plan import Plan, PlanBuilder

PAUSE_S: Final = 0.05
"""Between two tries at an engine that serves enough scans."""


class PlanningEngines:
    """See the module. Implements MessageHandler for pushes, which it passes over."""

    def __init__(
        self, addresses: Sequence[Address], *, token: ClusterToken = NO_TOKEN, timeout_s: float = limits.CALL_TIMEOUT_S
    ) -> None:
        """`timeout_s`: for a plan, through whatever engines."""
        assert addresses, "an engine to ask"
        self._addresses = list(addresses)
        self._token = token
        self._timeout_s = timeout_s
        self._peer: MessagePeer | None = None
        self._turn = asyncio.Lock()

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        """What engines push is of no use here."""

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        if peer is self._peer:
            self._peer = None

    async def plan(self, asked: ScanRange, mode: str) -> Plan:
        """The plan of a range, by the first engine that gives one. Raises Unreachable: no engine did in time; the message says
        why not."""
        fault: BokiError | None = None
        try:
            async with self._turn, asyncio.timeout(self._timeout_s):
                while True:
                    try:
                        return await self._scan(await self._connected(), asked, mode)
                    except Overloaded as error:
                        fault = error
                    except (NetworkError, NotPermitted) as error:
                        fault = error
                        await self._next()
                    await asyncio.sleep(PAUSE_S)
        except TimeoutError:
            where = ", ".join(map(str, self._addresses))
            raise Unreachable(
                f"expected a plan of an engine at {where} within {self._timeout_s:g} s, found none: {fault or 'no answer'}"
            ) from fault

    async def status(self) -> dict[str, Any]:
        """The status of an engine. Raises NetworkError; ProtocolError: it is no engine."""
        async with self._turn:
            peer = await self._connected()
            answer = await peer.call(wire.OP_STATUS, timeout_s=self._timeout_s)
        try:
            return msgspec.json.decode(answer, type=dict[str, Any])
        except DECODE_FAULTS as error:
            raise ProtocolError(f"expected the status of an engine at {peer.peer}: {error}") from error

    async def _scan(self, peer: MessagePeer, asked: ScanRange, mode: str) -> Plan:
        builder = PlanBuilder(asked, mode)
        request = ScanRequest(VERSION, 0, asked, mode)
        while not builder.whole:
            answer = decode_answer(await peer.call(wire.OP_SCAN, encode_request(request), timeout_s=self._timeout_s))
            builder.take(answer.page)
            request = ScanRequest(VERSION, answer.handle)
        return builder.finish()

    async def _connected(self) -> MessagePeer:
        if self._peer is not None and not self._peer.closed:
            return self._peer
        peer, welcome = await greet_engine(self._addresses[0], self, wire.ROLE_SDK, token=self._token)
        if SCAN not in welcome.features:
            peer.close()
            raise NotPermitted(f"the engine at {self._addresses[0]} is of a version that makes no plans: upgrade it")
        peer.stay()
        self._peer = peer
        return peer

    async def _next(self) -> None:
        """The next engine is asked."""
        await self.close()
        self._addresses.append(self._addresses.pop(0))

    async def close(self) -> None:
        """Ends the connection. Idempotent."""
        if self._peer is not None:
            self._peer.close()
            self._peer = None
