"""Compresses the data of an entry with zstd, where it pays (DESIGN §6.2). Pure.

Level 1: it doubles the processor time of an entry at most, and halves the bytes that go to every replica. Small entries, and
data that shrinks by less than an eighth, stay as they are.
"""

from __future__ import annotations

from typing import Final

import zstandard

from boki_common import limits
from boki_common.records.record_batch import Compress
from boki_common.runtime.ports import Buffer

LEVEL: Final = 1
LEAST_BYTES: Final = 4 * limits.KIB


def compressor() -> Compress:
    """A function for `record_batch.join`. It keeps one zstd context, so it is for one event loop."""
    context = zstandard.ZstdCompressor(level=LEVEL, write_content_size=True)

    def compress(data: Buffer) -> bytes | None:
        if len(data) < LEAST_BYTES:
            return None
        compressed = context.compress(data)
        return compressed if len(compressed) <= len(data) - len(data) // 8 else None

    return compress
