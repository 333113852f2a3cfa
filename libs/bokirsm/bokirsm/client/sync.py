"""Machines from outside, for programs without an event loop: `bokirsm.sync`.

    with boki.sync.connect("boki://127.0.0.1:7040") as client, bokirsm.sync.Rsm(app, client.book("b")) as rsm:
        counter = rsm.create(Counter, Init(top), key="c-1")
        rsm.send(counter, Word("a"))
        print(rsm.ask(Word("a").to(counter)))

Names, arguments, results and errors are those of `bokirsm.Rsm`, whose docstrings are the reference. Any number of threads may use one
client; calls that they make at the same time share a record. Machines run in hosts, which have event loops.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final, TypeVar

import boki
from bokilib.append.log import Log
from bokilib.ports import PayloadHook
from bokilib.records.contribution import Contribution, Origin, check_in_book, identity_of
from bokirsm.client import rsm as asynchronous
from bokirsm.client.rsm import TIMEOUT_S
from bokirsm.machine.app import App
from bokirsm.machine.machine import Machine
from bokirsm.machine.refs import Ref
from bokirsm.machine.values import Question

F = TypeVar("F")
R = TypeVar("R")


class Rsm:
    """The machines of an app in a book of a blocking client, from outside."""

    def __init__(
        self, app: App, book: boki.sync.Book, *, hook: PayloadHook | None = None, log: Log | None = None
    ) -> None:
        """Prepare the client. It needs no block, but leaving one, or `close`, ends its tasks.

        Args:
            app: the app.
            book: the book.
            hook: as for `bokilib.Log`.
            log: the log of a store on the same book (`store.store.log`), which the two then share.

        Raises:
            WrongBook: the log is of another book.
        """
        self.app: Final = app
        self._book: Final = book

        async def make(found: boki.Book) -> asynchronous.Rsm:
            if log is not None:
                check_in_book("a log", log.identity, Origin(identity_of(found), f"machines of {app.name!r}"))
            return asynchronous.Rsm(app, found if log is None else log, hook=hook)

        self.rsm: Final = book.using(make)
        """The asynchronous client."""

    def __enter__(self) -> Rsm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the tasks of this client, and trim the answers that it read. It may be called twice."""
        self._book.run(self.rsm.__aexit__(None, None, None))

    def create(
        self, cls: type[Machine[F]], init: F | None = None, *, key: str | None = None, near: Ref[Any] | None = None
    ) -> Ref[F]:
        return self._book.run(self.rsm.create(cls, init, key=key, near=near))

    def creating(
        self, cls: type[Machine[F]], init: F | None = None, *, key: str | None = None, near: Ref[Any] | None = None
    ) -> tuple[Contribution, Ref[F]]:
        return self._book.call(lambda: self.rsm.creating(cls, init, key=key, near=near))

    def send(self, to: Ref[F], event: F, *, dedup_id: str | None = None) -> int:
        return self._book.run(self.rsm.send(to, event, dedup_id=dedup_id))

    def send_many(self, events: Iterable[tuple[Ref[Any], Any]]) -> int:
        # Here: a generator may call this client, which its own thread cannot.
        several = list(events) if isinstance(events, Iterable) else events
        return self._book.run(self.rsm.send_many(several))

    def sending(self, to: Ref[F], event: F, *, dedup_id: str | None = None) -> Contribution:
        return self._book.call(lambda: self.rsm.sending(to, event, dedup_id=dedup_id))

    def ask(self, question: Question[R], *, timeout_s: float = TIMEOUT_S) -> R:
        return self._book.run(self.rsm.ask(question, timeout_s=timeout_s))

    def resume(self, machine: Ref[Any]) -> None:
        self._book.run(self.rsm.resume(machine))

    def skip(self, machine: Ref[Any]) -> None:
        self._book.run(self.rsm.skip(machine))
