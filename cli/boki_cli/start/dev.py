"""`boki dev`: all roles in one process, on one directory, for trying things out and for small single machines.

    DATA/metadata.db      the metadata store
    DATA/bookie-1 …       one directory per bookie

The data survives a restart, kill -9 and, on a disk that honours flushes, the loss of power. With one bookie it does not
survive the loss of the disk; three on one machine only rehearse replication.

Rules:
- Bookies that have a directory are started although fewer are asked for: old ledgers need them, new ones do not.
- One bookie: ledgers have one copy. More: ledgers have up to three, and two must be durable. What is in the settings wins.
- The gateway has the port of the settings; if that is the usual one and taken (by another `boki dev`), a free one.
- Nothing is formatted while another process listens at an address that the settings name.
- New bookies are not formatted on a disk on which they would take no writes; bookies that are there start on any.
- A sequencer, engine or controller that fails is started again in place, with growing pauses; a bookie that fails ends the process,
  because whatever it met (a full or broken disk) needs a person.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing
from pathlib import Path
from typing import Final

from boki_bookie.settings import BookieSettings
from boki_cli.roles import (
    Parts,
    ProcessSettings,
    RunningRole,
    ledger_client,
    metrics_page,
    open_parts,
    running_bookie,
    running_controller,
    running_engine,
    running_sequencer,
)
from boki_cli.start.gateway_command import address_of, running_gateway
from boki_cli.start.role_process import ending_as_the_role_failed, until_failed
from boki_cli.wording import size_text
from boki_common.backoff import Backoff
from boki_common.errors import BokiError, DiskFull, SettingsError, WrongDirectory
from boki_common.logs import get_logger
from boki_common.net.connection import Address, check_free
from boki_common.runtime import process
from boki_common.runtime.posix_disk import PosixDisk
from boki_gateway.settings import DEFAULT_PORT
from boki_metalog.control.log_changes import LogChanges, ensure_logs
from boki_metalog.terms.metadata_tree import ensure_view

LISTEN: Final = "127.0.0.1:7040"
FREE_PORT: Final = Address("127.0.0.1", 0)
PAUSE_FIRST_S: Final = 0.1
PAUSE_LIMIT_S: Final = 10.0
SOUND_S: Final = 60.0
"""A role that served this long begins again with the first pause."""

SEGMENTS: Final = 3
"""Of the journal, which a new bookie makes soon: one in use, the next one, and one that is emptied."""
STARTING: Final = "not all roles are up yet"

_log = get_logger("dev")


def copies(bookies: int) -> dict[str, object]:
    """Settings of replication for so many bookies, beneath what the user says."""
    replicas, acks = (1, 1) if bookies == 1 else (min(bookies, 3), 2)
    return {
        f"{role}.{name}": value
        for role in ("sequencer", "engine")
        for name, value in (("replicas", replicas), ("acks", acks))
    }


def what_it_survives(bookies: int) -> str:
    """Said at start, so that nobody has to guess."""
    if bookies == 1:
        return "one bookie: survives kill -9 and power loss of a disk that honours flush, not the loss of the disk"
    return (
        f"{bookies} bookies on one machine: rehearses replication; survives kill -9, power loss of a disk that honours "
        "flush, and the loss of one bookie's directory, not the loss of the machine"
    )


def metadata_address(data: Path) -> str:
    """The metadata store of a data directory, which is made when absent. Raises WrongDirectory."""
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongDirectory(
            f"cannot make the data directory {data}: {error.strerror}; choose another with --data", path=str(data)
        ) from error
    return f"sqlite://{data.resolve() / 'metadata.db'}"


def space_needed(settings: BookieSettings, bookies: int) -> int:
    """Return the free bytes that so many new bookies need on one disk: what they write at once, and what they leave free."""
    written = settings.disk_reserve_bytes + SEGMENTS * settings.journal_segment_bytes
    return settings.read_only_below_bytes + bookies * written


def new_bookies(data: Path, bookies: int) -> int:
    """Return how many of so many bookies have no directory yet."""
    return sum(not (data / f"bookie-{number}").exists() for number in range(1, bookies + 1))


async def check_space(settings: ProcessSettings, *, new: int) -> None:
    """Refuse to format `new` bookies on a disk on which they would take no writes. Raises DiskFull.

    Bookies that are there start on any disk: what they hold is read, trimmed, and saved.
    """
    if not new:
        return
    disk = PosixDisk(settings.data)
    try:
        free = await disk.free_bytes()
    finally:
        await disk.close()
    needed = space_needed(settings.bookie, new)
    if free < needed:
        lowest = size_text(settings.bookie.read_only_below_bytes)
        raise DiskFull(
            f"expected {size_text(needed)} of free space for boki dev in {settings.data}, found {size_text(free)}: choose another disk "
            f"with --data, free space, or lower the setting bookie.read_only_below_bytes ({lowest})",
            expected=needed,
            found=free,
            path=str(settings.data),
        )


async def serve(
    settings: ProcessSettings,
    *,
    bookies: int,
    logs: int = 1,
    announce: Callable[[Sequence[str], str, str], None],
    stop: asyncio.Event,
) -> None:
    """Runs all roles until `stop`.

    Args:
        bookies: how many to start, at least `bookies_there`.
        logs: how many there are at least; each has a sequencer. Slots are spread evenly when one is added here.
        announce: called with the engine's addresses once they answer, which stay the same when it is started again, and the
            addresses of the metrics page and of the gateway or "".

    Raises:
        RoleFailed: a bookie, or what keeps another role running,
            ended by itself. What keeps any role from starting the first time.
    """
    with ending_as_the_role_failed():
        await _serve(settings, bookies=bookies, logs=logs, announce=announce, stop=stop)


async def _serve(
    settings: ProcessSettings,
    *,
    bookies: int,
    logs: int,
    announce: Callable[[Sequence[str], str, str], None],
    stop: asyncio.Event,
) -> None:
    async with open_parts(settings) as parts, AsyncExitStack() as stack:
        fatal: dict[str, Awaitable[object]] = {}
        keepers: list[_Kept] = []
        page = await stack.enter_async_context(
            metrics_page(parts.metrics, settings, token=parts.token, faults=lambda: _faults(keepers))
        )
        for number in range(1, bookies + 1):
            data = settings.data / f"bookie-{number}"
            role = await stack.enter_async_context(running_bookie(parts, settings, data=data, address=FREE_PORT))
            fatal[f"bookie {number}"] = role.failed
        added = await ensure_logs(parts.metadata, logs)
        view = (await ensure_view(parts.metadata)).view
        sequencers = [_Kept(lambda _: running_sequencer(parts, settings, address=FREE_PORT)) for _ in view.logs]
        controller = _Kept(lambda _: running_controller(parts, settings, address=FREE_PORT))
        engine = _Kept(lambda before: _engine(parts, settings, before))
        for kept in (*sequencers, controller, engine):
            keeps = await kept.start()
            assert kept.role is not None
            fatal[f"{kept.role.kind} at {kept.role.addresses[0]}"] = keeps
            stack.push_async_callback(kept.close)
            if kept is controller and added and view.next_term > 1:
                async with ledger_client(parts, settings) as ledgers:
                    with closing(LogChanges(parts.metadata, ledgers, parts.rng, token=parts.token)) as changes:
                        await changes.spread(dict.fromkeys(view.logs, 1))
        keepers += [*sequencers, controller, engine]
        assert engine.role is not None
        gateway = await _gateway(stack, parts, settings, engine.role.addresses[0])
        announce(engine.role.addresses, page, gateway)
        process.freeze_garbage()
        await until_failed(fatal, stop)


async def _gateway(stack: AsyncExitStack, parts: Parts, settings: ProcessSettings, engine: str) -> str:
    """Starts the gateway. Returns where it listens, or "" when the settings want none."""
    port = settings.gateway.port
    if port < 0 and not settings.gateway.listen:
        return ""
    url = engine if engine.startswith("unix://") else f"boki://{engine}"

    def at(address: Address) -> AbstractAsyncContextManager[str]:
        return running_gateway(url, settings, parts.metrics, address=address, store=parts.metadata, token=parts.token)

    if settings.gateway.listen:
        return await stack.enter_async_context(at(address_of(settings)))
    try:
        return await stack.enter_async_context(at(Address(FREE_PORT.host, port)))
    except SettingsError:
        if port != DEFAULT_PORT:
            raise
        return await stack.enter_async_context(at(FREE_PORT))


def listening(settings: ProcessSettings) -> list[Address]:
    """Where it listens, as far as the settings say it. Raises InvalidArgument."""
    gateway = [settings.gateway.listen] if settings.gateway.listen else []
    return [Address.parse(text) for text in (*settings.listen, *gateway)]


async def check_addresses(settings: ProcessSettings) -> None:
    """Refuse to format a data directory if another process listens where the engine, or a gateway with a port of its own, would.

    Raises:
        SettingsError: the address is in use, not of this machine, or not permitted.
    """
    gateway = settings.gateway
    if gateway.listen:
        taken = [Address.parse(gateway.listen)]
    else:
        taken = [] if gateway.port in (-1, DEFAULT_PORT) else [Address(FREE_PORT.host, gateway.port)]
    for address in (*map(Address.parse, settings.listen or (LISTEN,)), *taken):
        await check_free(address)


def bookies_there(data: Path) -> int:
    """The highest number of a bookie that has a directory: so many must be started."""
    numbers = [path.name.removeprefix("bookie-") for path in data.glob("bookie-*")]
    return max((int(number) for number in numbers if number.isdigit()), default=0)


def _engine(parts: Parts, settings: ProcessSettings, before: Sequence[str]) -> AbstractAsyncContextManager[RunningRole]:
    addresses = [Address.parse(text) for text in (before or settings.listen or (LISTEN,))]
    return running_engine(parts, settings, addresses=addresses)


def _faults(keepers: Sequence[_Kept]) -> list[str]:
    """What `/healthz` says."""
    return [fault for kept in keepers for fault in kept.faults] if keepers else [STARTING]


class _Kept:
    """A role that is started again whenever it fails. `role`: the one that serves, or served last. `fault`: why it does not
    serve at the moment, or ""."""

    def __init__(self, make: Callable[[Sequence[str]], AbstractAsyncContextManager[RunningRole]]) -> None:
        self.role: RunningRole | None = None
        self.fault = ""
        self._make = make
        self._stack = AsyncExitStack()
        self._task: asyncio.Task[object] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def faults(self) -> Sequence[str]:
        """Why it does not serve, or what it serves badly."""
        if self.fault or self.role is None:
            return (self.fault,) if self.fault else ()
        return self.role.faults()

    async def start(self) -> asyncio.Future[object]:
        """The first start; its errors are the caller's. What is returned ends only when nobody keeps the role any more."""
        self.role = await self._stack.enter_async_context(self._make(()))
        self._task = asyncio.ensure_future(self._keep())
        return self._task

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._stack.aclose()

    async def _keep(self) -> object:
        backoff = Backoff(PAUSE_FIRST_S, PAUSE_LIMIT_S)
        role = self.role
        assert role is not None
        while True:
            started = self._loop.time()
            try:
                await role.failed
            except BokiError as error:
                _log.warning("a role failed and is started again", role=role.kind, error=error)
                self.fault = f"the {role.kind} failed and is started again: {error}"
            if self._loop.time() - started > SOUND_S:
                backoff.reset()
            await self._stack.aclose()
            while True:
                await asyncio.sleep(backoff.next())
                try:
                    self.role = role = await self._stack.enter_async_context(self._make(role.addresses))
                    self.fault = ""
                    break
                except BokiError as error:
                    _log.warning("a role cannot be started", role=role.kind, error=error)
