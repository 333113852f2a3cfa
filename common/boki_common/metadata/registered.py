"""Which roles a cluster expects: a lasting node for each engine, sequencer and controller that began and did not say goodbye.

    /boki/registered/<role>/<place>    JSON: {"version": 1, "host": "node1", "address": "10.0.0.7:7040", "free_port": false}

Members (`membership`) are who is there now; a process that is killed vanishes from them with its session. These nodes stay, so
somebody can see that it is missing.

- A place is `host/address`, percent-encoded in the path. A role that begins again at its place finds its own node.
- A role that is stopped removes its node. One that is killed, or fails, leaves it, until it begins again or a
  person forgets it.
- A role on a free port (port 0) begins elsewhere each time. It takes over the nodes of its role, host and kind at whose
  addresses nothing listens any more.
- Nothing but what people are shown depends on these nodes. Bookies have cookies instead (`bookkeeper.layout`).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

import msgspec

from boki_common.errors import DECODE_FAULTS, BadVersion, CorruptData, NodeExists, NoNode, Unreachable
from boki_common.metadata.store import MetadataStore, ensure_path, values_below
from boki_common.net.connection import Address, Nobody, connect

REGISTERED: Final = "/boki/registered"
VERSION: Final = 1
LISTENS_TIMEOUT_S: Final = 1.0
"""A port of this machine answers, or refuses, at once."""


class Registration(msgspec.Struct, frozen=True):
    """One role that is expected to be there."""

    version: int
    host: str
    """Name of its machine."""
    address: str
    free_port: bool
    """Whether the port was drawn at its start, so that it comes back at another one."""

    @property
    def place(self) -> str:
        """What people call it by."""
        return f"{self.host}/{self.address}"


def registered_path(role: str, place: str) -> str:
    return f"{REGISTERED}/{role}/{quote(place, safe='')}"


async def register(store: MetadataStore, role: str, *, host: str, address: Address, free_port: bool) -> Registration:
    """Says that a role is expected at its place from now on. May be repeated. Raises MetadataError."""
    folder = f"{REGISTERED}/{role}"
    await ensure_path(store, folder)
    made = Registration(VERSION, host, str(address), free_port)
    if free_port and not address.path:
        for other in (await registrations(store, role)).values():
            same_kind = (other.host, other.free_port) == (host, True)
            if same_kind and other.address != made.address and not await _listens(other.address):
                await forget(store, role, other.place)
    try:
        await store.create(registered_path(role, made.place), msgspec.json.encode(made))
    except NodeExists:
        pass  # its own, of an earlier start
    return made


async def forget(store: MetadataStore, role: str, place: str) -> bool:
    """The role is not expected there any more; whether it was. Raises MetadataError."""
    path = registered_path(role, place)
    try:
        await store.delete(path, version=(await store.get(path)).version)
    except (NoNode, BadVersion):
        return False
    return True


async def registrations(store: MetadataStore, role: str) -> dict[str, Registration]:
    """Every role that is expected, by place, sorted. Raises CorruptData, MetadataUnavailable."""
    found: dict[str, Registration] = {}
    for name, value in (await values_below(store, f"{REGISTERED}/{role}")).items():
        try:
            found[unquote(name)] = msgspec.json.decode(value, type=Registration)
        except DECODE_FAULTS as error:
            path = f"{REGISTERED}/{role}/{name}"
            raise CorruptData(f"expected a registration in {path}, found {value[:100]!r}: {error}") from error
    return found


async def _listens(address: str) -> bool:
    try:
        (await connect(Address.parse(address), lambda _: Nobody(), timeout_s=LISTENS_TIMEOUT_S)).close()
    except Unreachable as error:
        return isinstance(error.__cause__, TimeoutError)  # silence is no proof
    return True
