"""Who a bookie is: an id made when its directory was formatted, kept in the directory and, as a cookie, in the metadata.

The id names the disk, not the machine or the address: a bookie that lost its disk lost its promises (entries, fences), so
what starts on a new disk is another bookie. That is what lets a bookie say "never had" and be believed.

| directory | cookie in the metadata | at start |
|---|---|---|
| empty | none names this host and directory | formatted as a new bookie |
| empty | one names them | WrongDirectory: the disk was wiped; with `replace_lost_disk` a new bookie, the old cookie is deleted |
| files, no `identity` | any | WrongDirectory: not ours, or incomplete |
| `identity`, still formatting | any | it never served: formatted again under the same id |
| `identity` | agrees | started; the cookie learns of a new host or directory |
| `identity` | absent, or another INSTANCEID | WrongDirectory: of another cluster, or retired |

The file `identity` is one JSON object: version 1, state (formatting or ready), bookie_id, instance_id, place. The place,
`host:directory`, is a note for people and for the second row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Literal, NamedTuple

import msgspec

from boki_bookie.checkpoint import INDEX_FOLDER
from boki_bookie.entry_log import FOLDER as ENTRIES_FOLDER
from boki_bookie.journal_segments import FOLDER as JOURNAL_FOLDER
from boki_common.bookkeeper.layout import (
    COOKIES,
    Cookie,
    cookie_path,
    decode_cookie,
    encode_cookie,
    init_cluster,
    random_uuid,
)
from boki_common.errors import BadVersion, CorruptData, NodeExists, NoNode, VersionMismatch, WrongDirectory
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.metadata.settle import create_settled
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.ports import Disk, Random

IDENTITY_NAME: Final = "identity"
FORMAT_VERSION: Final = 1
_FOLDERS: Final = ("", ENTRIES_FOLDER, INDEX_FOLDER, JOURNAL_FOLDER)

_log = get_logger("bookie")

Format = Callable[[bytes], Awaitable[None]]
"""Lays down an empty store for the bookie with these 16 bytes."""


class _IdentityFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    state: Literal["formatting", "ready"]
    bookie_id: str
    instance_id: str
    place: str


class Identity(NamedTuple):
    """A bookie that may start."""

    bookie_id: BookieId
    instance_id: str
    place: str

    @property
    def raw(self) -> bytes:
        """The id's 16 bytes, as they are in the headers of files."""
        return bytes.fromhex(self.bookie_id.replace("-", ""))


async def establish(
    disk: Disk, metadata: MetadataStore, *, host: str, rng: Random, replace_lost_disk: bool, format_store: Format
) -> Identity:
    """Applies the table above; the directory must be locked.

    Raises:
        WrongDirectory: and what to do about it. CorruptData, VersionMismatch: the file `identity` is damaged or newer.
    """
    instance_id = await init_cluster(metadata, rng=rng)
    place = f"{host}:{disk.describe()}"
    if await disk.exists(IDENTITY_NAME):
        found = await _read(disk)
        if found.state == "formatting":
            return await _format(disk, metadata, Identity(BookieId(found.bookie_id), instance_id, place), format_store)
        await _check(disk, metadata, found, instance_id, place)
        return Identity(BookieId(found.bookie_id), instance_id, place)
    await _refuse_files(disk)
    lost = await _cookies_of(metadata, place)
    if lost and not replace_lost_disk:
        raise WrongDirectory(
            f"{disk.describe()} is empty, yet the metadata knows a bookie there: expected the files of {lost[0]}, found "
            "none. If the disk is only not mounted, or can be restored, do that. If it is lost, start with "
            "--replace-lost-disk: a new bookie is formatted here and the lost one is retired",
            path=disk.describe(),
            expected=lost[0],
        )
    identity = Identity(BookieId(random_uuid(rng)), instance_id, place)
    await _format(disk, metadata, identity, format_store)
    for bookie_id in lost:
        await _retire(metadata, bookie_id)
    return identity


async def _format(disk: Disk, metadata: MetadataStore, identity: Identity, format_store: Format) -> Identity:
    """Makes a bookie. The file says *formatting* until everything else is there, so that a crash is met by another try."""
    await _write(disk, identity, "formatting")
    for folder in _FOLDERS[1:]:
        for name in await disk.names(folder):
            await disk.remove(f"{folder}/{name}")
    await format_store(identity.raw)
    try:
        await create_settled(metadata, cookie_path(identity.bookie_id), encode_cookie(_cookie(identity)))
    except NodeExists:
        await _update_cookie(metadata, identity)  # from the try before
    await _write(disk, identity, "ready")
    _log.info("formatted a new bookie", bookie_id=identity.bookie_id, place=identity.place)
    return identity


async def _check(disk: Disk, metadata: MetadataStore, found: _IdentityFile, instance_id: str, place: str) -> None:
    """Row 5 and 6 of the table."""
    where = disk.describe()
    if found.instance_id != instance_id:
        raise WrongDirectory(
            f"{where} belongs to another cluster: expected instance {instance_id}, found {found.instance_id}. Name the "
            "metadata store it was formatted with, or an empty directory",
            path=where,
            expected=instance_id,
            found=found.instance_id,
        )
    try:
        cookie = decode_cookie((await metadata.get(cookie_path(found.bookie_id))).value)
    except NoNode as error:
        raise WrongDirectory(
            f"{where} holds bookie {found.bookie_id}, which the metadata does not know: it was retired, or is foreign. "
            "Name the metadata store it was formatted with, or an empty directory",
            path=where,
            found=found.bookie_id,
        ) from error
    identity = Identity(BookieId(found.bookie_id), instance_id, place)
    if cookie != _cookie(identity):
        await _update_cookie(metadata, identity)


async def _refuse_files(disk: Disk) -> None:
    for folder in _FOLDERS:
        names = await disk.names(folder)
        if names:
            name = f"{folder}/{names[0]}" if folder else names[0]
            raise WrongDirectory(
                f"{disk.describe()} holds files but no bookie: expected the file {IDENTITY_NAME}, found {name}. Name the "
                "right directory, restore the whole of it from a copy, or name an empty one",
                path=disk.describe(),
                expected=IDENTITY_NAME,
                found=name,
            )


async def _cookies_of(metadata: MetadataStore, place: str) -> list[str]:
    """The bookies whose cookies name this host and directory."""
    found = []
    for name in await metadata.children(COOKIES):
        try:
            cookie = decode_cookie((await metadata.get(cookie_path(name))).value)
        except (NoNode, CorruptData):
            continue  # deleted meanwhile, or written by something else: certainly not one of ours
        if cookie.journal_dir == place:
            found.append(name)
    return found


async def _update_cookie(metadata: MetadataStore, identity: Identity) -> None:
    path = cookie_path(identity.bookie_id)
    current = await metadata.get(path)
    try:
        await metadata.set(path, encode_cookie(_cookie(identity)), version=current.version)
    except BadVersion as error:
        raise WrongDirectory(
            f"another process changes the cookie of bookie {identity.bookie_id} just now: is a copy of this directory in "
            "use elsewhere? Only one may be",
            path=identity.place,
        ) from error


async def _retire(metadata: MetadataStore, bookie_id: str) -> None:
    path = cookie_path(bookie_id)
    try:
        await metadata.delete(path, version=(await metadata.get(path)).version)
    except NoNode:
        return  # somebody else retired it
    _log.warning("retired a bookie whose disk is lost; its ledgers have one copy less", bookie_id=bookie_id)


def _cookie(identity: Identity) -> Cookie:
    return Cookie(identity.bookie_id, identity.place, (identity.place,), identity.instance_id, ours=True)


async def _read(disk: Disk) -> _IdentityFile:
    name = disk.describe(IDENTITY_NAME)
    data = await disk.read_all(IDENTITY_NAME)
    try:
        version = msgspec.json.decode(data, type=dict[str, object]).get("version")
        if version != FORMAT_VERSION:
            raise VersionMismatch(
                f"{name}: expected version {FORMAT_VERSION}, found {version!r}: start the Boki that wrote it",
                path=name,
                expected=FORMAT_VERSION,
                found=repr(version),
            )
        return msgspec.json.decode(data, type=_IdentityFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptData(
            f"{name}: expected the identity of a bookie, found {data[:60]!r} ({error}): restore the file from a copy",
            path=name,
            offset=0,
        ) from error


async def _write(disk: Disk, identity: Identity, state: Literal["formatting", "ready"]) -> None:
    content = _IdentityFile(FORMAT_VERSION, state, identity.bookie_id, identity.instance_id, identity.place)
    await disk.replace_all(IDENTITY_NAME, msgspec.json.format(msgspec.json.encode(content)) + b"\n")
