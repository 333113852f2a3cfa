"""Linearizable reads that wait for the same barrier: one serves all that came before it left (DESIGN §7).

Reads of one turn of the loop, about books of one log, form a group. Its barrier leaves in the next turn, and when the index
has passed it all of the group are answered, without a task, a time-out or a future of each; where the first sequencer that is
asked says so, also without one of the group. What then has to wait for
something else (for records, or for entries that are not cached) goes on as a read of its session from that position.

Rules:
- A barrier of a log proves nothing about a book that another log orders by now: such a read asks anew, by itself.
- What fails the barrier fails the whole group, as it would have failed each of them.
- Who is answered learns whether other answers follow at once: callers of one connection then ask again together, and share
  the next barrier too. Without it those who are answered first would be a group of their own, and every round take two barriers.
- Reads that wait here count as parked ones (`settings.parked_reads`). Whoever is gone by then is passed over.

It does not know how a barrier is had, nor what a reply looks like.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from boki_common.background_tasks import BackgroundTasks
from boki_common.engine.engine_protocol import Consistency, Query, Token, merge_tokens
from boki_common.errors import BokiError
from boki_common.ids import Position
from boki_common.runtime.ports import Buffer
from boki_logbook.ports import ShardLink

TURN_READS: Final = 256
"""Reads of a group that are answered before others get their turn of the loop."""
FIRST_SLICE_READS: Final = 4
SLICE_READS: Final = 64
"""Answers that leave together: whoever is answered wakes up while the others are looked up, so the first are few; each slice is
twice the one before, for to look up a read takes half of what its caller does with the answer."""

Answer: TypeAlias = tuple[int, list[Buffer]]
"""A request id and the reply."""


class Requester(Protocol):
    """The connection of a read."""

    @property
    def closed(self) -> bool: ...

    def respond_reads(self, answers: Sequence[Answer], *, more: bool) -> None:
        """`more`: others to the same connection follow at once, or at least word that none do."""

    def read_later(self, request_id: int, token: Token, query: Query) -> None:
        """Answers when it can, in a task. Raises nothing."""

    def read_failed(self, request_id: int, error: BaseException) -> None: ...


class Views(Protocol):
    """What a group needs of `reader.Reader`."""

    @property
    def log_of(self) -> Callable[[int], int]:
        """The log of a book, as it is called for each read."""

    @property
    def link_of(self) -> Callable[[int], ShardLink | None]:
        """The sequencer of a log's term, while it can be spoken to."""

    async def barrier(self, book: int) -> tuple[int, Position]:
        """A position of the book's log that covers all that was acknowledged before; raises when there is none in time."""

    async def reach(self, token: Token, book: int) -> None:
        """Waits until the position is applied here."""

    @property
    def view_after(self) -> Callable[[Token, int], tuple[Token, int] | None]:
        """What a reply about a book shows, and how far it goes, the same for all of one turn; None: a position is not applied here."""

    def answer_here(self, query: Query, seen: Token, covered: int) -> list[Buffer] | None:
        """The reply, unless something has to be waited for that the view does not have, or that is not in memory."""


_Read: TypeAlias = tuple[Requester, int, Token, Query]
"""Who asked, under which number, and what."""


class BarrierReads:
    """See the module. `waiting` reads are in groups."""

    def __init__(self, views: Views) -> None:
        self.waiting = 0
        self._views = views
        self._log_of = views.log_of
        self._forming: dict[int, list[_Read]] = {}
        """Log → the group whose barrier has not left yet."""
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._serving = BackgroundTasks()

    def add(self, requester: Requester, token: Token, reads: Sequence[tuple[int, Query]]) -> None:
        """Answers reads, by request id, when all that was acknowledged before is applied here."""
        self.waiting += len(reads)
        book: int | None = None
        group: list[_Read] = []
        for request_id, query in reads:
            if query.book != book:
                book = query.book
                group = self._group_of(book)
            group.append((requester, request_id, token, query))

    def _group_of(self, book: int) -> list[_Read]:
        log = self._log_of(book)
        group = self._forming.get(log)
        if group is None:
            group = self._forming[log] = []
            self._loop.call_soon(self._leave, log, group, book)
        return group

    def _leave(self, log: int, group: list[_Read], book: int) -> None:
        """The turn of a group is over: who asks from now on needs a barrier of his own."""
        del self._forming[log]
        link = self._views.link_of(log)
        if link is None or self._closed:
            self._begin(self._serve(log, group, book))
        else:
            link.ask_barrier(partial(self._answered, log, group, book))

    def _answered(self, log: int, group: list[_Read], book: int, position: Position | BokiError) -> None:
        """What the first sequencer says that is asked. Nearly always all can be answered at once."""
        if isinstance(position, BokiError) or self._closed:
            self._begin(self._serve(log, group, book))
        elif len(group) > TURN_READS or self._views.view_after({log: position}, book) is None:
            self._begin(self._serve(log, group, book, position))
        else:
            self._answer(group, log, {log: position})
            self.waiting -= len(group)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closed:
            work.close()
        else:
            self._serving.spawn(work)

    async def _serve(self, log: int, group: list[_Read], book: int, position: Position | None = None) -> None:
        """The long way: asks sequencer after sequencer, unless it has a position, and waits until that is applied here."""
        try:
            if position is None:
                log, position = await self._views.barrier(book)
            at = {log: position}
            await self._views.reach(at, book)
            for start in range(0, len(group), TURN_READS):
                if start:
                    await asyncio.sleep(0)
                self._answer(group[start : start + TURN_READS], log, at)
        except BokiError as error:
            for requester, request_id, _, _ in group:
                if not requester.closed:
                    requester.read_failed(request_id, error)
        finally:
            self.waiting -= len(group)

    def _answer(self, reads: Sequence[_Read], log: int, at: dict[int, Position]) -> None:
        """Answers reads within a turn, in which nothing changes: what neighbours have in common, mostly all of them the
        connection, the book and the session, is looked at once."""
        views = self._views
        answer_here = views.answer_here
        answering: Requester | None = None
        answers: list[Answer] = []
        slice_reads = FIRST_SLICE_READS
        seen: tuple[Requester | None, int, Token] = None, 0, {}
        gone = moved = False
        view: tuple[Token, int] | None = None
        for requester, request_id, token, query in reads:
            book = query.book
            try:
                if (requester, book, token) != seen:
                    gone, moved = requester.closed, self._log_of(book) != log
                    view, seen = views.view_after(token, book), (requester, book, token)
                if gone:
                    continue
                if moved:
                    requester.read_later(request_id, token, query)
                    continue
                reply = answer_here(query, *view) if view is not None else None
            except Exception as error:  # noqa: BLE001 - as any read that fails inside: the others of the group go on
                requester.read_failed(request_id, error)
                continue
            if reply is None:
                reached = dict(token)
                merge_tokens(reached, at)
                requester.read_later(request_id, reached, query._replace(consistency=Consistency.SESSION))
                continue
            if answering is not None and requester is not answering:
                answering.respond_reads(answers, more=False)
                slice_reads, answers = FIRST_SLICE_READS, []
            answering = requester
            answers.append((request_id, reply))
            if len(answers) == slice_reads:
                answering.respond_reads(answers, more=True)
                slice_reads, answers = min(2 * slice_reads, SLICE_READS), []
        if answering is not None:
            answering.respond_reads(answers, more=False)

    async def close(self) -> None:
        """Ends all groups; nobody is answered any more."""
        self._closed = True
        await self._serving.close()
