"""Looks at a copy of a bookie's directory without changing it: would a bookie start on it, and which entries has it?

    directories = [await look(disk) for disk in disks]        # each: a `DirectoryCopy`, or an error that says what is wrong
    await move_to_cluster(disk, "4f0c…")                       # the only change: which cluster the directory belongs to

The checks are those of a start, by the same code: identity, life, checkpoint mark, index, entry log files, journal. What a start
repairs, such as a torn last group, is no fault here either.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from boki_bookie.begin.identity import IdentityFile, read_identity, write_identity
from boki_bookie.begin.journal_apply import apply
from boki_bookie.begin.journal_replay import JournalReplay
from boki_bookie.begin.life_file import read_life
from boki_bookie.begin.life_rules import StoredLife
from boki_bookie.entries.checkpoint import Checkpointer
from boki_bookie.entries.ledger_index import Ledger
from boki_bookie.entries.places import joined_runs
from boki_bookie.journal.journal_segments import FOLDER, SegmentFiles, generation_of
from boki_bookie.settings import BookieSettings
from boki_common.runtime.ports import Disk, Random

Runs = list[tuple[int, int]]
"""First and last of entries without a gap between them, ascending."""


class DirectoryCopy(NamedTuple):
    """One directory of a bookie, as a start would find it. `torn`: what an incomplete end of its journal looks like, or ""."""

    identity: IdentityFile
    life: StoredLife
    ledgers: dict[int, Runs]
    torn: str


async def look(disk: Disk, *, rng: Random, settings: BookieSettings) -> DirectoryCopy:
    """Read a directory as a start does.

    Raises:
        CorruptData, VersionMismatch: a bookie would not start on it; names file and offset. DiskFailed.
    """
    identity = await read_identity(disk)
    bookie_id = bytes.fromhex(identity.bookie_id.replace("-", ""))
    life = await read_life(disk, bookie_id)
    checkpointer = await Checkpointer.load(disk, bookie_id, settings)
    mark, index = checkpointer.mark, checkpointer.index
    generations = sorted(found for name in await disk.names(FOLDER) if (found := generation_of(name)) is not None)
    files = SegmentFiles(disk, rng, bookie_id, settings)
    replay = JournalReplay(disk, files, generations, first_generation=mark.generation, first_group=mark.group)
    end = await replay.verify()
    async for _, groups in replay.segments():
        for group in groups:
            for kind, body in zip(group.kinds, group.bodies, strict=True):
                apply(index, kind, body)
    ledgers = {ledger_id: _runs(ledger) for ledger_id, ledger in sorted(index.ledgers.items())}
    return DirectoryCopy(identity, life, ledgers, end.torn)


def _runs(ledger: Ledger) -> Runs:
    """The entries of a ledger, of the index and of the journal."""
    replayed = sorted({*ledger.fresh, *ledger.flushing})
    both = sorted([*ledger.places.runs(), *((entry, entry) for entry in replayed)])
    return list(joined_runs(both))


async def move_to_cluster(disk: Disk, instance_id: str) -> None:
    """Say in a directory that it belongs to another cluster. May be repeated. Raises CorruptData, VersionMismatch, DiskFailed."""
    found = await read_identity(disk)
    if found.instance_id != instance_id:
        await write_identity(disk, msgspec.structs.replace(found, instance_id=instance_id))
