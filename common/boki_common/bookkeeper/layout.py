"""Where Apache BookKeeper keeps what in the metadata store, and what it writes there.

    /ledgers/LAYOUT                       "2\\n<class of the layout>:1"
             INSTANCEID                   a random UUID: which cluster this is
             available/<bookie>           ephemeral: BookieServiceInfoFormat (host, port)
             available/readonly/<bookie>  the same, of a bookie that takes no writes
             cookies/<bookie>             "5\\n" and CookieFormat as protobuf text: the bookie's identity, as on its disk
             idgen, idgen-long            where ledger ids come from, see `ledger_ids`
             00/0000/L0000                LedgerMetadata of ledger 0; ids from 2^31 - 1 on: 000/0000/0021/4748/L3647
             000/0000/0000/0000/L0000     the same where LAYOUT says long hierarchical: every id has the long path

A cookie of ours opens with a comment (`OUR_MARK`), which Apache's programs skip: it says that the bookie answers a fence
only once it is durable, and that its id is a disk's, never used again. Whoever lacks the mark promises neither. The comment
after it says which start of the bookie was the last one (`CookieLife`); cookies of earlier versions have none.

A bookie's id is whatever names it: Apache's default is `host:port`, ours is made when its disk is formatted, a UUID. The
address to connect to is that of its registration; an id that is an address needs none.

It knows paths and values, not who writes them when.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from google.protobuf import message, text_format

from boki_common.bookkeeper.data_formats_pb2 import BookieServiceInfoFormat, CookieFormat
from boki_common.errors import (
    CorruptData,
    InvalidArgument,
    MetadataUnavailable,
    NodeExists,
    NoNode,
    SettingsError,
)
from boki_common.ids import BookieId, LedgerId
from boki_common.metadata.membership import Membership
from boki_common.metadata.settle import create_settled
from boki_common.metadata.store import MetadataStore, ensure_path, names_below
from boki_common.net.connection import Address
from boki_common.runtime.ports import Random
from boki_common.runtime.process import SystemRandom

LEDGERS: Final = "/ledgers"
LAYOUT: Final = f"{LEDGERS}/LAYOUT"
INSTANCE_ID: Final = f"{LEDGERS}/INSTANCEID"
AVAILABLE: Final = f"{LEDGERS}/available"
READ_ONLY_NAME: Final = "readonly"
READ_ONLY: Final = f"{AVAILABLE}/{READ_ONLY_NAME}"
COOKIES: Final = f"{LEDGERS}/cookies"
ID_GENERATOR: Final = f"{LEDGERS}/idgen"

COOKIE_VERSION: Final = 5
OUR_MARK: Final = b"# boki: fences are durable before they are answered, and the id names a disk\n"
"""Directly after the version of a cookie: a comment of protobuf text."""
LIFE_MARK: Final = b"# boki: life "
"""Directly after `OUR_MARK`: number, token and checkpoints, as `12 3f9c0a… 17,22`."""
SHORT_IDS: Final = 2**31 - 1
"""Ids below this have the short path where the layout knows one, and `idgen` gives no other."""
LEDGER_ID_MAX: Final = 2**63 - 1
CREATE_ATTEMPTS: Final = 16

_ENDPOINT_ID: Final = "bookie"
_ENDPOINT_PROTOCOL: Final = "bookie-rpc"
_LEVEL: Final = re.compile(r"[0-9]{4}")
_TOP_LEVEL: Final = re.compile(r"[0-9]{2,3}")
_LEAF: Final = re.compile(r"L[0-9]{4}")
_LIFE: Final = re.compile(rb"([0-9]{1,18}) ([0-9a-f]{1,64})(?: ([0-9]{1,18}(?:,[0-9]{1,18})*))?")


class LedgerLayout(enum.Enum):
    """How ledger ids become paths; the value is the content of LAYOUT."""

    HIERARCHICAL = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
    LONG_HIERARCHICAL = b"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1"

    def path(self, ledger_id: int) -> str:
        """The node of a ledger's metadata."""
        assert 0 <= ledger_id <= LEDGER_ID_MAX, ledger_id
        if ledger_id < SHORT_IDS and self is LedgerLayout.HIERARCHICAL:
            digits = f"{ledger_id:010d}"
            return f"{LEDGERS}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
        digits = f"{ledger_id:019d}"
        return f"{LEDGERS}/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"

    def ledger_of(self, path: str) -> LedgerId | None:
        """The ledger whose metadata is at `path`; None when it is no such path."""
        digits = path.removeprefix(LEDGERS).replace("/", "").replace("L", "")
        if not digits.isascii() or not digits.isdigit() or int(digits) > LEDGER_ID_MAX:
            return None
        ledger_id = LedgerId(int(digits))
        return ledger_id if self.path(ledger_id) == path else None


class CookieLife(NamedTuple):
    """The last start of a bookie, as its cookie has it (`boki_bookie.begin.life_rules` says what for)."""

    number: int
    """Of the start, from 1."""
    token: str
    """Random, of this start alone."""
    checkpoints: tuple[int, ...] = ()
    """Number of a checkpoint of each directory, in order: those on the disk are not older."""


@dataclass(frozen=True, slots=True)
class Cookie:
    """The identity of a bookie, kept on its disk and in the metadata store; they must agree."""

    bookie_id: BookieId
    journal_dir: str
    ledger_dirs: tuple[str, ...]
    instance_id: str | None = None
    index_dirs: str | None = None
    """As Apache writes it; ours have none."""
    ours: bool = False
    """Whether it has our mark, see the module."""
    life: CookieLife | None = None
    """Only with our mark."""


async def init_cluster(
    store: MetadataStore, *, rng: Random | None = None, layout: LedgerLayout = LedgerLayout.HIERARCHICAL
) -> str:
    """Makes the folders, INSTANCEID and LAYOUT unless they are there. May run in many processes at once.

    Args:
        store: started.
        rng: for the instance id; the system's when not given.
        layout: of a new cluster; one that is there keeps its own.

    Returns:
        The instance id.

    Raises:
        SettingsError: the store holds a cluster of a layout that is none of ours.
    """
    for folder in (READ_ONLY, COOKIES, ID_GENERATOR):
        await ensure_path(store, folder)
    instance = random_uuid(rng if rng is not None else SystemRandom())
    for path, value in ((INSTANCE_ID, instance.encode()), (LAYOUT, layout.value)):
        try:
            await create_settled(store, path, value)
        except NodeExists:
            continue  # another process, or an earlier start, made it
    await read_layout(store)
    return await instance_id(store)


async def instance_id(store: MetadataStore) -> str:
    """The random UUID of the cluster. Raises NoNode before `init_cluster`."""
    return (await store.get(INSTANCE_ID)).value.decode(errors="replace")


async def read_layout(store: MetadataStore) -> LedgerLayout:
    """The layout of the cluster; before `init_cluster` the one that is made by default. Raises SettingsError: it is neither
    hierarchical nor long hierarchical."""
    try:
        found = (await store.get(LAYOUT)).value
    except NoNode:
        return LedgerLayout.HIERARCHICAL
    try:
        return LedgerLayout(found)
    except ValueError:
        raise SettingsError(
            f"expected the hierarchical or the long hierarchical layout in {LAYOUT}, found {found!r}: this cluster keeps "
            "its ledgers in another layout, use a chroot of its own for Boki"
        ) from None


def ledger_path(ledger_id: int, layout: LedgerLayout = LedgerLayout.HIERARCHICAL) -> str:
    """The node of a ledger's metadata."""
    return layout.path(ledger_id)


async def list_ledgers(store: MetadataStore) -> list[LedgerId]:
    """The ids of all ledgers, ascending. Those made or deleted meanwhile may or may not be in it."""
    layout = await read_layout(store)
    found: list[LedgerId] = []
    for top in await names_below(store, LEDGERS):
        if _TOP_LEVEL.fullmatch(top):
            depth = 1 if len(top) == 2 else 3
            await _collect(store, layout, f"{LEDGERS}/{top}", depth, found)
    return sorted(found)


async def _collect(store: MetadataStore, layout: LedgerLayout, folder: str, depth: int, found: list[LedgerId]) -> None:
    """Adds the ledgers below `folder`, whose leaves are `depth` folders further down."""
    for name in await names_below(store, folder):
        path = f"{folder}/{name}"
        if depth and _LEVEL.fullmatch(name):
            await _collect(store, layout, path, depth - 1, found)
        elif not depth and _LEAF.fullmatch(name):
            ledger_id = layout.ledger_of(path)
            if ledger_id is not None:
                found.append(ledger_id)


async def create_ledger(
    store: MetadataStore, ledger_id: int, value: bytes, layout: LedgerLayout = LedgerLayout.HIERARCHICAL
) -> None:
    """Makes the node of a new ledger, with its folders. `value` must contain an owner token (`settle.create_settled`). Raises
    NodeExists: the id is taken; MetadataUnavailable: nothing was made; MetadataUnknown: it may have been."""
    path = layout.path(ledger_id)
    for _attempt in range(CREATE_ATTEMPTS):
        try:
            return await create_settled(store, path, value)
        except NoNode:
            # No folder yet, or Apache's deletion of the last ledger in it has just taken it away.
            await ensure_path(store, path.rpartition("/")[0])
    raise MetadataUnavailable(f"the folder of {path} vanished {CREATE_ATTEMPTS} times", path=path)


def bookie_path(bookie_id: str, *, read_only: bool = False) -> str:
    return f"{READ_ONLY if read_only else AVAILABLE}/{bookie_id}"


async def register_bookie(
    store: MetadataStore, bookie_id: str, service: Address, *, read_only: bool = False
) -> Membership:
    """Says that the bookie is up at an address, until `leave` or the end of the session. Raises NodeExists: a process
    registered under this id did not vanish in time."""
    path = bookie_path(bookie_id, read_only=read_only)
    return await Membership.join(store, path, encode_bookie_service(service))


async def available_bookies(store: MetadataStore, *, read_only: bool = False) -> list[BookieId]:
    """The ids of the registered bookies that take writes (or of those that do not), sorted."""
    names = await names_below(store, READ_ONLY if read_only else AVAILABLE)
    return [BookieId(name) for name in names if name != READ_ONLY_NAME]


async def bookie_cookies(store: MetadataStore) -> list[BookieId]:
    """The ids of all bookies that were formatted for this cluster and not retired, sorted."""
    return [BookieId(name) for name in await names_below(store, COOKIES)]


async def bookie_address(store: MetadataStore, bookie_id: str) -> Address:
    """Where a bookie listens. Raises NoNode: it is not registered and its id is no host:port. CorruptData."""
    for read_only in (False, True):
        try:
            value = (await store.get(bookie_path(bookie_id, read_only=read_only))).value
        except NoNode:
            continue
        return decode_bookie_address(bookie_id, value)
    try:
        return Address.parse(bookie_id)
    except InvalidArgument:
        raise NoNode(f"bookie {bookie_id} is not registered under {AVAILABLE}: is it up?", path=AVAILABLE) from None


def encode_bookie_service(service: Address) -> bytes:
    """The value of `available/<bookie>`."""
    assert service.host and 0 < service.port < 65_536, service
    endpoint = BookieServiceInfoFormat.Endpoint(
        id=_ENDPOINT_ID, port=service.port, host=service.host, protocol=_ENDPOINT_PROTOCOL
    )
    return BookieServiceInfoFormat(endpoints=[endpoint]).SerializeToString()


def decode_bookie_service(value: bytes) -> Address:
    """Raises CorruptData: no BookieServiceInfoFormat, or one without an endpoint of the bookie protocol."""
    data = BookieServiceInfoFormat()
    try:
        data.ParseFromString(value)
    except message.DecodeError as error:
        raise CorruptData(f"expected a BookieServiceInfoFormat, found {value[:100]!r}: {error}") from error
    for endpoint in data.endpoints:
        if endpoint.protocol == _ENDPOINT_PROTOCOL:
            if not endpoint.host or not 0 < endpoint.port < 65_536:
                raise CorruptData(f"expected the host and port of a bookie, found {endpoint.host!r}, {endpoint.port}")
            return Address(endpoint.host, endpoint.port)
    kinds = [endpoint.protocol for endpoint in data.endpoints]
    raise CorruptData(f"expected an endpoint of protocol {_ENDPOINT_PROTOCOL}, found {kinds}")


def decode_bookie_address(bookie_id: str, value: bytes) -> Address:
    """The address in a registration; bookies before Apache's 4.11 register an empty value under host:port. Raises CorruptData:
    the value is no BookieServiceInfoFormat, or is empty while the id is no host:port."""
    if value:
        return decode_bookie_service(value)
    try:
        return Address.parse(bookie_id)
    except InvalidArgument as error:
        raise CorruptData(f"bookie {bookie_id} registered no address, and its id is none: {error}") from error


def cookie_path(bookie_id: str) -> str:
    return f"{COOKIES}/{bookie_id}"


def encode_cookie(cookie: Cookie) -> bytes:
    """The value of `cookies/<bookie>` and of the file VERSION on a disk."""
    data = CookieFormat(
        bookieHost=cookie.bookie_id,
        journalDir=cookie.journal_dir,
        ledgerDirs="\t".join((str(len(cookie.ledger_dirs)), *cookie.ledger_dirs)),
        instanceId=cookie.instance_id,
        indexDirs=cookie.index_dirs,
    )
    mark = OUR_MARK + _encode_life(cookie.life) if cookie.ours else b""
    return b"%d\n" % COOKIE_VERSION + mark + text_format.MessageToString(data).encode()


def decode_cookie(value: bytes) -> Cookie:
    """Raises CorruptData."""
    version, _separator, text = value.partition(b"\n")
    if version != b"%d" % COOKIE_VERSION:
        raise CorruptData(f"expected a cookie of version {COOKIE_VERSION}, found {version[:20]!r}")
    data = CookieFormat()
    try:
        text_format.Parse(text.decode(), data)
    except (UnicodeDecodeError, text_format.ParseError) as error:
        raise CorruptData(f"expected a CookieFormat, found {text[:200]!r}: {error}") from error
    count, *folders = data.ledgerDirs.split("\t")
    if not data.IsInitialized() or count != str(len(folders)):
        raise CorruptData(f"expected a whole CookieFormat, found {text[:200]!r}")
    return Cookie(
        bookie_id=BookieId(data.bookieHost),
        journal_dir=data.journalDir,
        ledger_dirs=tuple(folders),
        instance_id=data.instanceId if data.HasField("instanceId") else None,
        index_dirs=data.indexDirs if data.HasField("indexDirs") else None,
        ours=text.startswith(OUR_MARK),
        life=_decode_life(text) if text.startswith(OUR_MARK + LIFE_MARK) else None,
    )


def _encode_life(life: CookieLife | None) -> bytes:
    if life is None:
        return b""
    checkpoints = ",".join(map(str, life.checkpoints))
    return LIFE_MARK + f"{life.number} {life.token} {checkpoints}".rstrip().encode() + b"\n"


def _decode_life(text: bytes) -> CookieLife:
    line = text[len(OUR_MARK) + len(LIFE_MARK) :].partition(b"\n")[0]
    found = _LIFE.fullmatch(line)
    if found is None:
        raise CorruptData(f"expected number, token and checkpoints of a bookie's life, found {line[:100]!r}")
    checkpoints = found[3].split(b",") if found[3] else []
    return CookieLife(int(found[1]), found[2].decode(), tuple(map(int, checkpoints)))


def random_uuid(rng: Random) -> str:
    """A UUID of version 4 (RFC 9562)."""
    raw = bytearray(rng.token(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
