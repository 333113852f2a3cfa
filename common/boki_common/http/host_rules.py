"""Which HTTP requests a server of this process answers: checks of what a browser sends and no page in it can change. Pure.

A web page in somebody's browser must not reach the gateway, the metrics or the administration of a bookie through it. Three
ways lead there, on loopback and beyond, with a token and without:

- *DNS rebinding*: a page's own name is made to mean this address, and the page then is of the same origin. Its requests carry
  that name as Host. So a name is answered only if somebody named it: `localhost`, the name that is listened on, those of the
  setting `allowed_hosts`. The bind does not widen that. An IP address is no name, nothing can be made to mean it: any is answered.
- *Cross-site requests*: a page may send, although not read, requests to any address. What carries an Origin that is not the
  Host itself is refused, reads and event streams too. There are no CORS headers, so no other origin reads an answer.
- *Cross-site loads* (an image, a script) carry no Origin, but Sec-Fetch-Site. A link that a person follows is answered.

A program sends neither Origin nor Sec-Fetch-Site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from boki_common.errors import UsageError
from boki_common.exposure import ip_of

LOCAL_NAME: Final = "localhost"
SETTING: Final = "allowed_hosts"
OWN_SITES: Final = frozenset({"same-origin", "none"})
"""Sec-Fetch-Site of own pages, and of what a person typed or opened."""
NAVIGATION: Final = "navigate"


class HostRefused(UsageError):
    """The Host header names none of the server's names: a page may have led somebody's browser here."""


class OriginRefused(UsageError):
    """A browser sent the request for a page of another origin."""


class HostRules:
    """The names that one server answers to."""

    def __init__(self, listens: str, allowed: Sequence[str]) -> None:
        """`listens` is the host it is bound to, `allowed` what the settings name."""
        names = {LOCAL_NAME, *(name.lower().removesuffix(".") for name in (listens, *allowed))}
        self.names = frozenset(name for name in names if name and ip_of(name.strip("[]")) is None)

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """Looks at the headers of one request; `headers` finds them whatever their case. Raises HostRefused: it asks for a name
        that is not this server's; OriginRefused: it is of another origin's page."""
        host = headers.get("Host")
        name = _name(host)
        if name not in self.names and ip_of(name) is None:
            raise HostRefused(
                f"expected Host to be an IP address or {' or '.join(sorted(self.names))}, found {host!r:.100}; "
                f"the setting {SETTING} adds names",
                found=_printable(host or ""),
            )
        origin = headers.get("Origin")
        if origin is not None and origin.lower() not in _origins(host):
            raise _foreign(f"a page of {origin!r:.100}", origin)
        site = headers.get("Sec-Fetch-Site")
        if site is not None and site.lower() not in OWN_SITES and not _is_link(method, headers):
            raise _foreign(f"Sec-Fetch-Site {site!r:.100}", site)


def _is_link(method: str, headers: Mapping[str, str]) -> bool:
    """Whether a person follows a link to here, in the window itself."""
    mode, target = headers.get("Sec-Fetch-Mode", ""), headers.get("Sec-Fetch-Dest", "")
    return method == "GET" and mode.lower() == NAVIGATION and target.lower() == "document"


def _foreign(found: str, value: str) -> OriginRefused:
    return OriginRefused(f"expected a program, or a page of this server, found {found}", found=_printable(value))


def _printable(value: str) -> str:
    """A part of a header that any encoding takes: bytes that are no UTF-8 stand in headers as halves of characters."""
    return value[:100].encode("ascii", "backslashreplace").decode()


def _origins(host: str | None) -> tuple[str, str]:
    """The origins of pages that this server serves, directly or behind a proxy that speaks TLS."""
    name = (host or "").lower()
    return f"http://{name}", f"https://{name}"


def _name(host: str | None) -> str:
    """The name in a Host header, without its port; "" when it cannot be read."""
    try:
        parts = urlsplit(f"//{host or ''}")
        plain = parts.username is None and parts.password is None and not (parts.path or parts.query or parts.fragment)
        return (parts.hostname or "").lower().removesuffix(".") if plain else ""
    except ValueError:
        return ""
