"""One node of Cassandra for all processes that name a folder: it begins with the first and ends with the last, whichever dies."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from itests.support import cassandra
from itests.support.cassandra import CassandraServer, shared

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]

ROOT: Final = Path(__file__).parents[2]
DIES: Final = """
import os, sys
from pathlib import Path
from itests.support import cassandra

class Node:
    port = 7

    @classmethod
    def start(cls, folder):
        if sys.argv[2] == "starting":
            os._exit(9)
        return cls()

cassandra.CassandraServer = Node
with cassandra.shared(Path(sys.argv[1])) as port:
    print(port)
    sys.stdout.flush()
    os._exit(9)
"""


class Node:
    """The node of this process; no Java."""

    running = 0

    def __init__(self, port: int) -> None:
        self.port = port

    def kill(self) -> None:
        Node.running -= 1


@pytest.fixture(autouse=True)
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    ports = iter(range(1_000, 2_000))

    def start(folder: Path) -> Node:
        Node.running += 1
        return Node(next(ports))

    monkeypatch.setattr(CassandraServer, "start", start)
    monkeypatch.setattr(cassandra, "START_TIMEOUT_S", 3_600.0)
    yield
    assert Node.running == 0


def dies(folder: Path, when: str) -> str:
    """A process that dies while it starts the node, or uses it. Returns the port that it used."""
    command = [sys.executable, "-c", DIES, str(folder), when]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=50, check=False)
    assert done.returncode == 9, done
    return done.stdout.strip()


def test_the_first_starts_a_node_and_the_last_ends_it(tmp_path: Path) -> None:
    for first in (1_000, 1_001):
        with shared(tmp_path) as port, shared(tmp_path) as other:
            assert (port, other, Node.running) == (first, first, 1)
        assert Node.running == 0


@pytest.mark.parametrize("when", ["starting", "using"])
def test_one_that_died_with_the_node_is_followed_by_another(tmp_path: Path, when: str) -> None:
    assert dies(tmp_path, when) == ("" if when == "starting" else "7")
    with shared(tmp_path) as port:
        assert (port, Node.running) == (1_000, 1)


def test_a_user_that_died_is_not_waited_for(tmp_path: Path) -> None:
    with shared(tmp_path) as port:
        assert dies(tmp_path, "using") == str(port)


def test_the_owner_waits_for_one_that_uses_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, user = shared(tmp_path), shared(tmp_path)
    owner.__enter__()
    user.__enter__()
    looked = []

    def sleep(seconds: float) -> None:
        looked.append(Node.running)
        if len(looked) == 3:
            user.__exit__(None, None, None)

    monkeypatch.setattr(time, "sleep", sleep)
    owner.__exit__(None, None, None)
    assert looked == [1, 1, 1]
