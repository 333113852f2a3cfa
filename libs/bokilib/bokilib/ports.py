"""What libraries need of the world: a book, random names, pauses between attempts, and what may be done to payloads.

`boki.Book` is a `BookPort`. Tests put one between that fails where they say (`bokilib.testing`).
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
    """One submitted record."""

    def __await__(self) -> Generator[Any, None, int]: ...

    async def outcome(self, *, settle: bool = False) -> boki.Outcome: ...


class RecordsPort(Protocol):
    """Records and gaps of a read."""

    def __aiter__(self) -> RecordsPort: ...

    async def __anext__(self) -> boki.Record | boki.Gap: ...


class CursorPort(Protocol):
    """A read of several tags: see `boki.Cursor`."""

    @property
    def position(self) -> int: ...

    def current(self, *, within_s: float) -> bool: ...

    def refresh(self) -> None: ...

    def add(self, tag: Tag, start: int | None = None) -> None: ...

    def discard(self, tag: Tag) -> None: ...

    def __aiter__(self) -> CursorPort: ...

    async def __anext__(self) -> boki.Record | boki.Gap: ...


class BookPort(Protocol):
    """A LogBook, as far as libraries use one: see `boki.Book`."""

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
    """What is done to the events of a record before they are stored: compressed, encrypted, kept elsewhere.

    All libraries of a book share it, because they share records. What it raises, the caller gets, and nothing is sent.

    Attributes:
        name: is stored beside what it made, so that a reader without it says which one it lacks.
    """

    @property
    def name(self) -> str: ...

    async def seal(self, events: bytes) -> bytes:
        """What to store for them; it must come back from `open` whatever became of this process."""

    async def open(self, sealed: bytes) -> bytes:
        """The events."""
