"""States that are appended anew, many to a record: what libraries carry out of old terms (`carrier`), where it is one event each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from boki_common.errors import Conflict
from bokilib.append.log import Log
from bokilib.records.conflict_rules import Expected
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event, encode_events
from bokilib.retention.carry_rules import Load, batches


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
