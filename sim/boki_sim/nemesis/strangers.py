"""Strangers: processes that connect to every port of a cluster that has a token, and say there what they must not.

    amount 0  without      no token
           1  wrong        a token that is not the cluster's
           2  of a client  the cluster's token, and the role of a client: an SDK at engines, a participant at sequencers

| port | sent | expected |
|---|---|---|
| sequencer | before HELLO: OPEN, REPORT, CARRY, CLOSE, LOST, EXPIRE, TRIM, YIELD, BARRIER, SUBSCRIBE, STATUS | ProtocolError, and the end |
| | HELLO | Unauthenticated; of a client: a welcome |
| | behind the HELLO of a client: what changes anything | NotPermitted |
| | CLOSE and REPORT of others' shards, as an engine with the client's token | a refusal |
| engine | before HELLO: APPEND, HEADERS, STATUS; HELLO | ProtocolError; Unauthenticated |
| | of a client: HEADERS, and to be forwarded for | NotPermitted |
| controller | STATUS before HELLO; HELLO | ProtocolError; Unauthenticated |
| bookie | add, fencing read, handshakes | UNAUTHORIZED, and the end |

Bookies are not tried with the token: they know no roles. Who stands by may say that instead (TermOver).

A connection that faults keep from them shows nothing. Whatever else than the expected comes back is a violation; what strangers
append is in no client's history, so that one record of theirs in a book is one too.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - the type; the generators come from the seed
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from boki_common.bookkeeper import auth, v2
from boki_common.bookkeeper.status import V2Status
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.engine import engine_protocol as wire
from boki_common.errors import (
    BokiError,
    CallTimeout,
    ConnectionLost,
    NetworkError,
    NotPermitted,
    ProtocolError,
    TermOver,
    Unauthenticated,
    Unreachable,
)
from boki_common.ids import book_id
from boki_common.net.connection import Address, connect
from boki_common.net.messages import MessagePeer, connect_messages
from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.tag_names import pack_names
from boki_common.writer_ids import BORN
from boki_logbook.peers.forwarding import FORWARDED
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.metalog_entry import Expire, Lost, Trim
from boki_metalog.entries.permissions import ENGINE, PARTICIPANT
from boki_metalog.entries.progress import Order
from boki_sim.clusters.cluster import PORTS
from boki_sim.faults.faults import Fault
from boki_sim.work.operations import BOOKS
from boki_sim.world.randomness import stream

if TYPE_CHECKING:
    from boki_sim.clusters.cluster import Cluster

WITHOUT: Final = 0
WRONG: Final = 1
OF_CLIENT: Final = 2
KINDS: Final = (WITHOUT, WRONG, OF_CLIENT)
MOST: Final = 3
"""In one run."""
ANSWER_S: Final = 5.0
"""Who does not answer for so long is cut off."""
WRONG_TOKEN: Final = "not-the-token-of-this-cluster"
LEDGERS: Final = 12
"""Ledgers that it tries to fence and to write to: the first ones, which are metalogs and data."""

_SILENCE: Final = (NetworkError, CallTimeout, ConnectionLost, Unreachable)
"""What a fault may have to do with."""

Violated = Callable[[str, str], None]
Call = tuple[str, int, bytes]
"""What it is called, opcode, body."""


def draw_strangers(numbers: random.Random, profile: str, *, seconds: float) -> list[Fault]:
    """Those of a cluster with a token. Their numbers are their own."""
    if profile != "harsh":
        return []
    return [
        Fault(round(numbers.uniform(0.1, 0.9) * seconds, 4), "stranger", "all", amount=float(numbers.choice(KINDS)))
        for _ in range(numbers.randrange(1, MOST + 1))
    ]


class _Exchanged(Exception):
    """The token that a call showed was exchanged before its answer came: a slow network, or a server that was paused."""


class Stranger:
    """One of them: `run` it as a process of its own."""

    def __init__(self, cluster: Cluster, number: int, kind: int) -> None:
        self.process = cluster.loop.process(f"stranger-{number}", cluster.machine())
        self._cluster = cluster
        self._kind = kind
        self._numbers = stream(cluster.seed, "stranger", number)

    async def run(self) -> None:
        doors = [*self._cluster.nodes.values()]
        self._numbers.shuffle(doors)
        for node in doors:
            visit: Callable[[Address], Awaitable[None]] = getattr(self, f"_{node.kind}")
            try:
                async with asyncio.timeout(ANSWER_S * 4):
                    await visit(Address(node.host, PORTS[node.kind]))
            except (*_SILENCE, TimeoutError, _Exchanged) as error:
                self._cluster.trace.add(self.process.name, "is not answered", type(error).__name__)
        self._cluster.loop.call_soon(self.process.kill, context=self._cluster.loop.outside.context)

    @property
    def _token(self) -> ClusterToken:
        if self._kind == OF_CLIENT:
            return self._cluster.tokens.of(self.process.host)
        return ClusterToken([WRONG_TOKEN]) if self._kind == WRONG else NO_TOKEN

    # -- doors

    async def _sequencer(self, address: Address) -> None:
        requests = self._requests_to_sequencers()
        for call in self._numbers.sample(requests, 4):
            await self._at_first(address, call, ProtocolError)
        if self._kind != OF_CLIENT:
            hello = protocol.encode_hello(token=self._token, role=ENGINE)
            await self._at_first(address, ("HELLO", protocol.OP_HELLO, hello))
            return
        peer = await self._greeted(
            address, protocol.OP_HELLO, protocol.encode_hello(token=self._token, role=PARTICIPANT)
        )
        for call in requests:
            if call[1] not in (protocol.OP_REPORT, protocol.OP_CARRY, *_QUESTIONS):
                await self._refusal(peer, call, NotPermitted, TermOver)
        peer.close()
        peer = await self._greeted(address, protocol.OP_HELLO, protocol.encode_hello(token=self._token, role=ENGINE))
        for shard in range(4):  # not its own: whatever comes back, it is no yes
            await self._refusal(peer, ("CLOSE", protocol.OP_CLOSE, protocol.encode_close(self._term, shard)), BokiError)
            peer.push(protocol.OP_REPORT, protocol.encode_report_of_one(self._term, shard, 2**40, 2**20))
        peer.close()

    async def _engine(self, address: Address) -> None:
        record = one_record(book_id(BOOKS[0]), bytes(7) + (9).to_bytes(5, "little") + BORN, b"stranger", b"stranger")
        calls: list[Call] = [
            ("APPEND", wire.OP_APPEND, wire.encode_token({}) + record),
            ("HEADERS", wire.OP_HEADERS, b""),
            ("STATUS", wire.OP_STATUS, b""),
        ]
        for call in calls:
            await self._at_first(address, call, ProtocolError)
        if self._kind != OF_CLIENT:
            await self._at_first(address, ("HELLO", wire.OP_HELLO, self._engine_hello([])))
            return
        await self._at_first(address, ("HELLO", wire.OP_HELLO, self._engine_hello([FORWARDED])), NotPermitted)
        peer = await self._greeted(address, wire.OP_HELLO, self._engine_hello([]))
        await self._refusal(peer, calls[1], NotPermitted)
        peer.close()

    def _engine_hello(self, features: list[str]) -> bytes:
        hello = {"versions": [1], "features": features, "auth": self._token.shown, "role": wire.ROLE_SDK}
        return msgspec.msgpack.encode(hello)

    async def _controller(self, address: Address) -> None:
        await self._at_first(address, ("STATUS", protocol.OP_STATUS, b""), ProtocolError)
        if self._kind != OF_CLIENT:
            hello = protocol.encode_hello(token=self._token, role=PARTICIPANT)
            await self._at_first(address, ("HELLO", protocol.OP_HELLO, hello))

    async def _bookie(self, address: Address) -> None:
        if self._kind == OF_CLIENT:
            return
        ledger = self._numbers.randrange(LEDGERS)
        body = [ledger.to_bytes(8, "big") + bytes(8 + 8 + 8 + 4) + b"stranger"]
        shown = self._token.shown
        frames = {
            "add": b"".join(bytes(part) for part in v2.encode_add_body(body, bytes(20), recovery=True)),
            "fencing read": v2.encode_read(ledger, 0, fence_key=bytes(20)),
            "handshake": v2.encode_auth(auth.greeting("00000000-0000-0000-0000-000000000000")),
        }
        if shown is not None:
            frames["token"] = v2.encode_auth(auth.credential(shown))
        for name, frame in frames.items():
            answer = await self._frame(address, frame)
            self._judge(f"bookie: {name}", _of_bookie(answer, handshake=name in ("handshake", "token")))

    # -- what is sent, and what must come back

    @property
    def _term(self) -> int:
        """Of some log, as far as strangers can guess it: terms are small numbers."""
        return self._numbers.randrange(1, 8)

    def _requests_to_sequencers(self) -> list[Call]:
        term, shard = self._term, self._numbers.randrange(4)
        orders: dict[str, Order] = {
            "LOST": Lost(term, shard, 0, 5, b'"stranger"'),
            "EXPIRE": Expire(1, bytes(16), 5),
            "TRIM": Trim(1, ((0, 2**60),), False),
        }
        return [
            ("OPEN", protocol.OP_OPEN, protocol.encode_open(term, f"{0xDEAD:032x}", 2**40)),
            ("REPORT", protocol.OP_REPORT, protocol.encode_report_of_one(term, shard, 2**40, 2**20)),
            ("CARRY", protocol.OP_CARRY, protocol.encode_carry(term, shard, 2**40, 2**20) + b"stranger"),
            ("CLOSE", protocol.OP_CLOSE, protocol.encode_close(term, shard)),
            ("YIELD", protocol.OP_YIELD, protocol.encode_term(term)),
            ("BARRIER", protocol.OP_BARRIER, protocol.encode_term(term)),
            ("SUBSCRIBE", protocol.OP_SUBSCRIBE, protocol.encode_subscribe(term, 0)),
            ("STATUS", protocol.OP_STATUS, b""),
            *((name, protocol.OP_ORDER, protocol.encode_order(term, order)) for name, order in orders.items()),
        ]

    async def _at_first(self, address: Address, call: Call, expected: type[BokiError] = Unauthenticated) -> None:
        shown = self._token.shown
        peer = await connect_messages(address, Deaf(), timeout_s=ANSWER_S)
        await self._refusal(peer, call, expected, shown=shown)
        peer.close()

    async def _greeted(self, address: Address, opcode: int, hello: bytes) -> MessagePeer:
        shown = self._token.shown
        peer = await connect_messages(address, Deaf(), timeout_s=ANSWER_S)
        try:
            await peer.call(opcode, hello, timeout_s=ANSWER_S)
        except Unauthenticated:
            if self._token.shown != shown:
                raise _Exchanged from None
            raise
        return peer

    async def _refusal(
        self, peer: MessagePeer, call: Call, *expected: type[BokiError], shown: str | None = None
    ) -> None:
        """Judge the answer to a call; `shown`: the token that the call shows, if it shows one."""
        name, opcode, body = call
        try:
            await peer.call(opcode, body, timeout_s=ANSWER_S)
        except _SILENCE:
            raise
        except BokiError as error:
            if isinstance(error, Unauthenticated) and shown is not None and shown != self._token.shown:
                raise _Exchanged from None
            wrong = "" if isinstance(error, expected) and error.definite else repr(error)
        else:
            wrong = "yes"
        self._judge(f"{name}: {expected[0].__name__}", wrong)

    async def _frame(self, address: Address, frame: bytes) -> bytes:
        """What a bookie answers to a first frame."""
        ear = _Ear()
        connection = await connect(address, lambda _: ear, timeout_s=ANSWER_S)
        connection.send(frame)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await ear.answer
        finally:
            connection.close()

    def _judge(self, what: str, wrong: str) -> None:
        if wrong:
            self._cluster.invariants.violated("stranger", f"{self.process.name} said {what}, and was answered {wrong}")
        else:
            self._cluster.strangers_refused[what] += 1


_QUESTIONS: Final = (protocol.OP_STATUS, protocol.OP_BARRIER, protocol.OP_SUBSCRIBE)


def _of_bookie(answer: bytes, *, handshake: bool) -> str:
    """What is wrong with a bookie's answer to a stranger; "" if nothing."""
    frame = memoryview(answer)
    if handshake:
        decoded = v2.decode_auth(frame)
        return "" if decoded.plugin == auth.TOKEN and decoded.token else repr(decoded)
    response: Any = v2.decode_response(frame)
    return "" if response.status == V2Status.UNAUTHORIZED else repr(response)


class Deaf:
    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        """Pushes, and answers to what it should not have sent."""

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        """It knows by what it waits for, or by `closed`."""


class _Ear:
    """Takes the first frame that comes."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def frames_received(self, frames: list[memoryview]) -> None:
        if not self.answer.done():
            self.answer.set_result(bytes(frames[0]))

    def connection_lost(self, error: BokiError | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(ConnectionLost("the bookie hung up without an answer"))


def one_record(book: int, writer: bytes, tag: bytes, data: bytes) -> bytes:
    """A batch of a record that nobody's history has."""
    builder = BatchBuilder()
    builder.start_run(book, writer, 1, 1)
    builder.add((7).to_bytes(8, "little"), 1, pack_names([(0, tag)]), data)
    return b"".join(bytes(part) for part in builder.finish())
