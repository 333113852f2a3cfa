"""From what a transaction read and wrote to what its record expects. Pure.

    snapshot       {written: snapshot}            two that write one object: the first to commit wins
    serializable   {read and written: snapshot}   as if they ran one after the other

- The snapshot was taken *before* the first read. A position taken after reads expects what was never seen.
- None ("none at all, ever") is for ids that must be new, once in the life of a book. An object that does not exist is
  expected as of the snapshot, like any other: else nobody could make one again that was deleted.
- Of two expectations of one stream the lower one counts: what the higher one missed, it saw and the lower did not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias, get_args

from boki_common.errors import InvalidArgument
from bokilib.records.conflict_rules import Expected

Isolation: TypeAlias = Literal["snapshot", "serializable"]
ISOLATIONS: Final[tuple[Isolation, ...]] = get_args(Isolation)


def check_isolation(isolation: str) -> Isolation:
    """Raises InvalidArgument naming the choices."""
    for known in ISOLATIONS:
        if isolation == known:
            return known
    raise InvalidArgument(f"expected isolation to be one of {list(ISOLATIONS)}, found {isolation!r}", found=isolation)


def expectations(
    isolation: Isolation, snapshot: int, *, read: Iterable[str], written: Iterable[str]
) -> dict[str, int | None]:
    """What the record of a transaction expects of the streams that it read and wrote.

    Args:
        snapshot: taken before the first read.
        read: streams, in any order that does not depend on hashes.
    """
    assert snapshot > 0, "a snapshot is a seqnum: `await book.now()`"
    streams = [*written, *read] if isolation == "serializable" else written
    return dict.fromkeys(streams, snapshot)


def lowest(several: Iterable[Mapping[str, int | None]]) -> dict[str, int | None]:
    """Expectations of one record for several members: of each stream what the strictest of them expects."""
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
    """Whether expectations hold, given the newest seqnums of streams: the log's own rule, for plans and tests."""
    return all(newest.get(tag, 0) <= (seqnum or 0) for tag, seqnum in expected.items())
