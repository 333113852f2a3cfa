"""Hands calls about books that this engine does not index to an engine that does (DESIGN §7), over the SDK's own protocol.

Each connection of an SDK has its own connections to other engines, at most one for each set of them it needs. So everything
is passed through as it is: opcodes, tokens, and what the other engine pushes goes to the SDK that asked.

Rules:
- Never more than one hop: HELLO has `FORWARDED`, and an engine forwards nothing that came so.
- A slot keeps its way until that connection ends, so appends of a writer arrive in order. When it ends, or nobody can be
  reached in `FORWARD_WAIT_S`, appends that went there are refused: that ends the SDK's connection, and it sends what is
  undecided again, under the same numbers. Calls that were under way are repeated on another way: all may be.
- An engine that is listed no more is left alone, though its connection may look alive.
- Bounds: calls as in `server`; bytes of appends that are on their way, above which they are refused as Overloaded, and the SDK
  is not read from before that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from boki_common import limits
from boki_common.backoff import Backoff
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.engine import engine_protocol as wire
from boki_common.errors import (
    BokiError,
    CallTimeout,
    ConnectionLost,
    NetworkError,
    Overloaded,
    ProtocolError,
    Unreachable,
)
from boki_common.ids import slot_of
from boki_common.logs import get_logger
from boki_common.net.messages import MessagePeer
from boki_common.records.record_batch import RecordBatch, join
from boki_common.runtime.ports import Buffer
from boki_logbook.peers.engine_dial import dial_engine
from boki_metalog.terms.index_slots import EngineMember

FORWARDED: Final = "forwarded"
"""HELLO feature: these calls were forwarded once."""
FORWARD_WAIT_S: Final = limits.CALL_TIMEOUT_S
"""So long it is tried to reach an engine that indexes a slot."""
FORWARD_TRIES: Final = 3
"""Ways that one call is tried on."""
RETRY_FIRST_S: Final = 0.02
RETRY_LIMIT_S: Final = 0.5
CROWDED_BYTES: Final = limits.CONNECTION_UNSENT_BYTES // 8
"""Appends of one SDK on one way above which it is not read from for a while."""
_BOOK_BYTES: Final = 8

_log = get_logger("engine.forwarding")


class Requester(Protocol):
    """The connection of the SDK."""

    def answers_forwarded(self, body: memoryview) -> None:
        """Another engine pushed verdicts on what this SDK appended."""

    def refused(self, request_id: int, error: BokiError) -> None:
        """Appends that were forwarded may not have arrived: the SDK must send them again."""


def book_of(opcode: int, body: memoryview) -> int:
    """The book that a call is about; whoever serves it checks the rest. Raises ProtocolError."""
    if opcode != wire.OP_SET_AUX:
        _, body = wire.decode_token(body)
    if len(body) < _BOOK_BYTES:
        raise ProtocolError(f"expected a book in a call of opcode {opcode}, found {len(body)} bytes", found=len(body))
    return int.from_bytes(body[:_BOOK_BYTES], "little")


class Neighbours:
    """The engines of the cluster, as one that indexes some slots looks at them. `slots`: its own."""

    def __init__(self, slots: int, incarnation: Callable[[], str], token: ClusterToken = NO_TOKEN) -> None:
        self.slots: Final = slots
        self.token: Final = token
        """Sent to other engines."""
        self._incarnation = incarnation
        self._engines: list[EngineMember] = []
        self._changed: asyncio.Future[None] | None = None
        self._forwarders: dict[Forwarder, None] = {}

    def update(self, engines: Sequence[EngineMember]) -> None:
        """Engines came or went."""
        self._engines = list(engines)
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None
        for forwarder in list(self._forwarders):
            forwarder.engines_changed()

    def listed(self, incarnation: str) -> bool:
        return any(engine.incarnation == incarnation for engine in self._engines)

    def indexing(self, slots: int) -> list[EngineMember]:
        """Other engines that index all of some slots, the one to try first in front: not the same for every engine."""
        me = self._incarnation()
        found = [engine for engine in self._engines if engine.incarnation != me and engine.slots & slots == slots]
        at = int(me[:8], 16) % len(found) if found else 0
        return found[at:] + found[:at]

    async def changed(self, timeout_s: float) -> None:
        """Waits until engines come or go, for so long at most."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._changed], timeout=timeout_s)

    def forwarder(self, requester: Requester) -> Forwarder:
        """For a new connection; close it with that."""
        made = Forwarder(self, requester, lambda: self._forwarders.pop(made, None))
        self._forwarders[made] = None
        return made


class _Way:
    """A connection to another engine, made or being made. Implements MessageHandler."""

    def __init__(self, forwarder: Forwarder, slot: int) -> None:
        self.slots = 1 << slot
        """Slots that go this way."""
        self.engine: EngineMember | None = None
        self.appended: int | None = None
        """The request id of the last append; None: there was none."""
        self._forwarder = forwarder
        self._peer: MessagePeer | None = None
        self._queue: list[tuple[Buffer, ...]] = []
        self._queued_bytes = 0
        self._ended = False
        self._opening = asyncio.ensure_future(self._open())
        self._opening.add_done_callback(self._opened)

    @property
    def unsent_bytes(self) -> int:
        return self._queued_bytes + (0 if self._peer is None else self._peer.unsent_bytes)

    async def opened(self) -> MessagePeer:
        """The connection, once there is one. Raises Unreachable."""
        return await asyncio.shield(self._opening)

    async def drained(self) -> None:
        """Waits until the other engine took what was sent. Raises NetworkError when it never will."""
        await (await self.opened()).drain()

    def append(self, request_id: int, parts: Sequence[Buffer]) -> None:
        """Sends an append, as soon as there is a connection. Raises Overloaded."""
        unsent = self.unsent_bytes
        if unsent > limits.CONNECTION_UNSENT_BYTES:
            raise Overloaded(f"{unsent} bytes of appends wait to be forwarded: send it again later", found=unsent)
        self.appended = request_id
        if self._peer is None:
            self._queue.append(tuple(parts))
            self._queued_bytes += sum(map(len, parts))
        else:
            self._peer.push(wire.OP_APPEND, *parts)

    def may_take(self, slot: int) -> bool:
        """Whether the engine at the end of this way indexes the slot, also if it is not known yet which one that will be."""
        if self.engine is not None:
            return bool(self.engine.slots >> slot & 1)
        indexing = self._forwarder.neighbours.indexing
        return bool(indexing(self.slots)) and indexing(self.slots) == indexing(self.slots | 1 << slot)

    # -- opening

    async def _open(self) -> MessagePeer:
        neighbours = self._forwarder.neighbours
        fault: BokiError | None = None
        backoff = Backoff(RETRY_FIRST_S, RETRY_LIMIT_S)
        try:
            async with asyncio.timeout(FORWARD_WAIT_S):
                while True:
                    for engine in neighbours.indexing(self.slots):
                        for address in engine.addresses:
                            try:
                                return await self._connect(engine, address)
                            except BokiError as error:
                                fault = error
                                _log.info("cannot forward", engine=engine.incarnation, address=address, error=error)
                    await neighbours.changed(backoff.next())
        except TimeoutError:
            slot = (self.slots & -self.slots).bit_length() - 1
            raise Unreachable(
                f"no engine that indexes slot {slot} could be reached in {FORWARD_WAIT_S} s "
                f"({fault or 'none is listed'}); this one does not index it"
            ) from fault

    async def _connect(self, engine: EngineMember, text: str) -> MessagePeer:
        peer, _ = await dial_engine(engine, text, self, FORWARDED, token=self._forwarder.neighbours.token)
        self.engine, self._peer = engine, peer
        queue, self._queue, self._queued_bytes = self._queue, [], 0
        for parts in queue:
            peer.push(wire.OP_APPEND, *parts)
        return peer

    def _opened(self, opening: asyncio.Task[MessagePeer]) -> None:
        if not opening.cancelled():
            error = opening.exception()
            if error is not None:
                self.end(error if isinstance(error, BokiError) else ConnectionLost(f"cannot forward: {error!r}"))

    # -- MessageHandler

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        if opcode != wire.OP_ANSWERS:
            raise ProtocolError(f"expected pushes of opcode {wire.OP_ANSWERS} from an engine, found {opcode}")
        if not self._ended:
            self._forwarder.requester.answers_forwarded(body)

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        if peer is self._peer:
            self.end(error or ConnectionLost(f"the connection to {peer.peer} is closed", peer=peer.peer))

    # -- ending

    def end(self, error: BokiError | None) -> None:
        """Nothing goes this way any more; with an error the SDK's appends that did are refused. Idempotent."""
        if self._ended:
            return
        self._ended = True
        self._opening.cancel()
        self._queue.clear()
        self._queued_bytes = 0
        if self._peer is not None:
            self._peer.close()
        self._forwarder.ended(self, error)

    async def closed(self) -> None:
        """Waits until an attempt to connect is over."""
        await asyncio.wait([self._opening])


class Forwarder:
    """The calls of one SDK connection that go elsewhere. Invariant: a slot has one way at a time."""

    def __init__(self, neighbours: Neighbours, requester: Requester, closed: Callable[[], object]) -> None:
        self.neighbours: Final = neighbours
        self.requester: Final = requester
        self._closed = closed
        self._ways: dict[_Way, None] = {}
        self._way_of: dict[int, _Way] = {}
        self._waiting: dict[asyncio.Task[None], None] = {}

    def split(self, batch: RecordBatch) -> tuple[list[int], dict[_Way, list[int]]]:
        """The runs of this engine's slots, and those that go elsewhere."""
        own: list[int] = []
        others: dict[_Way, list[int]] = {}
        slots = self.neighbours.slots
        for at, run in enumerate(batch.runs):
            slot = slot_of(run.book)
            if slots >> slot & 1:
                own.append(at)
            else:
                others.setdefault(self._way(slot), []).append(at)
        return own, others

    def append(self, token: Buffer, batch: RecordBatch, request_id: int) -> RecordBatch | None:
        """Sends away what is of other slots; returns what is left. Raises Overloaded: the SDK sends all of it again."""
        own, others = self.split(batch)
        for way, runs in others.items():
            part = batch if len(runs) == len(batch.runs) else batch.subset(runs)
            way.append(request_id, [token, *join([part], term=0, shard=0, first_local_id=0)])
        if not others:
            return batch
        return batch.subset(own) if own else None

    @property
    def crowded(self) -> bool:
        """Whether the SDK should not be read from until `when_room`."""
        return any(way.unsent_bytes > CROWDED_BYTES for way in self._ways)

    def when_room(self, go_on: Callable[[], None]) -> None:
        """Calls back, once, when what was sent was taken, or is lost."""
        task = asyncio.ensure_future(self._drain(go_on))
        self._waiting[task] = None
        task.add_done_callback(lambda done: self._waiting.pop(done, None))

    async def _drain(self, go_on: Callable[[], None]) -> None:
        for way in [way for way in self._ways if way.unsent_bytes > CROWDED_BYTES]:
            try:
                await way.drained()
            except BokiError as error:
                _log.debug("appends forwarded in vain", error=error)  # the SDK learns it by the end of the way
        go_on()

    async def call(self, opcode: int, body: memoryview, book: int) -> list[Buffer]:
        """The answer of an engine that indexes the book's slot. Raises Unreachable: none could be reached; CallTimeout: those
        that were tried did not stay. Else what it raises."""
        slot = slot_of(book)
        fault: BokiError | None = None
        for _ in range(FORWARD_TRIES):
            peer = await self._way(slot).opened()
            try:
                return [await peer.request(opcode, body)]
            except NetworkError as error:
                if not peer.closed:
                    raise  # it reports what it tried itself
                fault = error
        raise CallTimeout(f"{FORWARD_TRIES} engines that index slot {slot} went away before they answered") from fault

    def _way(self, slot: int) -> _Way:
        way = self._way_of.get(slot)
        if way is None:
            way = next((one for one in self._ways if one.may_take(slot)), None)
            if way is None:
                way = _Way(self, slot)
                self._ways[way] = None
            way.slots |= 1 << slot
            self._way_of[slot] = way
        return way

    def engines_changed(self) -> None:
        """Ways to engines that are not listed any more end."""
        for way in list(self._ways):
            if way.engine is not None and not self.neighbours.listed(way.engine.incarnation):
                way.end(ConnectionLost(f"engine {way.engine.incarnation} is not listed any more"))

    def ended(self, way: _Way, error: BokiError | None) -> None:
        """A way is no more."""
        self._ways.pop(way, None)
        self._way_of = {slot: one for slot, one in self._way_of.items() if one is not way}
        if error is not None and way.appended is not None:
            self.requester.refused(way.appended, error)

    async def close(self) -> None:
        """Ends all ways. Idempotent."""
        ways = list(self._ways)
        self.lost()
        for way in ways:
            await way.closed()
        while self._waiting:
            await asyncio.wait(list(self._waiting))

    def lost(self) -> None:
        """The SDK is gone."""
        self._closed()
        for way in list(self._ways):
            way.end(None)
        for task in list(self._waiting):
            task.cancel()
