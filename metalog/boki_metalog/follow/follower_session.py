"""One connection of a follower to the sequencer of a term: takes its pushes until either ends.

Nothing is delivered after `close`, nor after a fault: what `deliver` raises is kept for `raise_fault`, since a network
callback has no caller. A message that cannot be right ends the connection, and says nothing of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from boki_common import errors, limits
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import BokiError
from boki_common.logs import get_logger
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer, connect_messages
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.permissions import ENGINE

Deliver = Callable[[int, Sequence[memoryview]], bool]
"""(first entry, payloads) → False when entries before `first` are missing."""

_log = get_logger("follower")


class FollowerSession:
    """See the module. `wake` is called whenever a property changed."""

    def __init__(
        self,
        term: int,
        deliver: Deliver,
        wake: Callable[[], None],
        token: ClusterToken = NO_TOKEN,
    ) -> None:
        self.term = term
        self._token = token
        self.peer: MessagePeer
        self.subscribed = False
        """Whether pushes follow the last entry delivered."""
        self.carries = False
        """Whether the sequencer takes entries to carry."""
        self._deliver = deliver
        self._wake = wake
        self._over = False
        self._fault: Exception | None = None

    async def connect(self, address: Address, incarnations: Sequence[str]) -> protocol.Welcome:
        """Raises NetworkError, ProtocolError, Unauthenticated; the connection is closed then."""
        self.peer = await connect_messages(address, self)
        try:
            hello = protocol.encode_hello(incarnations, token=self._token, role=ENGINE)
            body = await self.peer.call(protocol.OP_HELLO, hello, timeout_s=limits.CONNECT_TIMEOUT_S)
            welcome = protocol.decode_welcome(body)
        except BaseException:
            self.peer.close()
            raise
        self.carries = welcome.carries
        return welcome

    async def subscribe(self, next_entry: int) -> protocol.Subscribed:
        """Asks for pushes from `next_entry` on. Raises NetworkError, TermOver."""
        self.subscribed = True  # a LAGGED that comes before this coroutine goes on must not be forgotten
        try:
            body = await self.peer.call(
                protocol.OP_SUBSCRIBE,
                protocol.encode_subscribe(self.term, next_entry),
                timeout_s=limits.CONNECT_TIMEOUT_S,
            )
        except BaseException:
            self.subscribed = False
            raise
        answer = protocol.decode_subscribed(body)
        if answer.first > next_entry:
            self.subscribed = False
        return answer

    @property
    def usable(self) -> bool:
        return not self._over and not self.peer.closed and self._fault is None

    def raise_fault(self) -> None:
        """Raises what delivering raised, if anything."""
        if self._fault is not None:
            raise self._fault

    def close(self) -> None:
        self._over = True
        self.peer.close()

    # -- MessageHandler

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        if self._over or self._fault is not None:
            return
        if opcode == protocol.OP_ENTRIES:
            term, first, payloads = protocol.decode_entries(body)
            if term != self.term:
                raise errors.ProtocolError(
                    f"expected entries of term {self.term}, found those of {term}", expected=self.term, found=term
                )
            try:
                delivered = self._deliver(first, payloads)
            except Exception as error:  # noqa: BLE001 - raised by raise_fault
                self._fault = error
                self._wake()
                return
            if not delivered:
                _log.warning("entries are missing, subscribing again", term=term, first=first)
                self.subscribed = False
                self._wake()
        elif opcode == protocol.OP_LAGGED:
            self.subscribed = False
            self._wake()
        elif opcode == protocol.OP_TERM_OVER:
            self._over = True
            self._wake()
        elif opcode == protocol.OP_REFUSED:
            _log.warning("report refused", term=self.term, error=errors.from_wire(body))

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        self._wake()
