"""Asks every part of a cluster how it is, at once and directly.

Engines are asked at the URL; with a metadata store also the engines, sequencers and bookies that are listed there. Being
listed is a hint and an answer is the fact, so each part is `up` only if it answered; what did not is in the result too, with
the reason. It knows nothing of how the result is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from boki_common import engine_protocol, ids
from boki_common.bookkeeper import layout
from boki_common.errors import BokiError, InvalidArgument
from boki_common.metadata.membership import members
from boki_common.metadata.store import MetadataStore
from boki_common.net.connection import Address, FrameConnection, connect
from boki_common.net.messages import MessagePeer, connect_messages
from boki_metalog import sequencer_protocol
from boki_metalog.controller import CONTROLLER_ROLE
from boki_metalog.metadata_tree import SEQUENCER_ROLE, read_view

ENGINE_ROLE: Final = "engine"
DEFAULT_PORT: Final = 7040
SQLITE: Final = "sqlite://"


class Part(msgspec.Struct):
    """One process, or role of a process."""

    role: str
    address: str
    up: bool
    name: str = ""
    problem: str = ""
    """Why it is not up."""
    status: dict[str, Any] = {}
    """What it says of itself."""


class ClusterStatus(msgspec.Struct):
    """All parts that are known, by role."""

    engines: list[Part] = []
    sequencers: list[Part] = []
    bookies: list[Part] = []
    view: dict[str, Any] | None = None
    """Terms by log and slots, of the metadata store; None without one."""
    controllers: list[Part] = []

    @property
    def parts(self) -> list[Part]:
        return [*self.engines, *self.sequencers, *self.controllers, *self.bookies]

    def metadata_nearby(self) -> str:
        """The metadata store that an engine names, if this machine can reach it; a SQLite file may be another machine's.

        It looks at the disk: not for an event loop.
        """
        for engine in self.engines:
            uri = str(engine.status.get("metadata", ""))
            if uri and is_here(uri):
                return uri
        return ""

    @property
    def anything_up(self) -> bool:
        return any(part.up for part in self.parts)


def is_here(metadata: str) -> bool:
    """Whether this machine has what a metadata address names; of what is not a file, nothing is known."""
    return not metadata.startswith(SQLITE) or Path(metadata.removeprefix(SQLITE)).is_file()


def faults_of(found: ClusterStatus) -> list[str]:
    """What is not as it should be, a sentence each: for scripts that wait for a cluster, or watch one."""
    faults = [f"{part.role} {part.address} is down: {part.problem}" for part in found.parts if not part.up]
    faults += [
        f"{part.role} {part.address} failed: {part.status['failed']}"
        for part in found.parts
        if part.status.get("failed")
    ]
    faults += [
        f"engine {engine.address} catches up"
        for engine in found.engines
        if engine.up and not engine.status.get("ready", True)
    ]
    if found.view is None:
        return [*faults, "bookies and sequencers are not known: no engine names a metadata store that is here"]
    if not any(bookie.up and not bookie.status.get("read_only") for bookie in found.bookies):
        faults.append("no bookie takes writes")
    for log, installed in sorted(found.view["logs"].items(), key=lambda one: int(one[0])):
        if installed is None:
            faults.append(f"log {log} has no term yet: a sequencer and enough bookies begin one")
        elif not is_served(installed, found.sequencers):
            faults.append(
                f"log {log} is served by nobody: its sequencer {installed['sequencer'][:12]} does not answer so"
            )
    return faults


def is_served(installed: Mapping[str, Any], sequencers: Sequence[Part]) -> bool:
    """Whether the sequencer that the view names for a log says that it serves the term."""
    return any(
        part.up
        and part.name == installed["sequencer"]
        and (part.status.get("term") or {}).get("term") == installed["term"]
        for part in sequencers
    )


class LogPlace(NamedTuple):
    """How far an engine is in one log."""

    log: int
    term: int
    """The newest one that it knows; 0: none."""
    end_pos: int
    """Positions of that term that it has indexed; a sequencer's `end_pos` is as many, when nothing lags."""
    seqnum: int
    """Up to which the log is indexed, perhaps in an earlier term; 0: nothing is."""
    lag_entries: int | None
    """Metalog entries of that term that it has not indexed; None: not known."""
    shard: dict[str, Any] | None


def places_of(engine: Part, sequencers: Sequence[Part]) -> list[LogPlace]:
    """How far an engine is in each of its logs. One of an earlier version speaks of one log only."""
    status = engine.status
    logs = status.get("logs") or ([status] if "term" in status else [])
    return [_place(one, sequencers) for one in logs]


def _place(status: dict[str, Any], sequencers: Sequence[Part]) -> LogPlace:
    seqnum = int(status.get("seqnum") or 0)
    term = int(status.get("term") or 0)
    end_pos = ids.pos_of(seqnum) + 1 if seqnum and ids.term_of(seqnum) == term else 0
    lag = _lag(status, term, sequencers)
    return LogPlace(int(status.get("log") or 0), term, end_pos, seqnum, lag, status.get("shard"))


def _lag(status: dict[str, Any], term: int, sequencers: Sequence[Part]) -> int | None:
    """Entries of the term that its sequencer has and the engine has not indexed; else what the engine knows itself."""
    for sequencer in sequencers:
        serving = sequencer.status.get("term") or {}
        if term and serving.get("term") == term:
            position = status.get("position") or {}
            indexed = int(position.get("indexed_entry") or 0) if position.get("indexed_term", term) == term else 0
            return max(0, int(serving["entries"]) - indexed)
    lag = status.get("lag_entries")
    return None if lag is None else int(lag)


def lag_entries(engine: Part, sequencers: Sequence[Part]) -> int | None:
    """The lags of all logs of an engine together; None: one is not known."""
    lags = [place.lag_entries for place in places_of(engine, sequencers)]
    return None if None in lags or not lags else sum(lag or 0 for lag in lags)


def engine_addresses(url: str) -> list[Address]:
    """The engines of a URL. Raises InvalidArgument."""
    if not url.strip().startswith(("boki://", "unix://")):
        raise InvalidArgument(f"expected boki://host:port or unix:///path, found {url!r}", found=url)
    addresses = []
    for part in url.split(","):
        text = part.strip().removeprefix("boki://").removesuffix("/")
        if "://" in text and not text.startswith("unix://"):
            raise InvalidArgument(f"expected boki://host:port or unix:///path, found {part!r} in {url!r}", found=url)
        if not text.startswith("unix://") and (":" not in text or text.endswith("]")):
            text = f"{text}:{DEFAULT_PORT}"
        addresses.append(Address.parse(text))
    return addresses


async def gather(url: str, store: MetadataStore | None, *, timeout_s: float) -> ClusterStatus:
    """Asks all parts at once. Raises only what reading the metadata store raises."""
    engines = [(str(address), address) for address in engine_addresses(url)]
    if store is None:
        return ClusterStatus(engines=await _all([_engine(name, one, timeout_s) for name, one in engines]))
    known = {address for _, address in engines}
    for name, member in (await members(store, ENGINE_ROLE)).items():
        addresses = [Address.parse(text) for text in member.get("addresses", ())]
        if addresses and not known.intersection(addresses):
            engines.append((name, addresses[0]))
    sequencers = await members(store, SEQUENCER_ROLE)
    controllers = await members(store, CONTROLLER_ROLE)
    view = await _view(store)
    bookies = [
        (bookie_id, read_only)
        for read_only in (False, True)
        for bookie_id in await layout.available_bookies(store, read_only=read_only)
    ]
    found = await asyncio.gather(
        _all([_engine(name, one, timeout_s) for name, one in engines]),
        _all([_member("sequencer", name, member, timeout_s) for name, member in sequencers.items()]),
        _all([_bookie(store, name, timeout_s, read_only=read_only) for name, read_only in bookies]),
        _all([_member("controller", name, member, timeout_s) for name, member in controllers.items()]),
    )
    asked_engines, asked_sequencers, asked_bookies, asked_controllers = found
    return ClusterStatus(asked_engines, asked_sequencers, asked_bookies, view, asked_controllers)


async def _all(asked: Sequence[Any]) -> list[Part]:
    return list(await asyncio.gather(*asked))


async def _view(store: MetadataStore) -> dict[str, Any]:
    view = (await read_view(store)).view
    shown: dict[str, Any] = msgspec.to_builtins(view, str_keys=True)
    return shown


async def _engine(name: str, address: Address, timeout_s: float) -> Part:
    hello = msgspec.msgpack.encode({"versions": [engine_protocol.PROTOCOL_VERSION], "features": [], "auth": None})
    part = Part("engine", str(address), False, name)
    await _ask(part, address, engine_protocol.OP_HELLO, hello, engine_protocol.OP_STATUS, timeout_s)
    return part


async def _member(role: str, name: str, member: Mapping[str, Any], timeout_s: float) -> Part:
    """A sequencer or a controller: both answer HELLO and STATUS alike."""
    address = Address.parse(str(member["address"]))
    part = Part(role, str(address), False, name)
    hello = sequencer_protocol.encode_hello(())
    await _ask(part, address, sequencer_protocol.OP_HELLO, hello, sequencer_protocol.OP_STATUS, timeout_s)
    return part


class _Listener:
    """A caller that gets no pushes it wants; its calls hear of a lost connection by themselves."""

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        """Answers of the engine to nobody in particular."""

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        """The call under way fails."""


async def _ask(part: Part, address: Address, hello: int, body: bytes, status: int, timeout_s: float) -> None:
    try:
        peer = await connect_messages(address, _Listener(), timeout_s=timeout_s)
        try:
            await peer.call(hello, body, timeout_s=timeout_s)
            part.status = msgspec.json.decode(await peer.call(status, timeout_s=timeout_s), type=dict[str, Any])
            part.up = True
        finally:
            peer.close()
    except BokiError as error:
        part.problem = str(error)


class _Nobody:
    def frames_received(self, frames: list[memoryview]) -> None:
        """A bookie says nothing unasked."""

    def connection_lost(self, error: BokiError | None) -> None:
        """That it could be reached is all we wanted to know."""


async def _bookie(store: MetadataStore, name: str, timeout_s: float, *, read_only: bool) -> Part:
    part = Part("bookie", "", False, name, status={"read_only": read_only})

    def handler(_: FrameConnection) -> _Nobody:
        return _Nobody()

    try:
        address = await layout.bookie_address(store, name)
        part.address = str(address)
        connection = await connect(address, handler, timeout_s=timeout_s)
        connection.close()
        part.up = True
    except BokiError as error:
        part.problem = str(error)
    return part
