"""Before a process listens: whether other machines would reach it, and whether they may (`boki_common.exposure`)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from boki_common.exposure import check_exposed, needs_resolving, reached_by_others
from boki_common.logs import get_logger
from boki_common.net.connection import Address

if TYPE_CHECKING:
    from boki_cli.roles import ProcessSettings

Resolve = Callable[[str], Awaitable[list[str]]]

_log = get_logger("listening")


async def guard(settings: ProcessSettings, addresses: Iterable[Address], *, resolve: Resolve | None = None) -> None:
    """Lets a process listen at addresses, and on the pages of its settings; warns of --insecure, in one line.

    `resolve`: what a name means; by default the system's word. Raises SettingsError: other machines would reach one of them, and
    there is no token.
    """
    every = [*addresses, *pages_of(settings)]
    means = resolve or _resolved
    exposed = []
    for one in every:
        found = await means(one.host) if needs_resolving(one.host) else []
        if not one.path and reached_by_others(one.host, found):
            exposed.append(str(one))
    for line in check_exposed(exposed, asks_for_token=bool(settings.token_file), insecure=settings.insecure):
        _log.warning(line)


def pages_of(settings: ProcessSettings) -> list[Address]:
    """Where the HTTP pages of a process listen, as its settings say. Raises InvalidArgument."""
    pages = [Address.parse(settings.metrics_listen)] if settings.metrics_listen else []
    if settings.bookie.admin_port >= 0:
        pages.append(Address(settings.bookie.admin_host, settings.bookie.admin_port))
    return pages


async def _resolved(host: str) -> list[str]:
    """What a name means; nothing if it means nothing."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(address[0]) for *_, address in found]
