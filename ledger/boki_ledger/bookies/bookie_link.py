"""What is asked of one bookie in v2, on one connection (`link_life`): matches answers to requests.

BookKeeper's v2 answers name ledger and entry, not the request. So that no answer reaches the wrong requester:
- a link carries at most one channel per ledger, and none while answers of an earlier channel of that ledger are outstanding
  (`can_carry`); a second channel goes to another link;
- reads of one (ledger, entry) are answered in order of asking, and one with another fence key (or none) is held back until
  the earlier ones are answered: a plain answer proves no fence.
Holds are matched by ledger and version, in order of asking. Batch reads carry an id, and are matched by it. A bookie that refuses
one as a bad request, or ends two connections in a row that had some unanswered, is asked for none again: it is older than they are.

A connection that is lost makes everything on it *unknown*.

One loop over the frames of a network read; acks of consecutive entries travel as runs, without an object per entry. A plain
read that is the only one of its entry, as nearly all are, is a future in a dict and nothing else; the reads of one turn of the
loop leave as one buffer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from boki_common import limits
from boki_common.bookkeeper import v2
from boki_common.bookkeeper.auth import AuthMessage
from boki_common.bookkeeper.status import V2Status
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import BokiError, CallTimeout, ConnectionLost, Overloaded, ProtocolError
from boki_common.ids import BookieId
from boki_common.net.connection import FrameConnection
from boki_common.runtime.ports import Buffer
from boki_ledger.bookies.bookie_directory import BookieDirectory
from boki_ledger.bookies.link_life import LinkLife
from boki_ledger.settings import LedgerSettings
from boki_ledger.transport import BatchAnswer, ChannelListener, Outcome, ReadAnswer

UNSENT_BYTES: Final = 4 * limits.CONNECTION_UNSENT_BYTES
"""More than one writer's window: a bookie that takes no more bytes than this behind is dropped as failed."""

BATCH_STRIKES: Final = 2
"""Connections in a row that ended with batch reads unanswered, after which a bookie is taken to know none."""

_ANSWER: Final = Struct(">BBHIqq")
"""What every v2 response begins with: version, opcode, flags, status, ledger, entry."""
_ACK: Final = Struct(">Qqq")
_ACK_BYTES: Final = _ACK.size
_ACK_WORD: Final = (v2.VERSION << 8 | v2.OP_ADD) << 48
"""The first four of them of an acknowledged add, as one number."""


class Channel:
    """See `transport.AddChannel`. `unanswered` counts its adds on the present connection."""

    __slots__ = ("_link", "ledger_id", "listener", "unanswered")

    def __init__(self, link: BookieLink, ledger_id: int, listener: ChannelListener) -> None:
        self._link = link
        self.ledger_id = ledger_id
        self.listener = listener
        self.unanswered = 0

    @property
    def up(self) -> bool:
        return self._link.connection is not None

    def send(self, frame: Sequence[Buffer]) -> None:
        connection = self._link.connection
        if connection is not None:
            self.unanswered += 1
            connection.send(*frame)
            self._link.look_after(connection)

    def send_all(self, frames: Sequence[Sequence[Buffer]], count: int, buffers: Sequence[Buffer]) -> None:
        link = self._link
        connection = link.connection
        if connection is not None:
            self.unanswered += count
            connection.send_now(buffers)
            if connection.paused or link.life.ticking is None:
                link.look_after(connection)

    def drop(self, error: BokiError) -> None:
        self._link.drop(error)

    def close(self) -> None:
        self._link.close_channel(self)


@dataclass(slots=True, eq=False)
class _Read:
    future: asyncio.Future[ReadAnswer]
    fence_key: bytes | None
    sent: bool = False

    def resolve(self, answer: ReadAnswer) -> None:
        if not self.future.done():
            self.future.set_result(answer)


@dataclass(slots=True, eq=False)
class _BatchRead:
    future: asyncio.Future[BatchAnswer]
    ledger_id: int
    entry_id: int
    max_count: int
    max_bytes: int
    sent: bool = False

    def resolve(self, answer: BatchAnswer) -> None:
        if not self.future.done():
            self.future.set_result(answer)


@dataclass(slots=True, eq=False)
class _Hold:
    future: asyncio.Future[Outcome]
    master_key: bytes
    sent: bool = False

    def resolve(self, answer: Outcome) -> None:
        if not self.future.done():
            self.future.set_result(answer)


class BookieLink:
    """See the module. A `link_life.LinkUser`; `connection` is set exactly while frames may be sent on it."""

    def __init__(
        self,
        bookie: BookieId,
        directory: BookieDirectory,
        settings: LedgerSettings,
        on_idle: Callable[[BookieLink], None],
        token: ClusterToken = NO_TOKEN,
    ) -> None:
        self.bookie = bookie
        self.connection: FrameConnection | None = None
        self._settings = settings
        self.life = LinkLife(bookie, self, directory, settings, token)
        self._on_idle = on_idle
        self._loop = asyncio.get_running_loop()
        self._channels: dict[int, Channel] = {}
        self._leftover: dict[int, int] = {}
        self._single_reads: dict[tuple[int, int], asyncio.Future[ReadAnswer]] = {}
        """Plain reads that were sent and have their entry for themselves; none of it is in `_reads`."""
        self._reads: dict[tuple[int, int], deque[_Read]] = {}
        self._unsent_reads: list[bytes] = []
        """For the end of this turn of the loop."""
        self._holds: dict[tuple[int, int], list[_Hold]] = {}
        self._batches: dict[int, _BatchRead] = {}
        self._batch_id = 0
        self._batch_strikes = 0
        self._read_count = 0
        self._connections = 0

    @property
    def error(self) -> BokiError | None:
        """Why the link is down, if it is."""
        return self.life.error

    # -- requests

    def can_carry(self, ledger_id: int) -> bool:
        """Whether a channel of the ledger may be opened here."""
        return ledger_id not in self._channels and ledger_id not in self._leftover

    def open_channel(self, ledger_id: int, listener: ChannelListener) -> Channel:
        assert self.can_carry(ledger_id) and not self.life.closed
        channel = self._channels[ledger_id] = Channel(self, ledger_id, listener)
        if self.error is not None:
            self._loop.call_soon(self._report_late, channel, self.error)
            self.life.poke()
        self.life.want()
        return channel

    def close_channel(self, channel: Channel) -> None:
        if self._channels.get(channel.ledger_id) is not channel:
            return
        del self._channels[channel.ledger_id]
        if channel.unanswered:
            self._leftover[channel.ledger_id] = channel.unanswered
        self._check_idle()

    def look_after(self, connection: FrameConnection) -> None:
        """After adds were sent, if it is `paused` or the life of the link does not tick."""
        if self.life.ticking is None:
            self.life.start_ticking()
        if connection.paused and connection.unsent_bytes > UNSENT_BYTES:
            self._loop.call_soon(
                self.drop, Overloaded(f"bookie {self.bookie} is {UNSENT_BYTES} bytes behind", bookie_id=self.bookie)
            )

    def read(self, ledger_id: int, entry_id: int, fence_key: bytes | None) -> asyncio.Future[ReadAnswer]:
        """See `transport.BookieTransport.read`."""
        future: asyncio.Future[ReadAnswer] = self._loop.create_future()
        up = self.connection is not None
        if (not up or self._read_count >= limits.CONNECTION_CALLS) and (error := self._read_refusal()) is not None:
            future.set_result(ReadAnswer(None, error=error))
            return future
        key = (ledger_id, entry_id)
        self._read_count += 1
        earlier = self._single_reads.pop(key, None)
        if earlier is not None:
            self._reads[key] = deque((_Read(earlier, None, sent=True),))
        elif up and fence_key is None and key not in self._reads:
            self._single_reads[key] = future
            self._send_read(v2.encode_read(ledger_id, entry_id))
            return future
        self._reads.setdefault(key, deque()).append(_Read(future, fence_key))
        if up:
            self._send_reads(ledger_id, entry_id)
        self.life.want()
        return future

    def read_batch(self, ledger_id: int, entry_id: int, max_count: int, max_bytes: int) -> asyncio.Future[BatchAnswer]:
        """See `transport.BookieTransport.read_batch`."""
        future: asyncio.Future[BatchAnswer] = self._loop.create_future()
        if (error := self._read_refusal()) is not None:
            future.set_result(BatchAnswer(None, [], error))
            return future
        self._batch_id += 1
        self._batches[self._batch_id] = _BatchRead(future, ledger_id, entry_id, max_count, max_bytes)
        self._read_count += 1
        if self.connection is not None:
            self._send_batch(self._batch_id)
        self.life.want()
        return future

    def hold(self, ledger_id: int, master_key: bytes, version: int) -> asyncio.Future[Outcome]:
        """See `transport.BookieTransport.hold_ledger`."""
        future: asyncio.Future[Outcome] = self._loop.create_future()
        if (error := self._read_refusal()) is not None:
            future.set_result(Outcome(None, error))
            return future
        self._read_count += 1
        hold = _Hold(future, master_key)
        timeout_s = self._settings.answer_timeout_s
        timer = self._loop.call_later(timeout_s, self._hold_timed_out, hold, timeout_s)
        future.add_done_callback(lambda _: timer.cancel())
        self._holds.setdefault((ledger_id, version), []).append(hold)
        if self.connection is not None:
            self._send_holds(ledger_id, version)
        self.life.want()
        return future

    @property
    def serves_batches(self) -> bool:
        """See `transport.BookieTransport.serves_batches`."""
        return self._batch_strikes < BATCH_STRIKES

    def _read_refusal(self) -> BokiError | None:
        """Why nothing can be read now, if so."""
        if self._read_count >= limits.CONNECTION_CALLS:
            return Overloaded(f"{limits.CONNECTION_CALLS} reads of bookie {self.bookie} are unanswered")
        return self.life.refusal()

    def drop(self, error: BokiError) -> None:
        """Ends the connection; requests on it end as unknown."""
        self.life.drop(error)

    async def close(self) -> None:
        """Ends the link for good; reads end as unknown, listeners are not called. Idempotent."""
        self._channels.clear()
        error = ConnectionLost(f"the client of bookie {self.bookie} is closed", bookie_id=self.bookie)
        await self.life.close(error)
        self._fail_reads(error)

    # -- what the life of the connection calls

    def greeting(self, message: AuthMessage) -> Buffer:
        return v2.encode_auth(message)

    def welcome(self, frame: memoryview) -> AuthMessage:
        return v2.decode_auth(frame)

    def link_up(self) -> None:
        self._connections += 1
        for channel in tuple(self._channels.values()):
            channel.listener.channel_up()
        for key in tuple(self._reads):
            self._send_reads(*key)
        for request_id in tuple(self._batches):
            self._send_batch(request_id)
        for held in tuple(self._holds):
            self._send_holds(*held)

    def link_down(self, error: BokiError, *, known: bool) -> None:
        self._leftover.clear()
        self._unsent_reads.clear()
        if any(batch.sent for batch in self._batches.values()):
            self._batch_strikes += 1
        if not known:
            for channel in tuple(self._channels.values()):
                channel.unanswered = 0
                channel.listener.channel_down(error)
        self._fail_reads(error)

    @property
    def idle(self) -> bool:
        """Nobody wants anything of the link."""
        return not (
            self._channels or self._leftover or self._single_reads or self._reads or self._batches or self._holds
        )

    def outstanding(self) -> bool:
        return bool(self._single_reads or self._reads or self._batches or self._holds or self._leftover) or any(
            channel.unanswered for channel in self._channels.values()
        )

    def connection_lost(self, error: BokiError | None) -> None:
        self.life.connection_lost(error)

    def frames_received(self, frames: list[memoryview]) -> None:
        self.life.reads_seen += 1
        try:
            frame, *others = frames
            if frame.nbytes == _ACK_BYTES and not others:  # as a writer gets them that waits for each
                word, ledger_id, entry_id = _ACK.unpack(frame)
                channels = self._channels
                if word == _ACK_WORD and ledger_id in channels and (channel := channels[ledger_id]).unanswered:
                    channel.unanswered -= 1
                    channel.listener.adds_answered(((entry_id, 1),), ())
                    return
            self._take(frames)
        except ProtocolError as error:
            self.life.drop(error)

    def _take(self, frames: list[memoryview]) -> None:
        runs: dict[int, list[tuple[int, int]]] = {}
        refused: dict[int, list[tuple[int, V2Status]]] = {}
        run_ledger, run_first, run_next = -1, 0, 0
        single, reads = self._single_reads, 0
        columns = v2.answer_columns(frames)
        for at, (version, opcode, _, code, ledger_id, entry_id) in enumerate(columns):
            if opcode != v2.OP_ADD or version != v2.VERSION:
                if code == 0 and opcode == v2.OP_READ and version == v2.VERSION and (ledger_id, entry_id) in single:
                    reads += 1
                    future = single.pop((ledger_id, entry_id))
                    if not future.done():
                        body = frames[at][_ANSWER.size :]
                        future.set_result(ReadAnswer(V2Status.OK, body, None, self._connections))
                else:
                    self._other_answer(frames[at])
            elif code != 0:
                refused.setdefault(ledger_id, []).append((entry_id, _status(code)))
            elif ledger_id == run_ledger and entry_id == run_next:
                run_next += 1
            else:
                if run_ledger >= 0:
                    runs.setdefault(run_ledger, []).append((run_first, run_next - run_first))
                run_ledger, run_first, run_next = ledger_id, entry_id, entry_id + 1
        if run_ledger >= 0:
            runs.setdefault(run_ledger, []).append((run_first, run_next - run_first))
        for ledger_id in dict.fromkeys((*runs, *refused)):
            self._adds_answered(ledger_id, runs.get(ledger_id, []), refused.get(ledger_id, []))
        if reads:
            self._read_count -= reads
            self._check_idle()

    def _adds_answered(self, ledger_id: int, acked: list[tuple[int, int]], refused: list[tuple[int, V2Status]]) -> None:
        count = len(refused)
        for _, length in acked:
            count += length
        channel = self._channels.get(ledger_id)
        outstanding = channel.unanswered if channel is not None else self._leftover.get(ledger_id, 0)
        if count > outstanding:
            raise ProtocolError(
                f"bookie {self.bookie} answered {count} adds of ledger {ledger_id}, {outstanding} were outstanding"
            )
        if channel is not None:
            channel.unanswered -= count
            channel.listener.adds_answered(acked, refused)
        elif count == outstanding:
            del self._leftover[ledger_id]
            self._check_idle()
        else:
            self._leftover[ledger_id] = outstanding - count

    def _other_answer(self, frame: memoryview) -> None:
        if frame[0] == v2.VERSION and frame[1] == v2.OP_BATCH_READ:
            self._batch_answer(frame)
            return
        response = v2.decode_response(frame)
        if isinstance(response, v2.HoldResponse):
            self._hold_answer(response)
            return
        if not isinstance(response, v2.ReadResponse):
            raise ProtocolError(f"bookie {self.bookie} answered what nobody asked: {type(response).__name__}")
        self._read_answer(response)

    def _read_answer(self, response: v2.ReadResponse) -> None:
        """Resolve the oldest read of this entry that was sent, and send the next one. Raises ProtocolError: none is open."""
        key = (response.ledger_id, response.entry_id)
        if (future := self._single_reads.pop(key, None)) is not None:
            self._reads[key] = deque((_Read(future, None, sent=True),))
        reads = self._reads.get(key)
        if not reads or not reads[0].sent:
            raise ProtocolError(
                f"bookie {self.bookie} answered a read of entry {key[1]} of ledger {key[0]}: none is open"
            )
        self._read_count -= 1
        reads.popleft().resolve(ReadAnswer(response.status, response.body, None, self._connections))
        if reads:
            self._send_reads(*key)
        else:
            del self._reads[key]
            self._check_idle()

    def _batch_answer(self, frame: memoryview) -> None:
        if len(frame) == _ANSWER.size and _ANSWER.unpack_from(frame)[3] == V2Status.BAD_REQUEST:
            # How a bookie answers what it does not know: without the id, one after another.
            request_id = next(iter(self._batches), 0)
            answer = BatchAnswer(V2Status.BAD_REQUEST, [])
            batch = self._batches.get(request_id)
            expected = batch is not None and batch.sent
        else:
            response = v2.decode_response(frame)
            assert isinstance(response, v2.BatchReadResponse)
            request_id, answer = response.request_id, BatchAnswer(response.status, response.bodies)
            batch = self._batches.get(request_id)
            expected = (
                batch is not None
                and batch.sent
                and (batch.ledger_id, batch.entry_id) == (response.ledger_id, response.entry_id)
                and len(response.bodies) <= batch.max_count
            )
        if not expected:
            raise ProtocolError(f"bookie {self.bookie} answered a batch read {request_id} that was not asked so")
        assert batch is not None
        self._batch_strikes = BATCH_STRIKES if answer.status is V2Status.BAD_REQUEST else 0
        del self._batches[request_id]
        self._read_count -= 1
        batch.resolve(answer)
        self._check_idle()

    def _send_batch(self, request_id: int) -> None:
        batch = self._batches[request_id]
        assert self.connection is not None and not batch.sent
        batch.sent = True
        frame = v2.encode_batch_read(
            batch.ledger_id,
            batch.entry_id,
            request_id=request_id,
            max_count=batch.max_count,
            max_bytes=batch.max_bytes,
        )
        self.connection.send_now((frame,))
        if self.life.ticking is None:
            self.life.start_ticking()

    def _send_reads(self, ledger_id: int, entry_id: int) -> None:
        """Sends what may be sent: the unsent reads that have the fence key of the first."""
        reads = self._reads[ledger_id, entry_id]
        assert self.connection is not None
        key = reads[0].fence_key
        for read in reads:
            if read.fence_key != key:
                break
            if not read.sent:
                read.sent = True
                fencing = key is not None
                self._send_read(v2.encode_read(ledger_id, entry_id, fence_key=key, high_priority=fencing))

    def _send_read(self, frame: bytes) -> None:
        """At the end of this turn of the loop, with the others of it."""
        if not self._unsent_reads:
            self._loop.call_soon(self._send_unsent_reads)
        self._unsent_reads.append(frame)
        if self.life.ticking is None:
            self.life.start_ticking()

    def _send_unsent_reads(self) -> None:
        frames, self._unsent_reads = self._unsent_reads, []
        if frames and self.connection is not None:
            self.connection.send_now((b"".join(frames),))

    # -- inside

    def _send_holds(self, ledger_id: int, version: int) -> None:
        assert self.connection is not None
        for hold in self._holds[ledger_id, version]:
            if not hold.sent:
                hold.sent = True
                self.connection.send(v2.encode_hold(ledger_id, hold.master_key, version))
        if self.life.ticking is None:
            self.life.start_ticking()

    def _hold_answer(self, answer: v2.HoldResponse) -> None:
        key = (answer.ledger_id, answer.version)
        holds = self._holds.get(key)
        if not holds or not holds[0].sent:
            raise ProtocolError(f"bookie {self.bookie} answered a hold of ledger {key[0]} that was not asked for")
        self._read_count -= 1
        holds.pop(0).resolve(Outcome(answer.status))
        if not holds:
            del self._holds[key]
            self._check_idle()

    def _hold_timed_out(self, hold: _Hold, timeout_s: float) -> None:
        """It stays in its place: a late answer is its own."""
        error = CallTimeout(f"bookie {self.bookie} gave no answer within {timeout_s} s", bookie_id=self.bookie)
        hold.resolve(Outcome(None, error))

    def _check_idle(self) -> None:
        if self.idle:
            self._on_idle(self)

    def _report_late(self, channel: Channel, error: BokiError) -> None:
        if self._channels.get(channel.ledger_id) is channel and not channel.up:
            channel.listener.channel_down(error)

    def _fail_reads(self, error: BokiError) -> None:
        single, self._single_reads = self._single_reads, {}
        for future in single.values():
            if not future.done():
                future.set_result(ReadAnswer(None, error=error))
        reads, self._reads, self._read_count = self._reads, {}, 0
        for queue in reads.values():
            for read in queue:
                read.resolve(ReadAnswer(None, error=error))
        batches, self._batches = self._batches, {}
        for batch in batches.values():
            batch.resolve(BatchAnswer(None, [], error))
        holds, self._holds = self._holds, {}
        for same in holds.values():
            for hold in same:
                hold.resolve(Outcome(None, error))


def _status(code: int) -> V2Status:
    try:
        return V2Status(code)
    except ValueError as error:
        raise ProtocolError(f"expected a known result code, found {code}", found=code) from error
