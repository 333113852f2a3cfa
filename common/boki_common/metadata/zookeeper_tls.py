"""TLS connections to ZooKeeper, made for kazoo: its own leave a socket open for each handshake that fails, ask the terminal for
the password of a key, and trust the system's authorities besides the ones they are given.

The files are read anew for each connection, so a renewed certificate is taken at the next one. They are tried at the start,
and refused by name; what becomes of them later is a connection that fails.

Not offered: keys with a password, Java's keystores, revocation lists, a choice of ciphers, unverified servers.
"""

from __future__ import annotations

import socket  # noqa: TID251 - connections of kazoo's threads, not of the event loop
import ssl
from collections.abc import Callable
from typing import Any, NoReturn

from boki_common.errors import SettingsError
from boki_common.metadata.zookeeper_settings import ZookeeperSettings

Connect = Callable[..., ssl.SSLSocket]
"""In the place of a kazoo handler's `create_connection`."""


def connector(settings: ZookeeperSettings) -> Connect:
    """What makes the connections. Raises SettingsError: a file cannot be read, is no PEM, does not fit its key, or has a
    password."""
    make_context(settings)

    def connect(
        address: tuple[str, int], *, hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> ssl.SSLSocket:
        try:
            context = make_context(settings)
        except SettingsError as error:
            raise OSError(str(error)) from error  # kazoo tries again after these, and ends with any other
        plain = socket.create_connection(address, timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            return context.wrap_socket(plain, server_hostname=hostname)
        finally:
            plain.close()  # does nothing to one that was wrapped

    return connect


def make_context(settings: ZookeeperSettings) -> ssl.SSLContext:
    """As the settings say. Raises SettingsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificates and host names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.tls_check_host
    if settings.tls_ca_file:
        try:
            context.load_verify_locations(settings.tls_ca_file)
        except (OSError, ValueError) as error:
            _refuse("tls_ca_file", settings.tls_ca_file, f"expected certificates as PEM: {error}")
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if settings.tls_certificate_file:
        _load_certificate(context, settings.tls_certificate_file, settings.tls_key_file)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    asked = False

    def password() -> str:
        nonlocal asked
        asked = True
        return ""

    try:
        context.load_cert_chain(certificate, key, password)
    except (OSError, ValueError) as error:
        if asked:
            _refuse("tls_key_file", key, "expected a key without a password")
        _refuse("tls_certificate_file", certificate, f"expected a certificate as PEM, and its key in {key}: {error}")


def _refuse(name: str, path: str, why: str) -> NoReturn:
    raise SettingsError(f"zookeeper.{name} {path} cannot be used: {why}")
