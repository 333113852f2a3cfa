"""`boki gateway` and the gateway of `boki dev`: where they listen, what they say, and that they show the real cluster."""

from __future__ import annotations

import socket
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
import pytest

from boki_cli.roles import process_settings
from boki_cli.start.gateway_command import address_of, listen_address, url_of
from boki_common.errors import SettingsError
from boki_common.net.connection import Address
from itests.support import processes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from boki_cli.testing.commands import RunCommandLine


@asynccontextmanager
async def running(folder: Path, *arguments: str) -> AsyncIterator[dict[str, Any]]:
    """A `boki` process; yields what it says when it serves."""
    log = folder / f"{arguments[0]}.log"
    async with processes.running(*arguments, log=log) as one:
        yield one.ready
    assert (one.process.returncode, log.read_text().count("Traceback")) == (0, 0), log.read_text()


async def asked(http: aiohttp.ClientSession, url: str, body: object = None) -> Any:
    async with http.request("GET" if body is None else "POST", url, json=body) as answer:
        assert answer.status < 300, await answer.text()
        return await answer.json()


def test_addresses() -> None:
    assert listen_address("0.0.0.0:7080") == Address("0.0.0.0", 7080)
    with pytest.raises(SettingsError, match="browsers speak TCP"):
        listen_address("unix:///x")


def test_the_url_of_engines_that_the_metadata_store_lists() -> None:
    assert url_of(["unix:///run/e.sock", "a:1", "[::1]:2"]) == "boki://a:1,[::1]:2"
    assert (url_of(["unix:///run/e.sock", "unix:///x"]), url_of([])) == ("unix:///run/e.sock", "")


def test_where_it_listens_is_a_setting_and_flags_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOKI_GATEWAY_LISTEN", "0.0.0.0:7081")
    assert address_of(process_settings(None, {})) == Address("0.0.0.0", 7081)
    assert address_of(process_settings(None, {"gateway.listen": "127.0.0.1:1"})) == Address("127.0.0.1", 1)
    assert address_of(process_settings(None, {"gateway.listen": "", "gateway.port": 5})) == Address("127.0.0.1", 5)


def test_usage(run_boki: RunCommandLine) -> None:
    run_boki("gateway", "--port", "1", "--listen", "127.0.0.1:2").refused("found both")
    run_boki("gateway", "--port", "0", "--url", "http://x").refused("expected a URL such as boki://host:port")


def test_a_port_in_use(run_boki: RunCommandLine, memory_url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run_boki("gateway", "--port", str(port), "--url", memory_url)
    assert done.code == 2
    assert f"127.0.0.1:{port} is in use; choose another gateway.port" in " ".join(done.err.split())


def test_a_metadata_file_that_is_not_there_is_named_and_not_made(
    run_boki: RunCommandLine, memory_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "mispelt.db"
    done = run_boki("gateway", "--port", "0", "--url", memory_url, "--metadata", f"sqlite://{path}")
    assert done.code == 2
    assert f"expected the metadata file of a cluster, found none at {path}" in " ".join(done.err.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.processes
async def test_dev_has_a_gateway_that_shows_it_and_others_may_join(tmp_path: Path) -> None:
    dev = ("dev", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--gateway-port", "0")
    async with running(tmp_path, *dev) as ready, aiohttp.ClientSession() as http:
        one = f"http://{ready['gateway']}"
        appended = await asked(http, f"{one}/v1/books/orders/records", {"text": "two apples", "tags": ["user/1"]})
        url = f"boki://{ready['addresses'][0]}"
        async with running(tmp_path, "gateway", "--listen", "0.0.0.0:0", "--insecure", "--url", url) as second:
            assert second["role"] == "gateway"
            port = second["addresses"][0].rpartition(":")[2]
            other = f"http://127.0.0.1:{port}"
            found = await asked(http, f"{other}/v1/books/orders/records/tail?encoding=text")
            assert found["record"]["text"] == "two apples"
            assert found["record"]["seqnum"] == appended["seqnum"]
            for gateway in (one, other):
                status = (await asked(http, f"{gateway}/v1/status"))["cluster"]
                up = {role: [part["up"] for part in status[role]] for role in ("engines", "sequencers", "bookies")}
                assert up == {"engines": [True], "sequencers": [True], "bookies": [True]}
                assert status["problem"] == ""
                assert [log["slots"] for log in status["logs"]] == [1024]
                assert status["engines"][0]["records"] == 1
                async with http.get(f"{gateway}/") as page:
                    assert page.content_type == "text/html"
        metadata = f"sqlite://{tmp_path}/data/metadata.db"
        async with running(tmp_path, "gateway", "--port", "0", "--metadata", metadata) as third:
            there = f"http://{third['addresses'][0]}"
            assert (await asked(http, f"{there}/v1/books/orders/records/tail"))["record"]["seqnum"] == appended[
                "seqnum"
            ]
            assert (await asked(http, f"{there}/v1/status"))["cluster"]["faults"] == []


@pytest.mark.processes
async def test_dev_without_a_gateway(tmp_path: Path) -> None:
    dev = ("dev", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--gateway-port", "-1")
    async with running(tmp_path, *dev) as ready:
        assert "gateway" not in ready


@pytest.mark.processes
async def test_two_devs_have_a_gateway_each(tmp_path: Path) -> None:
    def dev(name: str) -> tuple[str, ...]:
        return ("dev", "--data", str(tmp_path / name), "--listen", "127.0.0.1:0")

    async with running(tmp_path, *dev("a")) as one, running(tmp_path, *dev("b")) as other:
        assert one["gateway"] != other["gateway"]


@pytest.mark.processes
def test_one_that_is_started_before_its_engine_waits_for_it(tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/engine.sock"
    with subprocess.Popen(
        [*processes.BOKI, "gateway", "--port", "0", "--url", url, "--json", "--stop-with-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as gateway:
        assert gateway.stdin is not None and gateway.stdout is not None and gateway.stderr is not None
        assert b"waiting for an engine" in gateway.stderr.readline()
        dev = ("dev", "--data", tmp_path / "data", "--listen", url, "--gateway-port", "-1")
        with processes.throughout(processes.running(*dev, log=tmp_path / "log")):
            assert msgspec.json.decode(gateway.stdout.readline())["role"] == "gateway"
            gateway.stdin.close()
            assert gateway.wait(20) == 0


@pytest.mark.processes
def test_one_that_waits_for_its_engine_ends_when_it_is_stopped(tmp_path: Path) -> None:
    command = [*processes.BOKI, "gateway", "--port", "0", "--url", f"unix://{tmp_path}/none"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as gateway:
        assert gateway.stderr is not None
        assert b"waiting for an engine" in gateway.stderr.readline()
        gateway.terminate()
        assert gateway.wait(20) == 0
