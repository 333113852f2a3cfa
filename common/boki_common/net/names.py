"""Connecting by name: one look-up of a name at a time, for all callers.

A look-up occupies a thread of the loop until the resolver answers, ten seconds and more where it does not, also when its caller
gave up; and a loop has few such threads (uvloop: four). Connecting to a peer whose name is gone is tried often: with a look-up for
each try no other name would be found. So a caller waits for a look-up of its name that is under way; and where a name was found
before, its last addresses are used when the look-up does not end soon.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from boki_common.exposure import ip_of

P = TypeVar("P", bound=asyncio.BaseProtocol)

SOON_S: Final = 0.5
"""How long a caller that knows earlier addresses waits for new ones."""
NAMES: Final = 1_024
"""Of a loop; the one that was asked for first is looked up as if it was new."""


class _Name:
    """The addresses that were found last, and the look-up that is under way."""

    __slots__ = ("found", "looking")

    def __init__(self) -> None:
        self.found: Sequence[str] = ()
        self.looking: asyncio.Task[Sequence[str]] | None = None

    def ended(self, looking: asyncio.Task[Sequence[str]]) -> None:
        """It has ended: the next request begins another one."""
        self.looking = None
        if not looking.cancelled() and looking.exception() is None:
            self.found = looking.result()


class Names:
    """Of one loop. `look_up`: asks the resolver; raises OSError."""

    def __init__(self, look_up: Callable[[str], Coroutine[Any, Any, Sequence[str]]]) -> None:
        self._look_up = look_up
        self._names: dict[str, _Name] = {}

    async def addresses_of(self, host: str) -> Sequence[str]:
        """At least one. Raises OSError: nobody knows the name."""
        name = self._names.setdefault(host, _Name())
        if len(self._names) > NAMES:
            del self._names[next(iter(self._names))]
        looking = name.looking
        if looking is None:
            looking = name.looking = asyncio.create_task(self._look_up(host), name=f"look-up of {host}")
            looking.add_done_callback(name.ended)
        await asyncio.wait([looking], timeout=SOON_S if name.found else None)
        return looking.result() if looking.done() else name.found


async def connect_by_name(made: Callable[[], P], host: str, port: int) -> P:
    """A connection to the first address of a host that answers. Raises OSError: of the look-up, or of the last address."""
    loop = asyncio.get_running_loop()
    names = _names.setdefault(loop, Names(_resolved))
    hosts: Sequence[str] = (host,) if ip_of(host) is not None else await names.addresses_of(host)
    for one in hosts[:-1]:
        try:
            return (await loop.create_connection(made, one, port))[1]
        except OSError:
            continue
    return (await loop.create_connection(made, hosts[-1], port))[1]


_names: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Names]] = WeakKeyDictionary()


async def _resolved(host: str) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(row[4][0]) for row in found))
