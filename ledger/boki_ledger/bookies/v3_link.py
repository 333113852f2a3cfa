"""What is asked of one bookie in v3, on one connection of its own (`link_life`): matches answers to requests by their ids.

A connection of its own, because Apache's bookies decide the protocol of a connection for good at the first frame that is
not v3: after one v2 frame they understand no v3 on it (`BookieProtoEncoding.RequestDecoder`). Bookies of ours would.

- Every request has an id that no other on this connection has, so any number of channels of one ledger may share it, and no
  answer can reach the wrong requester.
- LAC reads and writes, long polls, force, and questions about the bookie end as unknown when no answer came in time; a
  later answer is dropped. Adds and reads end by their callers' time-outs, as in v2.
- A long poll that is waiting is no sign of a hung bookie; one that is not even answered when its wait is over is, if
  nothing else came meanwhile.
- Outstanding requests are bounded, those given up as well.

Adds arrive as v2 frames, which is the form that a writer keeps; they are written anew for v3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from boki_common import limits
from boki_common.bookkeeper import v2, v3, v3_messages
from boki_common.bookkeeper.auth import AuthMessage
from boki_common.bookkeeper.status import V2Status
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import BokiError, CallTimeout, ConnectionLost, Overloaded, ProtocolError
from boki_common.ids import BookieId
from boki_common.net.connection import FrameConnection
from boki_common.runtime.ports import Buffer
from boki_ledger.bookies.bookie_directory import BookieDirectory
from boki_ledger.bookies.bookie_link import UNSENT_BYTES
from boki_ledger.bookies.link_life import LinkLife
from boki_ledger.settings import LedgerSettings
from boki_ledger.transport import (
    ChannelListener,
    EntriesAnswer,
    LacAnswer,
    Outcome,
    PollAnswer,
    ReadAnswer,
    SpaceAnswer,
)

HIGH_PRIORITY: Final = 100
"""Of fencing reads and recovery adds, as Apache's client has it: a bookie that is full still takes them."""
_GREETING: Final = 0
"""Transaction of the handshake: nothing else is under way then."""

Answer = ReadAnswer | LacAnswer | Outcome | PollAnswer | SpaceAnswer | EntriesAnswer
_Taken = Callable[[Any], Answer]
"""From the response of the kind that is expected."""


class V3Channel:
    """See `transport.AddChannel`. The ids of adds distinguish several channels of one ledger."""

    __slots__ = ("_link", "deferred_sync", "ledger_id", "listener", "open")

    def __init__(self, link: V3Link, ledger_id: int, listener: ChannelListener, *, deferred_sync: bool) -> None:
        self._link = link
        self.ledger_id = ledger_id
        self.listener = listener
        self.deferred_sync = deferred_sync
        self.open = True

    @property
    def up(self) -> bool:
        return self._link.connection is not None

    def send(self, frame: Sequence[Buffer]) -> None:
        if self._link.connection is not None:
            self._link.send_add(self, frame)

    def send_all(self, frames: Sequence[Sequence[Buffer]], count: int, buffers: Sequence[Buffer]) -> None:
        for frame in frames:
            self.send(frame)

    def drop(self, error: BokiError) -> None:
        self._link.drop(error)

    def close(self) -> None:
        self.open = False
        self._link.close_channel(self)


@dataclass(slots=True, eq=False)
class _Call:
    """One request but an add. `poll` while it may wait at the bookie."""

    future: asyncio.Future[Any]
    kind: type[v3.Response]
    ledger_id: int | None
    taken: _Taken
    answer: Callable[..., Answer]
    poll: bool
    frame: bytes = b""
    reads_at_send: int = 0
    timer: asyncio.TimerHandle | None = None

    def resolve(self, answer: Answer) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            self.future.set_result(answer)


class V3Link:
    """See the module. A `link_life.LinkUser`."""

    def __init__(
        self,
        bookie: BookieId,
        directory: BookieDirectory,
        settings: LedgerSettings,
        token: ClusterToken = NO_TOKEN,
    ) -> None:
        self.bookie = bookie
        self.connection: FrameConnection | None = None
        self._settings = settings
        self._life = LinkLife(bookie, self, directory, settings, token)
        self._loop = asyncio.get_running_loop()
        self._channels: dict[V3Channel, None] = {}
        self._adds: dict[int, tuple[V3Channel, int]] = {}
        self._calls: dict[int, _Call] = {}
        self._polls = 0
        self._late: dict[int, None] = {}
        self._txn_id = 0
        self._connections = 0

    @property
    def error(self) -> BokiError | None:
        """Why the link is down, if it is."""
        return self._life.error

    # -- adds

    def open_channel(self, ledger_id: int, listener: ChannelListener, *, deferred_sync: bool = False) -> V3Channel:
        """See `transport.BookieTransport.open_channel`."""
        assert not self._life.closed
        channel = V3Channel(self, ledger_id, listener, deferred_sync=deferred_sync)
        self._channels[channel] = None
        if self._life.error is not None:
            self._loop.call_soon(self._report_late, channel, self._life.error)
            self._life.poke()
        self._life.want()
        return channel

    def close_channel(self, channel: V3Channel) -> None:
        self._channels.pop(channel, None)

    def send_add(self, channel: V3Channel, frame: Sequence[Buffer]) -> None:
        """Sends an add of one of the channels, given as v2 frame; the link must be up."""
        connection = self.connection
        assert connection is not None
        add = v2.decode_request(memoryview(b"".join(frame))[4:])
        assert isinstance(add, v2.AddRequest)
        txn_id = self._next_txn_id()
        priority = HIGH_PRIORITY if add.recovery else None
        request = v3_messages.AddRequest(
            txn_id, priority, add.ledger_id, add.entry_id, add.master_key, add.body, add.recovery, channel.deferred_sync
        )
        self._adds[txn_id] = channel, add.entry_id
        connection.send(v3.encode_request(request))
        if self._life.ticking is None:
            self._life.start_ticking()
        if connection.unsent_bytes > UNSENT_BYTES or len(self._adds) > limits.CONNECTION_CALLS:
            self._loop.call_soon(
                self.drop,
                Overloaded(
                    f"bookie {self.bookie} is {connection.unsent_bytes} bytes in {len(self._adds)} adds behind",
                    bookie_id=self.bookie,
                ),
            )

    # -- everything else

    def read(self, ledger_id: int, entry_id: int, fence_key: bytes | None) -> asyncio.Future[ReadAnswer]:
        """See `transport.BookieTransport.read`."""
        priority = None if fence_key is None else HIGH_PRIORITY

        def taken(found: v3_messages.ReadResponse) -> ReadAnswer:
            if found.entry_id != entry_id:
                raise ProtocolError(
                    f"bookie {self.bookie} answered a read of entry {entry_id} with {found.entry_id}",
                    expected=entry_id,
                    found=found.entry_id,
                )
            if found.status is V2Status.OK and found.body is None:
                raise ProtocolError(f"bookie {self.bookie} answered a read of entry {entry_id} without its body")
            return ReadAnswer(found.status, _view(found.body), None, self._connections)

        return self._ask(
            lambda txn_id: v3_messages.ReadRequest(txn_id, priority, ledger_id, entry_id, fence_key, False, -1, 0),
            v3_messages.ReadResponse,
            ledger_id,
            taken,
            lambda status, error: ReadAnswer(status, None, error, self._connections),
            timeout_s=None,
        )

    def read_lac(self, ledger_id: int) -> asyncio.Future[LacAnswer]:
        """See `transport.BookieTransport.read_lac`."""
        return self._ask(
            lambda txn_id: v3_messages.ReadLacRequest(txn_id, None, ledger_id),
            v3_messages.ReadLacResponse,
            ledger_id,
            lambda found: LacAnswer(found.status, _view(found.lac_body), _view(found.last_entry_body)),
            LacAnswer,
        )

    def write_lac(self, ledger_id: int, master_key: bytes, body: bytes) -> asyncio.Future[Outcome]:
        """See `transport.BookieTransport.write_lac`."""
        lac = int.from_bytes(body[8:16], "big", signed=True)
        return self._ask(
            lambda txn_id: v3_messages.WriteLacRequest(txn_id, None, ledger_id, lac, master_key, memoryview(body)),
            v3_messages.WriteLacResponse,
            ledger_id,
            _outcome,
            Outcome,
        )

    def force(self, ledger_id: int) -> asyncio.Future[Outcome]:
        """See `transport.BookieTransport.force`."""
        return self._ask(
            lambda txn_id: v3_messages.ForceRequest(txn_id, None, ledger_id),
            v3_messages.ForceResponse,
            ledger_id,
            _outcome,
            Outcome,
        )

    def wait_for_lac(self, ledger_id: int, previous_lac: int, wait_s: float) -> asyncio.Future[PollAnswer]:
        """See `transport.BookieTransport.wait_for_lac`."""

        def taken(found: v3_messages.ReadResponse) -> PollAnswer:
            if found.entry_id not in (v2.LAST_ENTRY, previous_lac + 1):
                raise ProtocolError(
                    f"bookie {self.bookie} answered a long poll above {previous_lac} with entry {found.entry_id}",
                    expected=previous_lac + 1,
                    found=found.entry_id,
                )
            return PollAnswer(found.status, found.lac, _view(found.body))

        return self._ask(
            lambda txn_id: v3_messages.ReadRequest(
                txn_id, None, ledger_id, v2.LAST_ENTRY, None, True, previous_lac, max(1, round(wait_s * 1000))
            ),
            v3_messages.ReadResponse,
            ledger_id,
            taken,
            PollAnswer,
            poll=True,
            timeout_s=wait_s + self._settings.answer_timeout_s,
        )

    def bookie_info(self) -> asyncio.Future[SpaceAnswer]:
        """See `transport.BookieTransport.bookie_info`."""
        return self._ask(
            lambda txn_id: v3_messages.BookieInfoRequest(txn_id, None, v3.INFO_TOTAL | v3.INFO_FREE),
            v3_messages.BookieInfoResponse,
            None,
            lambda found: SpaceAnswer(found.status, found.total_bytes, found.free_bytes),
            SpaceAnswer,
        )

    def list_entries(self, ledger_id: int) -> asyncio.Future[EntriesAnswer]:
        """See `transport.BookieTransport.list_entries`."""
        return self._ask(
            lambda txn_id: v3_messages.ListEntriesRequest(txn_id, None, ledger_id),
            v3_messages.ListEntriesResponse,
            ledger_id,
            lambda found: EntriesAnswer(found.status, found.availability),
            EntriesAnswer,
        )

    def _ask(
        self,
        request: Callable[[int], v3.KnownRequest],
        kind: type[v3.Response],
        ledger_id: int | None,
        taken: _Taken,
        answer: Callable[..., Answer],
        *,
        poll: bool = False,
        timeout_s: float | None = -1.0,
    ) -> asyncio.Future[Any]:
        """Sends a request, now or when the link is up. Without `timeout_s` it has `answer_timeout_s`; None is for ever.

        Its future has `answer` of a status or an error, or what `taken` makes of a response of the expected kind.
        """
        call = _Call(self._loop.create_future(), kind, ledger_id, taken, answer, poll)
        if (error := self._refusal()) is not None:
            call.resolve(call.answer(None, error=error))
            return call.future
        txn_id = self._next_txn_id()
        call.frame = v3.encode_request(request(txn_id))
        self._calls[txn_id] = call
        self._polls += call.poll
        if timeout_s is not None:
            seconds = self._settings.answer_timeout_s if timeout_s < 0 else timeout_s
            call.timer = self._loop.call_later(seconds, self._time_is_over, txn_id, seconds)
        if self.connection is not None:
            self._send_call(call)
        self._life.want()
        return call.future

    def _refusal(self) -> BokiError | None:
        if self._life.closed:
            return ConnectionLost(f"the client of bookie {self.bookie} is closed", bookie_id=self.bookie)
        if len(self._calls) >= limits.CONNECTION_CALLS:
            return Overloaded(f"{limits.CONNECTION_CALLS} requests to bookie {self.bookie} are unanswered")
        return self._life.refusal()

    def _next_txn_id(self) -> int:
        self._txn_id += 1
        return self._txn_id

    def _send_call(self, call: _Call) -> None:
        assert self.connection is not None
        frame, call.frame = call.frame, b""
        call.reads_at_send = self._life.reads_seen
        self.connection.send(frame)
        if self._life.ticking is None and not call.poll:
            self._life.start_ticking()

    def _time_is_over(self, txn_id: int, seconds: float) -> None:
        call = self._calls.pop(txn_id)
        self._polls -= call.poll
        error = CallTimeout(
            f"bookie {self.bookie} left a request ({call.kind.__name__}) unanswered for {seconds} s",
            bookie_id=self.bookie,
        )
        call.resolve(call.answer(None, error=error))
        if self.connection is None:
            return
        if not call.frame:
            self._late[txn_id] = None
        if (not call.frame and call.reads_at_send == self._life.reads_seen) or len(
            self._late
        ) > limits.LEDGER_LATE_ANSWERS:
            self.drop(error)

    # -- what the life of the connection calls

    def drop(self, error: BokiError) -> None:
        """Ends the connection; requests on it end as unknown."""
        self._life.drop(error)

    async def close(self) -> None:
        """Ends the link for good; what was asked is unknown, listeners are not called. Idempotent."""
        self._channels.clear()
        error = ConnectionLost(f"the client of bookie {self.bookie} is closed", bookie_id=self.bookie)
        await self._life.close(error)
        self._adds.clear()
        self._fail_calls(error)

    @property
    def idle(self) -> bool:
        """Nobody wants anything of the link."""
        return not (self._channels or self._adds or self._calls)

    def outstanding(self) -> bool:
        return bool(self._adds) or len(self._calls) > self._polls

    def greeting(self, message: AuthMessage) -> Buffer:
        return v3.encode_request(v3_messages.AuthRequest(_GREETING, None, message))

    def welcome(self, frame: memoryview) -> AuthMessage:
        response = v3.decode_response(frame)
        if not isinstance(response, v3_messages.AuthResponse):
            raise ProtocolError(f"expected the answer to a greeting from bookie {self.bookie}, found another")
        return response.message

    def link_up(self) -> None:
        self._connections += 1
        for channel in tuple(self._channels):
            channel.listener.channel_up()
        for txn_id, call in tuple(self._calls.items()):
            if call.future.done():  # its caller gave up before it could be sent
                del self._calls[txn_id]
                self._polls -= call.poll
                call.resolve(call.answer(None, error=None))
            else:
                self._send_call(call)

    def link_down(self, error: BokiError, *, known: bool) -> None:
        self._adds.clear()
        self._late.clear()
        if not known:
            for channel in tuple(self._channels):
                channel.listener.channel_down(error)
        self._fail_calls(error)

    def connection_lost(self, error: BokiError | None) -> None:
        self._life.connection_lost(error)

    def frames_received(self, frames: list[memoryview]) -> None:
        self._life.reads_seen += 1
        try:
            self._take(frames)
        except ProtocolError as error:
            self._life.drop(error)

    def _take(self, frames: list[memoryview]) -> None:
        acked: dict[V3Channel, list[tuple[int, int]]] = {}
        refused: dict[V3Channel, list[tuple[int, V2Status]]] = {}
        for frame in frames:
            response = v3.decode_response(frame)
            add = self._adds.pop(response.txn_id, None)
            if add is None:
                self._answered(response)
                continue
            channel, entry_id = add
            self._check_add(channel, entry_id, response)
            if response.status is not V2Status.OK:
                refused.setdefault(channel, []).append((entry_id, response.status))
                continue
            runs = acked.setdefault(channel, [])
            if runs and sum(runs[-1]) == entry_id:
                runs[-1] = runs[-1][0], runs[-1][1] + 1
            else:
                runs.append((entry_id, 1))
        for channel in dict.fromkeys((*acked, *refused)):
            if channel.open:
                channel.listener.adds_answered(acked.get(channel, []), refused.get(channel, []))

    def _check_add(self, channel: V3Channel, entry_id: int, response: v3.Response) -> None:
        if isinstance(response, v3_messages.UnknownResponse) and response.operation == v3.OP_ADD:
            return
        if not isinstance(response, v3_messages.AddResponse) or (response.ledger_id, response.entry_id) != (
            channel.ledger_id,
            entry_id,
        ):
            raise ProtocolError(
                f"bookie {self.bookie} answered an add of entry {entry_id} of ledger {channel.ledger_id} with {response}"
            )

    def _answered(self, response: v3.Response) -> None:
        txn_id = response.txn_id
        call = self._calls.get(txn_id)
        if call is None or call.frame:
            if txn_id not in self._late:
                raise ProtocolError(f"bookie {self.bookie} answered request {txn_id}, which nobody sent")
            del self._late[txn_id]
            return
        if isinstance(response, v3_messages.UnknownResponse):
            answer = call.answer(response.status, error=None)
        elif not isinstance(response, call.kind):
            raise ProtocolError(f"bookie {self.bookie}: expected {call.kind.__name__}, found {type(response).__name__}")
        elif call.ledger_id is not None and getattr(response, "ledger_id", None) != call.ledger_id:
            raise ProtocolError(f"bookie {self.bookie}: expected an answer about ledger {call.ledger_id}: {response}")
        else:
            answer = call.taken(response)
        del self._calls[txn_id]
        self._polls -= call.poll
        call.resolve(answer)

    # -- inside

    def _report_late(self, channel: V3Channel, error: BokiError) -> None:
        if channel.open and channel in self._channels and not channel.up:
            channel.listener.channel_down(error)

    def _fail_calls(self, error: BokiError) -> None:
        calls, self._calls, self._polls = self._calls, {}, 0
        for call in calls.values():
            call.resolve(call.answer(None, error=error))


def _outcome(found: v3_messages.WriteLacResponse | v3_messages.ForceResponse) -> Outcome:
    return Outcome(found.status)


def _view(body: Buffer | None) -> memoryview | None:
    return None if body is None else memoryview(body)
