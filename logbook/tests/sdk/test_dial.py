"""URLs of clusters."""

from __future__ import annotations

import pytest

import boki
from boki._dial import LEARNED_ENGINES, SocketDialer, dialer_for
from boki_common.net.connection import Address


def addresses(url: str) -> list[Address]:
    dialer = dialer_for(url)
    assert isinstance(dialer, SocketDialer)
    assert dialer.engines == len(dialer._addresses)
    return dialer._addresses


def test_the_forms_of_a_url() -> None:
    assert addresses("boki://127.0.0.1:7040") == [Address("127.0.0.1", 7040)]
    assert addresses("boki://engine.example/") == [Address("engine.example", 7040)]
    assert addresses("boki://[::1]:9") == [Address("::1", 9)]
    assert addresses("boki://[::1]") == [Address("::1", 7040)]
    assert addresses("unix:///tmp/engine") == [Address("", 0, "/tmp/engine")]
    assert addresses("boki://a:1,b:2, boki://c , unix:///d") == [
        Address("a", 1), Address("b", 2), Address("c", 7040), Address("", 0, "/d"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:7040",
        "http://a:1",
        "boki://",
        "boki://a:x",
        "boki://a:1,",
        "unix://relative",
        "boki://a:1,http://b",
        7,
    ],
)
def test_what_is_no_url(url: object) -> None:
    with pytest.raises(boki.InvalidArgument, match=r"expected a URL such as boki://host:port"):
        _ = boki.connect(url)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url", ["boki://[::1:7040", "boki://::1]:7040", "boki://::1:7040", "boki://::1", "boki://a:1,[::1:2"]
)
def test_an_address_with_colons_needs_both_brackets(url: str) -> None:
    with pytest.raises(boki.InvalidArgument, match=r"IPv6 address in brackets, boki://\[::1\]:7040, found"):
        _ = boki.connect(url)


def test_the_environment_names_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOKI_URL", raising=False)
    with pytest.raises(boki.InvalidArgument, match="BOKI_URL"):
        _ = boki.connect()
    monkeypatch.setenv("BOKI_URL", "http://wrong")
    with pytest.raises(boki.InvalidArgument, match="http://wrong"):
        _ = boki.connect()


def test_a_memory_cluster_that_is_not_open() -> None:
    with pytest.raises(boki.Unreachable, match="no MemoryCluster of this process"):
        _ = boki.connect("memory://gone")


def test_engines_name_the_others() -> None:
    dialer = SocketDialer([Address("a", 1)])
    dialer.learn(["a:1", "b:2", "[::1]:3", "0.0.0.0:4", "[::]:5", "unix:///elsewhere", "quic://later", "b:2"])
    assert dialer._learned == [Address("b", 2), Address("::1", 3)]
    assert dialer.engines == 3
    dialer.learn([f"m:{port}" for port in range(1, 200)])
    assert dialer.engines == 1 + LEARNED_ENGINES
    dialer.learn([])
    assert dialer.engines == 1
    local = SocketDialer([Address("", 0, "/a")])
    local.learn(["unix:///b", "c:1"])
    assert local._learned == [Address("", 0, "/b"), Address("c", 1)]
