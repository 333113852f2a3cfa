"""What needs no Docker engine: whose containers are left behind. Clusters themselves are tried in `itests/containers`."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from boki.testing import containers


def test_what_a_living_process_made_is_kept() -> None:
    assert not containers._is_gone(containers.owner())


def test_what_a_process_made_that_ended_is_swept_though_its_number_came_back() -> None:
    pid, _, began = containers.owner().partition("-")
    assert containers._is_gone(f"{pid}-{int(began) + 1}")
    tell = "from boki.testing import containers; print(containers.owner())"
    done = subprocess.run([sys.executable, "-c", tell], capture_output=True, text=True, check=True)
    assert containers._is_gone(done.stdout.strip())
    assert containers._is_gone("nobody")


def test_engines_have_ports_that_were_free_and_are_in_the_url() -> None:
    cluster = containers.BokiCluster(engines=2, bookies=1, sequencers=1, controllers=0)
    assert cluster.names == ["bookie-1", "sequencer-1", "engine-1", "engine-2"]
    ports = [int(part.rpartition(":")[2]) for part in cluster.url.removeprefix("boki://").split(",")]
    assert len(set(ports)) == 2 and all(port > 1024 for port in ports)


def test_without_an_engine_the_reason_says_where_none_is_and_no_socket_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///none/docker.sock")
    assert "no Docker engine answers (there is no unix:///none/docker.sock)" in containers.unavailable()
    gc.collect()  # warnings of sockets that were left open are errors
