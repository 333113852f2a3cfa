"""Many records as one call: a few large frames, each of which is pending as one item, and a committed prefix.

Records go into chunks of up to `CHUNK_RECORDS`, or of a frame's size; a chunk waits for places in the window, so a call may be
larger than the window. After the first chunk that failed nothing more is submitted, and what was not sent is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from boki._appends import Appends
from boki._arguments import EncodedTags
from boki._bounds import FRAME_TARGET_BYTES
from boki._numbers import Numbers
from boki._ticket import Chunk
from boki._verdicts import unknown
from boki_common.errors import BokiError, InvalidArgument

CHUNK_RECORDS: Final = 256
"""Records that are pending as one item; their places in the window become free together."""


class First(NamedTuple):
    """The number that the first record must get, of a writer by its name."""

    number: int
    writer: str

    def check(self, numbers: Numbers) -> None:
        """Raises InvalidArgument when it would get another one now."""
        found = None if numbers.stale else numbers.next_number
        if found != self.number:
            raise InvalidArgument(
                f"expected {self.number} as the next number of writer {self.writer!r}, found {found or 'not known'}; nothing was sent",
                expected=self.number,
                found=found,
            )


async def append_many(
    appends: Appends,
    numbers: Numbers,
    encoded: list[tuple[EncodedTags, bytes]],
    timeout_s: float,
    first: First | None = None,
) -> list[int]:
    """Appends records in order; returns their seqnums. Errors have the committed prefix: see `Book.append_many`."""
    deadline = appends.connection.now() + timeout_s
    chunks: list[Chunk] = []
    try:
        await _submit_chunks(appends, numbers, encoded, chunks, deadline, first)
        for chunk in chunks:
            await appends.wait(numbers, chunk, deadline, timeout_s)
            if chunk.error is not None:
                raise chunk.error
    except BokiError as error:
        raise _prefix_error(appends, numbers, _error_of(chunks) or error, chunks, len(encoded)) from error
    return [seqnum for chunk in chunks for seqnum in chunk.seqnums]


async def _submit_chunks(
    appends: Appends,
    numbers: Numbers,
    encoded: list[tuple[EncodedTags, bytes]],
    chunks: list[Chunk],
    deadline: float,
    first: First | None,
) -> None:
    start = 0

    def submit_chunk(free: int) -> None:
        nonlocal start
        if first is not None and not start:
            first.check(numbers)  # who waited for a place before this was numbered before it
        if _error_of(chunks) is not None:
            return
        stop, size = chunk_end(encoded, start, free)
        chunk = Chunk(encoded[start:stop], size)
        appends.queue(numbers, chunk)
        chunks.append(chunk)
        start = stop

    while start < len(encoded) and _error_of(chunks) is None:
        await appends.take(numbers, max(deadline - appends.connection.now(), 0.0), submit_chunk)


def chunk_end(encoded: Sequence[tuple[EncodedTags, bytes]], start: int, free: int) -> tuple[int, int]:
    """Return where the chunk ends that begins at `start`, of at most `free` records, and its size in a frame."""
    end = min(start + free, start + CHUNK_RECORDS, len(encoded))
    size, stop = 0, start
    while stop < end and size < FRAME_TARGET_BYTES:
        tags, data = encoded[stop]
        size += tags.overhead_bytes + len(data)
        stop += 1
    return stop, size


def _error_of(chunks: list[Chunk]) -> BokiError | None:
    """Of the first that failed."""
    return next((chunk.error for chunk in chunks if chunk.error is not None), None)


def _prefix_error(appends: Appends, numbers: Numbers, error: BokiError, chunks: list[Chunk], total: int) -> BokiError:
    """Take back what was not sent; say what certainly is in the log, and whether more may be. Definite is only what is behind nothing
    that was committed: else part of the call was applied, and not as a prefix."""
    undecided = [chunk for chunk in reversed(chunks) if not chunk.decided]
    stuck = [chunk for chunk in undecided if not appends.take_back(numbers, chunk, error)]
    seqnums = _committed(chunks)
    behind = sum(seqnum > 0 for chunk in chunks for seqnum in chunk.seqnums) - len(seqnums)
    if stuck and error.definite:
        error = unknown(f"{error}", stuck[-1].first, numbers.writer, numbers.book)
    elif behind and error.definite:  # of a named writer, part of whose numbers another user took
        error = unknown(f"{error}", error.facts.get("number", chunks[0].first), numbers.writer, numbers.book)
    others = f", and {behind} behind the first that failed" if behind else ""
    facts = {**error.facts, "committed": len(seqnums), "seqnums": seqnums, "behind": behind}
    return type(error)(f"{error} ({len(seqnums)} of {total} records certainly are in the log{others})", **facts)


def _committed(chunks: list[Chunk]) -> list[int]:
    """Seqnums of the committed prefix."""
    seqnums: list[int] = []
    for chunk in chunks:
        for seqnum in chunk.seqnums:
            if seqnum <= 0:
                return seqnums
            seqnums.append(seqnum)
    return seqnums
