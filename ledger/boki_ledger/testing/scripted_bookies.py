"""Bookies in memory whose every message a test may hold, drop, reorder or answer itself: the `BookieTransport` of tests.

    bookies = ScriptedBookies(["b1", "b2", "b3"])
    held = bookies.hold(bookie="b3", kind="add")      # requests that match wait …
    held.release()                                     # … until they are released, or held.discard()
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
from typing import Any, Final

from boki_common.bookkeeper import availability, v2
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BokiError, ConnectionLost, Unreachable
from boki_common.ids import BookieId
from boki_common.runtime.ports import Buffer
from boki_ledger import transport
from boki_ledger.testing.held_messages import A, Hold, Message
from boki_ledger.testing.scripted_lacs import ScriptedLacs, lac_of

DISK_BYTES: Final = 1_000_000


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
        self.full = False
        """Whether its disk is: normal adds are refused, those with high priority while it `has_reserve`."""
        self.has_reserve = True
        self.serves_batches = True
        self.serves_polls = True
        self.lacs = ScriptedLacs()
        self.holds: dict[int, int] = {}
        """By ledger the highest version of a hold."""
        self.unsynced: dict[int, dict[int, None]] = {}
        """Entries added with deferred sync, and not forced since: a crash may lose them."""

    def add(self, request: v2.AddRequest, *, deferred_sync: bool = False) -> V2Status:
        if self.keys.setdefault(request.ledger_id, request.master_key) != request.master_key:
            return V2Status.UNAUTHORIZED
        if self.fenced.get(request.ledger_id) and not request.recovery:
            return V2Status.FENCED
        if self.full and not request.recovery and not (request.control and self.has_reserve):
            return V2Status.READ_ONLY
        self.entries.setdefault(request.ledger_id, {})[request.entry_id] = bytes(request.body)
        if deferred_sync:
            self.unsynced.setdefault(request.ledger_id, {})[request.entry_id] = None
        self.lacs.changed(request.ledger_id, self.lac(request.ledger_id))
        return V2Status.OK

    def force(self, ledger_id: int) -> V2Status:
        self.unsynced.pop(ledger_id, None)
        return V2Status.OK

    def lose_unsynced(self) -> None:
        """What a power loss takes."""
        for ledger_id, entries in self.unsynced.items():
            for entry_id in entries:
                del self.entries[ledger_id][entry_id]
        self.unsynced.clear()

    def hold(self, ledger_id: int, master_key: bytes, version: int) -> V2Status:
        if self.keys.setdefault(ledger_id, master_key) != master_key:
            return V2Status.UNAUTHORIZED
        self.holds[ledger_id] = max(version, self.holds.get(ledger_id, -1))
        return V2Status.OK

    def lac(self, ledger_id: int) -> int:
        """The LAC as the bookie knows it."""
        _, body = self.read(ledger_id, v2.LAST_ENTRY, None)
        return max(self.lacs.explicit_lac(ledger_id), -1 if body is None else lac_of(body))

    def write_lac(self, ledger_id: int, master_key: bytes, body: bytes) -> V2Status:
        if self.keys.setdefault(ledger_id, master_key) != master_key:
            return V2Status.UNAUTHORIZED
        self.lacs.write(ledger_id, body)
        self.lacs.changed(ledger_id, self.lac(ledger_id))
        return V2Status.OK

    def read_lac(self, ledger_id: int) -> transport.LacAnswer:
        _, last = self.read(ledger_id, v2.LAST_ENTRY, None)
        explicit = self.lacs.explicit.get(ledger_id)
        status = V2Status.NO_ENTRY if last is None and explicit is None else V2Status.OK
        return transport.LacAnswer(status, _view(explicit), _view(last))

    def poll(self, ledger_id: int, previous_lac: int, reply: Callable[[transport.PollAnswer], None]) -> None:
        """Replies once the LAC is above `previous_lac`, the ledger is fenced, or all polls are ended."""
        if not self.serves_polls:
            reply(transport.PollAnswer(V2Status.BAD_REQUEST))
            return
        if ledger_id not in self.entries:
            reply(transport.PollAnswer(V2Status.NO_LEDGER))
            return

        def look(over: bool) -> bool:
            lac = self.lac(ledger_id)
            if not over and lac <= previous_lac and not self.fenced.get(ledger_id):
                return False
            _, body = self.read(ledger_id, previous_lac + 1, None)
            reply(transport.PollAnswer(V2Status.OK, lac, _view(body) if lac > previous_lac else None))
            return True

        self.lacs.watch(ledger_id, look)

    def read(self, ledger_id: int, entry_id: int, fence_key: bytes | None) -> tuple[V2Status, bytes | None]:
        if fence_key is not None:
            if self.keys.setdefault(ledger_id, fence_key) != fence_key:
                return V2Status.UNAUTHORIZED, None
            self.fenced[ledger_id] = True
            self.entries.setdefault(ledger_id, {})
            self.lacs.look(ledger_id)
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
        self.channels: list[_ScriptedChannel] = []
        self.seen: list[Message] = []
        self.unreached = 0
        """Reads that were asked of bookies that are down."""
        self._holds: list[Hold] = []
        self._answers: list[tuple[Callable[[Message], bool], V2Status]] = []
        self._asked: dict[asyncio.Future[Any], tuple[BookieId, Callable[..., object]]] = {}
        self._refused_batches: dict[BookieId, bool] = {}
        self._callbacks: dict[Callable[[], None], None] = {}

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
        made = Hold(_matcher(bookie, kind, entry_id, fence, recovery, answer))
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

    def crash(self, *bookies: str, loses_unsynced: bool = False) -> None:
        """Connections end, what is under way is lost; what is stored stays, but perhaps for what was added unsynced."""
        for bookie in bookies:
            one = self[bookie]
            one.lacs.forget_polls()
            if loses_unsynced:
                one.lose_unsynced()
            one.up = False
            one.lives += 1
            error = ConnectionLost(f"bookie {bookie} crashed")
            for channel in tuple(self.channels):
                if channel.bookie is one:
                    channel.go_down(error)
            for future, (asked, answer) in tuple(self._asked.items()):
                if asked == one.bookie_id:
                    self._resolve(future, answer(None, error=error))

    def end_polls(self, bookie: str) -> None:
        """The time of all long polls that wait at a bookie is over."""
        self[bookie].lacs.end_polls()

    def restart(self, *bookies: str) -> None:
        for bookie in bookies:
            one = self[bookie]
            one.up = True
            for channel in tuple(self.channels):
                if channel.bookie is one:
                    channel.come_up()

    def reconnect(self, bookie: str) -> None:
        """A crash and the return at once."""
        self.crash(bookie)
        self.restart(bookie)

    def damage(self, bookie: str, ledger_id: int, *entries: int) -> None:
        """The copies of a bookie fail their digests."""
        stored = self[bookie].entries[ledger_id]
        for entry_id in entries:
            stored[entry_id] = stored[entry_id][:-1] + bytes((stored[entry_id][-1] ^ 1,))

    def register(self, *ids: str) -> None:
        """These bookies take new ledgers from now on, nobody else."""
        self.writable_ids = sorted(BookieId(one) for one in ids)
        for callback in tuple(self._callbacks):
            callback()

    def stored(self, bookie: str, ledger_id: int) -> list[int]:
        """Entries that a bookie stores."""
        return sorted(self[bookie].entries.get(ledger_id, {}))

    # -- BookieTransport

    def open_channel(
        self, bookie: BookieId, ledger_id: int, listener: transport.ChannelListener, *, deferred_sync: bool = False
    ) -> _ScriptedChannel:
        channel = _ScriptedChannel(self, self.bookies[bookie], listener, deferred_sync=deferred_sync)
        self.channels.append(channel)
        if not channel.up:
            asyncio.get_running_loop().call_soon(channel.go_down, Unreachable(f"bookie {bookie} is down"))
        return channel

    def read(
        self, bookie: BookieId, ledger_id: int, entry_id: int, *, fence_key: bytes | None = None
    ) -> asyncio.Future[transport.ReadAnswer]:
        def perform() -> transport.ReadAnswer:
            status, body = self.bookies[bookie].read(ledger_id, entry_id, fence_key)
            return transport.ReadAnswer(status, _view(body), None, self.bookies[bookie].lives)

        message = Message(bookie, "read", entry_id, fence_key is not None, False, False)
        return self._ask(message, transport.ReadAnswer, perform)

    def read_batch(
        self, bookie: BookieId, ledger_id: int, entry_id: int, *, max_count: int, max_bytes: int
    ) -> asyncio.Future[transport.BatchAnswer]:
        def answer(
            status: V2Status | None, bodies: Sequence[memoryview] = (), error: BokiError | None = None
        ) -> transport.BatchAnswer:
            if status is V2Status.BAD_REQUEST:
                self._refused_batches[bookie] = True
            return transport.BatchAnswer(status, list(bodies), error)

        message = Message(bookie, "read", entry_id, False, False, False, max_count)
        one = self.bookies[bookie]
        return self._ask(message, answer, lambda: answer(*one.read_batch(ledger_id, entry_id, max_count, max_bytes)))

    def read_lac(self, bookie: BookieId, ledger_id: int) -> asyncio.Future[transport.LacAnswer]:
        return self._ask(
            _message(bookie, "read_lac"), transport.LacAnswer, lambda: self.bookies[bookie].read_lac(ledger_id)
        )

    def write_lac(
        self, bookie: BookieId, ledger_id: int, master_key: bytes, body: bytes
    ) -> asyncio.Future[transport.Outcome]:
        one = self.bookies[bookie]
        message = _message(bookie, "write_lac")
        return self._ask(
            message, transport.Outcome, lambda: transport.Outcome(one.write_lac(ledger_id, master_key, body))
        )

    def force(self, bookie: BookieId, ledger_id: int) -> asyncio.Future[transport.Outcome]:
        return self._ask(
            _message(bookie, "force"),
            transport.Outcome,
            lambda: transport.Outcome(self.bookies[bookie].force(ledger_id)),
        )

    def wait_for_lac(
        self, bookie: BookieId, ledger_id: int, previous_lac: int, *, wait_s: float
    ) -> asyncio.Future[transport.PollAnswer]:
        """Waits until `end_polls`, however long `wait_s` is."""
        one = self.bookies[bookie]

        def perform(reply: Callable[[transport.PollAnswer], None]) -> None:
            one.poll(ledger_id, previous_lac, reply)

        return self._ask_later(_message(bookie, "poll"), transport.PollAnswer, perform)

    def bookie_info(self, bookie: BookieId) -> asyncio.Future[transport.SpaceAnswer]:
        answer = transport.SpaceAnswer(V2Status.OK, DISK_BYTES, DISK_BYTES // 2)
        return self._ask(_message(bookie, "info"), transport.SpaceAnswer, lambda: answer)

    def list_entries(self, bookie: BookieId, ledger_id: int) -> asyncio.Future[transport.EntriesAnswer]:
        one = self.bookies[bookie]

        def perform() -> transport.EntriesAnswer:
            entries = one.entries.get(ledger_id)
            if entries is None:
                return transport.EntriesAnswer(V2Status.NO_LEDGER)
            return transport.EntriesAnswer(V2Status.OK, availability.encode(sorted(entries)))

        return self._ask(_message(bookie, "list"), transport.EntriesAnswer, perform)

    def hold_ledger(
        self, bookie: BookieId, ledger_id: int, master_key: bytes, version: int
    ) -> asyncio.Future[transport.Outcome]:
        one = self.bookies[bookie]
        message = _message(bookie, "hold")
        return self._ask(
            message, transport.Outcome, lambda: transport.Outcome(one.hold(ledger_id, master_key, version))
        )

    def serves_batches(self, bookie: BookieId) -> bool:
        return bookie not in self._refused_batches

    def seems_up(self, bookie: BookieId) -> bool:
        return self.bookies[bookie].up

    # -- BookieChooser

    def writable(self) -> tuple[BookieId, ...]:
        return tuple(self.writable_ids)

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._callbacks[callback] = None
        return lambda: self._callbacks.pop(callback, None) and None

    # -- inside

    def scripted_add(self, channel: _ScriptedChannel, frame: Sequence[Buffer]) -> None:
        request = v2.decode_request(memoryview(b"".join(frame))[4:])
        assert isinstance(request, v2.AddRequest)
        connection, life = channel.connection, channel.bookie.lives
        message = Message(channel.bookie.bookie_id, "add", request.entry_id, False, request.recovery, False)

        def arrive() -> None:
            if channel.bookie.lives != life:
                return
            status = self._scripted(message) or channel.bookie.add(request, deferred_sync=channel.deferred_sync)

            def back() -> None:
                if channel.connection == connection:
                    channel.answered(request.entry_id, status)

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

    def _ask(self, message: Message, answer: Callable[..., A], perform: Callable[[], A]) -> asyncio.Future[A]:
        return self._ask_later(message, answer, lambda reply: reply(perform()))

    def _ask_later(
        self, message: Message, answer: Callable[..., A], perform: Callable[[Callable[[A], None]], None]
    ) -> asyncio.Future[A]:
        """One request: `perform` acts at the bookie and replies, now or later; `answer` makes the answer instead, from the
        script's status, or from None and the `error` that kept the bookie from answering."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        one = self[message.bookie]
        if not one.up:
            self.unreached += 1
            future.set_result(answer(None, error=Unreachable(f"bookie {one.bookie_id} is down")))
            return future
        self._asked[future] = one.bookie_id, answer
        life = one.lives

        def reply(made: A) -> None:
            if one.lives == life:
                self._travel(message._replace(answer=True), lambda: self._resolve(future, made))

        def arrive() -> None:
            if one.lives != life:
                return
            status = self._scripted(message)
            if status is None:
                perform(reply)
            else:
                reply(answer(status))

        self._travel(message, arrive)
        return future

    def _resolve(self, future: asyncio.Future[Any], answer: object) -> None:
        if self._asked.pop(future, None) is not None and not future.done():
            future.set_result(answer)


class _ScriptedChannel:
    """`transport.AddChannel`. `connection` numbers the connections it had; answers of an earlier one are lost."""

    def __init__(
        self,
        bookies: ScriptedBookies,
        bookie: ScriptedBookie,
        listener: transport.ChannelListener,
        *,
        deferred_sync: bool,
    ) -> None:
        self.bookie = bookie
        self.deferred_sync = deferred_sync
        self.up = bookie.up
        self.connection = 0
        self._bookies = bookies
        self._listener: transport.ChannelListener | None = listener

    def send(self, frame: Sequence[Buffer]) -> None:
        if self.up:
            self._bookies.scripted_add(self, frame)

    def send_all(self, frames: Sequence[Sequence[Buffer]], count: int, buffers: Sequence[Buffer]) -> None:
        for frame in frames:
            self.send(frame)

    def drop(self, error: BokiError) -> None:
        self.up = False
        asyncio.get_running_loop().call_soon(self.go_down, error)

    def close(self) -> None:
        self._listener = None
        self.connection = -1
        if self in self._bookies.channels:
            self._bookies.channels.remove(self)

    def go_down(self, error: BokiError) -> None:
        self.up = False
        self.connection += 1
        if self._listener is not None:
            self._listener.channel_down(error)

    def come_up(self) -> None:
        if not self.up and self._listener is not None:
            self.up = True
            self._listener.channel_up()

    def answered(self, entry_id: int, status: V2Status) -> None:
        if self._listener is None:
            return
        if status is V2Status.OK:
            self._listener.adds_answered([(entry_id, 1)], [])
        else:
            self._listener.adds_answered([], [(entry_id, status)])


def _message(bookie: BookieId, kind: str) -> Message:
    return Message(bookie, kind, v2.LAST_ENTRY, False, False, False)


def _view(body: bytes | None) -> memoryview | None:
    return None if body is None else memoryview(body)


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
