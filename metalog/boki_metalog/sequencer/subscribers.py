"""Peers to which the acknowledged entries of a term are pushed. One that takes them too slowly gets LAGGED and is dropped, unawaited.

What is pushed is written at once, with what is queued for the peer: an engine waits for it, and the rest of the turn need not.
"""

from __future__ import annotations

from typing import Final

from boki_common.logs import get_logger
from boki_common.net import messages
from boki_common.net.messages import MessagePeer
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.metric_definitions import SequencerMetrics

_log = get_logger("sequencer")


class Subscribers:
    """See the module. Invariant: each of `peers` was sent every entry since it subscribed."""

    def __init__(self, term: int, *, unsent_bytes: int, metrics: SequencerMetrics) -> None:
        """`unsent_bytes`: of a peer that takes so few that more of them wait, no more is kept."""
        self.peers: Final[dict[MessagePeer, None]] = {}
        self._term = term
        self._unsent_bytes = unsent_bytes
        self._metrics = metrics

    def push(self, first: int, data: bytes) -> None:
        """Entry `first` was acknowledged."""
        if not self.peers:
            return
        encoded = messages.encode(protocol.OP_ENTRIES, 0, 0, (protocol.encode_entry(self._term, first, data),))
        limit = self._unsent_bytes
        lagging = []
        for peer in self.peers:
            connection = peer.connection
            if connection.unsent_bytes > limit:
                lagging.append(peer)
            else:
                connection.send_now(encoded)
        for peer in lagging:
            del self.peers[peer]
            peer.push(protocol.OP_LAGGED, protocol.encode_term(self._term))
            self._metrics.lagged.inc()
            _log.info("subscriber dropped, it lags", term=self._term, peer=peer.peer, unsent_bytes=peer.unsent_bytes)
