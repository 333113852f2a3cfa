"""Entries go to all who subscribed; who takes them too slowly is dropped with a reason."""

from __future__ import annotations

from typing import Any

from boki_common.metrics import Metrics
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.metric_definitions import SequencerMetrics
from boki_metalog.sequencer.subscribers import Subscribers


class Peer:
    """A connection with so many bytes that nobody took yet."""

    def __init__(self, unsent_bytes: int) -> None:
        self.connection = self
        self.peer = "somebody"
        self.unsent_bytes = unsent_bytes
        self.sent: list[bytes] = []
        self.pushed: list[int] = []

    def send_now(self, encoded: Any) -> None:
        self.sent.append(encoded)

    def push(self, opcode: int, body: bytes) -> None:
        assert protocol.decode_term(memoryview(body)) == 7
        self.pushed.append(opcode)


def test_who_lags_is_dropped_with_a_reason_and_the_others_get_what_there_is() -> None:
    subscribers = Subscribers(7, unsent_bytes=100, metrics=SequencerMetrics(Metrics(), 0))
    subscribers.push(0, b"nobody is there")
    quick, slow = Peer(100), Peer(101)
    subscribers.peers.update({quick: None, slow: None})  # type: ignore[dict-item]
    for number in (1, 2):
        subscribers.push(number, b"entry")
    assert len(quick.sent) == 2 and not quick.pushed
    assert not slow.sent and slow.pushed == [protocol.OP_LAGGED]
    assert subscribers.peers.keys() == {quick}
