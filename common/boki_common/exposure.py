"""Who reaches a port: this machine alone, or others too; and whether a process may listen there. Pure.

127.0.0.0/8, ::1 and Unix sockets are this machine's alone. Everything else counts as reached by others: addresses of the machine,
`0.0.0.0` and `::`, and every name that means one of them, whatever else it means.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

from boki_common.errors import SettingsError

LOCALHOST: Final = "localhost"
HOW_TO_MAKE_ONE: Final = "(umask 077; openssl rand -hex 32 > FILE)"


def ip_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address that a text is; a zone may follow (`fe80::1%eth0`). None: it is none."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_loopback(address: str) -> bool:
    """Whether an IP address is this machine's alone. False for what is no address."""
    found = ip_of(address.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else found
    return found is not None and (mapped or found).is_loopback


def needs_resolving(host: str) -> bool:
    """Whether a host is a name, of which only a resolver knows what it means."""
    return ip_of(host.partition("%")[0]) is None and host.lower() not in ("", LOCALHOST)


def reached_by_others(host: str, resolved: Iterable[str]) -> bool:
    """Whether other machines reach a port that is bound to a host.

    Args:
        host: as it is given to be bound; empty: everywhere.
        resolved: what it means if it `needs_resolving`; nothing: it means nothing yet, which is not known to be safe.
    """
    if host.lower() == LOCALHOST:
        return False
    if not needs_resolving(host):
        return not is_loopback(host)
    addresses = list(resolved)
    return not addresses or not all(map(is_loopback, addresses))


def check_exposed(exposed: Sequence[str], *, asks_for_token: bool, insecure: bool) -> list[str]:
    """What to say of ports that other machines reach, at every start; nothing if connections are asked for a token. `exposed`:
    those ports, as they were given. Raises SettingsError: nobody would be asked, and nobody allowed it."""
    if not exposed or asks_for_token:
        return []
    where = ", ".join(exposed)
    if not insecure:
        raise SettingsError(
            f"expected a cluster token where other machines reach a port, found none for {where}: whoever reaches it could read, "
            f"append, trim and rewrite everything. Make one, {HOW_TO_MAKE_ONE}, and name it to every role and client by "
            "--token-file or BOKI_TOKEN_FILE; or listen on 127.0.0.1; or say --insecure",
            exposed=list(exposed),
        )
    return [f"insecure: other machines reach {where}, and nobody is asked for a cluster token"]
