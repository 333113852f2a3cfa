"""The manifest of an offloaded term: which files have its records, and the proof that these are all. Pure.

A JSON file that is named by its hash, so what a term record names is what was written. Rules, checked whenever one is read:

- Slices tile the positions of the term, [0, end): each position is of one slice.
- rows + dead + lost = committed: what no slice has was dead when the files were written, or given up. `losers` never were records.
- Each file is listed with its bytes and its hash; names are those of one attempt and are never used again.
- `row_sum` is the sum of a hash of each row, whatever their order: files that are read back give the same.
- Whoever reads compares `digest` with that of his own state: of a term whose verdicts changed (LOST) the files are not the truth.

Spans and times are columns, packed: u64 as differences, zstd, base64.
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
from boki_logbook.scan.plan import NO_SPANS, count_of, united
from boki_spark.errors import ColdDamaged

VERSION: Final = 1
PACKED_BYTES: Final = 1 << 30
"""No column of a manifest unpacks to more."""


class SliceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One Parquet file and its side index. Names are relative to the manifest's folder; it has the positions [first, stop).

    Attributes:
        footer_bytes, footer_hash: of the end of the file, which says where its columns are.
        head_bytes, head_hash: of the beginning of the side index, which has the hashes of all else that is read by itself.
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
    """What was ordered of a shard, by the state that the files were planned with."""

    shard: int
    entries: int
    records: int
    committed: int
    digest: str


class PlanPoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far the snapshot of the plan is in a log."""

    log: int
    term: int
    entry: int
    ended: bool


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See the module. `digest`: of the term (`places`); `snapshot`: of the index snapshot that planned."""

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
        """Committed positions that were dead when the files were written."""
        return unpack_spans(self.dead)

    def lost_spans(self) -> U64:
        """Committed positions whose data had been given up."""
        return unpack_spans(self.lost)

    def fault(self) -> str | None:
        """What cannot be right of it; None: nothing."""
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
    """Its bytes; equal manifests have equal ones."""
    return msgspec.json.encode(manifest)


def manifest_name(data: bytes) -> str:
    """The file that holds these bytes."""
    return f"manifest-{xxh3_128_hexdigest(data)}.json"


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Reads a manifest and checks it. `name`: of its file, which says its hash. Raises ColdDamaged."""
    if name != manifest_name(data):
        raise ColdDamaged(
            f"expected {name}, found {manifest_name(data)} in its place: restore the file, or offload again"
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
    """A column as text."""
    steps = np.diff(values.astype(np.uint64), prepend=np.uint64(0))
    return base64.b64encode(zstandard.compress(steps.tobytes(), 3)).decode()


def unpack_column(text: str) -> U64:
    """Raises ColdDamaged."""
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
    """Ascending spans, not touching. Raises ColdDamaged."""
    flat = unpack_column(text)
    if len(flat) % 2 or (len(flat) and (flat[1:] <= flat[:-1]).any()):
        raise ColdDamaged("spans of a manifest do not ascend")
    return flat.reshape(-1, 2) if len(flat) else NO_SPANS


def joined(folder: str, name: str) -> str:
    """A path below a folder."""
    return f"{folder.rstrip('/')}/{name}"


def folder_of(path: str) -> str:
    """Where a file is."""
    return path.rpartition("/")[0]


def tiled(bounds: Sequence[int], end_pos: int) -> list[tuple[int, int]]:
    """Slices that begin at these positions, and end where the next one begins: [first, stop) of each."""
    firsts = [0, *bounds[1:]]
    return list(zip(firsts, [*firsts[1:], end_pos], strict=True))
