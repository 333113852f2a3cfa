"""Connecting, clients and sessions."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Generator
from typing import Any, Final
from weakref import WeakValueDictionary

from boki import _arguments as arguments
from boki._appends import Appends
from boki._book import Book
from boki._connection import Connection
from boki._credential import NOTHING, Credential, credential_of
from boki._dial import Dialer, SocketDialer, dialer_for
from boki._session import Session, positions_of, token_text
from boki_common import limits
from boki_common.engine.engine_url import EngineUrl, split_options
from boki_common.errors import ClosedError, DiskFull, InvalidArgument
from boki_common.runtime import confined
from boki_common.runtime.ports import MachineClock, Random
from boki_common.runtime.process import SystemClock, SystemRandom
from boki_common.unpickled import Unpickled

SESSION_BOOKS: Final = 16_384
"""Books that a session keeps, with their named writers; beyond that the longest unused one without undecided appends is dropped."""
CLOSE_TIMEOUT_S: Final = limits.CALL_TIMEOUT_S
OPENING: Final = "a new client (boki.connect)"


class Client(Unpickled):
    """A connection to a cluster, and one session on it. Made by `boki.connect`.

        async with boki.connect("boki://127.0.0.1:7040") as client: ...
        client = await boki.connect("boki://127.0.0.1:7040")       # close it yourself

    Belongs to the event loop it was opened in: calls from another loop or thread raise WrongLoop, and do nothing. Any number of tasks
    may use it at once.
    """

    def __init__(
        self,
        dialer: Dialer,
        *,
        timeout_s: float,
        rng: Random,
        clock: MachineClock | None = None,
        credential: Credential = NOTHING,
    ) -> None:
        self._dialer = dialer
        self._credential = credential
        self._timeout_s = timeout_s
        self._wait_s = 0.0
        """How long an engine is waited for when it is opened."""
        self._rng = rng
        self._clock = SystemClock() if clock is None else clock
        self._connection: Connection | None = None
        self._appends: Appends | None = None
        self._owner: Client = self
        self._session = Session()
        self._books: OrderedDict[str | int, Book] = OrderedDict()
        self._held: WeakValueDictionary[str | int, Book] = WeakValueDictionary()
        """Books that were dropped, and that the program, a writer or a ticket still holds: a name has one object."""

    # -- opening and closing

    async def open(self, *, wait: bool = True) -> Client:
        """Connect to the first engine of the URL that answers; return this client.

        Args:
            wait: while none answers, try again for the `timeout` that `connect` was given. False: try each once.

        Raises:
            Unreachable: none does; the message says why, for each. VersionMismatch. ClosedError: was open before.
            Unauthenticated: the cluster asks for a token, and this client showed none, or another. SettingsError: the file
                that should hold it cannot be used.
        """
        confined.check(OPENING)
        if self._connection is not None:
            raise ClosedError("this client was opened before; make a new one with boki.connect(...)")
        connection = Connection(
            self._dialer, self._rng, self._clock, give_up_s=self._timeout_s, credential=self._credential
        )
        appends = Appends(connection)
        await connection.open(self._wait_s if wait else 0.0)
        self._connection, self._appends = connection, appends
        return self

    async def close(self) -> None:
        """Waits up to 5 s for undecided appends, then closes. Idempotent.

        What is undecided then fails with OutcomeUnknown. Closing a session that `session()` made closes nothing. A client whose event
        loop is closed has nothing to wait for. Raises WrongLoop while its loop is another one.
        """
        if self._owner is self and self._connection is not None:
            await self._connection.close(CLOSE_TIMEOUT_S)

    def __await__(self) -> Generator[Any, None, Client]:
        return self.open().__await__()

    async def __aenter__(self) -> Client:
        return self if self._connection is not None else await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- books and sessions

    def book(self, name: str | int) -> Book:
        """A LogBook, by name (its number is xxh3-64 of it) or by number (0 to 2**64-1). It need not be created.

        Raises:
            InvalidArgument: neither. ClosedError: the client is not open.
        """
        books = self._books
        book = books.get(name) if type(name) in (str, int) else None
        if book is None:
            appends = self._open()
            number = arguments.book_number(name)
            book = books[name] = self._held.get(name) or Book(appends, appends.numbers(self._session, number), name)
            self._drop_unused()
        else:
            books.move_to_end(name)
        return book

    def _drop_unused(self) -> None:
        if len(self._books) > SESSION_BOOKS:
            unused = next((name for name, book in self._books.items() if book.idle), None)
            if unused is not None:
                self._held[unused] = self._books.pop(unused)

    def session_token(self) -> str:
        """What this session has seen, as text safe in URLs, headers and environment variables.

        Whoever continues from it, in any process, sees at least all that this session has seen and appended.
        """
        return token_text(self._session.positions, self._cluster)

    def merge(self, token: str) -> None:
        """Takes note of what another session has seen, in addition to what this one has: its reads see both.

        So a call hands its position back to its caller:

            async def child(token: str) -> str:                 # perhaps in another process
                session = client.session(token)                 # sees what its caller has seen
                await session.book("orders").append(b"...")
                return session.session_token()

            client.merge(await child(client.session_token()))   # and now the caller sees what the child has done

        Raises:
            InvalidArgument: no token, or a damaged one; WrongCluster: of another cluster.
        """
        self._session.merge(positions_of(token, self._cluster))

    def session(self, token: str | None = None) -> Client:
        """A session of its own on this client's connection: its own view and its own order of appends.

        Args:
            token: what `session_token()` of another session returned: this one continues from there.

        Raises:
            InvalidArgument: no token, or a damaged one; WrongCluster: of another cluster. ClosedError.
        """
        other = Client(self._dialer, timeout_s=self._timeout_s, rng=self._rng, clock=self._clock)
        other._appends = self._open()
        other._connection = self._connection
        other._owner = self._owner
        other._session = Session(None if token is None else positions_of(token, self._cluster))
        return other

    @property
    def refusal(self) -> DiskFull | None:
        """Why new appends are refused now: too few bookies take writes, the disks of others are full. None: they are not."""
        return None if self._appends is None else self._appends.refusal

    @property
    def cluster(self) -> str | None:
        """What stands for the cluster in session tokens, in hexadecimal; None before it is known."""
        return None if self._cluster is None else f"{self._cluster:016x}"

    @property
    def _cluster(self) -> int | None:
        return None if self._connection is None else self._connection.cluster

    def _open(self) -> Appends:
        if self._connection is None or self._appends is None:
            raise ClosedError("the client is not open yet: `async with boki.connect(...)`, or `await` it")
        self._connection.check_open()
        return self._appends


def connect(
    url: str | None = None,
    *,
    timeout: float | None = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
) -> Client:
    """A client of the cluster at a URL; it connects when entered (`async with`) or awaited.

    Args:
        url: `boki://host:port` (port 7040 by default), `unix:///path`, or several engines of one cluster separated by
            commas: the first that answers is used, the others when it fails. Default: the environment's BOKI_URL. It may end
            with `?token_file=/path`.
        timeout: seconds a call keeps trying before it gives up, by default 540 (DESIGN §6.9). If it is given, connecting waits so
            long for an engine, too; else it fails at once when none answers.
        token: the cluster token, if the cluster has one.
        token_file: or the file that holds it, which is read at each connection. Default: what the URL names, else the
            environment's BOKI_TOKEN_FILE.

    Raises:
        InvalidArgument: no URL, or not one of these; no token.
    """
    confined.check(OPENING)
    found = os.environ.get("BOKI_URL") if url is None else url  # noqa: TID251  # no setting: it says which cluster
    if found is None:
        raise InvalidArgument('expected boki.connect("boki://host:port"), or BOKI_URL in the environment')
    engines = split_options(found) if isinstance(found, str) else EngineUrl(found)
    named = engines.token_file or os.environ.get("BOKI_TOKEN_FILE", "")  # noqa: TID251  # as BOKI_URL
    credential = credential_of(token, None if token_file is None else os.fspath(token_file), named)
    timeout_s = arguments.check_seconds(timeout, "timeout", limits.SDK_GIVE_UP_S)
    if timeout_s > limits.SDK_GIVE_UP_S:
        raise InvalidArgument(
            f"expected a timeout of at most {limits.SDK_GIVE_UP_S} s (the log forgets writers that are silent for long), "
            f"found {timeout}",
            found=timeout,
        )
    client = Client(dialer_for(engines.engines), timeout_s=timeout_s, rng=SystemRandom(), credential=credential)
    client._wait_s = 0.0 if timeout is None else timeout_s
    return client


def connect_like(book: Book, *, timeout: float) -> Client | None:
    """Return a client of the cluster that a book is of, to be opened in another event loop or thread.

    A client belongs to one event loop. Code that has only a book and runs while that loop does not, such as a thread that watches it,
    connects so. The new client is a session of its own.

    Args:
        timeout: seconds a call keeps trying before it gives up.

    Returns:
        A client that is not open yet; None if the cluster is in the memory of this process (`boki.testing`).
    """
    connection = book.home
    if not isinstance(connection.dialer, SocketDialer):
        return None
    timeout_s = arguments.check_seconds(timeout, "timeout", limits.SDK_GIVE_UP_S)
    return Client(connection.dialer.copy(), timeout_s=timeout_s, rng=SystemRandom(), credential=connection.credential)
