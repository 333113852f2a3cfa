"""The life of a connection to a bookie: who is at its other end, and how often it is made again."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace

import pytest
from tests.bookies.wires import directory_with

from boki_common import logs
from boki_common.bookkeeper import auth, v2
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BokiError, CallTimeout, ConnectionLost, ProtocolError, Unreachable
from boki_common.ids import BookieId
from boki_common.net.connection import Address, FrameConnection, FrameHandler, FrameServer
from boki_common.net.strangers import BEFORE_FIRST_FRAME
from boki_ledger.bookies.link_life import LinkLife
from boki_ledger.testing.ledgers import QUICK

BOOKIE = BookieId("proxied")
LEAST_S, MOST_S = 0.01, 0.08
CLOCK_S = 0.001
"""Loops tell the time in whole milliseconds."""


class Stubborn:
    """A user that never gives up."""

    connection: FrameConnection | None = None
    life: LinkLife
    idle = False

    def outstanding(self) -> bool:
        return False

    def greeting(self, message: auth.AuthMessage) -> bytes:
        return v2.encode_auth(message)

    def welcome(self, frame: memoryview) -> auth.AuthMessage:
        return v2.decode_auth(frame)

    def link_up(self) -> None:
        pass

    def link_down(self, error: BokiError, *, known: bool) -> None:
        pass

    def frames_received(self, frames: list[memoryview]) -> None:
        self.life.reads_seen += 1

    def connection_lost(self, error: BokiError | None) -> None:
        self.life.connection_lost(error)


async def test_a_proxy_that_accepts_and_hangs_up_is_tried_after_growing_pauses() -> None:
    loop = asyncio.get_running_loop()
    accepted: list[float] = []
    enough = asyncio.Event()

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(loop.time())
        writer.transport.abort()
        if len(accepted) == 6:
            enough.set()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with directory_with(BOOKIE, server.sockets[0].getsockname()[1]) as directory:
        user = Stubborn()
        life = user.life = LinkLife(BOOKIE, user, directory, replace(QUICK, retry_least_s=LEAST_S, retry_most_s=MOST_S))
        life.want()
        await enough.wait()
        assert accepted[-1] - accepted[-2] > MOST_S - CLOCK_S, accepted
        await life.close(BokiError("the test is over"))
    server.close()


ASKED_FOR = BookieId("00000000-0000-4000-8000-000000000001")
OTHER = "00000000-0000-4000-8000-000000000002"


class Greeting(Stubborn):
    """Notes what becomes of the link."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[BokiError | None] = asyncio.Queue()

    def link_up(self) -> None:
        self.events.put_nowait(None)

    def link_down(self, error: BokiError, *, known: bool) -> None:
        if not known:
            self.events.put_nowait(error)


class Answering:
    """A bookie that answers a greeting with a frame of ours; None: it hangs up."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.asked: list[v2.Request] = []

    def taking(self, connection: FrameConnection) -> FrameHandler:
        return _Connection(self, connection)


class _Connection:
    def __init__(self, bookie: Answering, connection: FrameConnection) -> None:
        self._bookie = bookie
        self._connection = connection

    def frames_received(self, frames: list[memoryview]) -> None:
        self._bookie.asked.extend(map(v2.decode_request, frames))
        if self._bookie.answer is None:
            self._connection.close()
        else:
            self._connection.send(self._bookie.answer)

    def connection_lost(self, error: BokiError | None) -> None:
        """Of no interest."""


async def greeted(answer: bytes | None, bookie: BookieId = ASKED_FOR, timeout_s: float = 10.0) -> BokiError | None:
    """What a link to the bookie gets first, when who listens there answers so."""
    answering = Answering(answer)
    server = await FrameServer.start(Address("127.0.0.1", 0), answering.taking, strangers=BEFORE_FIRST_FRAME)
    async with directory_with(bookie, server.address.port) as directory:
        user = Greeting()
        settings = replace(QUICK, retry_least_s=10.0, connect_timeout_s=timeout_s)
        life = user.life = LinkLife(bookie, user, directory, settings)
        life.want()
        async with asyncio.timeout(10):
            first = await user.events.get()
        assert (user.connection is not None) == (first is None)
        await life.close(BokiError("the test is over"))
    await server.close()
    if bookie == ASKED_FOR:
        assert answering.asked[0] == v2.AuthRequest(auth.greeting(bookie))
    else:
        assert not answering.asked
    return first


async def test_a_bookie_that_says_its_id_is_taken() -> None:
    assert await greeted(v2.encode_auth(auth.greeting(ASKED_FOR))) is None


async def test_another_bookie_at_the_address_is_left_before_it_is_sent_anything() -> None:
    error = await greeted(v2.encode_auth(auth.greeting(OTHER)))
    assert isinstance(error, Unreachable)
    assert f"expected bookie {ASKED_FOR}" in str(error)
    assert f"found {OTHER}" in str(error)


async def test_a_bookie_that_knows_no_identities_is_taken_for_what_its_registration_says() -> None:
    assert await greeted(v2.encode_auth(auth.NO_AUTHENTICATION)) is None


async def test_a_bookie_whose_id_is_its_address_is_not_asked() -> None:
    assert await greeted(None, BookieId("127.0.0.1:3181")) is None


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, ConnectionLost),
        (b"", CallTimeout),
        (v2.encode_add_response(V2Status.OK, 1, 1), ProtocolError),
        (v2.encode_auth(auth.greeting(ASKED_FOR)) * 2, ProtocolError),
    ],
)
async def test_what_is_no_answer_to_a_greeting_makes_no_link(answer: bytes | None, expected: type[BokiError]) -> None:
    error = await greeted(answer, timeout_s=0.05 if expected is CallTimeout else 10.0)
    assert isinstance(error, expected), error


class OneRead(Greeting):
    """Wants the link until an attempt has failed, as a read does that then asks another bookie."""

    def link_down(self, error: BokiError, *, known: bool) -> None:
        self.idle = True
        super().link_down(error, known=known)


async def test_a_bookie_that_is_down_is_logged_once() -> None:
    lines = io.StringIO()
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    async with directory_with(BOOKIE, port) as directory:
        user = OneRead()
        life = user.life = LinkLife(BOOKIE, user, directory, replace(QUICK, retry_least_s=LEAST_S, retry_most_s=MOST_S))
        for _ in range(3):
            user.idle = False
            with logs.configured(stream=lines):
                life.want()
                await asyncio.wait(
                    [task for task in asyncio.all_tasks() if task.get_name() == f"link to bookie {BOOKIE}"]
                )
            assert isinstance(user.events.get_nowait(), Unreachable)
    assert lines.getvalue().count("bookie unreachable") == 1, lines.getvalue()
