"""The first words on a connection to a bookie: that it is the one that is meant, and that it lets us in.

- A bookie whose id is an incarnation is asked for it before anything else: another one may listen at its address by now,
  whose acknowledgements would count as copies of the first. Bookies whose id is their address, Apache's, are not asked.
- Where the cluster has a token it is shown before that, in the same write. A bookie that does not take it is not used, nor is one
  that does not ask for it, as Apache's, unless `bookies_without_token`: who reaches that one may write to it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final, Protocol

from boki_common.bookkeeper import auth, v2
from boki_common.bookkeeper.auth import AuthMessage
from boki_common.cluster_token import ClusterToken
from boki_common.errors import (
    BokiError,
    CallTimeout,
    ConnectionLost,
    ProtocolError,
    Unauthenticated,
    Unreachable,
)
from boki_common.ids import BookieId
from boki_common.net.connection import Address, FrameConnection, FrameHandler, connect
from boki_common.runtime.ports import Buffer
from boki_ledger.bookies.bookie_directory import BookieDirectory
from boki_ledger.settings import LedgerSettings

_INCARNATION: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Ids of our bookies."""
ASKED_AT_ONCE: Final = 8
"""Bookies of which one is enough to know whether a client is let in."""


class Newcomer(FrameHandler, Protocol):
    """Who has the connection once it is introduced, and knows how handshakes are written in its protocol."""

    def greeting(self, message: AuthMessage) -> Buffer:
        """The frame of a first request of a connection."""

    def welcome(self, frame: memoryview) -> AuthMessage:
        """What was answered to it. Raises ProtocolError."""


async def introduce(
    bookie: BookieId, address: Address, user: Newcomer, settings: LedgerSettings, token: ClusterToken
) -> FrameConnection:
    """A connection to the bookie that is meant. Raises Unreachable, NetworkError, ProtocolError, Unauthenticated."""
    timeout_s = settings.connect_timeout_s
    if not _INCARNATION.fullmatch(bookie):
        if token.asks and not settings.bookies_without_token:
            raise _asks_for_none(bookie, "whose id is its address, as Apache's bookies have it")
        return await connect(address, lambda _: user, timeout_s=timeout_s)
    shown = token.shown
    first = [] if shown is None else [auth.credential(shown)]
    messages = [*first, auth.greeting(bookie)]
    greeter = _Greeter(len(messages))
    connection = await connect(address, lambda _: greeter, timeout_s=timeout_s)
    try:
        connection.send(*(user.greeting(message) for message in messages))
        async with asyncio.timeout(timeout_s):
            for _ in first:
                admitted = user.welcome(await greeter.answers[0])
                _check_refused(bookie, admitted)
                if admitted != auth.ADMITTED and not settings.bookies_without_token:
                    raise _asks_for_none(bookie, "which answers as one without a token")
            answered = user.welcome(await greeter.answers[-1])
        _check_refused(bookie, answered)
        if auth.is_other(answered, bookie):
            raise Unreachable(
                f"expected bookie {bookie} at {address}, found {answered.token.decode(errors='replace')}: "
                "it was replaced, or its registration is out of date",
                bookie_id=bookie,
            )
        if connection.closed:
            raise ConnectionLost(f"bookie {bookie} hung up after its greeting", bookie_id=bookie)
    except TimeoutError as error:
        fault = CallTimeout(f"bookie {bookie} did not say who it is within {timeout_s} s", bookie_id=bookie)
        connection.abort(fault)
        raise fault from error
    except BaseException:
        connection.abort(ConnectionLost(f"bookie {bookie} was not made sure of", bookie_id=bookie))
        raise
    connection.handler = user
    return connection


async def check_admitted(
    bookies: Sequence[BookieId], directory: BookieDirectory, settings: LedgerSettings, token: ClusterToken
) -> None:
    """Asks some bookies at once whether they admit us. Raises Unauthenticated: none of those that answered does, and a
    retry would not change that. No answer means nothing."""
    asked = [asyncio.ensure_future(_visit(one, directory, settings, token)) for one in bookies[:ASKED_AT_ONCE]]
    refusal: Unauthenticated | None = None
    try:
        for answer in asyncio.as_completed(asked):
            try:
                await answer
            except Unauthenticated as error:
                refusal = refusal or error
            except BokiError:
                continue  # away: whoever needs it will say so
            else:
                return
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    if refusal is not None:
        raise refusal


async def _visit(bookie: BookieId, directory: BookieDirectory, settings: LedgerSettings, token: ClusterToken) -> None:
    connection = await introduce(bookie, await directory.address(bookie), _Visitor(), settings, token)
    connection.close()


class _Visitor:
    """Only wants to know. A `Newcomer`."""

    def greeting(self, message: AuthMessage) -> Buffer:
        return v2.encode_auth(message)

    def welcome(self, frame: memoryview) -> AuthMessage:
        return v2.decode_auth(frame)

    def frames_received(self, frames: list[memoryview]) -> None:
        """Nothing was asked."""

    def connection_lost(self, error: BokiError | None) -> None:
        """It was over."""


class _Greeter:
    """Has a connection until it is known who is there. A `FrameHandler`."""

    def __init__(self, answers: int) -> None:
        """`answers`: as many are expected."""
        loop = asyncio.get_running_loop()
        self.answers: list[asyncio.Future[memoryview]] = [loop.create_future() for _ in range(answers)]

    def frames_received(self, frames: list[memoryview]) -> None:
        open_ones = [answer for answer in self.answers if not answer.done()]
        if len(frames) > len(open_ones):
            raise ProtocolError(f"expected one answer to a greeting, found {len(frames)} frames")
        for answer, frame in zip(open_ones, frames, strict=False):
            answer.set_result(frame)

    def connection_lost(self, error: BokiError | None) -> None:
        for answer in self.answers:
            if not answer.done():
                answer.set_exception(error or ConnectionLost("closed before an answer to the greeting came"))
                answer.exception()  # who gave up needs no warning


def _check_refused(bookie: BookieId, answered: AuthMessage) -> None:
    why = auth.refused(answered)
    if why:
        raise Unauthenticated(why, bookie_id=bookie)


def _asks_for_none(bookie: BookieId, why: str) -> Unauthenticated:
    return Unauthenticated(
        f"expected bookie {bookie} to ask for the cluster token, found one, {why}: start it with --token-file, or set "
        "ledger.bookies_without_token to use it although whoever reaches it may write to it",
        bookie_id=bookie,
        lacks="token of the bookie",
    )
