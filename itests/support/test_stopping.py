"""A child that was stopped runs no more, whatever its number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from itests.support.stopping import stop_child

BUSY = """
import sys, threading, zlib
data = bytes(1 << 20)
def work():
    while True:
        zlib.crc32(data)  # gives up the lock of the interpreter: all threads run
for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
print(flush=True)
threading.Event().wait()
"""


def _states(pid: int) -> set[str]:
    return {stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="states of threads are read from /proc")
@pytest.mark.processes
def test_every_thread_of_a_child_has_stopped() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            stop_child(child.pid)
            assert _states(child.pid) == {"T"}
        finally:
            child.kill()


def test_a_child_that_has_ended_is_not_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        stop_child(child.pid)
        assert child.wait() == 0
