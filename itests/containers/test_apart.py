"""An engine of our own changes nothing of the machine, and nothing of it is left, however the process ends that asked for it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy import apart
from deploy.engine import EngineMissing, check_machine

pytestmark = [pytest.mark.containers, pytest.mark.alone, pytest.mark.timeout(600)]

TIMEOUT_S = 180.0


@pytest.fixture
def root() -> Iterator[Path]:
    try:
        check_machine()
    except EngineMissing as missing:
        pytest.skip(str(missing))
    # The path of a socket has to be short.
    made = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="boki-"))
    yield made
    shutil.rmtree(made)


def machine() -> list[str]:
    """What an engine on the machine itself would change."""
    commands = (
        ["ip", "route"],
        ["iptables-save", "-t", "filter"],
        ["iptables-save", "-t", "nat"],
    )
    shown = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for command in commands]
    rules = [line for text in shown for line in text.splitlines() if not line.startswith("#")]
    # Counters of packets go on, and routes say "linkdown" of a bridge without a carrier.
    return (
        interfaces()
        + [line.partition(" [")[0].replace(" linkdown", "").rstrip() for line in rules]
        + [Path("/proc/sys/net/ipv4/ip_forward").read_text()]
    )


def interfaces() -> list[str]:
    """Name, kind, address and whether it is up, of each. Not whether it has a carrier: a bridge loses it after its last container ended."""
    shown = subprocess.run(["ip", "-json", "link"], capture_output=True, check=True).stdout
    return [
        f"{link['ifname']} {link['link_type']} {link.get('address')} {'UP' in link['flags']}"
        for link in json.loads(shown)
    ]


def test_the_machine_stays_as_it_is_and_the_exit_code_is_the_commands(root: Path) -> None:
    before = machine()
    with apart.only_one(root, 0):
        assert (
            apart.run(
                root, ["sh", "-c", "test -S ${DOCKER_HOST#unix://} && ip link show docker0 >&2 && exit 7"], TIMEOUT_S
            )
            == 7
        )
        assert machine() == before
        assert apart._engines(root) == []
        assert apart.run(root, ["sleep", "600"], 5.0) == apart.TOOK_TOO_LONG
    assert machine() == before and apart._engines(root) == []
    assert not (root / "tmp").exists()


def test_killed_in_the_middle_nothing_is_left_and_the_next_run_works(root: Path) -> None:
    before = machine()
    marker = root / "runs"
    program = "import sys, pathlib; from deploy import apart; apart.run(pathlib.Path(sys.argv[1]), sys.argv[2:], 600)"
    killed = subprocess.Popen([sys.executable, "-c", program, str(root), "sh", "-c", f"touch {marker}; sleep 600"])
    until(marker.exists)
    assert apart._engines(root)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    with apart.only_one(root, TIMEOUT_S):
        assert machine() == before
        assert apart.run(root, ["true"], TIMEOUT_S) == 0
    assert apart._engines(root) == []


def test_one_run_at_a_time_has_a_data_root(root: Path) -> None:
    with apart.only_one(root, 0), pytest.raises(TimeoutError, match="found another run"), apart.only_one(root, 0):
        pass


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not true():
        assert time.monotonic() < deadline, "in time"
