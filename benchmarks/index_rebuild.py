"""How fast an engine's index grows from entry headers, and what a row of it weighs. Runs in a process of its own.

    python -m benchmarks.index_rebuild RECORDS          → one line of JSON

Headers of 256 records (one run, one tag a record out of 1,000) are made beforehand; measured is what a restarting engine
does with each: parse and check it, decide its verdicts, add its rows for tag 0 and for the tag, note where the entry lies.
Memory is what the process grew by, so nothing that the rows need is left out; what the allocator merely keeps for later is
given back first.
"""

from __future__ import annotations

import ctypes
import gc
import json
import struct
import sys
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Final

import psutil

from boki_common import ids
from boki_common.ids import Seqnum
from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.record_batch import RecordBatch, join
from boki_common.records.tag_names import NO_NAMES
from boki_logbook.index.index import Index
from boki_logbook.index.places import Places
from boki_logbook.writers.verdict import Verdicts

BATCH_RECORDS: Final = 256
TAGS: Final = 1_000
BOOK: Final = 7
WRITER: Final = bytes(16)


class _Joining:
    """Lets the committed records of one batch join the index."""

    def __init__(self, index: Index, batch: RecordBatch, first_seqnum: Seqnum) -> None:
        self._index, self._batch, self._first_seqnum = index, batch, first_seqnum

    def commit(self, first: int, stop: int) -> None:
        self._index.add(self._batch, first, stop, self._first_seqnum)

    def newest(self, book: int, tag: int) -> int:
        return self._index.newest(book, tag)

    def newest_before(self, book: int, tags: Sequence[int], records: Sequence[int]) -> None:
        """Whatever is expected is looked at record by record."""


def headers(records: int) -> Iterator[bytes]:
    """Entry headers as an engine pushes them or reads them back."""
    tags = [struct.pack("<Q", 0x9E3779B97F4A7C15 * (number + 1) % (2**64 - 2) + 1) for number in range(TAGS)]
    for first in range(0, records, BATCH_RECORDS):
        builder = BatchBuilder()
        builder.start_run(BOOK, WRITER, first + 1, first + 1)
        for number in range(first, min(first + BATCH_RECORDS, records)):
            builder.add(tags[number * 7919 % TAGS], 1, NO_NAMES, b"")
        batch = RecordBatch.parse(memoryview(b"".join(builder.finish())))
        joined = join([batch], term=1, shard=1, first_local_id=first)
        yield bytes(RecordBatch.parse(memoryview(b"".join(joined))).header)


def rebuild(entries: list[bytes]) -> tuple[Index, Places]:
    """What an engine does at start, without reading the entries."""
    index, places, verdicts = Index(), Places(), Verdicts()
    term = places.begin(1, 0)
    for number, entry in enumerate(entries):
        batch = RecordBatch.parse(memoryview(entry), header_only=True)
        first_seqnum = ids.seqnum(1, term.end_pos)
        verdicts.decide(batch.runs, batch.expectations, first_seqnum, _Joining(index, batch, first_seqnum))
        term.add_entry(1, number, batch.record_count, 1_700_000_000_000)
    index.freeze()
    return index, places


def measure(records: int) -> dict[str, float]:
    """Rate, and bytes per row of the index (two rows a record: tag 0 and its tag)."""
    entries = list(headers(records))
    rebuild(entries[:64])  # imports, caches
    gc.collect()
    gc.freeze()
    _give_back()
    process = psutil.Process()
    before = process.memory_info().rss
    started = perf_counter()
    index, places = rebuild(entries)
    seconds = perf_counter() - started
    gc.collect()
    _give_back()
    grown = process.memory_info().rss - before
    return {
        "records_per_s": records / seconds,
        "rows": len(index),
        "process_bytes_per_row": grown / len(index),
        "index_bytes_per_row": (index.bytes + places.bytes) / len(index),
    }


def _give_back() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc
        trim(0)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(int(sys.argv[1]))) + "\n")
