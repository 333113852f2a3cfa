"""Names in the folder of offloaded terms, and which of its files may be deleted. Decisions are pure; `sweep` does the IO.

    FOLDER/cluster-INSTANCEID/term-TERM/vVERSION-RANDOM/{slice-000000.parquet, slice-000000.index, …, manifest-HASH.json}
    FOLDER/term-TERM/vVERSION-RANDOM/…                                                                 of earlier versions

Rules:
- A cluster deletes only files below its own id: clusters may share a folder.
- Which cluster wrote the files of earlier versions cannot be proved. They are read as before, and deleted only if the caller says that
  no other cluster uses the folder (`alone`).
- An attempt is recognized by its term and its own name, which is random, and not by its whole path: one folder has many spellings
  (links, s3 and s3a).
- Files of an attempt are deleted only when the version of the term record has moved, and the record names another attempt or is of a
  reclaimed term: only then can they never be named.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from boki_common.bookkeeper.layout import instance_id
from boki_common.errors import BadVersion, NoNode
from boki_common.metadata.store import MetadataStore
from boki_metalog.terms.term_record import COPIED, DELETED, TermRecord, decode_record, encode_record, term_path
from boki_spark.cold_terms.files import Files
from boki_spark.cold_terms.manifest import joined

CLUSTER: Final = "cluster-"
"""Before the id of a cluster in the name of its folder."""

Attempts = dict[int, dict[str, list[str]]]
"""Term → name of an attempt → paths of its files."""


class SweepResult(NamedTuple):
    """Files that `sweep` deleted, and files of earlier versions that it left: no living term of this cluster names them."""

    deleted: int
    unowned: int


def attempt_folder(folder: str, instance: str, term: int, version: int, random: bytes) -> str:
    """The folder of a new attempt. `version`: of the term record that it begins with."""
    return joined(folder, f"{CLUSTER}{instance}/term-{term}/v{version}-{random.hex()}")


def file_key(path: str) -> str:
    """A file by its term, its attempt and its own name: the same however its folder is spelled."""
    return "/".join(path.rsplit("/", 3)[-3:])


def attempt_of(path: str) -> tuple[int, str] | None:
    """Term and name of the attempt that a file belongs to; None if it is no file of an attempt."""
    *_, of_term, attempt, _ = ("", "", *path.split("/"))
    term = _number(of_term, "term-")
    return None if term is None or version_of(attempt) is None else (term, attempt)


def version_of(attempt: str) -> int | None:
    """The version of the term record with which an attempt began; None if the name is of no attempt."""
    return _number(attempt.partition("-")[0], "v")


def _number(name: str, begin: str) -> int | None:
    text = name.removeprefix(begin)
    return int(text) if text != name and text.isascii() and text.isdigit() else None


def attempts_in(paths: list[str], instance: str) -> tuple[Attempts, Attempts]:
    """The attempts of a cluster, and those of earlier versions, which may be of any cluster."""
    own: Attempts = {}
    earlier: Attempts = {}
    for path in paths:
        found = attempt_of(path)
        if found is None:
            continue
        above = ("", *path.split("/"))[-4]
        if above == f"{CLUSTER}{instance}":
            own.setdefault(found[0], {}).setdefault(found[1], []).append(path)
        elif not above.startswith(CLUSTER):
            earlier.setdefault(found[0], {}).setdefault(found[1], []).append(path)
    return own, earlier


def never_named(record: TermRecord, version: int, attempt: str) -> bool:
    """Whether no record can ever name an attempt of a term again. `version`: of the record, as it is now."""
    began = version_of(attempt)
    if began is None or version <= began:
        return False
    return record.reclaimed or attempt_of(record.location.path) != (record.term, attempt)


async def sweep(store: MetadataStore, files: Files, folder: str, *, alone: bool) -> SweepResult:
    """Delete the files of a cluster's attempts that can never be named, and of its terms that died.

    Args:
        alone: no other cluster has files in the folder, so those of earlier versions are deleted by the same rules.

    Raises:
        ClusterAway, BokiError: what is left is found by the next one.
    """
    own, earlier = attempts_in(await files.list(folder), await instance_id(store))
    deleted = await _sweep(store, files, own)
    if alone:
        return SweepResult(deleted + await _sweep(store, files, earlier), 0)
    return SweepResult(deleted, await _unnamed(store, earlier))


async def _sweep(store: MetadataStore, files: Files, found: Attempts) -> int:
    """Delete what can never be named of these attempts; return how many files."""
    deleted = 0
    for term, attempts in sorted(found.items()):
        try:
            value, version = await store.get(term_path(term))
        except NoNode:
            continue  # it is not sealed: this cluster has not offloaded it
        record = decode_record(value, term)
        for attempt, paths in sorted(attempts.items()):
            if never_named(record, version, attempt):
                for path in paths:
                    await files.delete(path)
                deleted += len(paths)
        named = attempt_of(record.location.path)
        if record.location.kind == DELETED and named is not None and named[1] in attempts:
            await _forget(store, record, version)
    return deleted


async def _unnamed(store: MetadataStore, found: Attempts) -> int:
    """How many files of these attempts no living term of this cluster names."""
    count = 0
    for term, attempts in sorted(found.items()):
        try:
            location = decode_record((await store.get(term_path(term))).value, term).location
        except NoNode:
            location = None
        named = attempt_of(location.path) if location is not None and location.kind == COPIED else None
        count += sum(len(paths) for attempt, paths in attempts.items() if (term, attempt) != named)
    return count


async def _forget(store: MetadataStore, record: TermRecord, version: int) -> None:
    """The files of a deleted term are gone, too: remove their name from its record."""
    gone = record.at(DELETED, "")
    try:
        await store.set(term_path(record.term), encode_record(gone), version=version)
    except BadVersion:
        return  # another process did
