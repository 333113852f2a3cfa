"""Who is let in, over every port of real processes: ports × {no token, wrong token, right token} × {loopback, other machines}.

On loopback once with a token and once without; where other machines reach it, with one, on machines of the test's own (without one
nothing starts there: `cli/tests/start/test_listening.py`). Then: tokens are exchanged while everything runs, and what commands say.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
import pytest

import boki
from boki_cli.demo.local_cluster import LocalCluster
from boki_common.bookkeeper import auth, v2, v3
from boki_common.bookkeeper.v3_messages import AuthRequest, AuthResponse
from boki_common.cluster_token import NO_TOKEN, ClusterToken, parse
from boki_common.engine import engine_protocol
from boki_common.errors import BokiError, Unauthenticated
from boki_common.net.connection import Address, FrameConnection, connect
from boki_common.net.messages import MessagePeer, connect_messages
from boki_metalog.entries import permissions, sequencer_protocol
from itests.faults.machines import enter_hosts
from itests.support.processes import command, running
from itests.support.tokens import OTHER, SECRET, write_token

SHOWN: Final[Mapping[str, ClusterToken]] = {
    "none": NO_TOKEN,
    "wrong": parse(OTHER, "test"),
    "right": parse(SECRET, "test"),
}


class Ports:
    """Where everything of a small cluster listens."""

    def __init__(self) -> None:
        self.at: dict[str, Address] = {}

    async def start(
        self, stack: AsyncExitStack, folder: Path, host: str, token: Path | None, prefix: list[str]
    ) -> None:
        environment = {"BOKI_BOOKIE_ADMIN_HOST": host}
        if token is not None:
            environment["BOKI_TOKEN_FILE"] = str(token)
        metadata = ("--metadata", f"sqlite://{folder}/metadata.db")
        pages = ("--metrics", f"{host}:0")

        async def started(kind: str, *more: str) -> None:
            listen = ("--listen", f"{host}:0")
            role = running(kind, *more, *listen, log=folder / "log", environment=environment, prefix=prefix)
            ready = (await stack.enter_async_context(role)).ready
            self.at[kind] = Address.parse(ready["addresses"][0])
            for page in ("metrics", "admin"):
                if page in ready:
                    self.at[f"{kind} {page}"] = Address.parse(ready[page])

        await started("bookie", *metadata, *pages, "--data", str(folder / "bookie"), "--admin-port", "0")
        copies = ("--config", str(folder / "one-copy.toml"))
        (folder / "one-copy.toml").write_text("[sequencer]\nreplicas = 1\nacks = 1\n[engine]\nreplicas = 1\nacks = 1\n")
        for kind in ("sequencer", "controller", "engine"):
            await started(kind, *metadata, *pages, *copies)
        url = f"boki://{self.at['engine']}"
        await started("gateway", *metadata, "--url", url)


class Quiet:
    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None: ...

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None: ...


async def hello(address: Address, opcode: int, body: bytes) -> bool:
    peer = await connect_messages(address, Quiet())
    try:
        await peer.call(opcode, body)
    except Unauthenticated:
        return False
    finally:
        peer.close()
    return True


async def to_engine(address: Address, token: ClusterToken) -> bool:
    said = {"versions": [1], "features": [], "auth": token.shown, "role": engine_protocol.ROLE_SDK}
    return await hello(address, engine_protocol.OP_HELLO, msgspec.msgpack.encode(said))


async def to_sequencer(address: Address, token: ClusterToken) -> bool:
    said = sequencer_protocol.encode_hello(token=token, role=permissions.PARTICIPANT)
    return await hello(address, sequencer_protocol.OP_HELLO, said)


class Frames:
    def __init__(self, _: FrameConnection) -> None:
        self.first: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()

    def frames_received(self, frames: list[memoryview]) -> None:
        if not self.first.done():
            self.first.set_result(frames[0])

    def connection_lost(self, error: BokiError | None) -> None: ...


def to_bookie(*, in_v3: bool) -> Callable[[Address, ClusterToken], Awaitable[bool]]:
    async def ask(address: Address, token: ClusterToken) -> bool:
        message = auth.credential(token.shown) if token.shown else auth.greeting("anybody")
        request = v3.encode_request(AuthRequest(1, None, message)) if in_v3 else v2.encode_auth(message)
        connection = await connect(address, Frames)
        connection.send(request)
        assert isinstance(connection.handler, Frames)
        handler = connection.handler
        async with asyncio.timeout(20):
            frame = await handler.first
        connection.close()
        if not in_v3:
            return not auth.refused(v2.decode_auth(frame))
        answer = v3.decode_response(frame)
        assert isinstance(answer, AuthResponse)
        return not auth.refused(answer.message)

    return ask


def to_page(path: str) -> Callable[[Address, ClusterToken], Awaitable[bool]]:
    async def ask(address: Address, token: ClusterToken) -> bool:
        headers = {"Authorization": f"Bearer {token.shown}"} if token.shown else {}
        async with aiohttp.ClientSession() as http, http.get(f"http://{address}{path}", headers=headers) as answer:
            assert answer.status in (200, 401), answer.status
            return answer.status == 200

    return ask


TABLE: Final[tuple[tuple[str, Callable[[Address, ClusterToken], Awaitable[bool]]], ...]] = (
    ("engine", to_engine),
    ("sequencer", to_sequencer),
    ("controller", to_sequencer),
    ("bookie", to_bookie(in_v3=False)),
    ("bookie", to_bookie(in_v3=True)),
    ("gateway", to_page("/v1/status")),
    ("gateway", to_page("/metrics")),
    ("bookie admin", to_page("/info")),
    ("bookie metrics", to_page("/metrics")),
    ("sequencer metrics", to_page("/metrics")),
    ("controller metrics", to_page("/healthz")),
    ("engine metrics", to_page("/metrics")),
)


@pytest.mark.processes
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("bind", "asks"),
    [
        ("loopback", True),
        ("loopback", False),
        pytest.param("wide", True, marks=pytest.mark.namespaces),
    ],
)
async def test_every_port_lets_in_who_shows_the_right_token_and_nobody_else(
    tmp_path: Path, bind: str, asks: bool
) -> None:
    token = write_token(tmp_path / "token") if asks else None
    async with AsyncExitStack() as stack:
        host, prefix = "127.0.0.1", list[str]()
        if bind == "wide":
            hosts = await enter_hosts(stack, ["all"])
            host, prefix = hosts["all"].address, hosts["all"].command(())
        ports = Ports()
        await ports.start(stack, tmp_path, host, token, prefix)
        found, expected = {}, {}
        for port, ask in TABLE:
            for name, shown in SHOWN.items():
                found[port, ask, name] = await ask(ports.at[port], shown)
                expected[port, ask, name] = name == "right" or not asks
        assert {
            (port, name) for (port, _, name), admitted in found.items() if admitted is not expected[port, _, name]
        } == set()
        assert len(found) == len(TABLE) * len(SHOWN)
        url = f"boki://{ports.at['engine']}"
        async with boki.connect(url, token=SECRET) as client:
            await client.book("b").append(b"x")
    assert SECRET not in (tmp_path / "log").read_text(), "a log line has the token"


LINE: Final = b"a line\n"


@pytest.mark.processes
@pytest.mark.timeout(240)
async def test_commands_show_the_token_and_say_at_once_what_is_missing(tmp_path: Path) -> None:
    token, other = write_token(tmp_path / "token"), write_token(tmp_path / "other", OTHER)
    async with LocalCluster(tmp_path / "cluster", bookies=3, token_file=token) as cluster:
        bare = cluster.url.partition("?")[0]
        metadata = ("--metadata", cluster.metadata_uri)
        appended = ("append", "-", "--book", "b", "--format", "text")
        verified = ("log", "verify", *metadata)
        status = ("status", *metadata, "--json")
        for asked in (appended, ("tail", "--book", "b"), ("read", "--book", "b")):
            for shown, why in (((), "none was shown"), (("--token-file", str(other)), "not valid there")):
                code, _, said = await command(*asked, "--url", bare, *shown, stdin=LINE)
                assert code == 4 and why in said, (asked, shown, code, said)
        for shown, why in (((), "none was shown"), (("--token-file", str(other)), "not valid there")):
            code, _, said = await command(*verified, "--url", bare, *shown)
            assert code == 4 and why in said, (code, said)
        named = {"BOKI_TOKEN_FILE": str(token)}
        shows: tuple[tuple[tuple[str, ...], dict[str, str]], ...] = (
            ((*appended, "--url", cluster.url), {}),
            ((*appended, "--url", bare, "--token-file", str(token)), {}),
            ((*appended, "--url", bare), named),
            ((*verified, "--url", bare), named),
            (("log", "roll", "0", *metadata, "--url", bare), named),
        )
        for call, environment in shows:
            code, _, said = await command(*call, stdin=LINE, environment=environment)
            assert code == 0, (call, said)
        code, out, _ = await command(*status, "--url", bare, environment=named)
        parts = json.loads(out)
        asking = [
            part["status"].get("asks_for_token")
            for kind in ("engines", "sequencers", "bookies")
            for part in parts[kind]
        ]
        assert code == 0 and asking == [True] * 5 and SECRET not in out
        code, out, said = await command("status", *metadata, "--url", bare)
        assert "none was shown" in out + said


@pytest.mark.processes
@pytest.mark.timeout(240)
async def test_tokens_are_exchanged_in_three_steps_while_everything_runs(tmp_path: Path) -> None:
    """The file is replaced and processes hear SIGHUP; after each step every role is killed and comes back among the others."""
    token = write_token(tmp_path / "token", SECRET)
    async with LocalCluster(tmp_path / "cluster", bookies=3, sequencers=2, token_file=token) as cluster:
        async with boki.connect(cluster.url, timeout=120) as client:
            book = client.book("b")
            await book.append(b"0")
            for step in ((SECRET, OTHER), (OTHER, SECRET), (OTHER,)):
                write_token(token, *step)
                for pid in cluster.pids.values():
                    os.kill(pid, signal.SIGHUP)
                for name in ("engine-1", "sequencer-1", "bookie-2"):
                    await cluster.restart(name)
                    await book.append(name.encode())
            assert len([record async for record in book.read()]) == 10
        with pytest.raises(Unauthenticated):
            async with boki.connect(cluster.url.partition("?")[0], token=SECRET):
                pass
