"""Judges a backup of a cluster, and makes it a cluster of its own. `boki backup` prints what is found here.

A backup is the metadata, copied first, and a copy of each bookie's directories, each as of one moment, while no sequencer orders
anything (docs/backup.md). Then
- what a metalog entry of the backup names was durable before any bookie was copied: no entry that is ordered is missing;
- a ledger that the metadata says is closed was closed before the bookies were copied: they have all its entries;
- a ledger that it says is open is recovered when the backup is started, from what the bookies have: all that was acknowledged before
  the copying began is there, and nothing that was not written. That needs one bookie at least of each ack quorum of its last ensemble;
- ledgers that were made behind the metadata are unknown to it. Their numbers must not be given again: bookies have entries of them.

Checked: no bookie runs on a directory, which then is the original. Each bookie of the metadata is there, with all its directories, would
start on them, and is not older than the metadata; each entry of each closed ledger, and of the ensembles of an open one that are over, has
a copy, and each open one can be recovered. Nothing is changed, but that SQLite rolls back a transaction that was copied half-done.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from boki_bookie.begin.copies import DirectoryCopy, look, move_to_cluster
from boki_bookie.begin.identity import IDENTITY_NAME, not_current
from boki_bookie.settings import BookieSettings
from boki_cli.exit_codes import CheckFailed
from boki_common.bookkeeper import ledger_metadata
from boki_common.bookkeeper.layout import (
    AVAILABLE,
    COOKIES,
    INSTANCE_ID,
    READ_ONLY,
    Cookie,
    cookie_path,
    decode_cookie,
    instance_id,
    ledger_path,
    list_ledgers,
    random_uuid,
    read_layout,
)
from boki_common.bookkeeper.ledger_ids import next_ledger_id
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.errors import BokiError, CorruptData, NoNode, WrongDirectory
from boki_common.metadata.memory import MemoryStore
from boki_common.metadata.open import open_store
from boki_common.metadata.registered import REGISTERED
from boki_common.metadata.sqlite_copies import end_sessions, load_copy
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.bodies import ThreadBodies
from boki_common.runtime.ports import Random
from boki_common.runtime.posix_disk import PosixDisk
from boki_ledger.rules.write_set import write_sets

METADATA_NAME: Final = "metadata.db"
DEPTH: Final = 3
"""Folders between a backup and the directories of its bookies, at most."""
OTHER_CLUSTER: Final = "belongs to cluster"
NAMED: Final = 8
"""Ledgers, and entries of one, that a fault names; the rest is counted."""


@dataclass(slots=True)
class BackupReport:
    """What a backup has. `faults`: why it cannot be started as it is; `notes`: what to know. Ledgers and entries are counted."""

    cluster: str = ""
    sessions: int = 0
    bookies: list[str] = field(default_factory=list)
    closed_ledgers: int = 0
    open_ledgers: int = 0
    entries: int = 0
    fewer_copies: int = 0
    highest_ledger: int = -1
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Directories:
    """The directories of bookies in a backup, as disks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.disks: list[PosixDisk] = []

    async def __aenter__(self) -> _Directories:
        self.disks = [PosixDisk(path) for path in await ThreadBodies().run(self._find)]
        return self

    def _find(self) -> list[Path]:
        patterns = ["/".join(["*"] * depth + [IDENTITY_NAME]) for depth in range(DEPTH + 1)]
        return sorted(path.parent for pattern in patterns for path in self._folder.glob(pattern))

    async def __aexit__(self, *_: object) -> None:
        for disk in self.disks:
            await disk.close()


async def check_backup(folder: Path, metadata: str | None, *, rng: Random, settings: BookieSettings) -> BackupReport:
    """Judge a backup; what is wrong with it is in the report.

    A directory on which a bookie runs, as that of `boki dev`, is no copy.

    Args:
        metadata: the URI of a store in which the metadata was restored; None: a SQLite file of the folder.

    Raises:
        BokiError: the metadata cannot be read at all.
    """
    async with _Directories(folder) as directories:
        used = [disk.describe() for disk in directories.disks if await disk.in_use()]
        report = await _judge(folder, metadata, directories, rng=rng, settings=settings)
    report.faults[:0] = [f"a bookie runs on {one}: expected a copy, found the original; copy it first" for one in used]
    return report


async def _judge(
    folder: Path, metadata: str | None, directories: _Directories, *, rng: Random, settings: BookieSettings
) -> BackupReport:
    """Judge a backup, whoever has locked its directories."""
    report = BackupReport()
    async with _store_of(folder, metadata, report) as store:
        try:
            report.cluster = await instance_id(store)
        except NoNode:
            report.faults.append("the metadata is of no cluster: expected /ledgers/INSTANCEID, found none")
            return report
        cookies = await _cookies(store)
        found: dict[str, list[DirectoryCopy]] = {}
        for disk in directories.disks:
            try:
                copy = await look(disk, rng=rng, settings=settings)
            except BokiError as error:
                report.faults.append(f"{disk.describe()}: {error}")
                continue
            found.setdefault(copy.identity.bookie_id, []).append(copy)
            report.faults += _faults_of(disk, copy, report.cluster, cookies.get(copy.identity.bookie_id))
        report.bookies = sorted(found)
        report.faults += _incomplete(found)
        report.notes += [
            f"bookie {name} is not in the backup: its copies of entries are missing"
            for name in sorted(cookies.keys() - found.keys())
        ]
        if cookies and not found:
            report.faults.append(f"expected bookies {', '.join(sorted(cookies))}, found none in the backup")
        await _check_ledgers(store, found, report)
    return report


@asynccontextmanager
async def _store_of(folder: Path, metadata: str | None, report: BackupReport) -> AsyncIterator[MetadataStore]:
    """The metadata of a backup, for reading."""
    if metadata is None:
        tree, report.sessions = await ThreadBodies().run(lambda: load_copy(folder / METADATA_NAME))
        store: MetadataStore = MemoryStore(tree)
    else:
        store = open_store(metadata, create=False)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def _cookies(store: MetadataStore) -> dict[str, Cookie]:
    found = {}
    for name in await store.children(COOKIES):
        try:
            found[name] = decode_cookie((await store.get(cookie_path(name))).value)
        except (NoNode, CorruptData):
            continue  # Apache's, or deleted meanwhile: none of ours
    return found


def _faults_of(disk: PosixDisk, copy: DirectoryCopy, cluster: str, cookie: Cookie | None) -> list[str]:
    """Why a bookie would not start on a directory with this metadata."""
    identity, where = copy.identity, disk.describe()
    faults = []
    if identity.instance_id != cluster:
        faults.append(f"{where} {OTHER_CLUSTER} {identity.instance_id}, the metadata to {cluster}")
    if cookie is None:
        return [*faults, f"{where} holds bookie {identity.bookie_id}, which this metadata does not know"]
    older = not_current(disk, copy.life, cookie.life, directory=identity.ordinal)
    if older is not None:
        ahead = cookie.life is None or copy.life.number > cookie.life.number
        why = "the bookie was restarted after the metadata was copied" if ahead else "it was copied before the metadata"
        faults.append(f"{where} does not fit the metadata, {why}: copy again, the metadata first. {older}")
    return faults


def _incomplete(found: Mapping[str, list[DirectoryCopy]]) -> list[str]:
    """Bookies of which a directory is missing, or there twice."""
    faults = []
    for name, copies in sorted(found.items()):
        expected = list(range(copies[0].identity.directories))
        numbers = sorted(one.identity.ordinal for one in copies)
        if numbers != expected:
            faults.append(
                f"expected directories {', '.join(str(one + 1) for one in expected)} of bookie {name}, found "
                f"{', '.join(str(one + 1) for one in numbers)}"
            )
    return faults


async def _check_ledgers(store: MetadataStore, found: Mapping[str, list[DirectoryCopy]], report: BackupReport) -> None:
    """Look for the entries of all ledgers that were written before the copy."""
    layout = await read_layout(store)
    known = set()
    for ledger_id in await list_ledgers(store):
        try:
            metadata = ledger_metadata.decode((await store.get(ledger_path(ledger_id, layout))).value)
        except NoNode:
            continue
        except BokiError as error:
            report.faults.append(f"ledger {ledger_id}: {error}")
            continue
        known.add(int(ledger_id))
        closed = metadata.state is LedgerState.CLOSED
        if closed:
            report.closed_ledgers += 1
        else:
            report.open_ledgers += 1
            report.faults += _unrecoverable(int(ledger_id), metadata, found.keys())
        copies = _copies_of(
            int(ledger_id), metadata, metadata.last_entry + 1 if closed else metadata.ensembles[-1][0], found
        )
        report.entries += len(copies)
        report.fewer_copies += int(np.count_nonzero((copies < metadata.ack_quorum) & (copies > 0)))
        missing = np.flatnonzero(copies == 0).tolist()
        if missing:
            report.faults.append(
                f"ledger {ledger_id}: no copy of {len(missing)} of {len(copies)} entries: {_listed(missing)}"
            )
    held = {ledger_id for copies in found.values() for one in copies for ledger_id in one.ledgers}
    report.highest_ledger = max(held | known, default=-1)
    later = sorted(ledger_id for ledger_id in held if ledger_id > max(known, default=-1))
    if later:
        report.notes.append(
            f"ledgers {_listed(later)} were made after the metadata was copied: `boki backup adopt` keeps their numbers from being "
            "given again"
        )
    if report.fewer_copies:
        report.notes.append(
            f"{report.fewer_copies} entries have fewer copies than their ack quorum: boki ledger repair"
        )


def _unrecoverable(ledger_id: int, metadata: LedgerMetadata, found: Collection[str]) -> list[str]:
    """Why an open ledger would not be recovered: acknowledged entries may be on bookies that are not in the backup alone."""
    bookies = [str(bookie) for bookie in metadata.ensembles[-1][1]]
    missing = sorted(set(bookies) - set(found))
    for slots in write_sets(len(bookies), metadata.write_quorum):
        if sum(bookies[slot] in missing for slot in slots) >= metadata.ack_quorum:
            enough = f"{metadata.ack_quorum} of {', '.join(bookies[slot] for slot in slots)}"
            gone = f"bookies {', '.join(missing)} are not in the backup"
            return [f"open ledger {ledger_id} cannot be recovered: {gone}, and {enough} could acknowledge an entry"]
    return []


def _copies_of(
    ledger_id: int, metadata: LedgerMetadata, count: int, found: Mapping[str, list[DirectoryCopy]]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """How many bookies of the backup that may have each of the first entries of a ledger do."""
    copies = np.zeros(count, np.int64)
    for name in sorted({str(bookie) for _, bookies in metadata.ensembles for bookie in bookies}):
        here = np.zeros(count + 1, np.int64)
        for one in found.get(name, ()):
            for first, last in one.ledgers.get(ledger_id, ()):
                here[min(first, count)] += 1
                here[min(last + 1, count)] -= 1
        copies += np.cumsum(here[:count]) > 0
    return copies


def _listed(numbers: Iterable[int]) -> str:
    """Some numbers for a person."""
    listed = list(numbers)
    return ", ".join(map(str, listed[:NAMED])) + (f" and {len(listed) - NAMED} more" if len(listed) > NAMED else "")


async def adopt_backup(folder: Path, metadata: str | None, *, rng: Random, settings: BookieSettings) -> BackupReport:
    """Make a backup a cluster of its own, which leads to nothing of the original; return it as it is then. May be repeated.

    It gets another cluster id, forgets which processes ran when it was copied, and gives no ledger number again.

    Raises:
        CheckFailed: it cannot be started. DirectoryInUse: a bookie runs on one of its directories. BokiError.
    """
    async with _Directories(folder) as directories:
        for disk in directories.disks:
            await disk.lock()
        report = await _judge(folder, metadata, directories, rng=rng, settings=settings)
        faults = [
            fault for fault in report.faults if OTHER_CLUSTER not in fault
        ]  # what an adoption that was stopped leaves
        if faults:
            raise CheckFailed("; ".join(faults))
        path = folder / METADATA_NAME
        if metadata is None:
            await ThreadBodies().run(lambda: end_sessions(path))
        store = open_store(metadata or f"sqlite://{path}", create=False)
        await store.start()
        try:
            await _forget_processes(store)
            while await next_ledger_id(store) <= report.highest_ledger:
                pass
            instance = random_uuid(rng)
            for disk in directories.disks:
                await move_to_cluster(disk, instance)
            await store.set(INSTANCE_ID, instance.encode(), version=(await store.get(INSTANCE_ID)).version)
        finally:
            await store.close()
    return await check_backup(folder, metadata, rng=rng, settings=settings)


async def _forget_processes(store: MetadataStore) -> None:
    """Remove what says where roles of the original are. Raises WrongDirectory: some are up, by this store."""
    up = [
        name
        for folder in (AVAILABLE, READ_ONLY)
        for name in await store.children(folder)
        if folder != AVAILABLE or name != "readonly"
    ]
    if up:
        raise WrongDirectory(
            f"bookies {', '.join(up[:NAMED])} are up by this metadata: expected a restored store that no process uses. Sessions that were "
            "restored with it end after their time-out; stop what runs, or wait"
        )
    try:
        roles = await store.children(REGISTERED)
    except NoNode:
        return
    for role in roles:
        for name in await store.children(f"{REGISTERED}/{role}"):
            path = f"{REGISTERED}/{role}/{name}"
            await store.delete(path, version=(await store.get(path)).version)


def as_facts(report: BackupReport) -> dict[str, object]:
    """The report as JSON has it."""
    return {"ok": not report.faults, **dataclasses.asdict(report)}
