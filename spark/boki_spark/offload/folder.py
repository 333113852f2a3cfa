"""Names in the folder of offloaded terms, and the rules for deleting files. Decisions are pure; `sweep` does the IO.

    FOLDER/cluster-INSTANCEID/term-TERM/vVERSION-RANDOM/{slice-000000.parquet, slice-000000.index, …, manifest-HASH.json}
    FOLDER/term-TERM/vVERSION-RANDOM/…                                                                 of earlier versions

Rules:
- A cluster deletes only files below its own id, so clusters may share a folder.
- The owner of files of earlier versions cannot be proved. They are read as before, and deleted only if the caller says that no other
  cluster uses the folder (`alone`).
- An attempt is identified by its term and its random name, not by its full path, because a folder can be spelled in several ways (links,
  s3 and s3a).
- Files of an attempt are deleted only if the version of the term record has changed since it began and the record names another attempt
  or a reclaimed term. Only then can no record ever name them.
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
"""Prefix of a cluster's folder, before the id."""

Attempts = dict[int, dict[str, list[str]]]
"""Term → name of an attempt → paths of its files."""


class SweepResult(NamedTuple):
    """The outcome of `sweep`.

    Attributes:
        deleted: number of files that were deleted.
        unowned: number of files of earlier versions that were kept although no live term of this cluster names them.
    """

    deleted: int
    unowned: int


def attempt_folder(folder: str, instance: str, term: int, version: int, random: bytes) -> str:
    """Return the folder of a new attempt.

    Args:
        version: version of the term record that the attempt begins with.
    """
    return joined(folder, f"{CLUSTER}{instance}/term-{term}/v{version}-{random.hex()}")


def file_key(path: str) -> str:
    """Return the term, attempt and name of a file as one text, which is the same for every spelling of the folder."""
    return "/".join(path.rsplit("/", 3)[-3:])


def attempt_of(path: str) -> tuple[int, str] | None:
    """Return the term and attempt that a file belongs to, or None if it belongs to none."""
    *_, of_term, attempt, _ = ("", "", *path.split("/"))
    term = _number(of_term, "term-")
    return None if term is None or version_of(attempt) is None else (term, attempt)


def version_of(attempt: str) -> int | None:
    """Return the version of the term record with which an attempt began, or None if the name is not an attempt's."""
    return _number(attempt.partition("-")[0], "v")


def _number(name: str, begin: str) -> int | None:
    text = name.removeprefix(begin)
    return int(text) if text != name and text.isascii() and text.isdigit() else None


def attempts_in(paths: list[str], instance: str) -> tuple[Attempts, Attempts]:
    """Return the attempts of a cluster, and those of earlier versions, which may belong to any cluster."""
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
    """Return whether no record can ever name an attempt of a term.

    Args:
        version: the present version of the term record.
    """
    began = version_of(attempt)
    if began is None or version <= began:
        return False
    return record.reclaimed or attempt_of(record.location.path) != (record.term, attempt)


async def sweep(store: MetadataStore, files: Files, folder: str, *, alone: bool) -> SweepResult:
    """Delete the files of a cluster's attempts that no record can ever name, and those of its dead terms.

    Args:
        alone: no other cluster uses the folder, so files of earlier versions are deleted by the same rules.

    Raises:
        ClusterAway, BokiError: the next sweep deletes the rest.
    """
    own, earlier = attempts_in(await files.list(folder), await instance_id(store))
    deleted = await _sweep(store, files, own)
    if alone:
        return SweepResult(deleted + await _sweep(store, files, earlier), 0)
    return SweepResult(deleted, await _unnamed(store, earlier))


async def _sweep(store: MetadataStore, files: Files, found: Attempts) -> int:
    """Delete files of some attempts that no record can ever name, and return their number."""
    deleted = 0
    for term, attempts in sorted(found.items()):
        try:
            value, version = await store.get(term_path(term))
        except NoNode:
            continue  # the term is not sealed, so this cluster has not offloaded it
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
    """Return the number of files of these attempts that no live term of this cluster names."""
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
    """Remove the name of deleted files from the record of a dead term."""
    gone = record.at(DELETED, "")
    try:
        await store.set(term_path(record.term), encode_record(gone), version=version)
    except BadVersion:
        return  # another process did
