"""Unix sockets beside loopback ports: processes of one machine skip the TCP stack, and nobody has to configure it.

A server on a loopback port also listens on the abstract Unix socket `\\0boki/HOST:PORT`; who connects to that address tries
the socket first. A small message then costs its sender a seventh, and a round trip half. The name says nothing that the
port does not: it lives and dies with the process and is private to the network namespace, and a proxy on a port of its own
is not passed by. Both ends must run as the same user (or the server as root), else the port is used: so nobody is lured by
another user who took the name, and a server whose name is taken serves its port only.

Linux only; elsewhere, and where nobody listens on it, there is just the port.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import Final

LOOPBACK_HOSTS: Final = frozenset(("127.0.0.1", "localhost", "::1"))
_CREDENTIALS: Final = struct.Struct("3i")
"""What SO_PEERCRED gives: pid, uid, gid."""


def exists_for(host: str) -> bool:
    """Whether an address of this host has a shortcut."""
    return sys.platform == "linux" and host in LOOPBACK_HOSTS


def listen(host: str, port: int, *, backlog: int) -> socket.socket:
    """The listening socket beside a port that this process holds. Raises OSError when another process has the name."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        server.bind(_name(host, port))
        server.listen(backlog)
    except OSError:
        server.close()
        raise
    return server


def connect(host: str, port: int) -> socket.socket | None:
    """A connected socket to the server of that port; None where there is none, or it is another user's."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        client.connect(_name(host, port))  # never waits: refused, accepted into the backlog, or the backlog is full
        _, uid, _ = _CREDENTIALS.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    except OSError:
        client.close()
        return None
    if uid not in (0, os.geteuid()):
        client.close()
        return None
    return client


def _name(host: str, port: int) -> str:
    return f"\0boki/{'127.0.0.1' if host == 'localhost' else host}:{port}"
