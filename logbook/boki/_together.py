"""Linearizable reads of one turn of the loop leave as one message, and are answered by few (`engine_protocol`, READS).

The engine asks the sequencer once for all that it finds in one turn, so they had better come together. While it says that more
answers follow at once, nothing leaves: what those ask who got the first of them goes with what the others ask, and one metalog
entry serves all of them again. Requests have ids as any other, so whatever else an engine answers to one of them is received too,
and when the connection ends they fail with all that wait.

One that has no company leaves as any other request. Bounded by the unanswered requests of a connection; a message holds `READS_ROWS`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from boki._dial import EnginePeer
from boki_common.engine import engine_protocol as wire
from boki_common.engine.reads_together import READS_ROWS, asked_row, decode_read_answers, of_row


class ReadsTogether:
    """Those of one connection. Invariant: while something waits, a callback of this turn sends it, or more answers are to come."""

    __slots__ = ("_asked", "_loop", "_more", "_peer", "_taken", "of_tags")

    def __init__(self, peer: EnginePeer, *, taken: bool) -> None:
        """`taken`: the engine takes READS; one that does not is asked for each."""
        self._peer: Final = peer
        self._taken: Final = taken
        self._loop = asyncio.get_running_loop()
        self._asked: dict[bytes, list[bytes]] = {}
        """Token → rows that have not left. Sessions of one client have their own."""
        self._more = False
        self.of_tags: Final[set[int]] = set()
        """Books whose engine was found to take READ_TAGS, on this connection."""

    def ask(self, token: bytes, query: bytes) -> asyncio.Future[memoryview]:
        """Asks with others of this turn. Raises as `EnginePeer.request`."""
        if not self._taken:
            return self._peer.request(wire.OP_READ, token, query)
        request_id, future = self._peer.expect()
        rows = self._asked.get(token)
        if rows is None:
            if not self._asked:
                self._loop.call_soon(self._leave)
            rows = self._asked[token] = []
        rows.append(asked_row(query, request_id))
        if len(rows) == READS_ROWS:
            self._send({token: self._asked.pop(token)})
        return future

    def answered(self, body: memoryview) -> None:
        """The engine pushed answers. Raises ProtocolError."""
        answers, more = decode_read_answers(body)
        self._peer.take_answers(answers)
        if self._more and not more:
            self._loop.call_soon(self._leave)  # behind those who get this now, and whose turn is the next
        self._more = more

    def _leave(self) -> None:
        if not self._more:
            asked, self._asked = self._asked, {}
            self._send(asked)

    def _send(self, asked: dict[bytes, list[bytes]]) -> None:
        messages: list[tuple[int, int, tuple[bytes, ...]]] = []
        for token, rows in asked.items():
            if len(rows) == 1:
                request_id, query = of_row(rows[0])
                messages.append((wire.OP_READ, request_id, (token, query)))
            else:
                messages.append((wire.OP_READS, 0, (b"".join((token, *rows)),)))
        if messages:
            self._peer.send_all(messages)
