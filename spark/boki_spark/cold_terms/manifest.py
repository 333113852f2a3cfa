"""The manifest of an offloaded term: the files with its records, and the proof that none is missing. Pure.

It is a JSON file named by its hash, so a term record names exactly what was written. `Manifest.fault` checks these rules after each read:

- Slices tile the positions of the term, [0, end): each position belongs to one slice.
- rows + dead + lost = committed. Records in no slice were dead when the files were written, or given up. `losers` are positions that never
  became records.
- Each file has its size and hash. File names belong to one attempt and are never reused.
- `row_sum` is the sum of a hash of each row, independent of their order; rows that are read back have the same sum.
- A reader compares `digest` with its own state: if verdicts of the term changed (LOST), it does not use the files.

Spans and times are packed columns: differences of u64, zstd, base64.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray
from xxhash import xxh3_128_hexdigest

from boki_common.errors import DECODE_FAULTS
from boki_logbook.index.sorted_run import U64
from boki_logbook.scan.plan import NO_SPANS, clipped, count_of, united
from boki_spark.errors import ColdDamaged

VERSION: Final = 1
PACKED_BYTES: Final = 1 << 30
"""The largest size of an unpacked column."""


class SliceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A Parquet file and its side index. Names are relative to the manifest's folder.

    Attributes:
        footer_bytes: size of the end of the file, which locates its columns.
        footer_hash: hash of that end.
        head_bytes: size of the head of the side index, which has the hashes of all parts that are read separately.
        head_hash: hash of that head.
        first_pos: first position that the slice covers.
        stop_pos: the position after the last one.
    """

    file: str
    bytes: int
    hash: str
    footer_bytes: int
    footer_hash: str
    index: str
    index_bytes: int
    index_hash: str
    head_bytes: int
    head_hash: str
    rows: int
    first_pos: int
    stop_pos: int


class ShardProof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ordered entries and records of a shard, in the state that the files were planned with."""

    shard: int
    entries: int
    records: int
    committed: int
    digest: str


class PlanPoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The position of the plan's index snapshot in a log."""

    log: int
    term: int
    entry: int
    ended: bool


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a manifest.

    Attributes:
        digest: digest of the term in the state of the plan.
        snapshot: digest of the index snapshot that the plan was made from.
    """

    version: int
    term: int
    log: int
    end_pos: int
    committed: int
    digest: str
    shards: tuple[ShardProof, ...]
    snapshot: str
    points: tuple[PlanPoint, ...]
    slices: tuple[SliceFile, ...]
    rows: int
    row_sum: str
    losers: str
    dead: str
    lost: str
    entry_positions: str
    entry_times: str
    last_time_ms: int

    def dead_spans(self) -> U64:
        """Return the committed positions that were dead when the files were written."""
        return unpack_spans(self.dead)

    def lost_spans(self) -> U64:
        """Return the committed positions whose data had been given up."""
        return unpack_spans(self.lost)

    def fault(self) -> str | None:
        """Return the first rule that the manifest breaks, or None."""
        reached = 0
        for one in self.slices:
            if one.first_pos != reached or one.stop_pos < reached or one.rows > one.stop_pos - one.first_pos:
                return f"slices do not tile the term at position {reached}"
            reached = one.stop_pos
        if reached != self.end_pos:
            return f"slices end at position {reached} of {self.end_pos}"
        rows = sum(one.rows for one in self.slices)
        dead, lost = count_of(self.dead_spans()), count_of(self.lost_spans())
        if rows != self.rows or rows + dead + lost != self.committed:
            return f"{rows} rows, {dead} dead and {lost} lost records are not the {self.committed} that were committed"
        losers = unpack_spans(self.losers)
        if self.committed + count_of(losers) != self.end_pos:
            return f"{self.committed} committed records and {count_of(losers)} losers are not {self.end_pos} positions"
        together = np.concatenate([self.dead_spans(), self.lost_spans(), losers])
        if count_of(united(together)) != dead + lost + count_of(losers):
            return "a position is dead, lost or a loser twice"
        if sum(one.committed for one in self.shards) != self.committed:
            return "its shards have another number of committed records"
        return None


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest. Equal manifests have equal bytes."""
    return msgspec.json.encode(manifest)


def manifest_name(data: bytes) -> str:
    """Return the file name for the bytes of a manifest."""
    return f"manifest-{xxh3_128_hexdigest(data)}.json"


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Parse and check a manifest. Raises ColdDamaged.

    Args:
        name: the name of its file, which has its hash.
    """
    if name != manifest_name(data):
        raise ColdDamaged(
            f"expected {name}, found a file with the hash of {manifest_name(data)}: restore the file, or offload the term again"
        )
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except DECODE_FAULTS as error:
        raise ColdDamaged(f"{name} is no manifest: {error}") from error
    if manifest.version != VERSION:
        raise ColdDamaged(
            f"{name}: expected a manifest of version {VERSION}, found {manifest.version}: upgrade this program"
        )
    fault = manifest.fault()
    if fault is not None:
        raise ColdDamaged(f"{name}: {fault}")
    return manifest


# -- packed columns


def pack_column(values: NDArray[np.uint64] | NDArray[np.int64]) -> str:
    """Pack a column into text."""
    steps = np.diff(values.astype(np.uint64), prepend=np.uint64(0))
    return base64.b64encode(zstandard.compress(steps.tobytes(), 3)).decode()


def unpack_column(text: str) -> U64:
    """Unpack a column. Raises ColdDamaged."""
    try:
        packed = base64.b64decode(text, validate=True)
        if zstandard.get_frame_parameters(packed).content_size > PACKED_BYTES:
            raise ColdDamaged("a column of a manifest is too large")
        raw = zstandard.decompress(packed, max_output_size=PACKED_BYTES)
        return np.cumsum(np.frombuffer(raw, np.uint64), dtype=np.uint64)
    except (ValueError, zstandard.ZstdError) as error:
        raise ColdDamaged(f"a column of a manifest cannot be read: {error}") from error


def pack_spans(spans: U64) -> str:
    return pack_column(spans.reshape(-1))


def unpack_spans(text: str) -> U64:
    """Unpack ascending spans that do not touch. Raises ColdDamaged."""
    flat = unpack_column(text)
    if len(flat) % 2 or (len(flat) and (flat[1:] <= flat[:-1]).any()):
        raise ColdDamaged("spans of a manifest do not ascend")
    return flat.reshape(-1, 2) if len(flat) else NO_SPANS


def intersected(spans: U64, others: U64) -> U64:
    """Return the positions that lie in both of two lists of ascending spans, as ascending spans."""
    if not len(spans) or not len(others):
        return NO_SPANS
    few, many = (spans, others) if len(spans) <= len(others) else (others, spans)
    return united(np.concatenate([clipped(many, int(first), int(stop)) for first, stop in few.tolist()]))


def joined(folder: str, name: str) -> str:
    """Return the path of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}"


def folder_of(path: str) -> str:
    """Return the folder of a file."""
    return path.rpartition("/")[0]


def tiled(bounds: Sequence[int], end_pos: int) -> list[tuple[int, int]]:
    """Return the slices [first, stop) that begin at some positions; each ends where the next one begins, the first begins at 0."""
    firsts = [0, *bounds[1:]]
    return list(zip(firsts, [*firsts[1:], end_pos], strict=True))
