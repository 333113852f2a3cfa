"""What an engine asks of the sequencer of one term: open, report and close shards, order commands, ask for a barrier.

A link lives as long as one connection; the follower gives a new one after each reconnect, and has then repeated what was
reported and not closed. Reports of one turn of the event loop leave as one frame: the newest per shard; one that nothing can
follow leaves at once. Those who ask for a
barrier in one turn share one request, which leaves after the last of them asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from boki_common import limits
from boki_common.background_tasks import error_taken
from boki_common.errors import BokiError, CallTimeout, Overloaded
from boki_common.ids import Position
from boki_common.net.messages import MessagePeer
from boki_common.runtime.ports import Buffer
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.progress import Order
from boki_metalog.entries.sequencer_protocol import SequencerTime


class ShardsOfTerm:
    """What this process has opened and reported in one term: survives the connection. Bounded by the shards of a term."""

    def __init__(self) -> None:
        self.incarnations: dict[str, None] = {}
        self.reported: dict[int, tuple[int, int]] = {}
        """Shard → (records_end, entries_end), until it is closed."""

    def closed(self, shard: int) -> None:
        self.reported.pop(shard, None)


class SequencerLink:
    """See the module."""

    def __init__(self, peer: MessagePeer, term: int, shards: ShardsOfTerm, *, carries: bool = False) -> None:
        self.term = term
        self.carries: Final = carries
        """Whether the sequencer knows `carry`; an older one does not."""
        self._peer = peer
        self._shards = shards
        self._unsent: dict[int, tuple[int, int]] = {}
        self._barrier: asyncio.Task[Position] | None = None
        """The request for a barrier that has not left yet."""
        self._loop = asyncio.get_running_loop()

    @property
    def closed(self) -> bool:
        return self._peer.closed

    async def open_shard(self, incarnation: str, ledger_id: int) -> int:
        """Orders a new shard, which `incarnation` writes to its ledger. Safe to repeat.

        Raises:
            TermOver: another term; wait for it. ConnectionLost, CallTimeout: repeat, on the next link if this one is closed.
            ShardNotOpen: this ledger's shard is closed: take another ledger.
        """
        self._shards.incarnations[incarnation] = None
        body = await self._peer.call(protocol.OP_OPEN, protocol.encode_open(self.term, incarnation, ledger_id))
        return protocol.decode_shard(body)

    def report(self, shard: int, records_end: int, entries_end: int, *, now: bool = False) -> None:
        """Tells cumulative progress that the ack quorum has. Never waits; on a closed link it is remembered for the next.

        Args:
            now: nothing more will be reported in this turn, so that this need not wait for its end.

        Raises:
            Overloaded: more shards than a term has.
        """
        reported = self._shards.reported
        if shard not in reported and len(reported) >= limits.TERM_SHARDS:
            raise Overloaded(f"{len(reported)} shards are reported already", found=len(reported))
        reported[shard] = ends = (records_end, entries_end)
        unsent = self._unsent
        if now and not unsent:
            body = protocol.encode_report_of_one(self.term, shard, records_end, entries_end)
            self._peer.push_now(protocol.OP_REPORT, body)
            return
        if not unsent:
            self._loop.call_soon(self._flush)
        unsent[shard] = ends
        if now:
            self._flush()

    def carry(self, shard: int, records_end: int, entries_end: int, body: Sequence[Buffer]) -> None:
        """Tells of an entry that is durable nowhere yet, and sends it along, at once: it may be ordered by that, or not. Never
        waits; of a closed link nothing is remembered."""
        self._flush()
        head = protocol.encode_carry(self.term, shard, records_end, entries_end)
        self._peer.push_now(protocol.OP_CARRY, head, *body)

    async def close_shard(self, shard: int) -> None:
        """Has the shard closed at what was reported before. Safe to repeat. Raises as `open_shard`."""
        self._flush()
        await self._peer.call(protocol.OP_CLOSE, protocol.encode_close(self.term, shard))
        self._shards.closed(shard)

    async def order(self, command: Order) -> Position:
        """Has a TRIM, EXPIRE or LOST ordered; its effect is known once the index passed the position returned.

        Raises:
            TermEndedMeanwhile, ConnectionLost, CallTimeout: whether it was ordered is unknown; it may be repeated, each command
                is idempotent. TermOver: it was not, by this term.
            SlotNotInTerm: refused, another term orders the book. Read the view again.
            Overloaded: refused, too many wait. InvalidArgument, ProtocolError: refused.
        """
        body = await self._peer.call(protocol.OP_ORDER, protocol.encode_order(self.term, command))
        return protocol.decode_position(body)

    async def barrier(self) -> Position:
        """A position that all that was ordered before this call is below, once it is proven that the term was not over when this was asked.

        Raises:
            TermOver, NetworkError: the sequencer could not prove that the term still runs; read the view again.
            Overloaded: too many wait.
        """
        if self._barrier is None:
            self._barrier = self._loop.create_task(self._ask_for_barrier())
            self._barrier.add_done_callback(error_taken)
        return await asyncio.shield(self._barrier)

    def ask_barrier(self, on_answer: Callable[[Position | BokiError], None]) -> None:
        """`barrier`, for who collects requests: leaves at once, and without a task. Calls back once, later, with the position
        or with what `barrier` would raise."""
        try:
            future = self._peer.request_now(protocol.OP_BARRIER, protocol.encode_term(self.term))
        except BokiError as error:
            self._loop.call_soon(on_answer, error)
            return
        give_up = self._loop.call_later(limits.CALL_TIMEOUT_S, future.cancel)
        future.add_done_callback(partial(_pass_on, on_answer, give_up))

    async def _ask_for_barrier(self) -> Position:
        self._barrier = None  # a task begins in the next turn: later callers need a request of their own
        return protocol.decode_position(await self._peer.call(protocol.OP_BARRIER, protocol.encode_term(self.term)))

    async def clock(self) -> SequencerTime | None:
        """The sequencer's wall clock, for comparing; None if its version does not report it, or it serves no term now. Raises
        NetworkError: no answer."""
        status = msgspec.json.decode(await self._peer.call(protocol.OP_STATUS), type=dict[str, Any])
        term = status.get("term") or {}
        if "now_ms" not in term:
            return None
        return SequencerTime(int(term["now_ms"]), int(term["time_ms"]))

    def repeat_reports(self) -> None:
        """On a new connection: repeats what was reported, since the end of the old one may have lost it."""
        if self._shards.reported:
            self._peer.push(protocol.OP_REPORT, protocol.encode_report(self.term, self._shards.reported))

    def _flush(self) -> None:
        if self._unsent:
            unsent, self._unsent = self._unsent, {}
            self._peer.push_now(protocol.OP_REPORT, protocol.encode_report(self.term, unsent))


def _pass_on(
    on_answer: Callable[[Position | BokiError], None], give_up: asyncio.TimerHandle, answer: asyncio.Future[memoryview]
) -> None:
    give_up.cancel()
    found: Position | BokiError
    try:
        found = protocol.decode_position(answer.result())
    except asyncio.CancelledError:
        found = CallTimeout(f"the sequencer did not answer a barrier within {limits.CALL_TIMEOUT_S} s")
    except BokiError as error:
        found = error
    on_answer(found)
