"""Builds roles from settings: the one place that puts the parts of the system together.

    async with open_parts(settings) as parts:                  # metadata store, clock, randomness, metrics
        async with running_bookie(parts, settings, ...) as role:
            await role.failed                                   # raises the error that ended the role

A role is a bookie, a sequencer, an engine or a controller: its server, its disk or its ledger client, and in which order they end. A
process runs one (`role_commands`) or all of them (`dev`); nothing else differs between the two. What only one role needs is
imported when that role is built: a bookie has no memory for an engine.
"""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from boki_bookie.settings import BookieSettings
from boki_common.advertised import advertised, all_advertised
from boki_common.bookkeeper.layout import LedgerLayout, init_cluster
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import MetadataError, SettingsError
from boki_common.logs import get_logger
from boki_common.metadata import registered as registry
from boki_common.metadata.open import open_store, start_within
from boki_common.metadata.store import MetadataStore
from boki_common.metadata.zookeeper_settings import ZookeeperSettings
from boki_common.metrics import Metrics
from boki_common.net.connection import Address
from boki_common.runtime.awake_cores import When, kept_awake
from boki_common.runtime.posix_disk import PosixDisk
from boki_common.runtime.process import SystemClock, SystemRandom
from boki_common.runtime.token_file import kept_current, token_of
from boki_common.settings import load_settings, setting, table
from boki_gateway.settings import GatewaySettings
from boki_ledger.settings import LedgerSettings
from boki_logbook.settings import EngineSettings
from boki_metalog.settings import ControllerSettings, SequencerSettings
from boki_metalog.terms.metadata_tree import ensure_view

if TYPE_CHECKING:
    from boki_ledger.client import LedgerClient
    from boki_logbook.index.index import Index

Kind = Literal["bookie", "sequencer", "engine", "controller"]

DATA: Final = Path(".boki")
DEFAULT_LISTEN: Final[Mapping[Kind, str]] = {
    "bookie": "127.0.0.1:3181",
    "sequencer": "127.0.0.1:7041",
    "engine": "127.0.0.1:7040",
    "controller": "127.0.0.1:7042",
}
_log = get_logger("roles")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """All settings of a process of Boki."""

    metadata: str = setting("", help="Metadata store: sqlite:///path or zk://host:port,host:port/path.")
    metadata_wait_s: float = setting(
        60.0, minimum=0.0, help="How long a role that starts waits for a metadata store that does not answer."
    )
    data: Path = setting(DATA, help="Data directory of a bookie, or of boki dev.")
    more_data: tuple[str, ...] = setting(
        (),
        help="Further data directories of a bookie, one a disk; which and in what order is fixed once they are formatted.",
    )
    long_ledger_paths: bool = setting(
        False,
        help="A new cluster gets BookKeeper's long hierarchical layout, for sharing it with programs that expect that; an "
        "existing cluster keeps its own.",
    )
    logs: int = setting(
        1,
        help="At least so many physical logs, where boki init or boki dev makes them; each has an even share of the slots.",
        minimum=1,
        maximum=64,
    )
    listen: tuple[str, ...] = setting((), help="Where to listen: host:port (0: a free one) or unix:///path.")
    metrics_listen: str = setting("", help="host:port of the pages /metrics, /healthz and /readyz; empty: none.")
    allowed_hosts: tuple[str, ...] = setting(
        (),
        help="Names that the Host header of requests to HTTP pages (gateway, metrics, administration) may have, beside "
        "localhost, IP addresses and the name listened on; behind a proxy, the name that browsers see.",
    )
    token_file: str = setting(
        "",
        help="File with the cluster token, which everybody who speaks to this process has to show and which it shows to "
        "others; one line, or two while it is exchanged. Empty: the cluster has none.",
    )
    insecure: bool = setting(
        False, help="Listen where other machines reach this process although it asks for no cluster token."
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting("info", help="Lowest level to log.")
    log_json: bool = setting(False, help="Log JSON instead of key=value.")
    keep_cores_awake: When = setting(
        "busy",
        help="When the cores of this machine are kept from sleeping (Linux, as root), so that single requests are answered "
        "faster, at the cost of power: while a role is busy, always while it runs, or never.",
    )
    zookeeper: ZookeeperSettings = table(ZookeeperSettings)
    bookie: BookieSettings = table(BookieSettings)
    ledger: LedgerSettings = table(LedgerSettings)
    sequencer: SequencerSettings = table(SequencerSettings)
    engine: EngineSettings = table(EngineSettings)
    controller: ControllerSettings = table(ControllerSettings)
    gateway: GatewaySettings = table(GatewaySettings)


class Parts(NamedTuple):
    """What all roles of a process share."""

    metadata: MetadataStore
    clock: SystemClock
    rng: SystemRandom
    metrics: Metrics
    token: ClusterToken = NO_TOKEN
    """Asked of those who connect, and shown to others."""


class RunningRole(NamedTuple):
    kind: Kind
    addresses: tuple[str, ...]
    failed: Awaitable[object]
    """Ends only with the role: raises the error that ended it, or gives it. Whoever awaits it looks at both (`until_failed`)."""
    admin: str = ""
    """host:port of its administration page, if it has one."""
    faults: Callable[[], Sequence[str]] = tuple
    """What it serves badly, or not at all, although it is up."""
    unready: Callable[[], Sequence[str]] = tuple
    """What keeps it from being of use, although it is up."""


def process_settings(file: Path | None, flags: Mapping[str, object]) -> ProcessSettings:
    """Settings of this process: file, then environment, then flags. Raises SettingsError."""
    return load_settings(ProcessSettings, file=file, environ=os.environ, flags=flags)


def metadata_uri(text: str) -> str:
    """A metadata address with an absolute path: people write sqlite:///./dev.db. Raises SettingsError when empty."""
    if not text:
        raise SettingsError(
            "expected --metadata (or BOKI_METADATA), found none; the roles of one cluster share it: "
            "sqlite:///absolute/path.db on one machine, zk://host:2181 on several"
        )
    return text


def listen_addresses(kind: Kind, settings: ProcessSettings) -> list[Address]:
    """Where a role of this process listens; by default where everybody looks for it on this machine."""
    return [Address.parse(text) for text in (settings.listen or (DEFAULT_LISTEN[kind],))]


@asynccontextmanager
async def open_metadata(
    settings: ProcessSettings, *, create: bool = False, wait_s: float = 0.0
) -> AsyncIterator[Parts]:
    """The metadata store, connected, beside clock and randomness. Nothing is created in it, nor its file without `create`.
    A store that does not answer is waited for, so long.

    Raises:
        SettingsError: the address is wrong, or nothing is there, or no token in its file. MetadataUnavailable: nothing answers.
    """
    token = await token_of(settings.token_file)
    store = open_store(metadata_uri(settings.metadata), zookeeper=settings.zookeeper, create=create)
    try:
        await start_within(wait_s, store)
        yield Parts(store, SystemClock(), SystemRandom(), Metrics(), token)
    finally:
        await store.close()


@asynccontextmanager
async def open_parts(settings: ProcessSettings) -> AsyncIterator[Parts]:
    """As `open_metadata`, for as long as the settings say; what a cluster keeps there is created unless it is there. The token is
    kept as its file has it, and cores are kept awake as wished."""
    async with open_metadata(settings, create=True, wait_s=settings.metadata_wait_s) as parts:
        long_paths = settings.long_ledger_paths
        layout = LedgerLayout.LONG_HIERARCHICAL if long_paths else LedgerLayout.HIERARCHICAL
        await init_cluster(parts.metadata, layout=layout)
        await ensure_view(parts.metadata)
        async with kept_current(settings.token_file, parts.token), kept_awake(settings.keep_cores_awake):
            yield parts


@asynccontextmanager
async def metrics_page(
    metrics: Metrics,
    settings: ProcessSettings,
    *,
    token: ClusterToken,
    faults: Callable[[], Sequence[str]],
    unready: Callable[[], Sequence[str]] = tuple,
) -> AsyncIterator[str]:
    """Serves `/metrics`, `/healthz` and `/readyz` while it is open, unless the settings name no address for them.

    Yields where: host:port with the real port, or "". Raises SettingsError: cannot listen there.
    """
    if not settings.metrics_listen:
        yield ""
        return
    address = Address.parse(settings.metrics_listen)
    if address.path:
        raise SettingsError(f"expected --metrics host:port, found {address}; browsers and Prometheus speak TCP")
    from boki_common.http.metrics_page import (
        start_metrics_page,  # a web server, which a role without the page needs no memory for
    )

    page = await start_metrics_page(
        metrics,
        host=address.host,
        port=address.port,
        faults=faults,
        unready=unready,
        allowed_hosts=settings.allowed_hosts,
        token=token,
    )
    try:
        yield str(Address(address.host, page.port))
    finally:
        await page.close()


@asynccontextmanager
async def running_bookie(
    parts: Parts, settings: ProcessSettings, *, data: Path, address: Address
) -> AsyncIterator[RunningRole]:
    """A bookie on a directory. Raises WrongDirectory, DirectoryInUse, CorruptData: what is there cannot be served;
    SettingsError: cannot listen."""
    from boki_bookie.bookie import Bookie

    bookie = await Bookie.start(
        disk=PosixDisk(data),
        metadata=parts.metadata,
        address=address,
        clock=parts.clock,
        rng=parts.rng,
        settings=settings.bookie,
        metrics=parts.metrics,
        more_disks=[PosixDisk(Path(directory)) for directory in settings.more_data],
        allowed_hosts=settings.allowed_hosts,
        token=parts.token,
    )
    try:
        admin = "" if bookie.admin is None else str(bookie.admin.address)
        refused = "takes no writes: its disk is full, or an administrator said so"
        yield RunningRole(
            "bookie",
            (str(bookie.address),),
            bookie.failed,
            admin,
            unready=lambda: [refused] if bookie.read_only else [],
        )
    finally:
        await bookie.close()


@asynccontextmanager
async def ledger_client(parts: Parts, settings: ProcessSettings) -> AsyncIterator[LedgerClient]:
    """A ledger client on the bookies that the metadata store names. Raises Unauthenticated: none of them lets us in."""
    from boki_ledger.client import LedgerClient

    client = LedgerClient(
        metadata=parts.metadata,
        rng=parts.rng,
        clock=parts.clock,
        settings=settings.ledger,
        metrics=parts.metrics,
        token=parts.token,
    )
    await client.start()
    try:
        await client.check_admitted()
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def running_sequencer(parts: Parts, settings: ProcessSettings, *, address: Address) -> AsyncIterator[RunningRole]:
    """A sequencer; it serves or stands by. One that is left without an error gives its log to another first. Raises
    SettingsError: cannot listen."""
    from boki_metalog.control.handing_over import hand_over
    from boki_metalog.sequencer.sequencer import Sequencer

    async with ledger_client(parts, settings) as ledgers:
        sequencer = await Sequencer(
            metadata=parts.metadata,
            ledgers=ledgers,
            clock=parts.clock,
            rng=parts.rng,
            settings=settings.sequencer,
            metrics=parts.metrics,
            log=None if settings.sequencer.log < 0 else settings.sequencer.log,
            token=parts.token,
        ).start(address)
        try:
            idle = "neither orders a log nor has a spare ledger to stand by with: do enough bookies take writes?"
            yield RunningRole(
                "sequencer",
                (str(sequencer.address),),
                sequencer.failed,
                unready=lambda: [] if sequencer.usable else [idle],
            )
            await hand_over(sequencer, metadata=parts.metadata, ledgers=ledgers, rng=parts.rng, token=parts.token)
        finally:
            await sequencer.close()


@asynccontextmanager
async def running_controller(
    parts: Parts, settings: ProcessSettings, *, address: Address
) -> AsyncIterator[RunningRole]:
    """A controller; it leads or stands for election. Raises SettingsError: cannot listen."""
    from boki_ledger.repair.settings import Mode
    from boki_metalog.control.controller import Controller, Duty
    from boki_metalog.control.policies import RollWritten, default_policies

    async with ledger_client(parts, settings) as ledgers:
        auditor = ledgers.auditor(settings.controller.repair_limits())
        auditor.measure(parts.metrics)
        mode = Mode(settings.controller.repair)
        controller = await Controller(
            metadata=parts.metadata,
            ledgers=ledgers,
            rng=parts.rng,
            settings=settings.controller,
            policies=[*default_policies(), RollWritten(auditor.written)],
            duties=[Duty("repair", lambda: auditor.run(mode), auditor.status)],
            token=parts.token,
        ).start(address)
        try:
            yield RunningRole("controller", (str(controller.address),), controller.failed)
        finally:
            await controller.close()


@asynccontextmanager
async def running_engine(
    parts: Parts, settings: ProcessSettings, *, addresses: Sequence[Address]
) -> AsyncIterator[RunningRole]:
    """An engine. Raises SettingsError: cannot listen."""
    from boki_logbook.engine import Engine

    async with ledger_client(parts, settings) as ledgers:
        engine = await Engine.start(
            metadata=parts.metadata,
            ledgers=ledgers,
            addresses=addresses,
            rng=parts.rng,
            settings=settings.engine,
            metrics=parts.metrics,
            metadata_uri=metadata_uri(settings.metadata),
            clock=parts.clock,
            token=parts.token,
        )
        try:
            async with index_files(lambda: engine.core.state.index, settings.engine.index_directory):
                behind = "the index has not caught up yet"
                yield RunningRole(
                    "engine",
                    tuple(map(str, engine.addresses)),
                    engine.failed,
                    faults=engine.faults,
                    unready=lambda: [] if engine.core.ready else [behind],
                )
        finally:
            await engine.close()


@asynccontextmanager
async def index_files(index: Callable[[], Index], directory: str) -> AsyncIterator[None]:
    """Moves large parts of an index to files, if there is a directory for it. Raises DirectoryInUse, WrongDirectory."""
    if not directory:
        yield
        return
    from boki_logbook.index.index_files import IndexFiles

    files = IndexFiles(PosixDisk(directory), index)
    try:
        await files.start()
        yield
    finally:
        await files.close()


@asynccontextmanager
async def registered(kind: Kind, parts: Parts, settings: ProcessSettings, role: RunningRole) -> AsyncIterator[None]:
    """The role is expected to be there from now on, unless this is left without an error: then it was stopped.

    Bookies have cookies for that.
    """
    if kind == "bookie":
        yield
        return
    address = check_advertised(kind, settings, [Address.parse(text) for text in role.addresses])[0]
    bound = Address.parse(role.addresses[0])
    asked = listen_addresses(kind, settings)[0]
    made = await registry.register(
        parts.metadata,
        kind,
        host=platform.node(),
        address=address,
        free_port=not asked.path and asked.port != bound.port and address.port == bound.port,
    )
    yield
    try:
        await registry.forget(parts.metadata, kind, made.place)
    except MetadataError as error:
        _log.warning("still expected to come back", role=kind, place=made.place, error=error)


def running(kind: Kind, parts: Parts, settings: ProcessSettings) -> AbstractAsyncContextManager[RunningRole]:
    """One role as the settings say.

    Where nothing says where it listens and the usual port is taken, it has a free one: a spare beside the first of its kind.
    An engine does not, since clients look for it there.

    Raises:
        SettingsError: it cannot listen there, or not on so many addresses.
    """
    addresses = listen_addresses(kind, settings)
    if kind != "engine" and len(addresses) != 1:
        raise SettingsError(
            f"a {kind} listens on one address, found {len(addresses)}: {', '.join(map(str, addresses))}"
        )
    check_advertised(kind, settings, addresses)
    if settings.listen or kind == "engine":
        return _running_at(kind, parts, settings, addresses)
    return _running_at_usual_port(kind, parts, settings, addresses[0])


def check_advertised(kind: Kind, settings: ProcessSettings, addresses: Sequence[Address]) -> list[Address]:
    """The addresses that a role advertises, of those it listens on. Raises SettingsError: they would be every address."""
    if kind == "engine":
        outside = [Address.parse(text) for text in settings.engine.outside_listen]
        all_advertised(outside, settings.engine.outside_advertise, key="engine.outside_advertise")
        return all_advertised(addresses, settings.engine.advertise, key="engine.advertise")
    configured = {
        "bookie": settings.bookie.host,
        "sequencer": settings.sequencer.advertise,
        "controller": settings.controller.advertise,
    }[kind]
    key = "bookie.host" if kind == "bookie" else f"{kind}.advertise"
    return [advertised(addresses[0], configured, key=key)]


@asynccontextmanager
async def _running_at_usual_port(
    kind: Kind, parts: Parts, settings: ProcessSettings, usual: Address
) -> AsyncIterator[RunningRole]:
    async with AsyncExitStack() as stack:
        try:
            role = await stack.enter_async_context(_running_at(kind, parts, settings, [usual]))
        except SettingsError as error:
            if error.facts.get("errno") != errno.EADDRINUSE:
                raise
            _log.info("the usual port is taken, a free one is used", role=kind, error=error)
            free = Address(usual.host, 0)
            role = await stack.enter_async_context(_running_at(kind, parts, settings, [free]))
        yield role


def _running_at(
    kind: Kind, parts: Parts, settings: ProcessSettings, addresses: Sequence[Address]
) -> AbstractAsyncContextManager[RunningRole]:
    if kind == "engine":
        return running_engine(parts, settings, addresses=addresses)
    if kind == "bookie":
        return running_bookie(parts, settings, data=settings.data, address=addresses[0])
    if kind == "controller":
        return running_controller(parts, settings, address=addresses[0])
    return running_sequencer(parts, settings, address=addresses[0])
