"""The address that a role advertises: the address it listens on, or what its settings say instead. Pure.

A role in a container, behind a port mapping or on all addresses of its machine is reached under another address than the one it
binds. `advertise` of its settings is that one: a host, to which the port is added that it listens on, or host:port.
"Every address" (0.0.0.0, ::) is nobody's: it is refused, and the message names the setting.
"""

from __future__ import annotations

from collections.abc import Sequence

from boki_common.errors import InvalidArgument, SettingsError
from boki_common.exposure import ip_of
from boki_common.net.connection import Address


def is_every_address(host: str) -> bool:
    """Whether a host means all addresses of a machine: good to listen on, never advertised."""
    found = ip_of(host.partition("%")[0])
    return found.is_unspecified if found is not None else not host


def advertised(bound: Address, configured: str, *, key: str) -> Address:
    """The address that a role advertises.

    Args:
        bound: where it listens.
        configured: a host, or host:port; empty: as it listens.
        key: of the setting that says so, for messages.

    Raises:
        SettingsError: that is no address, or every address.
    """
    found = _parsed(configured, bound.port, key) if configured else bound
    if not found.path and is_every_address(found.host):
        variable = "BOKI_" + key.replace(".", "_").upper()
        raise SettingsError(
            f"expected an address under which others reach this role, found {found}, which is every address of this machine: set {key} "
            f"({variable}) to a name or an address that others know, or listen on one",
            found=str(found),
        )
    return found


def all_advertised(bound: Sequence[Address], configured: Sequence[str], *, key: str) -> list[Address]:
    """As `advertised`, of a role with several addresses: what is configured replaces all of them. A host has the first TCP port."""
    if not configured:
        return [advertised(one, "", key=key) for one in bound]
    first = next((one for one in bound if not one.path), Address("", 0))
    return [advertised(first, one, key=key) for one in configured]


def _parsed(configured: str, port: int, key: str) -> Address:
    with_port = (
        configured
        if configured.startswith("unix://") or (":" in configured and not configured.endswith("]"))
        else f"{configured}:{port}"
    )
    try:
        return Address.parse(with_port)
    except InvalidArgument as fault:
        raise SettingsError(f"{key}: expected a host or host:port, found {configured!r}", found=configured) from fault
