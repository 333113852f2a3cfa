"""A book whose followed streams fail for good when a test says so: reads, appends and heartbeats go on."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import boki
from bokilib.ports import BookPort, CursorPort

REASONS = [boki.InvalidArgument("expected another tag"), KeyError("a mistake in a subscriber")]
"""Errors after which a cursor is not opened again: one of the log, and one of the code that it delivers to."""


class _DeafCursor:
    """A cursor that ends with the book's error."""

    def __init__(self, book: DeafBook, cursor: CursorPort) -> None:
        self._book = book
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __aiter__(self) -> _DeafCursor:
        return self

    async def __anext__(self) -> boki.Record | boki.Gap:
        loop = asyncio.get_running_loop()
        item, deaf = loop.create_task(_next(self._cursor)), loop.create_task(self._book.deaf.wait())
        try:
            await asyncio.wait([item, deaf], return_when=asyncio.FIRST_COMPLETED)
            if deaf.done():
                raise self._book.reason
            return item.result()
        finally:
            item.cancel()
            deaf.cancel()


async def _next(cursor: CursorPort) -> boki.Record | boki.Gap:
    return await anext(cursor)


class DeafBook:
    """A book over another one.

    Attributes:
        deaf: while it is set, each cursor over several tags fails with `reason`.
        reason: an error.
    """

    def __init__(self, book: boki.Book, reason: Exception) -> None:
        self._book = book
        self.reason = reason
        self.deaf = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._book, name)

    def read(self, *args: Any, **options: Any) -> Any:
        found = self._book.read(*args, **options)
        return _DeafCursor(self, cast(CursorPort, found)) if "tags" in options else found


def deaf_port(book: DeafBook) -> BookPort:
    """The book, as libraries take it."""
    return cast(BookPort, book)
