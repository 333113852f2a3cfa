"""The other end of a connection, for tests that ask and look at nothing that comes unasked."""

from __future__ import annotations

import asyncio

from boki_common.errors import BokiError
from boki_common.net.messages import MessagePeer


class Silent:
    """See the module. Implements MessageHandler; `lost` gets why the connection ended."""

    def __init__(self) -> None:
        self.lost: asyncio.Future[BokiError | None] = asyncio.get_running_loop().create_future()

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        """Pushes are not looked at."""

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        self.lost.set_result(error)
