"""Asks every part of a cluster how it is, at once and directly.

Engines are asked at the URL; with a metadata store also the engines, sequencers and bookies that are listed there, and
those that are expected and not listed: bookies by their cookies, other roles by their registrations. Being listed is a hint and
an answer is the fact, so each part is `up` only if it answered; what did not is in the result too, with the reason. It knows
nothing of how the result is shown; what it means is in `cluster_facts` and `cluster_faults`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from boki_cli.facts.cluster_facts import ClusterStatus, LedgerCopies, LogPlace, Part, is_served, lag_entries, places_of
from boki_cli.facts.cluster_faults import clock_warnings, faults_of
from boki_common.bookkeeper import auth, layout, ledger_metadata, v2
from boki_common.bookkeeper.auth import AuthMessage
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.engine import engine_protocol
from boki_common.engine.engine_url import split_options
from boki_common.errors import DECODE_FAULTS, BokiError, ConnectionLost, CorruptData, InvalidArgument, NoNode
from boki_common.metadata.membership import members
from boki_common.metadata.registered import registrations
from boki_common.metadata.store import MetadataStore
from boki_common.net.connection import Address, FrameConnection, connect
from boki_common.net.messages import MessagePeer, connect_messages
from boki_common.runtime.process import SystemClock
from boki_metalog.control.controller import CONTROLLER_ROLE
from boki_metalog.entries import sequencer_protocol
from boki_metalog.entries.permissions import PARTICIPANT
from boki_metalog.terms.metadata_tree import SEQUENCER_ROLE, read_view

__all__ = [
    "ClusterStatus",
    "LogPlace",
    "Part",
    "clock_warnings",
    "engine_addresses",
    "faults_of",
    "gather",
    "is_here",
    "is_served",
    "lag_entries",
    "metadata_nearby",
    "places_of",
]

ENGINE_ROLE: Final = "engine"
DEFAULT_PORT: Final = 7040
SQLITE: Final = "sqlite://"


def metadata_nearby(found: ClusterStatus) -> str:
    """The metadata store that an engine names, if this machine can reach it; a SQLite file may be another machine's.

    It looks at the disk: not for an event loop.
    """
    for engine in found.engines:
        uri = str(engine.status.get("metadata", ""))
        if uri and is_here(uri):
            return uri
    return ""


def is_here(metadata: str) -> bool:
    """Whether this machine has what a metadata address names; of what is not a file, nothing is known."""
    return not metadata.startswith(SQLITE) or Path(metadata.removeprefix(SQLITE)).is_file()


def engine_addresses(url: str) -> list[Address]:
    """The engines of a URL. Raises InvalidArgument."""
    if not url.strip().startswith(("boki://", "unix://")):
        raise InvalidArgument(f"expected boki://host:port or unix:///path, found {url!r}", found=url)
    addresses = []
    for part in split_options(url).engines.split(","):
        text = part.strip().removeprefix("boki://").removesuffix("/")
        if "://" in text and not text.startswith("unix://"):
            raise InvalidArgument(f"expected boki://host:port or unix:///path, found {part!r} in {url!r}", found=url)
        if not text.startswith("unix://") and (":" not in text or text.endswith("]")):
            text = f"{text}:{DEFAULT_PORT}"
        addresses.append(Address.parse(text))
    return addresses


class _How(NamedTuple):
    timeout_s: float
    token: ClusterToken


async def gather(
    url: str,
    store: MetadataStore | None,
    *,
    timeout_s: float,
    token: ClusterToken = NO_TOKEN,
    url_is_usual: bool = False,
) -> ClusterStatus:
    """Ask all parts at once, and show them the token. Raises only what reading the metadata store raises.

    Args:
        url_is_usual: nobody named the URL, so an engine that does not answer there is a part only if the store knows it.
    """
    how = _How(timeout_s, token)
    engines = [(str(address), address) for address in engine_addresses(url)]
    if store is None:
        return ClusterStatus(engines=await _engines(engines, how))
    listed: set[Address] = set()
    engines += await _others(store, {address for _, address in engines}, listed)
    sequencers, controllers = await members(store, SEQUENCER_ROLE), await members(store, CONTROLLER_ROLE)
    view = await _view(store)
    found = await asyncio.gather(
        _engines(engines, how),
        _members(SEQUENCER_ROLE, sequencers, how),
        _bookies(store, how),
        _members(CONTROLLER_ROLE, controllers, how),
    )
    status = ClusterStatus(*found[:3], view, found[3])
    await _add_absent(status.engines, store, ENGINE_ROLE, listed, how)
    status.engines = _each_once(status.engines)
    if url_is_usual:
        unknown = {str(address) for address in engine_addresses(url)} - await _expected(store, listed)
        status.engines = [part for part in status.engines if part.up or part.address not in unknown]
    await _add_absent(status.sequencers, store, SEQUENCER_ROLE, _addresses(sequencers), how)
    await _add_absent(status.controllers, store, CONTROLLER_ROLE, _addresses(controllers), how)
    status.ledgers = await _written_ledgers(store, status)
    return status


async def _expected(store: MetadataStore, listed: Set[Address]) -> set[str]:
    """Return the addresses of engines that the cluster has: those that are listed, and those that were not stopped."""
    registered = (await registrations(store, ENGINE_ROLE)).values()
    return {str(address) for address in (*listed, *(Address.parse(one.address) for one in registered))}


def _each_once(engines: Sequence[Part]) -> list[Part]:
    """Remove an engine that was asked at two of its addresses: at the one of the URL, and at the one that is listed."""
    found: dict[object, Part] = {}
    for part in engines:
        found.setdefault(part.status.get("incarnation") or part.address, part)
    return list(found.values())


async def engines_of(store: MetadataStore, *, timeout_s: float, token: ClusterToken = NO_TOKEN) -> list[Part]:
    """All engines that are listed, or expected, asked for what they say of themselves. Raises as `gather`."""
    how = _How(timeout_s, token)
    listed: set[Address] = set()
    found = await _engines(await _others(store, set(), listed), how)
    await _add_absent(found, store, ENGINE_ROLE, listed, how)
    return found


async def controllers_of(store: MetadataStore, *, timeout_s: float, token: ClusterToken = NO_TOKEN) -> list[Part]:
    """All controllers that are listed, asked for what they say of themselves. Raises as `gather`."""
    return await _members(CONTROLLER_ROLE, await members(store, CONTROLLER_ROLE), _How(timeout_s, token))


async def _others(store: MetadataStore, known: Set[Address], listed: set[Address]) -> list[tuple[str, Address]]:
    """The engines that are listed and not known, by one address each; `listed` gets all addresses of all that are."""
    found = []
    for name, member in (await members(store, ENGINE_ROLE)).items():
        addresses = [Address.parse(text) for text in member.get("addresses", ())]
        if addresses and not known & set(addresses):
            found.append((name, addresses[0]))
        listed.update(addresses)
    return found


async def _engines(found: Sequence[tuple[str, Address]], how: _How) -> list[Part]:
    return await _all([_member(ENGINE_ROLE, name, one, how) for name, one in found])


async def _members(role: str, listed: Mapping[str, Mapping[str, Any]], how: _How) -> list[Part]:
    return await _all(
        [_member(role, name, Address.parse(str(member["address"])), how) for name, member in listed.items()]
    )


def _addresses(listed: Mapping[str, Mapping[str, Any]]) -> set[Address]:
    return {Address.parse(str(member["address"])) for member in listed.values()}


async def _add_absent(parts: list[Part], store: MetadataStore, role: str, listed: Set[Address], how: _How) -> None:
    """Adds the roles that are expected and not listed. One that was asked already, since it is in the URL, is there once."""
    expected = (await registrations(store, role)).values()
    missing = {str(Address.parse(one.address)): one for one in expected if Address.parse(one.address) not in listed}
    asked = {part.address for part in parts}
    unasked = [(address, one.place) for address, one in missing.items() if address not in asked]
    parts += await _all([_member(role, place, Address.parse(address), how) for address, place in unasked])
    for part in parts:
        if not part.up and part.address in missing:
            place = missing[part.address].place
            part.problem += f" It ended without being stopped: start it again, or if it is gone for good, `boki forget {role} {place}`"


async def _bookies(store: MetadataStore, how: _How) -> list[Part]:
    """Those that are registered, and those that have a cookie and are not."""
    listed = [
        (bookie_id, read_only)
        for read_only in (False, True)
        for bookie_id in await layout.available_bookies(store, read_only=read_only)
    ]
    parts = await _all([_bookie(store, name, how, read_only=read_only) for name, read_only in listed])
    there = {name for name, _ in listed}
    return parts + [await _lost_bookie(store, name) for name in await layout.bookie_cookies(store) if name not in there]


async def _lost_bookie(store: MetadataStore, name: str) -> Part:
    where = ""
    try:
        cookie = layout.decode_cookie((await store.get(layout.cookie_path(name))).value)
        where = f" (its data: {cookie.journal_dir})"
    except (NoNode, CorruptData):
        pass  # retired meanwhile, or the note cannot be read: its name says enough
    problem = (
        f"it is not registered{where}. Start it again; if its disk is gone for good, start it there with --replace-lost-disk, or "
        f"`boki forget bookie {name}`"
    )
    return Part("bookie", "", False, name, problem)


async def _written_ledgers(store: MetadataStore, found: ClusterStatus) -> list[LedgerCopies]:
    """The metalogs of the terms of now, and the shards of engines that are up, with where their newest entries go."""
    assert found.view is not None
    written: list[tuple[int, str, int, int]] = []
    for log, installed in sorted(found.view["logs"].items(), key=lambda one: int(one[0])):
        if installed is not None:
            wanted = [part.status.get("replicas") for part in found.sequencers if part.name == installed["sequencer"]]
            written.append(
                (installed["metalog_ledger"], f"metalog of log {log}", int(log), int((wanted or [0])[0] or 0))
            )
    for engine in found.engines:
        for place in places_of(engine, ()) if engine.up else ():
            if place.shard:
                what = f"shard {place.shard['number']} of log {place.log}, of engine {engine.address}"
                written.append((place.shard["ledger_id"], what, place.log, int(engine.status.get("replicas") or 0)))
    return [one for one in [await _copies(store, *ledger) for ledger in written] if one is not None]


async def _copies(store: MetadataStore, ledger_id: int, what: str, log: int, wanted: int) -> LedgerCopies | None:
    """None: it is gone meanwhile."""
    path = layout.ledger_path(ledger_id, await layout.read_layout(store))
    try:
        metadata = ledger_metadata.decode((await store.get(path)).value)
    except NoNode:
        return None
    except BokiError as error:
        return LedgerCopies(ledger_id, what, log, wanted, [], str(error))
    return LedgerCopies(ledger_id, what, log, wanted, [str(bookie) for bookie in metadata.ensembles[-1][1]])


async def _all(asked: Sequence[Any]) -> list[Part]:
    return list(await asyncio.gather(*asked))


async def _view(store: MetadataStore) -> dict[str, Any]:
    view = (await read_view(store)).view
    shown: dict[str, Any] = msgspec.to_builtins(view, str_keys=True)
    return shown


async def _member(role: str, name: str, address: Address, how: _How) -> Part:
    """An engine, a sequencer or a controller: all answer HELLO and STATUS alike."""
    part = Part(role, str(address), False, name)
    if role == ENGINE_ROLE:
        parameters = {"versions": [engine_protocol.PROTOCOL_VERSION], "features": [], "auth": how.token.shown}
        hello = msgspec.msgpack.encode(parameters | {"role": engine_protocol.ROLE_SDK})
        opcodes = engine_protocol.OP_HELLO, engine_protocol.OP_STATUS
    else:
        hello = sequencer_protocol.encode_hello(token=how.token, role=PARTICIPANT)
        opcodes = sequencer_protocol.OP_HELLO, sequencer_protocol.OP_STATUS
    await _ask(part, address, hello, *opcodes, how.timeout_s)
    return part


class _Listener:
    """A caller that wants no pushes; its calls fail by themselves when the connection is lost."""

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        """Answers of the engine to nobody in particular."""

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        """The call under way fails."""


async def _ask(part: Part, address: Address, body: bytes, hello: int, status: int, timeout_s: float) -> None:
    try:
        peer = await connect_messages(address, _Listener(), timeout_s=timeout_s)
        try:
            await peer.call(hello, body, timeout_s=timeout_s)
            asked_ms = SystemClock().now_ms()
            part.status = msgspec.json.decode(await peer.call(status, timeout_s=timeout_s), type=dict[str, Any])
            part.asked_ms, part.received_ms = asked_ms, SystemClock().now_ms()
            part.up = True
        finally:
            peer.close()
    except DECODE_FAULTS as error:
        part.problem = f"its status cannot be read: {error}"
    except BokiError as error:
        part.problem = str(error)


class _Asked:
    """Takes what a bookie answers to a greeting."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[AuthMessage] = asyncio.get_running_loop().create_future()

    def frames_received(self, frames: list[memoryview]) -> None:
        if not self.answer.done():
            self.answer.set_result(v2.decode_auth(frames[0]))

    def connection_lost(self, error: BokiError | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(error or ConnectionLost("it hung up"))
            self.answer.exception()  # that it could be reached is what was asked first


async def _bookie(store: MetadataStore, name: str, how: _How, *, read_only: bool) -> Part:
    """It is up if it can be reached; its answer to the token, or to its id, shows whether it asks for one."""
    part = Part("bookie", "", False, name, status={"read_only": read_only})
    asked = _Asked()

    def handler(_: FrameConnection) -> _Asked:
        return asked

    try:
        address = await layout.bookie_address(store, name)
        part.address = str(address)
        connection = await connect(address, handler, timeout_s=how.timeout_s)
        part.up = True
        shown = how.token.shown
        connection.send(v2.encode_auth(auth.greeting(name) if shown is None else auth.credential(shown)))
        try:
            async with asyncio.timeout(how.timeout_s):
                answered = await asked.answer
            part.status["asks_for_token"] = answered.plugin == auth.TOKEN
            part.problem = auth.refused(answered)
            part.up = not part.problem
        except (BokiError, TimeoutError):
            pass  # it does not say: a bookie of Apache's with an authentication of its own, say
        finally:
            connection.close()
    except BokiError as error:
        part.problem = str(error)
    return part
