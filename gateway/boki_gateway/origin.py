"""Who may ask: checks of Host and Origin, which a browser sets and a page in it cannot change. Pure.

The gateway asks nobody who he is. Whoever reaches its address may use it; a web page in somebody's browser on this machine
must not become one of them:

- *DNS rebinding*: a page's own name is made to mean 127.0.0.1, and the page then is of the same origin. Its requests carry
  its name as Host, so only names of this machine (and those the settings allow) are answered.
- *Cross-site requests*: a page may send, although not read, requests to any address. Those that change something carry its
  Origin, which must be the Host itself. There are no CORS headers, so no other origin reads an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from boki_gateway.errors import HostRefused, OriginRefused

LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
ANY: Final = "*"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class HostRules:
    """The names that a gateway answers to."""

    def __init__(self, listens: str, allowed: Sequence[str]) -> None:
        """`listens` is the host it is bound to, `allowed` what the settings name."""
        names = {name.lower().strip("[]") for name in allowed}
        self.any = ANY in names or (not names and listens not in LOCAL_NAMES)
        self.names = frozenset(names | LOCAL_NAMES | {listens.lower().strip("[]")}) - {ANY}

    def check(self, method: str, host: str | None, origin: str | None) -> None:
        """Raises HostRefused, OriginRefused."""
        name = _name(host)
        if not self.any and name not in self.names:
            raise HostRefused(
                f"expected Host to be {' or '.join(sorted(self.names))}, found {host!r:.100}; "
                "gateway.allowed_hosts adds names",
                found=(host or "")[:100],
            )
        if origin is not None and method not in SAFE_METHODS and origin.lower() not in _origins(host):
            raise OriginRefused(
                f"expected a program, or a page of this gateway, found a page of {origin!r:.100}", found=origin[:100]
            )


def _origins(host: str | None) -> tuple[str, str]:
    """The origins of pages that this gateway serves, directly or behind a proxy that speaks TLS."""
    name = (host or "").lower()
    return f"http://{name}", f"https://{name}"


def _name(host: str | None) -> str:
    """The name in a Host header, without its port; "" when it cannot be read."""
    try:
        return (urlsplit(f"//{host or ''}").hostname or "").lower()
    except ValueError:
        return ""
