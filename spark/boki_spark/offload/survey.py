"""The terms that `boki offload` copies if none is named, and the reasons why it leaves the others. Runs in an event loop.

Rules:
- A term is due if it is sealed, in ledgers, covered by an index snapshot and has live records. A copied term is due if its files are lost
  or damaged: its manifest is read and the files it names are looked up; with `prove_copied` all files are read.
- Only files below the folder are looked up, unless everything is read: other folders may be out of reach here.
- If none of them exists, the folder is more likely not mounted than lost. Then ColdMissing is raised and no term is due.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from boki_common.errors import NoNode
from boki_metalog.follow.term_history import TermHistory
from boki_metalog.terms.metadata_tree import read_record, read_view
from boki_metalog.terms.term_record import COPIED, IN_LEDGERS, TermRecord
from boki_spark.cold_terms.files import Files
from boki_spark.cold_terms.manifest import decode_manifest, folder_of, joined
from boki_spark.errors import Behind, ColdDamaged, ColdMissing
from boki_spark.offload.folder import file_key
from boki_spark.offload.prove import prove
from boki_spark.plan.cluster import Cluster

LOOKS_AT_ONCE: Final = 16
"""Manifests of copied terms that are read at the same time."""
NOT_COVERED: Final = "no index snapshot has it to its end yet"
NONE_LIVE: Final = "none of its records is live"


class Survey(NamedTuple):
    """The terms of a cluster, ascending.

    Attributes:
        due: terms to offload.
        left: terms with records in ledgers only that are not due, with the reason.
    """

    due: list[int]
    left: dict[int, str]

    @property
    def waits(self) -> bool:
        """True if the next index snapshot may make more terms due."""
        return NOT_COVERED in self.left.values()


async def survey(cluster: Cluster, files: Files, folder: str, *, prove_copied: bool = False) -> Survey:
    """Find the terms to offload.

    Raises:
        ColdMissing: no file of any copied term is below the folder.
        PipelineError: as `Cluster.plan`.
    """
    records = await _records(cluster)
    due, left = await _in_ledgers(cluster, [one for one in records if one.location.kind == IN_LEDGERS])
    copied = {one.term: one.location.path for one in records if one.location.kind == COPIED}
    damaged = (
        [term for term, path in copied.items() if await damage_of(files, path)]
        if prove_copied
        else await _incomplete(files, folder, copied)
    )
    return Survey(sorted([*due, *damaged]), dict(sorted({**left, **await running(cluster)}.items())))


async def _records(cluster: Cluster) -> list[TermRecord]:
    """Return the present records of all sealed terms."""
    history = TermHistory(cluster.store)
    await history.refresh()
    return [await read_record(cluster.store, number) for number in history.numbers]


async def _in_ledgers(cluster: Cluster, records: list[TermRecord]) -> tuple[list[int], dict[int, str]]:
    """Return the terms that the newest index snapshot allows to offload, and the reasons for the others."""
    try:
        node, state, _ = await cluster.snapshot_state()
    except Behind:
        return [], {one.term: NOT_COVERED for one in records}
    due, left = [], {}
    for one in records:
        places = state.places.terms.get(one.term)
        if places is None or not node.covers(one.term, one.log):
            left[one.term] = NOT_COVERED
        elif not places.live:
            left[one.term] = NONE_LIVE
        else:
            due.append(one.term)
    return due, left


async def running(cluster: Cluster) -> dict[int, str]:
    """Return the terms that are not sealed, each with the command that seals it."""
    try:
        view = (await read_view(cluster.store)).view
    except NoNode:
        return {}
    return {
        one.term: f"it is running: `boki log roll {log}` seals it" for log, one in view.logs.items() if one is not None
    }


async def damage_of(files: Files, path: str) -> str:
    """Read all files of a manifest and return what is wrong with them, or an empty text."""
    try:
        await prove(files, path)
    except (ColdMissing, ColdDamaged) as error:
        return str(error)
    return ""


async def _incomplete(files: Files, folder: str, copied: dict[int, str]) -> list[int]:
    """Return the copied terms below a folder with a lost file or a damaged manifest. Raises ColdMissing if no file exists."""
    near = {term: path for term, path in sorted(copied.items()) if path.startswith(f"{folder}/")}
    if not near:
        return []
    there = set(map(file_key, await files.list(folder)))
    if not any(file_key(path) in there for path in near.values()):
        raise ColdMissing(
            f"expected files of copied terms {_listed(list(near))} below {folder}, found none: is it mounted on this machine? If they "
            "are lost, name the terms to copy them again"
        )

    found: list[int] = []
    terms = list(near)
    for at in range(0, len(terms), LOOKS_AT_ONCE):
        some = terms[at : at + LOOKS_AT_ONCE]
        looked = await asyncio.gather(*(_is_incomplete(files, near[term], there) for term in some))
        found += [term for term, lost in zip(some, looked, strict=True) if lost]
    return found


async def _is_incomplete(files: Files, path: str, there: set[str]) -> bool:
    """Return whether a manifest is lost or damaged, or names a file that is not `there`."""
    try:
        manifest = decode_manifest(await files.read(path), path.rpartition("/")[2])
    except (ColdMissing, ColdDamaged):
        return True
    names = (name for one in manifest.slices for name in (one.file, one.index))
    return not all(file_key(joined(folder_of(path), name)) in there for name in names)


def _listed(terms: list[int]) -> str:
    """Format the first terms for an error."""
    return ", ".join(map(str, terms[:8])) + (f" and {len(terms) - 8} more" if len(terms) > 8 else "")
