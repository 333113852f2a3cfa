"""Isolation levels: the expectations of a transaction's record, from the streams that it read and wrote. Pure.

    snapshot       {written: snapshot}            of two transactions that write one object, the first to commit wins
    serializable   {read and written: snapshot}   transactions take effect as if they ran one after the other

- The snapshot is taken *before* the first read. A position taken later would cover records that the reads did not see.
- None ("never had a record") is for ids that must be new, once in the life of a book. An object that does not exist is expected as of
  the snapshot, like any other; otherwise a deleted object could not be created again.
- Of two expectations of one stream the lower one counts. It fails for every record that either transaction has not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias, get_args

from boki_common.errors import InvalidArgument
from bokilib.records.conflict_rules import Expected

Isolation: TypeAlias = Literal["snapshot", "serializable"]
ISOLATIONS: Final[tuple[Isolation, ...]] = get_args(Isolation)


def check_isolation(isolation: str) -> Isolation:
    """Check the name of an isolation level, and return it.

    Raises:
        InvalidArgument: there is no such level; the message lists them.
    """
    for known in ISOLATIONS:
        if isolation == known:
            return known
    raise InvalidArgument(f"expected isolation to be one of {list(ISOLATIONS)}, found {isolation!r}", found=isolation)


def expectations(
    isolation: Isolation, snapshot: int, *, read: Iterable[str], written: Iterable[str]
) -> dict[str, int | None]:
    """Return the expectations of a transaction's record.

    Args:
        isolation: the level.
        snapshot: the position taken before the first read.
        read: the streams that the transaction read, in an order that does not depend on hashes.
        written: the streams that it writes, likewise.
    """
    assert snapshot > 0, "a snapshot is a seqnum: `await book.now()`"
    streams = [*written, *read] if isolation == "serializable" else written
    return dict.fromkeys(streams, snapshot)


def lowest(several: Iterable[Mapping[str, int | None]]) -> dict[str, int | None]:
    """Merge the expectations of several contributions: for each stream the strictest one, None before the lowest seqnum."""
    joined: dict[str, int | None] = {}
    for expected in several:
        for tag, seqnum in expected.items():
            if tag not in joined:
                joined[tag] = seqnum
            else:
                before = joined[tag]
                joined[tag] = None if before is None or seqnum is None else min(before, seqnum)
    return joined


def holds(expected: Expected, newest: Mapping[str, int]) -> bool:
    """Return whether expectations hold for the newest seqnums of streams, by the log's own rule."""
    return all(newest.get(tag, 0) <= (seqnum or 0) for tag, seqnum in expected.items())
