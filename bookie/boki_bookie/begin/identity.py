"""Who a bookie is: an id made when its directories were formatted, kept in each and, as a cookie, in the metadata.

The id names the disk, not the machine or the address: a bookie that lost its disk lost its promises (entries, fences), so
what starts on a new disk is another bookie. That is what lets a bookie say "never had" and be believed.

| directories | cookie in the metadata | at start |
|---|---|---|
| all empty | none names this host and one of them | formatted as a new bookie |
| all empty | one names them | WrongDirectory: the disk was wiped; with `replace_lost_disk` a new bookie, the old cookie is deleted |
| files, no `identity` | any | WrongDirectory: not ours, or incomplete |
| `identity`, one still formatting | any | it never served: all are formatted again under the same id |
| `identity` in all | agrees | started; the cookie learns of a new host or directory |
| `identity` in all, one is an older copy | agrees otherwise | WrongDirectory (`life_rules`); with `salvage` it is salvaged |
| `identity` in all | absent, or another INSTANCEID | WrongDirectory: of another cluster, or retired |
| one empty, cleared or added | any | WrongDirectory: a ledger lies in one directory, so its part of them is lost, or never was there |
| another number or order, another bookie's | any | WrongDirectory: ledgers would be looked for where they are not |

The file `identity` is one JSON object: version 2, state (formatting or ready), bookie_id, instance_id, place, and which of how
many directories this is. The place, `host:directory`, is for people and the second row. Version 1, read too, knows one directory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, Literal, NamedTuple

import msgspec

from boki_bookie.begin.life_file import format_life, read_life
from boki_bookie.begin.life_rules import Copy, StoredLife, judge_copy
from boki_bookie.entries.checkpoint import INDEX_FOLDER
from boki_bookie.entries.entry_log import FOLDER as ENTRIES_FOLDER
from boki_bookie.formats.journal_format import other_version
from boki_bookie.journal.journal_segments import FOLDER as JOURNAL_FOLDER
from boki_common import limits
from boki_common.bookkeeper.layout import (
    COOKIES,
    Cookie,
    CookieLife,
    cookie_path,
    decode_cookie,
    encode_cookie,
    init_cluster,
    random_uuid,
)
from boki_common.errors import (
    DECODE_FAULTS,
    BadVersion,
    CorruptData,
    NodeExists,
    NoNode,
    WrongDirectory,
)
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.metadata.settle import create_settled
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.ports import Disk, Random

IDENTITY_NAME: Final = "identity"
FORMAT_VERSION: Final = 2
_FOLDERS: Final = ("", ENTRIES_FOLDER, INDEX_FOLDER, JOURNAL_FOLDER)

_log = get_logger("bookie")

Format = Callable[[Disk, bytes], Awaitable[None]]
"""Lays down an empty store on a directory, for the bookie with these 16 bytes."""


class IdentityFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file `identity`."""

    version: int
    state: Literal["formatting", "ready"]
    bookie_id: str
    instance_id: str
    place: str
    ordinal: int = 0
    directories: int = 1


class Identity(NamedTuple):
    """A bookie that may start."""

    bookie_id: BookieId
    instance_id: str
    place: str
    more_places: tuple[str, ...] = ()
    """Of its other directories."""
    is_older_copy: bool = False
    """It must not be served as it is, but salvaged."""

    @property
    def places(self) -> tuple[str, ...]:
        """Of all its directories, in order."""
        return (self.place, *self.more_places)

    @property
    def raw(self) -> bytes:
        """The id's 16 bytes, as they are in the headers of files."""
        return bytes.fromhex(self.bookie_id.replace("-", ""))


async def establish(
    disks: Sequence[Disk],
    metadata: MetadataStore,
    *,
    host: str,
    rng: Random,
    replace_lost_disk: bool,
    format_store: Format,
    salvage: bool = False,
) -> Identity:
    """Applies the table above; the directories, in their order, must be locked. With `salvage` an older copy is no error.
    Raises WrongDirectory: and what to do about it; CorruptData, VersionMismatch: a file `identity` is damaged or newer."""
    assert 0 < len(disks) <= limits.BOOKIE_DIRECTORIES, len(disks)
    instance_id = await init_cluster(metadata, rng=rng)
    places = [f"{host}:{disk.describe()}" for disk in disks]
    found = [await read_identity(disk) if await disk.exists(IDENTITY_NAME) else None for disk in disks]
    for disk, file in zip(disks, found, strict=True):
        if file is None:
            await _refuse_files(disk)
    known = [file for file in found if file is not None]
    if _served(known):
        ready = next(file for file in known if file.state == "ready")
        identity = Identity(BookieId(ready.bookie_id), instance_id, places[0], tuple(places[1:]))
        _check_directories(disks, found, ready)
        older = await _check(disks, metadata, ready, identity)
        if older is None:
            return identity
        if not salvage:
            raise older
        _log.warning("a copy of a bookie is salvaged", bookie_id=identity.bookie_id, error=older)
        return identity._replace(is_older_copy=True)
    lost = [] if known else await _cookies_of(metadata, places)
    if lost and not replace_lost_disk:
        where = ", ".join(disk.describe() for disk in disks)
        raise WrongDirectory(
            f"{where} is empty, yet the metadata knows a bookie there: expected the files of {lost[0]}, found "
            "none. If the disk is only not mounted, mount it. If it is lost, start with "
            "--replace-lost-disk (`boki dev`: with BOKI_BOOKIE_REPLACE_LOST_DISK=true): a new bookie is formatted here and "
            "the lost one is retired",
            path=disks[0].describe(),
            expected=lost[0],
        )
    bookie_id = known[0].bookie_id if known else random_uuid(rng)
    identity = Identity(BookieId(bookie_id), instance_id, places[0], tuple(places[1:]))
    for lost_id in lost:  # before the new one can serve at its address: who believed the lost one has to learn of it
        await _retire(metadata, lost_id)
    await _format(disks, metadata, identity, format_store)
    return identity


def _served(known: Sequence[IdentityFile]) -> bool:
    """Whether a bookie may have served from these: one whose formatting was cut short has not."""
    ready = [file.bookie_id for file in known if file.state == "ready"]
    return bool(ready) and (ready[0] not in [file.bookie_id for file in known if file.state == "formatting"])


def _check_directories(disks: Sequence[Disk], found: Sequence[IdentityFile | None], ready: IdentityFile) -> None:
    """The last two rows of the table."""
    names = [disk.describe() for disk in disks]
    ours = [file is not None and file.bookie_id == ready.bookie_id for file in found]
    have = {file.ordinal for file, mine in zip(found, ours, strict=True) if file is not None and mine}
    missing = [number for number in range(ready.directories) if number not in have]
    for name, file, mine in zip(names, found, ours, strict=True):
        if file is not None and not mine:
            raise WrongDirectory(
                f"{name} belongs to another bookie: expected a directory of {ready.bookie_id}, found one of "
                f"{file.bookie_id}. Name the directories of one bookie",
                path=name,
                expected=ready.bookie_id,
                found=file.bookie_id,
            )
        if file is None and not missing:
            raise WrongDirectory(
                f"{name} was added: expected the {ready.directories} directories that bookie {ready.bookie_id} was "
                "formatted with, found one more. They are fixed, since each ledger lies in one of them: leave it out, or "
                "start another bookie there",
                path=name,
                expected=ready.directories,
                found=len(disks),
            )
        if file is None:
            raise WrongDirectory(
                f"{name} is empty: expected directory {missing[0] + 1} of {ready.directories} of bookie "
                f"{ready.bookie_id}, found nothing. If it is only not mounted, mount it. If it is "
                "lost, this bookie is: format a new one on empty directories, with --replace-lost-disk",
                path=name,
                expected=ready.bookie_id,
            )
    if len(disks) != ready.directories:
        raise WrongDirectory(
            f"{', '.join(names)}: expected {ready.directories} directories of bookie {ready.bookie_id}, found "
            f"{len(disks)}; name all of them, in the order in which they were formatted",
            path=names[0],
            expected=ready.directories,
            found=len(disks),
        )
    for number, (name, file) in enumerate(zip(names, found, strict=True)):
        if file is not None and file.ordinal != number:
            raise WrongDirectory(
                f"{name}: expected directory {number + 1} of bookie {ready.bookie_id}, found directory "
                f"{file.ordinal + 1}; name them in the order in which they were formatted",
                path=name,
                expected=number,
                found=file.ordinal,
            )


async def _format(disks: Sequence[Disk], metadata: MetadataStore, identity: Identity, format_store: Format) -> None:
    """Makes a bookie. The files say *formatting* until everything else is there, so that a crash is met by another try."""
    for number in range(len(disks)):
        await _write(disks, number, identity, "formatting")
    for disk in disks:
        for folder in _FOLDERS[1:]:
            for name in await disk.names(folder):
                await disk.remove(f"{folder}/{name}")
        await format_store(disk, identity.raw)
        await format_life(disk)
    try:
        await create_settled(metadata, cookie_path(identity.bookie_id), encode_cookie(_cookie(identity)))
    except NodeExists:
        await _update_cookie(metadata, identity)  # from the try before
    for number in range(len(disks)):
        await _write(disks, number, identity, "ready")
    _log.info("formatted a new bookie", bookie_id=identity.bookie_id, place=", ".join(identity.places))


async def _check(
    disks: Sequence[Disk], metadata: MetadataStore, found: IdentityFile, identity: Identity
) -> WrongDirectory | None:
    """The rows of those that have an `identity` in all; returns why they are no current copy."""
    where = disks[0].describe()
    if found.instance_id != identity.instance_id:
        raise WrongDirectory(
            f"{where} belongs to another cluster: expected instance {identity.instance_id}, found {found.instance_id}. Name the "
            "metadata store it was formatted with, or an empty directory",
            path=where,
            expected=identity.instance_id,
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
    for number, disk in enumerate(disks):
        older = not_current(disk, await read_life(disk, identity.raw), cookie.life, directory=number)
        if older is not None:
            return older
    if replace(cookie, life=None) != _cookie(identity):
        await _update_cookie(metadata, identity)
    return None


def not_current(disk: Disk, stored: StoredLife, known: CookieLife | None, *, directory: int) -> WrongDirectory | None:
    """Why a directory is not what served last; None if it is."""
    verdict = judge_copy(stored, known, directory=directory)
    if verdict is Copy.CURRENT:
        return None
    expected = "no start" if known is None else f"start {known.number} (checkpoints {known.checkpoints})"
    found = f"start {stored.number} (checkpoint {stored.checkpoint})"
    what = {
        Copy.OLDER: "is an older copy, such as a backup or a snapshot that was put back: what was acknowledged since is not in it",
        Copy.AHEAD: "has served since the metadata was written: was an older copy of the metadata put back?",
        Copy.FORGOTTEN: "has served, and its cookie does not say when: something else wrote the cookie",
    }[verdict]
    return WrongDirectory(
        f"{disk.describe()} {what}; expected {expected}, as the metadata has it, found {found}. If the directory that served "
        "last is still there, start on that one. A copy comes back by salvage only: start with --salvage (`boki dev`: with "
        "BOKI_BOOKIE_SALVAGE=true), then `boki ledger repair`",
        path=disk.describe(),
        expected=expected,
        found=found,
    )


def with_life(identity: Identity, life: CookieLife) -> bytes:
    """The cookie of a bookie in a life."""
    return encode_cookie(replace(_cookie(identity), life=life))


async def _refuse_files(disk: Disk) -> None:
    for folder in _FOLDERS:
        names = await disk.names(folder)
        if names:
            name = f"{folder}/{names[0]}" if folder else names[0]
            raise WrongDirectory(
                f"{disk.describe()} holds files but no bookie: expected the file {IDENTITY_NAME}, found {name}. Name the "
                "right directory, or an empty one",
                path=disk.describe(),
                expected=IDENTITY_NAME,
                found=name,
            )


async def _cookies_of(metadata: MetadataStore, places: Sequence[str]) -> list[str]:
    """The bookies whose cookies name this host and one of these directories."""
    found = []
    for name in await metadata.children(COOKIES):
        try:
            cookie = decode_cookie((await metadata.get(cookie_path(name))).value)
        except (NoNode, CorruptData):
            continue  # deleted meanwhile, or written by something else: certainly not one of ours
        if cookie.journal_dir in places or any(place in places for place in cookie.ledger_dirs):
            found.append(name)
    return found


async def _update_cookie(metadata: MetadataStore, identity: Identity) -> None:
    path = cookie_path(identity.bookie_id)
    current = await metadata.get(path)
    cookie = replace(_cookie(identity), life=decode_cookie(current.value).life)
    try:
        await metadata.set(path, encode_cookie(cookie), version=current.version)
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
    return Cookie(identity.bookie_id, identity.place, identity.places, identity.instance_id, ours=True)


async def read_identity(disk: Disk) -> IdentityFile:
    """Read the file `identity`. Raises CorruptData, VersionMismatch."""
    name = disk.describe(IDENTITY_NAME)
    data = await disk.read_all(IDENTITY_NAME)
    try:
        version = msgspec.json.decode(data, type=dict[str, object]).get("version")
        if version not in (FORMAT_VERSION, FORMAT_VERSION - 1):
            raise other_version(name, "identity", FORMAT_VERSION, repr(version))
        return msgspec.json.decode(data, type=IdentityFile)
    except DECODE_FAULTS as error:
        raise CorruptData(
            f"{name}: expected the identity of a bookie, found {data[:60]!r} ({error}): this disk is damaged. Bring back the "
            "file as it was, or start on an empty directory with --replace-lost-disk",
            path=name,
            offset=0,
        ) from error


async def _write(disks: Sequence[Disk], number: int, identity: Identity, state: Literal["formatting", "ready"]) -> None:
    content = IdentityFile(
        FORMAT_VERSION,
        state,
        identity.bookie_id,
        identity.instance_id,
        identity.places[number],
        ordinal=number,
        directories=len(disks),
    )
    await write_identity(disks[number], content)


async def write_identity(disk: Disk, content: IdentityFile) -> None:
    """Replace the file `identity`. Raises DiskFull, DiskFailed."""
    await disk.replace_all(IDENTITY_NAME, msgspec.json.format(msgspec.json.encode(content)) + b"\n")
