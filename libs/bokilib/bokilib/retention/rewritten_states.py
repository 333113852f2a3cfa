"""States that are appended anew, many to a record: what libraries carry out of old terms (`carrier`), where it is one event each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from boki_common.errors import Conflict
from boki_common.limits import MIB, RECORD_EXPECTATIONS, RECORD_TAGS
from bokilib.append.log import Log
from bokilib.records.conflict_rules import Expected
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event, encode_events

REWRITTEN_BYTES: Final = MIB // 2


class Load(NamedTuple):
    """One state to carry: its size, and how many tags and expectations it adds to a record."""

    subject: str
    size: int
    tags: int = 1
    expectations: int = 1


def batches(loads: Sequence[Load], *, bytes_limit: int = REWRITTEN_BYTES) -> list[list[Load]]:
    """As few records as take all loads, in order; a load that is too large for any is alone, and goes in parts.

    One tag and one expectation are left for the fence.
    """
    found: list[list[Load]] = []
    size = tags = expectations = 0
    for load in loads:
        size, tags, expectations = size + load.size, tags + load.tags, expectations + load.expectations
        if not found or size > bytes_limit or tags >= RECORD_TAGS or expectations >= RECORD_EXPECTATIONS:
            found.append([])
            size, tags, expectations = load.size, load.tags, load.expectations
        found[-1].append(load)
    return found


class State(NamedTuple):
    """What is newest of a stream, to be the newest of it once more.

    Attributes:
        stream: which it joins. position: as of which it is the state: nothing of the stream is newer.
    """

    stream: str
    position: int
    event: Event


async def append_states(log: Log, states: Iterable[State], fence: Expected, *, seen: int = 0) -> dict[str, int]:
    """Appends what is still the newest of its stream; returns where each is. What moved meanwhile somebody else made anew.

    Args:
        seen: as in `Log.append`.

    Raises:
        Conflict: the fence moved.
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
