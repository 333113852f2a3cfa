"""Appending one record: under the session's own writer of a book, or under a named one.

Every call checks its arguments first: what could be refused is refused before it has a number or leaves this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from boki import _arguments as arguments
from boki._appends import Appends
from boki._arguments import Content, Data, Expect, Expectations, Tag
from boki._numbers import Numbers
from boki._ticket import Owner, Ticket
from boki_common.errors import BokiError, CallTimeout, InvalidArgument, Unreachable


class AppendedTo(Owner, Protocol):
    """A book, or a named writer of one: whom its records ask about themselves."""

    async def refresh_view(self, timeout: float | None = None) -> None:
        """Ask what the session may see of the book by now."""


class Clock(Protocol):
    """What tells the time of deadlines: a connection."""

    @property
    def give_up_s(self) -> float: ...

    def now(self) -> float: ...


class Within(NamedTuple):
    """The time that a call has for all of its steps together. `deadline`: as `clock.now` tells it."""

    timeout_s: float
    deadline: float
    clock: Clock

    @classmethod
    def of(cls, timeout: float | None, clock: Clock) -> Within:
        """Begin now. Raises InvalidArgument."""
        timeout_s = arguments.check_seconds(timeout, "timeout", clock.give_up_s)
        return cls(timeout_s, clock.now() + timeout_s, clock)

    def left_s(self) -> float:
        """Return the seconds that are left, 0 or more."""
        return max(round(self.deadline - self.clock.now(), 6), 0.0)


@contextmanager
def nothing_sent() -> Iterator[None]:
    """Ask something before a record gets a number: without an answer in time, it certainly was not appended. Raises Unreachable in
    the place of CallTimeout. Not for a number that the caller gives: it may have been sent before."""
    try:
        yield
    except CallTimeout as error:
        raise Unreachable(f"{error}; nothing was appended") from error


async def append(
    appends: Appends,
    numbers: Numbers,
    to: AppendedTo,
    data: Data,
    tags: Sequence[Tag],
    expect: Expect | None,
    timeout: float | None,
) -> int:
    """Appends under the next of these numbers; see `Book.append`."""
    encoded, checked, expectations = arguments.encode_record(data, tags, expect)
    if timeout is not None:
        within = Within.of(timeout, appends.connection)
        if expectations.highest > numbers.seen:
            with nothing_sent():
                await _see(numbers, to, expectations, within.timeout_s)
        return await append_in(appends, numbers, Ticket(encoded, checked, expectations, to), within)
    if expect is not None and expectations.highest > numbers.seen:
        with nothing_sent():
            await _see(numbers, to, expectations, None)
    # Nothing here keeps the ticket, so it ends with its verdict, and not a turn later with hundreds of others.
    outcome = await (
        _submitted(appends, numbers, Ticket(encoded, checked, expectations, to))
        or await _submitted_later(appends, numbers, Ticket(encoded, checked, expectations, to))
    )
    if isinstance(outcome, int):
        return outcome
    raise outcome


def _submitted(appends: Appends, numbers: Numbers, ticket: Ticket) -> asyncio.Future[int | BokiError] | None:
    """Numbers a record, and waits for its verdict; None when the window is full."""
    return ticket.wait(appends.connection.loop) if appends.submit(numbers, ticket) else None


async def _submitted_later(appends: Appends, numbers: Numbers, ticket: Ticket) -> asyncio.Future[int | BokiError]:
    """`_submitted`, once there is a place."""
    await appends.submit_in(numbers, ticket, None)
    return ticket.wait(appends.connection.loop)


async def append_in(appends: Appends, numbers: Numbers, ticket: Ticket, within: Within) -> int:
    """Number a record, at once if there is a place, and wait for its verdict."""
    await appends.submit_in(numbers, ticket, within.left_s())
    await appends.wait(numbers, ticket, within.deadline, within.timeout_s)
    return await ticket


def submit(
    appends: Appends, numbers: Numbers, to: Owner, data: Data, tags: Sequence[Tag], expect: Expect | None
) -> Ticket:
    """Appends under the next of these numbers without waiting; see `Book.submit`."""
    encoded, checked, expectations = arguments.encode_record(data, tags, expect)
    if expect is not None:
        _check_past(numbers, expectations, "; read first, or use `await book.append(...)`")
    ticket = Ticket(encoded, checked, expectations, to)
    if not appends.submit(numbers, ticket):
        raise appends.full(numbers)
    return ticket


async def encode(
    numbers: Numbers, to: AppendedTo, data: Data, tags: Sequence[Tag], expect: Expect | None, within: Within
) -> Content:
    """Return a record as it travels. Raises what `append` raises before anything is sent."""
    encoded, checked, expectations = arguments.encode_record(data, tags, expect)
    if expectations.highest > numbers.seen:
        await _see(numbers, to, expectations, within.left_s())
    return encoded, checked, expectations


async def _see(numbers: Numbers, to: AppendedTo, expectations: Expectations, timeout: float | None) -> None:
    """Look again, since something newer than the session has seen is expected. Raises InvalidArgument, CallTimeout."""
    await to.refresh_view(timeout)
    _check_past(numbers, expectations)


def _check_past(numbers: Numbers, expectations: Expectations, hint: str = "") -> None:
    position = numbers.seen
    for tag, seqnum in expectations.pairs:
        if seqnum > position:
            raise InvalidArgument(
                f"expected expect[{expectations.keys[tag]!r}] in what this session has seen (up to {position}), "
                f"found {seqnum}; use the seqnum of a record it read, or book.position{hint}",
                expected=position,
                found=seqnum,
            )
