"""Settings of a process become roles; what cannot be is refused before anything starts."""

from __future__ import annotations

import asyncio
import platform
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from boki_bookie.metric_definitions import JOURNAL_RECORDS
from boki_cli import roles
from boki_cli.roles import ProcessSettings
from boki_common.bookkeeper.layout import LedgerLayout, read_layout
from boki_common.cluster_token import NO_TOKEN
from boki_common.errors import DirectoryInUse, SettingsError
from boki_common.metadata.membership import members
from boki_common.metadata.memory import MemoryStore
from boki_common.metadata.registered import registrations
from boki_common.metrics import Metrics
from boki_common.net.connection import Address
from boki_common.runtime.awake_cores import kept_awake
from boki_common.runtime.process import SystemClock, SystemRandom
from boki_common.testing.kubernetes import service_variables
from boki_logbook.index.index import Index

NOT_OF_A_BOOKIE: Final = frozenset(
    {
        *(
            "aiohttp",
            "numpy",
            "kazoo",
            "boki",
            "boki_ledger.client",
            "boki_metalog.sequencer.sequencer",
            "boki_metalog.control.controller",
        ),
        *("boki_logbook.engine", "boki_gateway.server", "boki_sim"),
    }
)
"""What a bookie has no memory for."""


def settings(**given: object) -> ProcessSettings:
    return roles.process_settings(None, given)


def test_file_then_environment_then_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "boki.toml"
    file.write_text('metadata = "zk://a:1"\nlog_level = "error"\nlisten = ["h:1"]\n[engine]\nreplicas = 5\nacks = 4\n')
    monkeypatch.setenv("BOKI_ENGINE_ACKS", "3")
    monkeypatch.setenv("BOKI_LOG_LEVEL", "debug")
    found = roles.process_settings(file, {"log_level": "warning", "listen": None})
    assert (found.metadata, found.log_level, found.listen) == ("zk://a:1", "warning", ("h:1",))
    assert (found.engine.replicas, found.engine.acks) == (5, 3)


def test_an_unknown_setting_names_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "boki.toml"
    file.write_text("[engine]\nreplicaz = 5\n")
    with pytest.raises(SettingsError, match=r"unknown setting engine\.replicaz; did you mean engine\.replicas\?"):
        roles.process_settings(file, {})


def test_where_a_role_listens() -> None:
    assert roles.listen_addresses("engine", settings()) == [Address("127.0.0.1", 7040)]
    assert roles.listen_addresses("bookie", settings()) == [Address("127.0.0.1", 3181)]
    two = settings(listen=("127.0.0.1:0", "unix:///tmp/x.sock"))
    assert roles.listen_addresses("engine", two) == [Address("127.0.0.1", 0), Address("", 0, "/tmp/x.sock")]
    parts = roles.Parts(MemoryStore(), SystemClock(), SystemRandom(), Metrics())
    with pytest.raises(SettingsError, match="a bookie listens on one address, found 2"):
        roles.running("bookie", parts, two)


async def test_the_metrics_page_is_there_when_it_is_asked_for() -> None:
    metrics = Metrics()
    metrics.counter(JOURNAL_RECORDS).inc(7)
    faults = ["not up yet"]
    page_of = partial(roles.metrics_page, metrics, token=NO_TOKEN, faults=lambda: faults)
    async with page_of(settings()) as page:
        assert page == ""
    async with page_of(settings(metrics_listen="127.0.0.1:0")) as page:
        assert Address.parse(page).port > 0
        async with aiohttp.ClientSession(f"http://{page}") as session:
            async with session.get("/metrics") as response:
                assert "\nboki_bookie_journal_records_total 7.0\n" in await response.text()
            async with session.get("/healthz") as response:
                assert (response.status, await response.json()) == (503, {"status": "failing", "faults": faults})
            faults.clear()
            async with session.get("/healthz") as response:
                assert response.status == 200
    with pytest.raises(SettingsError, match=r"expected --metrics host:port, found unix:///tmp/x"):
        await page_of(settings(metrics_listen="unix:///tmp/x")).__aenter__()


async def test_a_directory_for_the_index_belongs_to_one_engine(tmp_path: Path) -> None:
    async with roles.index_files(Index, ""):
        assert not list(tmp_path.iterdir())
    directory = tmp_path / "index"
    async with roles.index_files(Index, str(directory)):
        (directory / "left").write_bytes(b"behind by an engine that was killed")
        with pytest.raises(DirectoryInUse, match="in use by another process"):
            await roles.index_files(Index, str(directory)).__aenter__()
    async with roles.index_files(Index, str(directory)):
        assert not list(directory.iterdir())


def test_metadata_must_be_named() -> None:
    with pytest.raises(SettingsError, match=r"expected --metadata \(or BOKI_METADATA\), found none"):
        roles.metadata_uri("")
    assert roles.metadata_uri("zk://a:1") == "zk://a:1"


async def test_a_bookie_announces_where_its_admin_page_is(tmp_path: Path) -> None:
    chosen = settings(**{"metadata": f"sqlite:///{tmp_path}/metadata.db", "bookie.admin_port": 0})
    async with (
        roles.open_parts(chosen) as parts,
        roles.running_bookie(parts, chosen, data=tmp_path / "bookie", address=Address("127.0.0.1", 0)) as role,
        aiohttp.ClientSession() as http,
        http.get(f"http://{role.admin}/info") as response,
    ):
        assert (await response.json())["address"] == role.addresses[0]


@pytest.mark.parametrize("long_paths", [False, True])
async def test_the_layout_of_a_new_cluster_is_a_setting_and_kept(tmp_path: Path, long_paths: bool) -> None:
    uri = f"sqlite://{tmp_path}/metadata.db"
    wanted = LedgerLayout.LONG_HIERARCHICAL if long_paths else LedgerLayout.HIERARCHICAL
    for asked in (long_paths, False):
        async with roles.open_parts(settings(metadata=uri, long_ledger_paths=asked)) as parts:
            assert await read_layout(parts.metadata) is wanted


@pytest.mark.processes
async def test_a_role_that_fails_is_still_expected_and_one_that_ends_is_not() -> None:
    store = MemoryStore()
    await store.start()
    parts = roles.Parts(store, SystemClock(), SystemRandom(), Metrics())
    role = roles.RunningRole("engine", ("127.0.0.1:5", "unix:///e"), asyncio.Future())
    there = [settings(listen=["127.0.0.1:5"]), settings(listen=["127.0.0.1:0"])]
    for chosen in there:
        with pytest.raises(DirectoryInUse):
            async with roles.registered("engine", parts, chosen, role):
                raise DirectoryInUse("it ended by itself")
        (one,) = (await registrations(store, "engine")).values()
        assert (one.address, one.host) == ("127.0.0.1:5", platform.node())
        async with roles.registered("engine", parts, chosen, role):
            assert list(await registrations(store, "engine")) == [one.place]
        assert await registrations(store, "engine") == {}
    async with roles.registered("bookie", parts, there[0], role):
        assert await registrations(store, "bookie") == {}  # it has a cookie
    await store.close()


def test_a_role_imports_what_it_runs() -> None:
    role = "import boki_cli.main, boki_cli.start.role_commands, boki_cli.roles, boki_bookie.bookie"
    program = "import sys; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", f"{role}; {program}"], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert "boki_bookie.storage.storage" in found
    assert found.isdisjoint(NOT_OF_A_BOOKIE)


async def test_cores_are_kept_awake_while_a_role_is_open_if_that_is_wished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "latency"
    device.touch()
    monkeypatch.setattr(roles, "kept_awake", partial(kept_awake, device=device))
    uri = f"sqlite://{tmp_path}/metadata.db"
    async with roles.open_parts(settings(metadata=uri, keep_cores_awake="never")):
        assert not device.read_bytes()
    async with roles.open_parts(settings(metadata=uri, keep_cores_awake="always")):
        assert device.read_bytes() == bytes(4)


def test_cores_are_kept_awake_while_a_role_is_busy_unless_set_otherwise() -> None:
    assert settings().keep_cores_awake == "busy"


@pytest.mark.parametrize("kind", ["sequencer", "controller", "engine", "bookie"])
async def test_a_second_role_on_a_machine_gets_a_free_port_unless_one_is_set(
    kind: roles.Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        usual = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(roles, "DEFAULT_LISTEN", {**roles.DEFAULT_LISTEN, kind: usual})
        chosen = settings(metadata=f"sqlite://{tmp_path}/metadata.db", data=tmp_path / "data")
        async with roles.open_parts(chosen) as parts:
            if kind == "engine":  # clients look for it at the usual port
                with pytest.raises(SettingsError, match="Address already in use"):
                    async with roles.running(kind, parts, chosen):
                        pass
                return
            async with roles.running(kind, parts, chosen) as role, roles.registered(kind, parts, chosen, role):
                assert role.addresses[0] not in (usual, "127.0.0.1:0")
                for one in (await registrations(parts.metadata, kind)).values():
                    assert (one.address, one.free_port) == (role.addresses[0], True)
            with pytest.raises(SettingsError, match="Address already in use"):
                async with roles.running(
                    kind, parts, settings(metadata=chosen.metadata, data=chosen.data, listen=(usual,))
                ):
                    pass


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("bookie", "bookie.host"),
        ("sequencer", "sequencer.advertise"),
        ("controller", "controller.advertise"),
        ("engine", "engine.advertise"),
    ],
)
def test_a_role_on_every_address_has_to_say_where_others_reach_it(kind: roles.Kind, key: str) -> None:
    chosen = {"listen": ("0.0.0.0:7045",)}
    with pytest.raises(SettingsError, match=rf"set {key} \(BOKI_{key.upper().replace('.', '_')}\)"):
        roles.running(kind, roles.Parts(MemoryStore(), SystemClock(), SystemRandom(), Metrics()), settings(**chosen))
    configured = settings(**chosen, **{key: ["node-1"] if kind == "engine" else "node-1"})
    assert roles.check_advertised(kind, configured, [Address("0.0.0.0", 7045)]) == [Address("node-1", 7045)]


@pytest.mark.parametrize("kind", ["sequencer", "controller", "engine"])
async def test_a_role_lists_and_registers_what_it_advertises(kind: roles.Kind, tmp_path: Path) -> None:
    key = f"{kind}.advertise"
    configured = {"listen": ("0.0.0.0:0",), key: ["node-1:9"] if kind == "engine" else "node-1:9"}
    chosen = settings(metadata=f"sqlite://{tmp_path}/metadata.db", **configured)
    async with (
        roles.open_parts(chosen) as parts,
        roles.running(kind, parts, chosen) as role,
        roles.registered(kind, parts, chosen, role),
    ):
        (listed,) = (await members(parts.metadata, kind)).values()
        assert (listed.get("address") or listed["addresses"][0]) == "node-1:9"
        assert [one.address for one in (await registrations(parts.metadata, kind)).values()] == ["node-1:9"]


async def test_a_sequencer_without_bookies_and_an_engine_without_a_log_are_not_ready(tmp_path: Path) -> None:
    chosen = settings(metadata=f"sqlite://{tmp_path}/metadata.db", listen=("127.0.0.1:0",))
    async with roles.open_parts(chosen) as parts:
        async with roles.running("sequencer", parts, chosen) as role:
            assert "neither orders a log nor has a spare ledger" in role.unready()[0]
        async with roles.running("engine", parts, chosen) as role:
            assert role.unready() == ["the index has not caught up yet"]
        async with roles.running("controller", parts, chosen) as role:
            assert not role.unready()
        bookie = settings(metadata=chosen.metadata, listen=chosen.listen, data=tmp_path / "data")
        async with roles.running("bookie", parts, bookie) as role:
            assert not role.unready()


@pytest.mark.parametrize("kind", ["bookie", "sequencer", "engine", "controller", "gateway"])
def test_what_kubernetes_injects_is_no_setting_and_no_error(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in service_variables(f"boki-{kind}", port=7040, name="main").items():
        monkeypatch.setenv(name, value)
    assert settings() == ProcessSettings()
