"""A lane whose appends fail, at each of its operations: it handles on, or its host gives the partitions to others and says so.

- forgotten: the outcome of the append can never be known, whether its record is in the log or not.
- refused: a definite error that may pass.
- an error that does not pass: nothing of this host can be appended any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeVar

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import BokiError, RecordTooLarge, RemoteError, Unreachable, WriterForgotten
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.errors import AppendUnknown
from bokilib.ports import BookPort, Expect, Tag, TicketPort
from bokilib.testing import Fault, FaultyBook
from bokirsm import App, Host
from libs.tests.rsm.test_faults import check
from libs.tests.rsm.words import Best, Counter, Init, Max, Word

T = TypeVar("T")
APP = App("words", [Counter, Max])


class _Forgotten:
    """A ticket whose outcome is never known."""

    def __init__(self, ticket: TicketPort | None, error: type[BokiError]) -> None:
        self._ticket = ticket
        self._error = error

    def __await__(self) -> Generator[Any, None, int]:
        return self._wait().__await__()

    async def _wait(self) -> int:
        if self._ticket is not None:
            await self._ticket.outcome()
        raise self._error("the test forgot the outcome")

    async def outcome(self, *, settle: bool = False) -> boki.Outcome:
        raise self._error("the test forgot the outcome")


class ForgettingBook(FaultyBook):
    """A book one of whose appends has an unknown outcome for ever; they are counted from 0.

    Attributes:
        count: appends so far.
        of_lane: whether the append of unknown outcome was that of a lane's record.
        failing: if set, what every append of the lane fails with.
    """

    def __init__(
        self, book: BookPort, at: int, *, lands: bool = True, error: type[BokiError] = WriterForgotten
    ) -> None:
        super().__init__(book)
        self.count = 0
        self.of_lane = False
        self.failing: BokiError | None = None
        self._at = at
        self._lands = lands
        self._error = error

    def submit(self, data: bytes, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> TicketPort:
        number = self.count
        self.count += 1
        of_lane = any(str(tag).startswith("rsm/own/") for tag in expect or ()) and "rsm/own" not in str(tags)
        if self.failing is not None and of_lane:
            raise self.failing
        if number == self._at:
            self.of_lane = of_lane
        if number != self._at:
            return super().submit(data, tags=tags, expect=expect)
        ticket = super().submit(data, tags=tags, expect=expect) if self._lands else None
        return _Forgotten(ticket, self._error)


async def surely(call: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await call()
        except (AppendUnknown, Unreachable):
            await let_pass(0.01)


async def count(book: BookPort) -> None:
    """Count three words by hosts, one after the other if one cannot begin."""
    while True:
        try:
            async with Host(APP, book, lease_s=1.0, stuck_after_s=None) as host:
                await counted(host)
                assert host.failed is None or not getattr(book, "of_lane", False), "the lane settles its appends"
                return
        except (AppendUnknown, WriterForgotten, RemoteError, Unreachable):
            await let_pass(0.01)


async def counted(host: Host) -> None:
    top = await surely(partial(host.create, Max, key="max"))
    counter = await surely(partial(host.create, Counter, Init(top), key="c"))
    for number, text in enumerate("aba"):
        await surely(partial(host.send, counter, Word(text), dedup_id=f"word-{number}"))
    while True:
        try:
            if await surely(partial(host.ask, Best().to(top), timeout_s=60)) == "a 2":
                return
        except TimeoutError:
            assert host.failed is not None, "a host that runs answers"
            return


async def counted_with(book_of: Callable[[BookPort], FaultyBook]) -> FaultyBook:
    """Count with a book that fails once, then without faults, and check the traces."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        book = book_of((await cluster.connect()).book("b"))
        await count(book)
        plain = (await cluster.connect()).book("b")
        await count(plain)
        await check(plain)
        return book


@pytest.mark.parametrize("error", [WriterForgotten, RemoteError])
@pytest.mark.parametrize("lands", [True, False])
@in_virtual_time
async def test_an_append_of_unknown_outcome_changes_no_trace(lands: bool, error: type[BokiError]) -> None:
    at = 0
    while True:
        book = await counted_with(partial(ForgettingBook, at=at, lands=lands, error=error))
        assert isinstance(book, ForgettingBook)
        if book.count <= at:
            break
        at += 1
    assert at > 8


@in_virtual_time
async def test_a_definite_error_at_any_operation_changes_no_trace() -> None:
    at = 0
    while True:
        book = await counted_with(lambda plain, at=at: FaultyBook(plain, Fault(at, "refused")))  # type: ignore[misc]
        if len(book.operations) <= at:
            break
        at += 1
    assert at > 20


@in_virtual_time
async def test_others_take_over_from_a_host_whose_lane_cannot_append(capsys: pytest.CaptureFixture[str]) -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        broken = ForgettingBook((await cluster.connect()).book("b"), -1)
        async with Host(APP, broken, name="one", lease_s=60.0, stuck_after_s=None) as one:
            top = await one.create(Max, key="max")
            assert await one.ask(Best().to(top)) == " 0"
            book = (await cluster.connect()).book("b")
            async with Host(APP, book, name="two", lease_s=60.0, stuck_after_s=None) as two:
                while not (two.partitions and one.partitions):
                    await let_pass(1.0)
                broken.failing = RecordTooLarge("no record of this host fits")
                refs = [await two.create(Max) for _ in range(20)]
                assert await asyncio.gather(*(two.ask(Best().to(ref)) for ref in refs)) == [" 0"] * 20
                assert isinstance(one.failed, RecordTooLarge) and not one.partitions
    said = capsys.readouterr().err
    assert "lane failed" in said and "host failed: it released its partitions" in said


@in_virtual_time
async def test_a_host_that_cannot_release_ends_its_heartbeats(capsys: pytest.CaptureFixture[str]) -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        client = await cluster.connect()
        async with Host(APP, client.book("b"), name="one", lease_s=3.0, stuck_after_s=None) as one:
            top = await one.create(Max, key="max")
            one._owner.release = _refusing  # type: ignore[method-assign,assignment]
            one.lane.fail(AssertionError("a fault of the lane"))
            one.lane.fail(AssertionError("said once"))
            async with Host(
                APP, (await cluster.connect()).book("b"), name="two", lease_s=3.0, stuck_after_s=None
            ) as two:
                assert await two.ask(Best().to(top)) == " 0" and isinstance(one.failed, AssertionError)
    said = capsys.readouterr().err
    assert said.count("lane failed") == 1 and "partitions not released" in said


async def _refusing(part: object) -> int:
    raise Unreachable("the test refused the release")
