"""Ports for processes that begin again at their address.

A port that the kernel chose lies among those that it may hand out next: another server on "a free port", or a connection that
somebody opens. A process that was killed may then find its address taken when it begins again. Ports below that range belong to who names
them; each process that asks here walks through them from a place of its own, so a port that was left comes up again late.
"""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path
from typing import Final

FIRST: Final = 12_000
"""Below are the usual ports of services."""
_ATTEMPTS: Final = 1_000
_STRIDE: Final = 1_009
"""Between the places where processes with neighbouring numbers begin."""
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_turns: Final = itertools.count(os.getpid() * _STRIDE)
"""Of this process: each request in it gets another port."""


def _kernels_first() -> int:
    """The lowest port that the kernel chooses."""
    try:
        return int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


_KERNELS_FIRST: Final = _kernels_first()


def lasting_port(host: str = "127.0.0.1") -> int:
    """A port on which nobody listens, and which the kernel gives to nobody by itself; where there is none, any free one."""
    span = _KERNELS_FIRST - FIRST
    for turn in itertools.islice(_turns, _ATTEMPTS if span > 0 else 0):
        if (port := _bound(host, FIRST + turn % span)) is not None:
            return port
    chosen = _bound(host, 0)
    assert chosen is not None, "the kernel chose it"
    return chosen


def _bound(host: str, port: int) -> int | None:
    """The port, if a server may listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: ended connections do not count
        try:
            probe.bind((host, port))
        except OSError:
            if port:
                return None
            raise
        return int(probe.getsockname()[1])
