"""Commands retry while nobody answers, and report it once; what no retry mends fails at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import pytest

from boki.testing._engine import ModelEngine
from boki.testing._model import Model
from boki_cli.clients import connected, engine_answers
from boki_cli.options import Invocation
from boki_common.errors import InvalidArgument, Unreachable
from boki_common.net.connection import Address, FrameServer
from boki_common.net.messages import serve_messages
from boki_common.runtime.process import SystemClock


async def engine_at(path: Path) -> tuple[ModelEngine, FrameServer]:
    engine = ModelEngine(Model(), SystemClock())
    return engine, await serve_messages(Address("", 0, str(path)), lambda _: engine)


async def test_an_engine_that_comes_later_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    invocation = Invocation(url=f"unix://{tmp_path}/engine", timeout_s=60)

    async def append() -> int:
        async with connected(invocation) as client:
            return await client.book("b").append(b"x")

    appending = asyncio.ensure_future(append())
    said = ""
    while not said:
        await asyncio.sleep(0)
        said = capsys.readouterr().err
    assert "no engine answers" in said and "Trying for 60 s; Ctrl-C ends it." in said
    engine, server = await engine_at(tmp_path / "engine")
    assert await appending
    assert capsys.readouterr().err == "", "once"
    engine.close()
    await server.close()


async def test_a_call_without_answer_ends_after_its_time(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="no engine answers"):
        async with connected(Invocation(url=f"unix://{tmp_path}/none", timeout_s=0.3)):
            pass


async def test_one_that_takes_connections_and_says_nothing_is_given_up_in_time(tmp_path: Path) -> None:
    """As a process that is stopped."""
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_unix_server(lambda _, writer: held.append(writer), str(tmp_path / "engine"))
    async with server:
        with pytest.raises(Unreachable):
            async with connected(Invocation(url=f"unix://{tmp_path}/engine", timeout_s=0.2)):
                pass
        for writer in held:
            writer.close()


async def test_what_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InvalidArgument, match="expected a URL"):
        async with connected(Invocation(url="http://x", timeout_s=60)):
            pass
    with pytest.raises(InvalidArgument, match="expected a URL"):
        await engine_answers("http://x", 1, asyncio.Event())


async def test_who_is_stopped_while_it_waits_ends(tmp_path: Path) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_soon(stop.set)
    with pytest.raises(click.Abort):
        async with connected(Invocation(url=f"unix://{tmp_path}/none", timeout_s=60), stop):
            pass
    assert not await engine_answers(f"unix://{tmp_path}/none", 1, stop)


async def test_a_role_waits_for_an_engine_however_long_it_takes(tmp_path: Path) -> None:
    waiting = asyncio.ensure_future(engine_answers(f"unix://{tmp_path}/engine", 0.1, asyncio.Event()))
    await asyncio.wait([waiting], timeout=0.5)
    assert not waiting.done()
    engine, server = await engine_at(tmp_path / "engine")
    assert await waiting
    engine.close()
    await server.close()
