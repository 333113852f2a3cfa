"""Settings of the connection to ZooKeeper: how this process shows who it is.

With `digest_file` the connection is authenticated by ZooKeeper's `digest` scheme, and every node that this process makes may
be read and changed by that user alone: all processes of a cluster need the same file. Nodes made before keep the rights
that they have. ZooKeeper itself checks no password at connecting; a wrong one shows at the first node that is another's.

What is not here is not offered: SASL and TLS.
"""

from __future__ import annotations

from dataclasses import dataclass

from boki_common.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ZookeeperSettings:
    """See each field."""

    digest_file: str = setting(
        "",
        unit="",
        help="File whose first line is user:password for ZooKeeper's digest authentication; what this process makes there is "
        "for that user alone. Empty: no authentication, everybody may change everything.",
    )


def parse_digest(text: str) -> str:
    """The credential of a digest file. Raises ValueError saying what is wrong; never with the password in it."""
    credential = text.partition("\n")[0].strip()
    user, colon, password = credential.partition(":")
    if not colon or not user or not password:
        raise ValueError("expected user:password in its first line, found something else")
    return credential
