"""Verification of offloaded files: reads them back and compares them with their manifest. Runs in an event loop."""

from __future__ import annotations

from collections.abc import Callable

from xxhash import xxh3_128_hexdigest

from boki_spark.cold_terms.files import Files
from boki_spark.cold_terms.manifest import Manifest, SliceFile, decode_manifest, folder_of, joined
from boki_spark.cold_terms.slice_index import chunks_of, decode_head, end_of, footer_of, index_of
from boki_spark.cold_terms.slices import added, row_sum, table_of
from boki_spark.errors import ColdDamaged


async def prove(files: Files, path: str, progress: Callable[[int], None] = lambda rows: None) -> Manifest:
    """Read a manifest and its files, compare them, and return the manifest. `progress` is called with the rows verified so far.

    Raises:
        ColdMissing, ColdDamaged, ClusterAway: a file cannot be read, or is not what was written.
    """
    manifest = decode_manifest(await files.read(path), path.rpartition("/")[2])
    folder, total, rows = folder_of(path), 0, 0
    for one in manifest.slices:
        data = await read_file(files, folder, one.file, one.hash)
        index = await read_file(files, folder, one.index, one.index_hash)
        table = table_of(data, one.file)
        expected = index_of(table, data)
        if table.num_rows != one.rows or expected.data != index or not _has_parts(one, data, index):
            raise ColdDamaged(
                f"{joined(folder, one.file)} has {table.num_rows} rows, or others than its side index: offload again"
            )
        total = added(total, row_sum(table))
        rows += table.num_rows
        progress(rows)
    if f"{total:032x}" != manifest.row_sum:
        raise ColdDamaged(f"the files of {path} have other rows than were written: offload the term again")
    return manifest


def _has_parts(one: SliceFile, data: bytes, index: bytes) -> bool:
    """Return whether the footer and the head are what the manifest says."""
    end, head = data[-one.footer_bytes :], index[: one.head_bytes]
    chunks, decoded = len(chunks_of(footer_of(end, one.file))), decode_head(head, one.index)
    return (
        end == end_of(data)
        and xxh3_128_hexdigest(end) == one.footer_hash
        and xxh3_128_hexdigest(head) == one.head_hash
        and len(decoded.chunk_hashes) == 8 * chunks
    )


async def read_file(files: Files, folder: str, name: str, expected: str) -> bytes:
    """Return a file after comparing its hash. Raises ColdMissing or ColdDamaged."""
    data = await files.read(joined(folder, name))
    found = xxh3_128_hexdigest(data)
    if found != expected:
        raise ColdDamaged(
            f"expected {joined(folder, name)} with hash {expected}, found {found}: offload the term again"
        )
    return data
