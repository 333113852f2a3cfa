"""Asks every other engine of the cluster for the headers of its entries, and keeps asking while it is listed.

One connection to each. What it brings only saves reads: an engine that cannot be reached, or that pushes nothing, is
followed through bookies as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from boki_common.background_tasks import BackgroundTasks
from boki_common.backoff import Backoff
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.engine import engine_protocol as wire
from boki_common.errors import AccessError, BokiError, ProtocolError
from boki_common.logs import get_logger
from boki_common.net.messages import MessagePeer
from boki_common.records.record_batch import RecordBatch
from boki_logbook.peers.engine_dial import dial_engine
from boki_logbook.peers.pushed_headers import HEADERS, decode_headers
from boki_metalog.terms.index_slots import EngineMember

RETRY_FIRST_S: Final = 0.1
RETRY_LIMIT_S: Final = 5.0

_log = get_logger("engine.headers")

Took = Callable[[int, int, RecordBatch], None]
"""Called with ledger, entry and header."""


class _Subscription:
    """One connection. Implements MessageHandler."""

    def __init__(self, took: Took) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._took = took

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        if opcode != wire.OP_HEADERS:
            raise ProtocolError(f"expected pushes of opcode {wire.OP_HEADERS} from an engine, found {opcode}")
        for ledger_id, entry, batch in decode_headers(body):
            self._took(ledger_id, entry, batch)

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        if not self.over.done():
            self.over.set_result(None)


class HeaderSubscriptions:
    """See the module. Close it when nobody calls it with engines any more."""

    def __init__(self, incarnation: Callable[[], str], took: Took, token: ClusterToken = NO_TOKEN) -> None:
        self._token = token
        self._incarnation = incarnation
        self._took = took
        self._following: dict[str, asyncio.Task[None]] = {}
        self._ending = BackgroundTasks()

    def update(self, engines: Sequence[EngineMember]) -> None:
        """Engines came or went."""
        others = {engine.incarnation: engine for engine in engines if engine.incarnation != self._incarnation()}
        for gone in [one for one in self._following if one not in others]:
            self._end(self._following.pop(gone))
        for incarnation, engine in others.items():
            if incarnation not in self._following:
                self._following[incarnation] = asyncio.ensure_future(self._follow(engine))

    async def close(self) -> None:
        """Ends all connections. Idempotent."""
        while self._following:
            self._end(self._following.popitem()[1])
        await self._ending.finish()

    def _end(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        self._ending.add(task)

    async def _follow(self, engine: EngineMember) -> None:
        backoff = Backoff(RETRY_FIRST_S, RETRY_LIMIT_S)
        while True:
            for address in engine.addresses:
                try:
                    if await self._subscribe(engine, address):
                        backoff.reset()
                        break
                except AccessError as error:
                    _log.warning(
                        "an engine gives us no headers", engine=engine.incarnation, address=address, error=error
                    )
                except BokiError as error:
                    _log.info("no headers from an engine", engine=engine.incarnation, address=address, error=error)
            await asyncio.sleep(backoff.next())

    async def _subscribe(self, engine: EngineMember, address: str) -> bool:
        """Takes what an engine pushes until the connection ends; False when it pushes nothing. Raises BokiError."""
        subscription = _Subscription(self._took)
        peer, welcome = await dial_engine(engine, address, subscription, token=self._token)
        try:
            if HEADERS not in welcome.features:
                return False  # of an earlier version
            await peer.call(wire.OP_HEADERS)
            await subscription.over
            return True
        finally:
            peer.close()
