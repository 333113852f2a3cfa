"""Rewriting of old states: the newest state of each of many streams is appended again, many states to a record.

Storage is reclaimed in whole terms, so one live record keeps its term. A live state is therefore rewritten before its term is a day old,
and trimmed where it was. `carrier` decides when, and `checkpoint_rules.must_rewrite` which checkpoints. This module is for libraries
whose state of a stream is one event.

- A *state* is rewritten, never an event of a history. A repeated event would have another seqnum, and results that depend on seqnums
  (the order of locks, of messages) would change.
- A state is rewritten as of the snapshot at which it was read, with an expectation of its stream. If the stream has moved, another
  process wrote it, and it is skipped.
- The old record is trimmed only after the new one is readable, and never above `covers`.

`batches` is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from boki_common.errors import Conflict
from boki_common.limits import MIB, RECORD_EXPECTATIONS, RECORD_TAGS
from bokilib.append.batches import Batches
from bokilib.append.log import Log
from bokilib.records.conflict_rules import Expected
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event, encode_events

REWRITTEN_BYTES: Final = MIB // 2


class Load(NamedTuple):
    """A state to rewrite: its stream, its bytes, and the tags and expectations that it adds to a record."""

    subject: str
    size: int
    tags: int = 1
    expectations: int = 1


def batches(loads: Sequence[Load], *, bytes_limit: int = REWRITTEN_BYTES) -> list[list[Load]]:
    """Group loads into as few records as possible, in order, with one tag and one expectation left for the fence.

    A load that is too large for one record is a group of its own; its library appends it in parts.
    """
    found: Batches[Load, None] = Batches(bytes_limit, RECORD_TAGS - 1, RECORD_EXPECTATIONS - 1)
    for load in loads:
        found.add(load, load.size, load.tags, load.expectations)
    return [batch.items for batch in found if batch.items]


class State(NamedTuple):
    """The newest state of a stream.

    Attributes:
        stream: the tag that the rewritten state joins.
        position: the position as of which no record of the stream is newer.
        event: the state.
    """

    stream: str
    position: int
    event: Event


async def append_states(log: Log, states: Iterable[State], fence: Expected, *, seen: int = 0) -> dict[str, int]:
    """Append each state that is still the newest of its stream. Skip streams that moved: another process has written them.

    Args:
        log: the log of the book.
        states: one for each stream.
        fence: the expectation of the caller's claim.
        seen: as in `Log.append`.

    Returns:
        The seqnum of each appended state, by stream.

    Raises:
        Conflict: the fence was claimed by another process.
    """
    wanted = {state.stream: state for state in states}
    made: dict[str, int] = {}
    for batch in batches([Load(name, len(encode_events([state.event]))) for name, state in wanted.items()]):
        left = [load.subject for load in batch]
        while left:
            expect = {**fence, **{stream: wanted[stream].position for stream in left}}
            one = Contribution(tuple(left), expect, tuple(wanted[stream].event for stream in left))
            try:
                made.update(dict.fromkeys(left, await log.append(one, seen=seen, settle=True)))
                break
            except Conflict as conflict:
                moved = log.moved(expect, conflict).keys()
                if moved.isdisjoint(left) or not moved.isdisjoint(fence):
                    raise
                left = [stream for stream in left if stream not in moved]
    return made
