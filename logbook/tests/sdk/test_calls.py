"""Calls over a connection that comes and goes: repeated, timed out, and what is said then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki._attempts import Attempts
from boki._calls import Calls
from boki_common.engine import engine_protocol as wire
from boki_common.errors import CallTimeout, ClosedError, ConnectionLost, InvalidArgument, Overloaded, Unreachable


class Engine:
    """One connection, answered by hand."""

    closed = False
    peer = "engine"

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[memoryview]] = []

    def request(self, opcode: int, *body: Any) -> asyncio.Future[memoryview]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


class Link:
    """The connection there is."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.peer: Any = self.engine
        self.attempts = Attempts()
        self.closed = False
        self.changed = asyncio.Event()
        self.answers = 0

    def check_here(self) -> None:
        pass

    def check_open(self) -> None:
        if self.closed:
            raise ClosedError("closed")

    def backoff_s(self, attempt: int) -> float:
        return 0.0

    def watch(self) -> None: ...

    def received(self) -> None:
        self.answers += 1

    async def change(self) -> None:
        self.changed.clear()
        await self.changed.wait()

    def lose(self, peer: Any = None) -> None:
        self.engine.closed = True
        for future in self.engine.asked:
            if not future.done():
                future.set_exception(ConnectionLost("gone"))
        self.peer = peer
        self.changed.set()


@pytest.fixture
async def link() -> Link:
    return Link()


def started(link: Link, timeout_s: float = 5.0, opcode: int = wire.OP_POSITION) -> asyncio.Future[memoryview]:
    calls = Calls(link, asyncio.get_running_loop())
    calls.connected(link.engine, together=False)  # type: ignore[arg-type]
    return asyncio.ensure_future(calls.call(opcode, (), timeout_s))


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_call_is_answered(link: Link) -> None:
    call = started(link)
    await turns()
    link.engine.asked[0].set_result(memoryview(b"x"))
    assert bytes(await call) == b"x" and link.answers == 1


async def test_a_call_is_repeated_on_the_next_connection(link: Link) -> None:
    call, after = started(link), Engine()
    await turns()
    link.lose()
    await turns()
    link.peer = after
    link.changed.set()
    await turns()
    after.asked[0].set_result(memoryview(b"x"))
    assert bytes(await call) == b"x"


async def test_a_call_that_an_engine_puts_off_is_repeated_and_one_that_it_refuses_is_not(link: Link) -> None:
    call = started(link)
    await turns()
    link.engine.asked[0].set_exception(Overloaded("later"))
    await turns()
    link.engine.asked[1].set_exception(InvalidArgument("never"))
    with pytest.raises(InvalidArgument):
        await call
    assert len(link.engine.asked) == 2


async def test_who_was_asked_may_have_done_it_and_who_was_not_has_not(link: Link) -> None:
    with pytest.raises(CallTimeout, match="engine did not answer within 0") as asked:
        await started(link, 0.01)
    link.peer = None
    with pytest.raises(Unreachable, match="no engine is connected") as not_asked:
        await started(link, 0.01)
    assert (asked.value.definite, not_asked.value.definite) == (False, True)


@pytest.mark.parametrize(("opcode", "error"), [(wire.OP_TRIM, ConnectionLost), (wire.OP_POSITION, ClosedError)])
async def test_a_change_that_was_asked_for_before_the_end_may_have_been_done(
    link: Link, opcode: int, error: type[Exception]
) -> None:
    call = started(link, opcode=opcode)
    await turns()
    link.closed = True
    link.lose()
    with pytest.raises(error):
        await call
