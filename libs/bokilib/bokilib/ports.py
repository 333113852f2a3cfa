"""Ports of the libraries: a book, its tickets, reads and cursors, random names, and hooks for payloads.

`boki.Book` is a `BookPort`. Tests use one that fails at a given operation (`bokilib.testing.FaultyBook`).
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, overload

import boki
from boki import Random

__all__ = [
    "BookPort",
    "ConsistencyName",
    "CursorPort",
    "Expect",
    "PayloadHook",
    "Random",
    "RecordsPort",
    "Tag",
    "TicketPort",
]

Tag: TypeAlias = str | int
Expect: TypeAlias = Mapping[Tag, int | None]
ConsistencyName: TypeAlias = Literal["session", "linearizable", "any"]


class TicketPort(Protocol):
    """A submitted record, which can be awaited for its seqnum."""

    def __await__(self) -> Generator[Any, None, int]: ...

    async def outcome(self, *, settle: bool = False) -> boki.Outcome: ...


class RecordsPort(Protocol):
    """An iterator over the records and gaps of a read."""

    def __aiter__(self) -> RecordsPort: ...

    async def __anext__(self) -> boki.Record | boki.Gap: ...


class CursorPort(Protocol):
    """A read of several tags, to which tags can be added: the part of `boki.Cursor` that libraries use."""

    @property
    def position(self) -> int: ...

    @property
    def ready(self) -> bool: ...

    def current(self, *, within_s: float) -> bool: ...

    def refresh(self) -> None: ...

    def add(self, tag: Tag, start: int | None = None) -> None: ...

    def discard(self, tag: Tag) -> None: ...

    def __aiter__(self) -> CursorPort: ...

    async def __anext__(self) -> boki.Record | boki.Gap: ...


class BookPort(Protocol):
    """A LogBook: the part of `boki.Book` that libraries use.

    A port that also has the `id`, `name` and `cluster` of `boki.Book` tells which book it is: parts of other books are then refused in its
    records.
    """

    @property
    def position(self) -> int | None: ...

    def submit(self, data: bytes, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> TicketPort: ...

    async def ready(self) -> None: ...

    async def now(self, *, consistency: ConsistencyName = "session") -> int: ...

    async def read_prev(
        self, tag: Tag | None = None, *, at_most: int | None = None, consistency: ConsistencyName = "session"
    ) -> boki.Record | None: ...

    async def read_prev_many(
        self, queries: Sequence[tuple[Tag | None, int | None]], *, consistency: ConsistencyName = "session"
    ) -> list[boki.Record | None]: ...

    async def read_since(
        self, seen: Mapping[Tag, int], *, at_most: int | None = None, consistency: ConsistencyName = "session"
    ) -> boki.Since: ...

    @overload
    def read(
        self, tag: Tag | None = None, *, start: int | None = None, stop: int | None = None, follow: bool = False
    ) -> RecordsPort: ...

    @overload
    def read(
        self, *, tags: Sequence[Tag], start: int | None = None, stop: int | None = None, follow: bool = False
    ) -> CursorPort: ...

    async def trim(self, pairs: Sequence[tuple[Tag | None, int]], *, forget: bool = False) -> None: ...

    def set_aux_data(self, seqnum: int, data: bytes) -> Coroutine[Any, Any, bool]: ...


class PayloadHook(Protocol):
    """A transformation of the events of records before they are stored: compression, encryption, storage elsewhere.

    All libraries of a book share one hook, because they share records. An OSError that it raises becomes `PayloadHookUnavailable`: the
    libraries repeat the call later. Any other error becomes `PayloadHookFailed`, which is final: for the append, of which nothing is sent,
    or for the one record, which is treated as unreadable. Errors of Boki (`BokiError`) are passed on as they are.

    Attributes:
        name: stored in each record that the hook sealed, so that the error of a reader without the hook can name it.
    """

    @property
    def name(self) -> str: ...

    async def seal(self, events: bytes) -> bytes:
        """Return the bytes to store for encoded events. `open` must be able to restore them in any later process."""

    async def open(self, sealed: bytes) -> bytes:
        """Return the encoded events that `seal` was given."""
