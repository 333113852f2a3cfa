"""One term, as its sequencer runs it: reports in, metalog entries out, acknowledged entries to all subscribers.

Rules:
- One entry is in flight. A report that finds none goes to the ledger in the same callback; the acknowledgement of an entry
  pushes it and submits the next one in the same callback. There are no timers between: what is reported meanwhile is
  merged, so the load decides how much one entry orders.
- Only acknowledged entries leave this process, and so do the answers to OPEN, CLOSE and ORDER.
- A BARRIER is answered with what was ordered when it came, once the bookies have proven that the metalog was not fenced then
  (`LedgerWriter.ask_unfenced`); where they cannot, when an entry that began after it is acknowledged, which is made for it if
  there is nothing to order. A sequencer that is fenced, and does not know, can have neither.
- A TRIM or EXPIRE of a book that the term does not order is refused; a LOST of what it has not ordered as well.
- What is carried is read before (`carried_check`): every engine will have to.
- While the metalog is written to the reserves of full disks nothing is carried, and a term that has records and was trimmed ends:
  only what an ended term has can be reclaimed. The next one orders no records before there is space, so none follows it for that.
- A connection speaks for its own shards only; an engine whose connection is lost keeps its shards for a grace (`shard_owners`). Then
  they are closed at what is known of them.
- What is acknowledged is pushed to all who subscribed, and take it (`subscribers`).
- The term ends once, for ever: its metalog is fenced, the view went on, or it is full. All participants are notified.
- It is full also when it has lasted long enough (`term_rolling`): then it ends between two entries, so that all it ordered is
  known to everybody, and only if the next one can begin. So it does when it is asked to YIELD. Such a term closes its metalog
  itself (`close_metalog`), which spares the next term change fencing and recovery; if that fails it does them.

Runs on the event loop without awaiting anything but that close; work is per message and per entry, never per record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from boki_common import errors, limits
from boki_common.errors import (
    BokiError,
    InvalidArgument,
    NotPermitted,
    Overloaded,
    ProtocolError,
    SlotNotInTerm,
    TermEndedMeanwhile,
    TermOver,
)
from boki_common.ids import Position, slot_of
from boki_common.logs import get_logger
from boki_common.net.messages import MessagePeer
from boki_common.runtime.ports import Clock
from boki_ledger.ledgers import LedgerWriter
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.metalog_entry import Close, Lost, MetalogEntry, Open, ShardEnd, Trim, encode
from boki_metalog.entries.progress import CutBuilder, Order, ProgressVector
from boki_metalog.errors import ImpossibleReport, ShardNotOpen, TermFull
from boki_metalog.metric_definitions import SequencerMetrics
from boki_metalog.sequencer.carried_check import check_carried
from boki_metalog.sequencer.entry_waiters import EntryWaiters
from boki_metalog.sequencer.recent_entries import RecentEntries
from boki_metalog.sequencer.shard_owners import ShardOwners
from boki_metalog.sequencer.subscribers import Subscribers
from boki_metalog.sequencer.term_rolling import TermRolling
from boki_metalog.settings import SequencerSettings
from boki_metalog.terms.view import Installed, SlotRange

_log = get_logger("sequencer")


class _Asked(NamedTuple):
    """An OPEN or CLOSE that waits for the acknowledgement of its entry."""

    opcode: int
    peer: MessagePeer
    request_id: int
    shard: int


class _Waiter(NamedTuple):
    """An ORDER or BARRIER that waits for an entry."""

    opcode: int
    peer: MessagePeer
    request_id: int


class TermServer:
    """See the module.

    Invariant: `recent.end` entries are acknowledged, `vector` is the state after them, and the ledger holds at most one more.
    """

    def __init__(
        self,
        installed: Installed,
        writer: LedgerWriter,
        *,
        slots: Sequence[SlotRange],
        clock: Clock,
        settings: SequencerSettings,
        metrics: SequencerMetrics,
        ended: Callable[[BokiError], None],
        may_roll: Callable[[], bool] = lambda: True,
    ) -> None:
        assert writer.ledger_id == installed.metalog_ledger, "a sequencer writes only the ledger that it made"
        self.term = installed.term
        self.slots = tuple(slots)
        """Of the books that the term orders; they never change."""
        self.over: BokiError | None = None
        """Why nothing more is ordered."""
        self.vector = ProgressVector(time_ms=installed.start_time_ms)
        self.recent = RecentEntries(entries_limit=settings.recent_entries, bytes_limit=settings.recent_bytes)
        self.orderly = False
        """Whether it ended between two entries, by its own doing: `close_metalog` is next."""
        self._writer = writer
        self._clock = clock
        self._metrics = metrics
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._builder = CutBuilder(time_ms=installed.start_time_ms)
        self._in_flight: tuple[MetalogEntry, bytes, float] | None = None
        """The entry, its bytes, and when it was submitted."""
        self._peers: dict[MessagePeer, None] = {}
        self._subscribers = Subscribers(self.term, unsent_bytes=settings.subscriber_unsent_bytes, metrics=metrics)
        self._asked: list[_Asked] = []
        self._yields: list[_Waiter] = []
        self._waiters: EntryWaiters[_Waiter] = EntryWaiters()
        self._owners = ShardOwners(settings.engine_grace_s, self._engine_lost)
        self._rolling = TermRolling(self.term, self._builder, settings, may_roll=may_roll, aged=self._aged)
        writer.listen(self._acked, self._writer_failed)

    # -- messages

    def hello(self, peer: MessagePeer, incarnations: Sequence[str]) -> None:
        """A participant connected; the engines behind it are back."""
        self._peers[peer] = None
        self._owners.named(peer, incarnations, set(self._builder.shards.values()))

    def open(self, peer: MessagePeer, request_id: int, request: protocol.OpenRequest) -> None:
        """Answers once the OPEN is acknowledged. Raises TermOver, ShardNotOpen, NotPermitted."""
        self._check_term(request.term)
        self._check_room()
        self._owners.check_speaks_for(peer, request.incarnation)
        try:
            shard = self._builder.open(request.incarnation, request.ledger_id)
        except TermFull as full:
            self.end(full)
            raise self._term_over() from full
        self._owners.opened(peer, request.incarnation, shard)
        self._asked.append(_Asked(protocol.OP_OPEN, peer, request_id, shard))
        self._answer_asked()
        self._advance()

    def close_shard(self, peer: MessagePeer, request_id: int, term: int, shard: int) -> None:
        """Answers once the CLOSE is acknowledged. Raises TermOver, ShardNotOpen, NotPermitted."""
        self._check_term(term)
        self._check_room()
        self._owners.check_own(peer, shard)
        self._builder.close(shard)
        self._asked.append(_Asked(protocol.OP_CLOSE, peer, request_id, shard))
        self._answer_asked()
        self._advance()

    def order(self, peer: MessagePeer, request_id: int, term: int, command: Order) -> None:
        """Answers once the command's entry is acknowledged; with TermEndedMeanwhile when it is in one whose fate is unknown.
        Raises TermOver, SlotNotInTerm, InvalidArgument, Overloaded: it is not ordered."""
        self._check_term(term)
        if isinstance(command, Lost):
            self._check_lost(command)
        else:
            self._check_slot(command.book)
        self._builder.order(command)
        self._waiters.order(_Waiter(protocol.OP_ORDER, peer, request_id))
        self._advance()

    def barrier(self, peer: MessagePeer, request_id: int, term: int) -> None:
        """Answers once it is proven that the term was not over when this came. Raises TermOver, Overloaded."""
        self._check_term(term)
        waiter = _Waiter(protocol.OP_BARRIER, peer, request_id)
        if len(self._waiters.proving) < limits.BARRIERS_WAITING and self._writer.ask_unfenced(
            partial(self._proven, waiter, self.recent.end)
        ):
            self._waiters.prove(waiter)
        else:
            self._prove_by_entry(waiter)

    def _proven(self, waiter: _Waiter, ordered: int, proven: bool) -> None:
        """The bookies answered for a barrier that came when so many entries were acknowledged."""
        if not self._waiters.proven(waiter):
            return  # its connection ended
        if proven:
            self._metrics.proven()
            waiter.peer.respond(
                waiter.request_id, waiter.opcode, protocol.encode_position(Position(self.term, ordered))
            )
            return
        try:
            self._prove_by_entry(waiter)
        except BokiError as error:
            waiter.peer.respond_error(waiter.request_id, error)

    def _prove_by_entry(self, waiter: _Waiter) -> None:
        self._waiters.barrier(waiter)
        self._builder.barrier()
        self._advance()

    def yield_term(self, peer: MessagePeer, request_id: int, term: int) -> None:
        """Ends the term at the next acknowledgement, or now; answers once its metalog is closed. Raises TermOver."""
        self._check_term(term)
        self._check_room()
        self._yields.append(_Waiter(protocol.OP_YIELD, peer, request_id))
        if self._in_flight is None:
            self._end_orderly(self._yielded())

    def report(self, peer: MessagePeer, term: int, rows: Sequence[ShardEnd]) -> None:
        """Merges progress; what is refused is answered so, and the rest counts."""
        if term != self.term or self.over is not None:
            peer.push(protocol.OP_TERM_OVER, protocol.encode_term(term))
            return
        merge = self._builder.report
        own = self._owners.own(peer)
        for shard, records_end, entries_end in rows:
            try:
                if shard not in own:
                    self._owners.check_own(peer, shard)
                merge(shard, records_end, entries_end)
            except (ShardNotOpen, ImpossibleReport, NotPermitted) as error:
                self._refuse(peer, error)
        self._advance()

    def carry(self, peer: MessagePeer, carry: protocol.Carry) -> None:
        """Takes an entry that its engine has not made durable, if it is what its engine says; what is refused is answered so."""
        term, shard, records_end, entries_end, body = carry
        if term != self.term or self.over is not None:
            peer.push(protocol.OP_TERM_OVER, protocol.encode_term(term))
            return
        try:
            self._owners.check_own(peer, shard)
            check_carried(carry, self._builder.known_end(shard))
            if self._writer.in_reserve:
                return  # user data never take the reserve of a full disk: it will be reported, once its data ledger has it
            self._builder.carry(shard, records_end, entries_end, body)
        except (ShardNotOpen, ImpossibleReport, NotPermitted) as error:
            self._refuse(peer, error)
        self._advance()

    def subscribe(self, peer: MessagePeer, request_id: int, request: protocol.Subscribe) -> None:
        """Answers from where entries are pushed; what is older is to be read from the ledger. Raises TermOver."""
        self._check_term(request.term)
        recent = self.recent
        if request.next_entry > recent.end:
            raise ProtocolError(
                f"expected a participant that has at most the {recent.end} entries acknowledged in term {self.term}, found "
                f"one that asks from {request.next_entry} on",
                expected=recent.end,
                found=request.next_entry,
            )
        first = max(request.next_entry, recent.first)
        peer.respond(request_id, protocol.OP_SUBSCRIBE, protocol.encode_subscribed(first, recent.end))
        if first > request.next_entry:
            return
        if first < recent.end:
            peer.push(protocol.OP_ENTRIES, *protocol.encode_entries(self.term, first, recent.since(first)))
        self._subscribers.peers[peer] = None

    def peer_lost(self, peer: MessagePeer) -> None:
        """The connection ended: its engines have the grace to come back."""
        self._peers.pop(peer, None)
        self._subscribers.peers.pop(peer, None)
        self._asked = [asked for asked in self._asked if asked.peer is not peer]
        self._yields = [waiter for waiter in self._yields if waiter.peer is not peer]
        self._waiters.forget_barriers(lambda waiter: waiter.peer is peer)
        self._owners.peer_lost(peer, over=self.over is not None)

    def end(self, error: BokiError) -> None:
        """Nothing more is ordered: all participants are notified. Idempotent."""
        if self.over is not None:
            return
        self.over = error
        _log.info("term over", term=self.term, entries=self.recent.end, end_pos=self.vector.end_pos, reason=error)
        self._owners.end()
        self._rolling.end()
        taken, left = self._waiters.clear()
        perhaps: list[_Asked | _Waiter] = [*self._asked, *taken]
        self._asked = []
        if not self.orderly:
            perhaps += self._yields
            self._yields = []
            self._writer.abandon()
        for one in perhaps:
            one.peer.respond_error(one.request_id, self._ended_meanwhile())
        for waiter in left:
            waiter.peer.respond_error(waiter.request_id, self._term_over())
        for peer in self._peers:
            peer.push(protocol.OP_TERM_OVER, protocol.encode_term(self.term))
        self._subscribers.peers.clear()
        self._ended(error)

    async def close_metalog(self) -> None:
        """After an orderly end: closes the metalog and answers YIELDs. Raises what kept it from being closed."""
        assert self.orderly
        yields, self._yields = self._yields, []
        try:
            await self._writer.close()
        except BaseException as error:
            self._writer.abandon()
            for waiter in yields:
                waiter.peer.respond_error(waiter.request_id, error)
            raise
        for waiter in yields:
            waiter.peer.respond(waiter.request_id, waiter.opcode)

    def status(self) -> dict[str, Any]:
        """For people: where the term is."""
        return {
            "term": self.term,
            "slots": self.slots,
            "metalog_ledger": self._writer.ledger_id,
            "entries": self.recent.end,
            "end_pos": self.vector.end_pos,
            "time_ms": self.vector.time_ms,
            "now_ms": self._clock.now_ms(),
            "orders_waiting": len(self._waiters.orders),
            "barriers_waiting": len(self._waiters.barriers) + len(self._waiters.proving),
            "subscribers": len(self._subscribers.peers),
            "engines": sorted(self._owners.engines),
            "shards": [
                {"shard": shard, "incarnation": incarnation, "records": end.records_end, "entries": end.entries_end}
                for shard, incarnation in self._builder.shards.items()
                if (end := self.vector.shards.get(shard)) is not None
            ],
            "over": None if self.over is None else str(self.over),
        }

    # -- the loop: one entry in flight

    def _advance(self) -> None:
        if self._in_flight is not None or self.over is not None or not self._builder.waits:
            return
        expected = self.recent.end
        try:
            entry = self._builder.take(self._clock.now_ms())
            assert entry is not None, "something waits"
            commands, waiters = entry.commands, self._waiters
            if commands or waiters.barriers:
                waiters.taken(sum(not isinstance(one, (Open, Close)) for one in commands))
            data = encode(entry)
            self._in_flight = entry, data, self._loop.time()
            submitted = self._writer.submit(data, now=True)
        except BokiError as error:
            self.end(error)
            return
        assert submitted == expected, f"metalog entry {expected} became {submitted}: somebody else wrote to the ledger"

    def _acked(self, last_acked: int) -> None:
        if self._in_flight is None or last_acked < self.recent.end or self.over is not None:
            return
        entry, data, submitted_s = self._in_flight
        self._in_flight = None
        first = self.recent.end
        self.recent.append(data)
        if self._waiters.in_flight:
            position = protocol.encode_position(Position(self.term, first + 1))
            for waiter in self._waiters.acked():
                waiter.peer.respond(waiter.request_id, waiter.opcode, position)
        self._push(first, data)
        rolling = self._rolling
        rolling.ordered(first + 1, records=entry.end_pos > 0, commands=bool(entry.commands))
        if entry.commands and any(isinstance(one, Trim) for one in entry.commands):
            rolling.trimmed = True
        if rolling.trimmed and self._writer.in_reserve:
            rolling.disks_are_full()
        over = self._yielded() if self._yields else rolling.perhaps_full(first + 1)
        if over is None and self._builder.waits:
            self._advance()
        self.vector.apply(entry)  # also asserts, on every entry, that followers will accept what was written
        if entry.commands:
            self._answer_asked()
        self._metrics.acked(entry.end_pos - entry.start_pos, self._loop.time() - submitted_s)
        if over is not None:
            self._end_orderly(over)

    def _push(self, first: int, data: bytes) -> None:
        self._subscribers.push(first, data)

    def _answer_asked(self) -> None:
        """Answers the OPENs and CLOSEs whose entries are acknowledged."""
        waiting = []
        for asked in self._asked:
            opcode, peer, request_id, shard = asked
            opened = shard in self.vector.shards
            closed = not opened and shard < self.vector.next_shard
            if opcode == protocol.OP_OPEN and opened:
                peer.respond(request_id, opcode, protocol.encode_shard(shard))
            elif opcode == protocol.OP_OPEN and closed:
                peer.respond_error(request_id, ShardNotOpen(f"shard {shard} is closed again", shard=shard))
            elif opcode == protocol.OP_CLOSE and closed:
                peer.respond(request_id, opcode)
            else:
                waiting.append(asked)
        self._asked = waiting

    def _writer_failed(self, error: BokiError) -> None:
        self.end(error)

    # -- the end of a term that lasted long enough

    def _yielded(self) -> TermOver:
        return TermOver(f"term {self.term} was asked to end: somebody replaces it", term=self.term)

    def _end_orderly(self, error: BokiError) -> None:
        if self.over is None:
            self.orderly = True
            self.end(error)

    def _aged(self) -> None:
        """Rolls a term without traffic. What is in flight does it by its acknowledgement."""
        full = self._rolling.full(self.recent.end)
        if full is not None and self._in_flight is None:
            self._end_orderly(full)

    # -- engines

    def _engine_lost(self, incarnation: str) -> None:
        shards = self._builder.close_all_of(incarnation)
        if shards:
            _log.info("engine lost, its shards are closed", term=self.term, engine=incarnation, shards=shards)
        self._advance()

    def _refuse(self, peer: MessagePeer, error: BokiError) -> None:
        self._metrics.refused.inc()
        _log.debug("report refused", term=self.term, peer=peer.peer, error=error)
        peer.push(protocol.OP_REFUSED, errors.to_wire(error))

    def _check_term(self, term: int) -> None:
        if term != self.term or self.over is not None:
            raise TermOver(
                f"expected a message of term {self.term}, {'which is over' if self.over else 'which runs'}, found term "
                f"{term}; read /boki/view",
                term=term,
            )

    def _check_room(self) -> None:
        if len(self._asked) >= limits.BARRIERS_WAITING:
            raise Overloaded(f"{len(self._asked)} requests wait for a metalog entry; try again later")

    def _check_slot(self, book: int) -> None:
        slot = slot_of(book)
        if not any(first <= slot <= last for first, last in self.slots):
            raise SlotNotInTerm(
                f"expected a book of the slots {list(map(tuple, self.slots))} of term {self.term}, found book {book} of "
                f"slot {slot}; read /boki/view for the term that orders it",
                term=self.term,
                slot=slot,
            )

    def _check_lost(self, lost: Lost) -> None:
        """As a TRIM, a LOST acts on what was ordered before it only."""
        end = self.vector.shards.get(lost.shard)
        if lost.term > self.term or (
            lost.term == self.term
            and (lost.shard >= self.vector.next_shard or (end is not None and lost.stop_entry > end.entries_end))
        ):
            raise InvalidArgument(
                f"expected entries that were ordered until now in term {self.term}, found {lost.first_entry} to below "
                f"{lost.stop_entry} of shard {lost.shard} of term {lost.term}",
                term=self.term,
            )

    def _term_over(self) -> TermOver:
        return TermOver(f"term {self.term} is over; read /boki/view for the next one", term=self.term)

    def _ended_meanwhile(self) -> TermEndedMeanwhile:
        return TermEndedMeanwhile(
            f"term {self.term} ended before the entry with the request was known to be durable: recovery may have kept it, or "
            "not; read /boki/view for the next term and ask again",
            term=self.term,
        )
