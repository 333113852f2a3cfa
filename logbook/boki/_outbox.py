"""Appends on their way to the engine: what leaves together, one outbox for each physical log.

An engine cuts a frame into a part for each log, and of its part each log makes an entry of its own: entries of half the size
cost bookies and sequencers twice as much a record. So books of one log leave in frames of their own. Which log has a book is
learned from the answers to its appends, each of which names the log that ordered them. It is a guess that only costs when it
is wrong: of a book that is new here, or has moved, the engine finds the log, as it does of all.

Books that nothing is known of leave with those of the log that was heard of first: where there is one log, there is one outbox.
A book is in one outbox at a time, and stays until that was sent, so its records leave in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from boki._pending import Ticket
from boki._window import FRAME_TARGET_BYTES, RUN_BYTES
from boki_common import engine_protocol as wire
from boki_common import limits
from boki_common.batch_builder import BatchBuilder, batch_of_one
from boki_common.engine_protocol import Token
from boki_common.ids import Position
from boki_common.run_column import RUN_KEY, RUN_OF_KEY
from boki_common.runtime.ports import Buffer

if TYPE_CHECKING:
    from boki._appender import Appender
    from boki._dial import EnginePeer
    from boki._lane import Lane

EARLY_FLUSH_BYTES: Final = limits.BATCH_FLUSH_BYTES
"""A full frame leaves before the end of the turn; smaller ones cost the bookies more than the wait is worth."""
OUTBOXES: Final = 64
"""Logs that are told apart; books of more leave with those of the first."""


class Outbox:
    """What a turn of the loop queues for the books of one log.

    Attributes:
        alone: lanes of which each had a record that was alone.
        dirty: who has something to send, and is marked so.
        bytes: how much, roughly.
    """

    __slots__ = ("alone", "bytes", "dirty")

    def __init__(self) -> None:
        self.alone: list[Lane] = []
        self.dirty: list[Appender] = []
        self.bytes = 0

    def send(self, peer: EnginePeer | None) -> None:
        """Sends it in one frame, or a few when it is large. Without a peer it stays queued in its appenders and
        lanes: whoever connects asks them all."""
        self.bytes = 0
        dirty, self.dirty = self.dirty, []
        alone, self.alone = self.alone, []
        if peer is not None and len(dirty) + len(alone) == 1:
            only = _batch_of_one(alone[0]) if alone else _batch_of(dirty[0])
            if only is not None:
                peer.push_now(wire.OP_APPEND, *only)
                return
        builder, size = BatchBuilder(), 0
        if alone and peer is not None:
            size = _fill(builder, alone)
        for appender in dirty:
            appender.dirty = False
            while appender.sent_items < len(appender.items) and not appender.stalled and peer is not None:
                if size >= FRAME_TARGET_BYTES:
                    _send(peer, builder, dirty)
                    builder, size = BatchBuilder(), 0
                size = appender.fill(builder, appender.book, size)
        if size and peer is not None:
            _send(peer, builder, dirty)


class Outboxes:
    """The outboxes of a client. Invariant: `first` is in `all`, and is the only one while one log was heard of."""

    __slots__ = ("_by_log", "all", "first")

    def __init__(self) -> None:
        self.first: Final = Outbox()
        self.all: Final = [self.first]
        self._by_log: Final[dict[int, Outbox]] = {}

    def of(self, token: Token) -> Outbox:
        """Where the books leave that answers with this token are about."""
        if len(token) != 1:
            return self.first  # of conflicts that were told early: of several logs, or of none
        (log,) = token
        return self._by_log.get(log) or self._add(log)

    def _add(self, log: int) -> Outbox:
        if len(self._by_log) >= OUTBOXES:
            return self.first
        outbox = self.first
        if self._by_log:
            outbox = Outbox()
            self.all.append(outbox)
        self._by_log[log] = outbox
        return outbox


def _batch_of(appender: Appender) -> list[Buffer] | None:
    """The batch of who has a single plain record queued."""
    batch = None if appender.stalled else appender.alone(appender.book, wire.NO_TOKEN)
    if batch is not None:
        appender.dirty = False
    return batch


def _batch_of_one(lane: Lane) -> list[Buffer] | None:
    """The batch of a record that is alone, and the only one that is queued."""
    ticket = lane.undecided
    if type(ticket) is not Ticket or ticket.sent:
        return None
    ticket.sent = True
    tags, tag_count, names, _ = ticket.tags
    book, writer = RUN_KEY.unpack(lane.key)
    return batch_of_one(book, writer, ticket.first, ticket.first, 0, tags, tag_count, names, ticket.data, wire.NO_TOKEN)


def _fill(builder: BatchBuilder, lanes: list[Lane]) -> int:
    """Moves the records that are alone into a batch; returns its size, roughly. Where there is an appender since, it has them."""
    pack = RUN_OF_KEY.pack
    runs: list[bytes] = []
    tags: list[bytes] = []
    tag_counts = bytearray()
    payloads: list[Buffer] = []
    for lane in lanes:
        ticket = lane.undecided
        if type(ticket) is Ticket and not ticket.sent:
            ticket.sent = True
            number = ticket.first
            packed, tag_count, names, _ = ticket.tags
            runs.append(pack(lane.key, number, number, 1, tag_count, 0, 0))
            if tag_count:
                tags.append(packed)
            tag_counts.append(tag_count)
            payloads += names, ticket.data
    builder.add_runs_of_one(runs, tags, tag_counts, payloads)
    return RUN_BYTES * len(runs) + builder.data_bytes


def _send(peer: EnginePeer, builder: BatchBuilder, appenders: list[Appender]) -> None:
    """Who expects something says what its session has seen: a conflict is told early only by who shows as much."""
    token = wire.NO_TOKEN
    if builder.expects:
        seen: dict[int, Position] = {}
        for session in dict.fromkeys(appender.view.session for appender in appenders):
            wire.merge_tokens(seen, session.positions)
        token = wire.encode_token(seen)
    peer.push_now(wire.OP_APPEND, *builder.finish(token))
