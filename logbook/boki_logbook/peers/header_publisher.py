"""Pushes headers of this engine's entries, once they have their ack quorum, to the engines that asked for them.

A push is encoded once for all. Who does not take what was sent is passed over, and reads from bookies: nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from boki_common import limits
from boki_common.engine import engine_protocol as wire
from boki_common.net.messages import MessagePeer, encode
from boki_logbook.peers.pushed_headers import AckedEntry, encode_headers

UNSENT_BYTES: Final = 4 * limits.MIB
"""A subscriber with more than this on its way gets no pushes until it has taken some."""
PUSH_BYTES: Final = 1 * limits.MIB
"""Entries whose headers are larger together are pushed one by one."""


class HeaderPublisher:
    """See the module."""

    def __init__(self) -> None:
        self.subscribers: dict[MessagePeer, None] = {}

    def subscribe(self, peer: MessagePeer) -> None:
        self.subscribers[peer] = None

    def leave(self, peer: MessagePeer) -> None:
        """The subscriber is gone; also for one that never asked."""
        self.subscribers.pop(peer, None)

    def acked(self, ledger_id: int, term: int, shard: int, entries: Sequence[AckedEntry]) -> None:
        """These entries of a shard, in that ledger, are durable."""
        ready = [peer for peer in self.subscribers if peer.unsent_bytes <= UNSENT_BYTES]
        if not ready or not entries:
            return
        together = sum(len(acked.batch.header) for acked in entries) <= PUSH_BYTES
        for some in [entries] if together else [(one,) for one in entries]:
            buffers = encode(wire.OP_HEADERS, 0, 0, tuple(encode_headers(ledger_id, term, shard, some)))
            for peer in ready:
                peer.send_encoded(buffers)
