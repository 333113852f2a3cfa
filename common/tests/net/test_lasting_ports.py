"""Ports for who begins again: free, below those of the kernel, and not the same one soon."""

from __future__ import annotations

import socket
import subprocess
import sys

from boki_common.net.lasting_ports import FIRST, lasting_port

LOOPBACK = "127.0.0.1"


def test_they_are_below_those_that_the_kernel_chooses() -> None:
    with socket.create_server((LOOPBACK, 0)) as any_port:
        kernels = any_port.getsockname()[1]
    assert FIRST <= lasting_port(LOOPBACK) < kernels


def test_a_port_comes_up_again_late() -> None:
    assert len({lasting_port(LOOPBACK) for _ in range(500)}) == 500


def test_a_port_on_which_somebody_listens_is_left_out() -> None:
    here = lasting_port(LOOPBACK)
    listeners = [socket.create_server((LOOPBACK, port)) for port in range(here + 1, here + 20) if _free(port)]
    taken = {listener.getsockname()[1] for listener in listeners}
    found = [lasting_port(LOOPBACK) for _ in range(20)]
    for listener in listeners:
        listener.close()
    assert not taken & set(found)


def test_processes_begin_at_places_of_their_own() -> None:
    command = [sys.executable, "-c", "from boki_common.net.lasting_ports import lasting_port; print(lasting_port())"]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
    assert len({child.communicate()[0] for child in children}) == 3


def _free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) != 0
