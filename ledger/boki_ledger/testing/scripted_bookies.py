"""Bookies in memory whose every message a test may hold, drop, reorder or answer itself: the `BookieTransport` of tests.

    bookies = ScriptedBookies(["b1", "b2", "b3"])
    held = bookies.hold(bookie="b3", kind="add")      # requests that match wait …
    held.release()                                     # … until they are let go, or held.discard()
    bookies.answer(V2Status.IO_ERROR, bookie="b1", kind="read")
    bookies.crash("b2"); bookies.restart("b2")

A bookie here does what the protocol says (fence before answering, recovery adds pass the fence, the first master key is
kept, NO_LEDGER apart from NO_ENTRY) on real frames. Messages that no rule holds travel in order, one event-loop turn per
direction; nothing sleeps and nothing is random. Only a crash of the bookie loses requests that are on their way: what a
client sent still arrives though it closed the connection or died itself, as bytes in a socket's buffer do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from boki_common.bookkeeper import v2
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BokiError, ConnectionLost, Unreachable
from boki_common.ids import BookieId
from boki_common.runtime.ports import Buffer
from boki_ledger.transport import BatchAnswer, LaneListener, ReadAnswer


class Message(NamedTuple):
    """A request on its way to a bookie, or its answer on its way back."""

    bookie: str
    kind: str
    """"add" or "read"."""
    entry_id: int
    fence: bool
    recovery: bool
    answer: bool
    """False for the request, True for its answer."""
    entries: int = 1
    """More than 1 for a batch read, from `entry_id` on."""


class Hold:
    """A rule that keeps matching messages, and what it keeps."""

    def __init__(self, bookies: ScriptedBookies, matches: Callable[[Message], bool]) -> None:
        self._bookies = bookies
        self._matches = matches
        self.kept: list[tuple[Message, Callable[[], None]]] = []
        self.active = True

    def takes(self, message: Message, travel: Callable[[], None]) -> bool:
        if self.active and self._matches(message):
            self.kept.append((message, travel))
            return True
        return False

    def release(self, *, reverse: bool = False, stop: bool = True) -> None:
        """Lets what is kept travel; with `stop` (the default) the rule ends."""
        self.active = not stop
        kept, self.kept = self.kept, []
        for _, travel in reversed(kept) if reverse else kept:
            travel()

    def discard(self) -> None:
        """Forgets what is kept: those messages never arrive. The rule goes on."""
        self.kept.clear()

    def __len__(self) -> int:
        return len(self.kept)


class ScriptedBookie:
    """What one bookie stores. `up` is whether it can be reached."""

    def __init__(self, bookie_id: BookieId) -> None:
        self.bookie_id = bookie_id
        self.up = True
        self.lives = 0
        """How often it crashed: requests on their way are lost then, and only then."""
        self.entries: dict[int, dict[int, bytes]] = {}
        self.fenced: dict[int, bool] = {}
        self.keys: dict[int, bytes] = {}
        self.serves_batches = True

    def add(self, request: v2.AddRequest) -> V2Status:
        if self.keys.setdefault(request.ledger_id, request.master_key) != request.master_key:
            return V2Status.UNAUTHORIZED
        if self.fenced.get(request.ledger_id) and not request.recovery:
            return V2Status.FENCED
        self.entries.setdefault(request.ledger_id, {})[request.entry_id] = bytes(request.body)
        return V2Status.OK

    def read(self, ledger_id: int, entry_id: int, fence_key: bytes | None) -> tuple[V2Status, bytes | None]:
        if fence_key is not None:
            if self.keys.setdefault(ledger_id, fence_key) != fence_key:
                return V2Status.UNAUTHORIZED, None
            self.fenced[ledger_id] = True
            self.entries.setdefault(ledger_id, {})
        entries = self.entries.get(ledger_id)
        if entries is None:
            return V2Status.NO_LEDGER, None
        wanted = max(entries, default=0) if entry_id == v2.LAST_ENTRY else entry_id
        body = entries.get(wanted)
        return (V2Status.NO_ENTRY, None) if body is None else (V2Status.OK, body)

    def read_batch(self, ledger_id: int, first: int, count: int, max_bytes: int) -> tuple[V2Status, list[memoryview]]:
        if not self.serves_batches:
            return V2Status.BAD_REQUEST, []
        status, body = self.read(ledger_id, first, None)
        bodies: list[memoryview] = []
        room = max_bytes - 32
        while body is not None and len(bodies) < count and (room >= 4 + len(body) or not bodies):
            bodies.append(memoryview(body))
            room -= 4 + len(body)
            _, body = self.read(ledger_id, first + len(bodies), None)
        return status, bodies


class ScriptedBookies:
    """The transport and the directory. `writable_ids` may be changed with `register`."""

    def __init__(self, ids: Iterable[str]) -> None:
        self.bookies = {BookieId(one): ScriptedBookie(BookieId(one)) for one in ids}
        self.writable_ids = sorted(self.bookies)
        self.lanes: list[_ScriptedLane] = []
        self.seen: list[Message] = []
        self.unreached = 0
        """Reads that were asked of bookies that are down."""
        self._holds: list[Hold] = []
        self._answers: list[tuple[Callable[[Message], bool], V2Status]] = []
        self._reads: dict[asyncio.Future[ReadAnswer], BookieId] = {}
        self._batches: dict[asyncio.Future[BatchAnswer], BookieId] = {}
        self._refused_batches: dict[BookieId, bool] = {}
        self._callbacks: list[Callable[[], None]] = []

    def __getitem__(self, bookie: str) -> ScriptedBookie:
        return self.bookies[BookieId(bookie)]

    # -- the script

    def hold(
        self,
        *,
        bookie: str | None = None,
        kind: str | None = None,
        entry_id: int | None = None,
        fence: bool | None = None,
        recovery: bool | None = None,
        answer: bool = False,
    ) -> Hold:
        """Keeps requests that match (with `answer=True`: answers); None matches all."""
        made = Hold(self, _matcher(bookie, kind, entry_id, fence, recovery, answer))
        self._holds.append(made)
        return made

    def answer(
        self,
        status: V2Status,
        *,
        bookie: str | None = None,
        kind: str | None = None,
        entry_id: int | None = None,
        fence: bool | None = None,
        recovery: bool | None = None,
    ) -> Callable[[], None]:
        """Answers requests that match with `status`, without any effect; returns what ends that."""
        rule = (_matcher(bookie, kind, entry_id, fence, recovery, False), status)
        self._answers.append(rule)
        return lambda: self._answers.remove(rule)

    def crash(self, bookie: str) -> None:
        """Connections end, what is under way is lost; what is stored stays."""
        one = self[bookie]
        one.up = False
        one.lives += 1
        error = ConnectionLost(f"bookie {bookie} crashed")
        for lane in tuple(self.lanes):
            if lane.bookie is one:
                lane.go_down(error)
        for future, reader in tuple(self._reads.items()):
            if reader == one.bookie_id:
                self._resolve(future, ReadAnswer(None, error=error))
        for batch, reader in tuple(self._batches.items()):
            if reader == one.bookie_id:
                self._resolve_batch(batch, BatchAnswer(None, [], error))

    def restart(self, bookie: str) -> None:
        one = self[bookie]
        one.up = True
        for lane in tuple(self.lanes):
            if lane.bookie is one:
                lane.come_up()

    def register(self, *ids: str) -> None:
        """These bookies take new ledgers from now on, nobody else."""
        self.writable_ids = sorted(BookieId(one) for one in ids)
        for callback in tuple(self._callbacks):
            callback()

    def stored(self, bookie: str, ledger_id: int) -> list[int]:
        """Entries that a bookie holds."""
        return sorted(self[bookie].entries.get(ledger_id, {}))

    # -- BookieTransport

    def open_lane(self, bookie: BookieId, ledger_id: int, listener: LaneListener) -> _ScriptedLane:
        lane = _ScriptedLane(self, self.bookies[bookie], listener)
        self.lanes.append(lane)
        if not lane.up:
            asyncio.get_running_loop().call_soon(lane.go_down, Unreachable(f"bookie {bookie} is down"))
        return lane

    def read(
        self, bookie: BookieId, ledger_id: int, entry_id: int, *, fence_key: bytes | None = None
    ) -> asyncio.Future[ReadAnswer]:
        future: asyncio.Future[ReadAnswer] = asyncio.get_running_loop().create_future()
        one = self.bookies[bookie]
        if not one.up:
            self.unreached += 1
            future.set_result(ReadAnswer(None, error=Unreachable(f"bookie {bookie} is down")))
            return future
        self._reads[future] = bookie
        message = Message(bookie, "read", entry_id, fence_key is not None, False, False)

        def arrive() -> None:
            if future not in self._reads:
                return
            status = self._scripted(message)
            body = None
            if status is None:
                status, body = one.read(ledger_id, entry_id, fence_key)
            view = None if body is None else memoryview(body)
            self._travel(message._replace(answer=True), lambda: self._resolve(future, ReadAnswer(status, view)))

        self._travel(message, arrive)
        return future

    def read_batch(
        self, bookie: BookieId, ledger_id: int, entry_id: int, *, max_count: int, max_bytes: int
    ) -> asyncio.Future[BatchAnswer]:
        future: asyncio.Future[BatchAnswer] = asyncio.get_running_loop().create_future()
        one = self.bookies[bookie]
        if not one.up:
            self.unreached += 1
            future.set_result(BatchAnswer(None, [], Unreachable(f"bookie {bookie} is down")))
            return future
        self._batches[future] = bookie
        message = Message(bookie, "read", entry_id, False, False, False, max_count)

        def arrive() -> None:
            if future not in self._batches:
                return
            status, bodies = self._scripted(message), list[memoryview]()
            if status is None:
                status, bodies = one.read_batch(ledger_id, entry_id, max_count, max_bytes)
            if status is V2Status.BAD_REQUEST:
                self._refused_batches[bookie] = True
            answer = BatchAnswer(status, bodies)
            self._travel(message._replace(answer=True), lambda: self._resolve_batch(future, answer))

        self._travel(message, arrive)
        return future

    def serves_batches(self, bookie: BookieId) -> bool:
        return bookie not in self._refused_batches

    def seems_up(self, bookie: BookieId) -> bool:
        return self.bookies[bookie].up

    # -- BookieChooser

    def writable(self) -> tuple[BookieId, ...]:
        return tuple(self.writable_ids)

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    # -- inside

    def scripted_add(self, lane: _ScriptedLane, frame: Sequence[Buffer]) -> None:
        request = v2.decode_request(memoryview(b"".join(frame))[4:])
        assert isinstance(request, v2.AddRequest)
        connection, life = lane.connection, lane.bookie.lives
        message = Message(lane.bookie.bookie_id, "add", request.entry_id, False, request.recovery, False)

        def arrive() -> None:
            if lane.bookie.lives != life:
                return
            status = self._scripted(message) or lane.bookie.add(request)

            def back() -> None:
                if lane.connection == connection:
                    lane.answered(request.entry_id, status)

            self._travel(message._replace(answer=True), back)

        self._travel(message, arrive)

    def _scripted(self, message: Message) -> V2Status | None:
        for matches, status in self._answers:
            if matches(message):
                return status
        return None

    def _travel(self, message: Message, arrive: Callable[[], None]) -> None:
        self.seen.append(message)
        if not any(hold.takes(message, arrive) for hold in self._holds):
            asyncio.get_running_loop().call_soon(arrive)

    def _resolve(self, future: asyncio.Future[ReadAnswer], answer: ReadAnswer) -> None:
        if self._reads.pop(future, None) is not None and not future.done():
            future.set_result(answer)

    def _resolve_batch(self, future: asyncio.Future[BatchAnswer], answer: BatchAnswer) -> None:
        if self._batches.pop(future, None) is not None and not future.done():
            future.set_result(answer)


class _ScriptedLane:
    """`transport.AddLane`. `connection` numbers the connections it had; answers of an earlier one are lost."""

    def __init__(self, bookies: ScriptedBookies, bookie: ScriptedBookie, listener: LaneListener) -> None:
        self.bookie = bookie
        self.up = bookie.up
        self.connection = 0
        self._bookies = bookies
        self._listener: LaneListener | None = listener

    def send(self, frame: Sequence[Buffer]) -> None:
        if self.up:
            self._bookies.scripted_add(self, frame)

    def drop(self, error: BokiError) -> None:
        self.up = False
        asyncio.get_running_loop().call_soon(self.go_down, error)

    def close(self) -> None:
        self._listener = None
        self.connection = -1
        if self in self._bookies.lanes:
            self._bookies.lanes.remove(self)

    def go_down(self, error: BokiError) -> None:
        self.up = False
        self.connection += 1
        if self._listener is not None:
            self._listener.lane_down(error)

    def come_up(self) -> None:
        if not self.up and self._listener is not None:
            self.up = True
            self._listener.lane_up()

    def answered(self, entry_id: int, status: V2Status) -> None:
        if self._listener is None:
            return
        if status is V2Status.OK:
            self._listener.adds_answered([(entry_id, 1)], [])
        else:
            self._listener.adds_answered([], [(entry_id, status)])


def _matcher(
    bookie: str | None, kind: str | None, entry_id: int | None, fence: bool | None, recovery: bool | None, answer: bool
) -> Callable[[Message], bool]:
    def matches(message: Message) -> bool:
        return (
            message.answer is answer
            and bookie in (None, message.bookie)
            and kind in (None, message.kind)
            and entry_id in (None, message.entry_id)
            and fence in (None, message.fence)
            and recovery in (None, message.recovery)
        )

    return matches
