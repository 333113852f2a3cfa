"""From whom an engine takes messages: the token in HELLO, and what only another engine may ask for. Real engines, sequencer and SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engine.silent import Silent

import boki
from boki_common.cluster_token import NO_TOKEN, parse
from boki_common.engine import engine_protocol as wire
from boki_common.errors import BokiError, NotPermitted, ProtocolError, Unauthenticated
from boki_common.net.messages import MessagePeer, connect_messages
from boki_logbook.engine import Engine
from boki_logbook.peers.engine_dial import dial_engine
from boki_logbook.peers.forwarding import FORWARDED
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.engines import EngineCluster, url_of
from boki_metalog.terms.index_slots import EngineMember
from boki_metalog.terms.term_order import ALL_SLOTS

OLD, NEW = "a-token-of-the-cluster-01", "a-token-of-another-one-02"
SETTINGS = EngineSettings(retry_first_s=0.005, retry_limit_s=0.01)


class Cluster(EngineCluster):
    async def start(self) -> Engine:
        await self.ledgers.start()
        await self.start_sequencer()
        return await self.start_engine(SETTINGS)


@pytest.fixture(params=["token", "none"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    made = Cluster(parse(OLD, "test") if request.param == "token" else NO_TOKEN)
    yield made
    await made.close()


@pytest.fixture
async def guarded() -> AsyncIterator[Cluster]:
    made = Cluster(parse(OLD, "test"))
    yield made
    await made.close()


async def hello(engine: Engine, said: dict[str, Any]) -> tuple[MessagePeer, Silent, Any]:
    handler = Silent()
    peer = await connect_messages(engine.addresses[0], handler)
    try:
        return peer, handler, msgspec.msgpack.decode(await peer.call(wire.OP_HELLO, msgspec.msgpack.encode(said)))
    except BokiError as error:
        return peer, handler, error


@pytest.mark.parametrize(
    ("auth", "admitted"),
    [({}, False), ({"auth": None}, False), ({"auth": ""}, False), ({"auth": NEW}, False), ({"auth": 7}, False),
     ({"auth": OLD}, True), ({"auth": OLD.encode()}, True)],
)  # fmt: skip
@pytest.mark.parametrize("role", [{}, {"role": "sdk"}, {"role": "engine"}, {"role": 9}])
async def test_hello_is_taken_only_with_the_token_whatever_role_it_names(
    cluster: Cluster, role: dict[str, Any], auth: dict[str, Any], admitted: bool
) -> None:
    engine = await cluster.start()
    peer, handler, answer = await hello(engine, {"versions": [1], "features": [], **auth, **role})
    if admitted or not cluster.token.asks:
        assert answer["engine"] == engine.incarnation
        peer.close()
    else:
        assert isinstance(answer, Unauthenticated) and "this engine asks for a cluster token" in str(answer)
        await handler.lost


async def test_nothing_behind_a_refused_hello_is_processed(guarded: Cluster) -> None:
    engine = await guarded.start()
    peer = await connect_messages(engine.addresses[0], Silent())
    asked = [
        peer.request(wire.OP_HELLO, msgspec.msgpack.encode({"versions": [1], "auth": NEW})),
        peer.request(wire.OP_STATUS),
        peer.request(wire.OP_HEADERS),
    ]
    first, *others = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(first, Unauthenticated)
    assert all(isinstance(one, BokiError) for one in others)
    assert not engine.core.headers.subscribers


@pytest.mark.parametrize(("role", "allowed"), [("sdk", False), ("engine", True), (9, False), (None, None)])
async def test_headers_and_forwarded_calls_are_for_engines(cluster: Cluster, role: Any, allowed: bool | None) -> None:
    """Who names no role is of an earlier version: where nobody is asked for a token it may as before."""
    engine = await cluster.start()
    expected = allowed if allowed is not None else not cluster.token.asks
    said: dict[str, Any] = {"versions": [1], "features": [], "auth": OLD} | ({} if role is None else {"role": role})
    peer, _, _ = await hello(engine, said)
    if expected:
        await peer.call(wire.OP_HEADERS)
        assert engine.core.headers.subscribers
    else:
        with pytest.raises(NotPermitted, match="HEADERS from an engine"):
            await peer.call(wire.OP_HEADERS)
        assert not engine.core.headers.subscribers
    peer.close()
    peer, _, answer = await hello(engine, said | {"features": [FORWARDED]})
    assert isinstance(answer, NotPermitted) is not expected
    if not expected:
        with pytest.raises(ProtocolError, match="HELLO"):
            await peer.call(wire.OP_STATUS)
    peer.close()


async def test_engines_of_a_cluster_with_a_token_push_headers_and_forward(guarded: Cluster) -> None:
    """Two engines, each of half of the slots: what an SDK asks the one for is done by the other."""
    await guarded.ledgers.start()
    await guarded.start_sequencer()
    low = await guarded.make_engine(replace(SETTINGS, index_slots="0-511"))
    high = await guarded.make_engine(replace(SETTINGS, index_slots="512-1023"))
    await guarded.until(lambda: low.core.headers.subscribers and high.core.headers.subscribers)
    async with boki.connect(url_of(low), token=OLD) as client:
        for number in range(1, 20):
            book = client.book(number)
            seqnum = await book.append(b"%d" % number)
            record = await book.read_at(seqnum)
            assert record is not None and record.data == b"%d" % number


async def test_the_status_says_that_a_token_is_asked_for_and_never_which(cluster: Cluster) -> None:
    engine = await cluster.start()
    peer, _, _ = await hello(engine, {"versions": [1], "auth": OLD})
    status = bytes(await peer.call(wire.OP_STATUS))
    assert msgspec.json.decode(status)["asks_for_token"] is cluster.token.asks and OLD.encode() not in status
    peer.close()


# -- the SDK


@pytest.mark.parametrize(
    ("arguments", "why"),
    [({}, "none was shown"), ({"token": NEW}, "not valid there")],
)
async def test_an_sdk_with_a_wrong_or_missing_token_is_refused_at_once(
    guarded: Cluster, arguments: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BOKI_TOKEN_FILE", raising=False)
    engine = await guarded.start()
    with pytest.raises(Unauthenticated, match=why) as no:
        async with boki.connect(url_of(engine), token=arguments.get("token")):
            pass
    assert no.value.definite and not no.value.retryable


@pytest.mark.parametrize("way", ["token", "token_file", "url", "environment"])
async def test_an_sdk_shows_the_token_whichever_way_it_got_it(
    cluster: Cluster, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(OLD + "\n")
    file.chmod(0o600)
    monkeypatch.setenv("BOKI_TOKEN_FILE", str(file) if way == "environment" else str(tmp_path / "another"))
    url = url_of(await cluster.start())
    ways: dict[str, dict[str, Any]] = {"token": {"token": OLD}, "token_file": {"token_file": file}}
    given = ways.get(way, {})
    async with boki.connect(f"{url}?token_file={file}" if way == "url" else url, **given) as client:
        await client.book("b").append(b"x")


async def test_a_client_whose_token_is_valid_no_more_ends_with_the_reason(guarded: Cluster) -> None:
    engine = await guarded.start()
    async with boki.connect(url_of(engine), token=OLD) as client:
        book = client.book("b")
        await book.append(b"x")
        guarded.token.renew(parse(NEW, "test"))
        for connection in list(engine._connections):
            await connection.close()
        with pytest.raises(Unauthenticated, match="not valid there"):
            while True:
                await book.check_tail()
        with pytest.raises(BokiError):
            await book.append(b"y")


async def test_a_client_with_a_file_goes_on_when_tokens_are_exchanged(guarded: Cluster, tmp_path: Path) -> None:
    """Without being started again: the file is read at each connection."""
    file = tmp_path / "token"
    engine = await guarded.start()

    async def hold(*tokens: str) -> None:
        file.write_text("\n".join(tokens))
        file.chmod(0o600)

    await hold(OLD)
    async with boki.connect(url_of(engine), token_file=file) as client:
        book = client.book("b")
        for step in ((OLD, NEW), (NEW, OLD), (NEW,)):
            guarded.token.renew(parse("\n".join(step), "test"))
            for connection in list(engine._connections):
                await connection.close()
            await book.append(b"x")
            await hold(*step)
            for connection in list(engine._connections):
                await connection.close()
            await book.append(b"y")
        assert len([record async for record in book.read()]) == 6


async def test_another_engine_is_dialed_with_the_token(guarded: Cluster) -> None:
    engine = await guarded.start()
    member = EngineMember(engine.incarnation, (str(engine.addresses[0]),), ALL_SLOTS)
    with pytest.raises(Unauthenticated):
        await dial_engine(member, member.addresses[0], Silent(), token=parse(NEW, "test"))
    peer, _ = await dial_engine(member, member.addresses[0], Silent(), token=guarded.token)
    peer.close()
