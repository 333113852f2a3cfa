"""What is special about ZooKeeper: connections that break, sessions that expire, answers that get lost."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from boki_common.errors import (
    BadVersion,
    ClosedError,
    MetadataRefused,
    MetadataUnavailable,
    MetadataUnknown,
    SettingsError,
)
from boki_common.metadata.settle import compare_and_set
from boki_common.metadata.store import Versioned
from boki_common.metadata.zookeeper import ZookeeperStore
from boki_common.metadata.zookeeper_settings import ZookeeperSettings

Opener = Callable[..., Any]


@pytest.fixture
async def opened() -> AsyncIterator[Opener]:
    """Starts stores with short time-outs, and closes them."""
    stores: list[ZookeeperStore] = []

    async def open_store(hosts: str, **options: Any) -> ZookeeperStore:
        quick: dict[str, Any] = {"session_timeout_s": 2.0, "call_timeout_s": 1.0}
        store = ZookeeperStore(hosts, **(quick | options))
        stores.append(store)
        await store.start()
        return store

    yield open_store
    for store in stores:
        await store.close()


async def test_nobody_at_the_address_is_said_within_the_connect_timeout(opened: Opener) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    with pytest.raises(MetadataUnavailable, match=r"no ZooKeeper answered at 127\.0\.0\.1:1 within 0\.5 s"):
        await opened("127.0.0.1:1", connect_timeout_s=0.5)
    assert loop.time() - start < 5


async def test_a_peer_that_accepts_and_says_nothing(opened: Opener) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(MetadataUnavailable, match="no ZooKeeper answered"):
            await opened(f"127.0.0.1:{port}", connect_timeout_s=0.5)


async def test_a_start_that_failed_can_be_repeated() -> None:
    store = ZookeeperStore("127.0.0.1:1", connect_timeout_s=0.2, session_timeout_s=1.0)
    for _ in range(2):
        with pytest.raises(MetadataUnavailable):
            await store.start()
        with pytest.raises(ClosedError):
            await store.get("/a")


@pytest.mark.parametrize("hosts", ["127.0.0.1:port", "127.0.0.1:1/a//b", "127.0.0.1:1/.."])
async def test_hosts_that_cannot_be_right(opened: Opener, hosts: str) -> None:
    with pytest.raises(SettingsError, match="expected zk://host:port"):
        await opened(hosts)


async def test_without_kazoo_the_remedy_is_named(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("kazoo")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(SettingsError, match=r"pip install kazoo"):
        await opened("127.0.0.1:1")


@pytest.mark.zookeeper
async def test_a_chroot_is_made_and_keeps_apart(opened: Opener, zookeeper: Any) -> None:
    one = await opened(f"{zookeeper.hosts}/chroot-test/deep")
    other = await opened(f"{zookeeper.hosts}/chroot-test")
    await one.create("/a", b"1")
    assert await one.children("/") == ["a"]
    assert (await other.get("/deep/a")).value == b"1"
    watch = one.watch("/a")
    await watch.changed()
    await other.set("/deep/a", b"2", version=0)
    await asyncio.wait_for(watch.changed(), 5)


@pytest.mark.zookeeper
async def test_the_end_of_the_session_at_the_server(opened: Opener, zookeeper: Any, tools: Any) -> None:
    """Another client takes the session over and closes it: for the store it has expired."""
    import kazoo.client

    store = await opened(f"{zookeeper.hosts}/expiry")
    lost: list[bool] = []
    store.on_session_lost(lambda: lost.append(True))
    await store.create("/ephemeral", ephemeral=True)
    watch = store.watch("/ephemeral")
    await tools.quiet(watch)

    def end_session() -> None:
        client = kazoo.client.KazooClient(zookeeper.hosts, client_id=store._link._client.client_id)
        client.start()
        client.stop()
        client.close()

    await asyncio.to_thread(end_session)

    async def notified() -> bool:
        return lost == [True]

    await tools.eventually(notified)
    await asyncio.wait_for(watch.changed(), 5)
    assert not await store.exists("/ephemeral")
    await store.create("/ephemeral", b"again", ephemeral=True)
    await tools.quiet(watch)
    await store.delete("/ephemeral", version=0)
    await asyncio.wait_for(watch.changed(), 5)
    assert lost == [True]


@pytest.mark.zookeeper
@pytest.mark.processes
async def test_a_write_to_a_silent_server_is_unknown_until_its_version_moves(
    opened: Opener, own_zookeeper: Any, tools: Any
) -> None:
    store = await opened(own_zookeeper.hosts)
    await store.create("/a", b"old")
    own_zookeeper.pause()
    with pytest.raises(MetadataUnknown) as caught:
        await store.set("/a", b"mine", version=0)
    assert not caught.value.definite
    settling = asyncio.create_task(compare_and_set(store, "/a", b"mine", version=0))

    async def unsettled() -> bool:
        return not settling.done()

    await tools.throughout(unsettled, 0.5)
    own_zookeeper.resume()
    # The first write may land before or after the repeated one; either way exactly one of them does.
    try:
        assert await settling == 1
    except BadVersion:
        pass  # never sent in the second call, and the first one landed
    assert await store.get("/a") == Versioned(b"mine", 1)


@pytest.mark.zookeeper
@pytest.mark.processes
async def test_a_server_killed_and_started_again(opened: Opener, own_zookeeper: Any, tools: Any) -> None:
    store = await opened(own_zookeeper.hosts, session_timeout_s=4.0)
    lost: list[bool] = []
    store.on_session_lost(lambda: lost.append(True))
    await store.create("/a", b"old")
    await store.create("/ephemeral", ephemeral=True)
    watch = store.watch("/a")
    await tools.quiet(watch)
    own_zookeeper.kill()

    async def disconnected() -> bool:
        return not store._connected.is_set()

    await tools.eventually(disconnected)
    with pytest.raises(MetadataUnavailable, match="cannot be reached") as caught:
        await store.set("/a", b"never", version=0)
    assert caught.value.definite
    with pytest.raises(MetadataUnavailable, match="cannot be reached"):
        await store.get("/a")
    own_zookeeper.restart()
    await asyncio.wait_for(watch.changed(), 10)
    assert await store.get("/a") == Versioned(b"old", 0)
    await store.set("/a", b"new", version=0)
    await asyncio.wait_for(watch.changed(), 5)
    assert lost == [True] or await store.exists("/ephemeral")


@pytest.mark.zookeeper
@pytest.mark.processes
async def test_closing_ends_the_calls_that_wait(opened: Opener, own_zookeeper: Any, tools: Any) -> None:
    store = await opened(own_zookeeper.hosts, call_timeout_s=30.0)
    own_zookeeper.kill()

    async def disconnected() -> bool:
        return not store._connected.is_set()

    await tools.eventually(disconnected)
    calls = [asyncio.create_task(call) for call in (store.get("/a"), store.create("/b"), store.watch("/c").changed())]

    async def waiting() -> bool:
        return not any(call.done() for call in calls)

    await tools.throughout(waiting, 0.1)
    await store.close()
    outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
    assert [type(outcome) for outcome in outcomes] == [ClosedError] * 3


@pytest.mark.zookeeper
@pytest.mark.processes
async def test_closing_without_a_server_does_not_hang(opened: Opener, own_zookeeper: Any) -> None:
    store = await opened(own_zookeeper.hosts)
    own_zookeeper.pause()
    loop = asyncio.get_running_loop()
    start = loop.time()
    await store.close()
    assert loop.time() - start < 10


@pytest.fixture
def credential(tmp_path: Path) -> Callable[[str], ZookeeperSettings]:
    def written(text: str) -> ZookeeperSettings:
        path = tmp_path / f"digest-{len(list(tmp_path.iterdir()))}"
        path.write_text(text)
        return ZookeeperSettings(digest_file=str(path))

    return written


@pytest.mark.zookeeper
async def test_what_a_user_made_is_for_that_user_alone(
    opened: Opener, zookeeper: Any, credential: Callable[[str], ZookeeperSettings]
) -> None:
    chroot = f"/digest-{os.urandom(8).hex()}"
    mine = await opened(f"{zookeeper.hosts}{chroot}", settings=credential("boki:secret\n"))
    await mine.create("/a", b"one")
    await mine.set("/a", b"two", version=0, creating={"/b": b""})
    again = await opened(f"{zookeeper.hosts}{chroot}", settings=credential("boki:secret"))
    assert await again.set("/a", b"three", version=1) == 2
    a, b, c = f"{chroot}/a", f"{chroot}/b", f"{chroot}/c"
    for settings, found in ((ZookeeperSettings(), "none"), (credential("boki:guessed"), "another one")):
        with pytest.raises(MetadataRefused, match="refuses start"):
            await opened(f"{zookeeper.hosts}{chroot}", settings=settings)
        stranger = await opened(zookeeper.hosts, settings=settings)
        refused: list[Awaitable[object]] = [
            stranger.get(a),
            stranger.set(a, b"", version=2),
            stranger.set(b, b"", version=0, creating={c: b""}),
            stranger.create(c),
            stranger.delete(a, version=2),
        ]
        for call in refused:
            with pytest.raises(MetadataRefused, match=f"found {found}; see the setting") as caught:
                await call
            assert caught.value.definite and not caught.value.retryable and "secret" not in str(caught.value)
    assert await mine.get("/a") == Versioned(b"three", 2)


async def test_a_file_without_a_credential_is_named(credential: Callable[[str], ZookeeperSettings]) -> None:
    for settings in (credential("secret"), ZookeeperSettings(digest_file="/nowhere/digest")):
        store = ZookeeperStore("127.0.0.1:1", settings=settings)
        with pytest.raises(SettingsError, match=r"zookeeper\.digest_file") as caught:
            await store.start()
        assert "secret" not in str(caught.value)
