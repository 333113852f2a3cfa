"""Settings of the connection to ZooKeeper: how this process shows who it is, and whether others can read along.

With `digest_file` the connection is authenticated by ZooKeeper's `digest` scheme, and every node that this process makes may
be read and changed by that user alone: all processes of a cluster need the same file. Nodes made before keep the rights
that they have. ZooKeeper itself checks no password at connecting; a wrong one shows at the first node that is another's.

With `tls` the connection is encrypted, and the server's certificate verified; `zookeeper_tls` says what that covers. Who has a
certificate is known to ZooKeeper by it as well (its `x509` scheme), but nodes are made for that user only with a digest file.

What is not here is not offered: SASL.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from boki_common.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ZookeeperSettings:
    """See each field."""

    digest_file: str = setting(
        "",
        help="File whose first line is user:password for ZooKeeper's digest authentication; what this process makes there is "
        "for that user alone. Empty: no authentication, everybody may change everything.",
    )
    tls: bool = setting(
        False, help="Speak TLS to ZooKeeper; the port of its address is the server's secureClientPort then."
    )
    tls_ca_file: str = setting(
        "", help="PEM file of the authorities that sign servers' certificates; empty: those of the system."
    )
    tls_certificate_file: str = setting(
        "", help="PEM file with this process's certificate, which servers ask for by default; needs the key."
    )
    tls_key_file: str = setting("", help="PEM file with the key of that certificate, without a password.")
    tls_check_host: bool = setting(
        True, help="A server's certificate must name the host that the address names; off: any host."
    )

    def faults(self) -> Iterable[str]:
        if bool(self.tls_certificate_file) != bool(self.tls_key_file):
            yield "tls_certificate_file and tls_key_file belong together: expected both or none, found one"
        if not self.tls and (self.tls_ca_file or self.tls_certificate_file or not self.tls_check_host):
            yield "tls is off, but a tls_ setting is given: expected tls = true, or none of them"


def parse_digest(text: str) -> str:
    """The credential of a digest file. Raises ValueError saying what is wrong; never with the password in it."""
    credential = text.partition("\n")[0].strip()
    user, colon, password = credential.partition(":")
    if not colon or not user or not password:
        raise ValueError("expected user:password in its first line, found something else")
    return credential
