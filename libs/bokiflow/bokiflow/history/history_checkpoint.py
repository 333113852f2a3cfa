"""What makes a living workflow's history shorter, and trims what is not needed then: checkpoints and restarts.

A checkpoint goes with a claim of whoever runs the workflow, so all that was written before may go: what began it, too. Only one record
of a workflow is under way at a time, so when it is made all that there is can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bokiflow.history import inspection
from bokiflow.model import history_fold, records
from bokiflow.model.flow_events import Checkpointed, Claimed
from bokiflow.model.history_fold import PART_TOPICS, History
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.retention.trimmer import Trimmer


def checkpoint_parts(place: records.InstanceStreams, history: History, covers: int) -> list[Contribution]:
    """The records of a checkpoint, without what they expect."""
    data = history_fold.encode(history)
    topics = history.topics
    found = []
    for at, part in enumerate(data):
        some = output_tags(place.id, topics[at * PART_TOPICS : (at + 1) * PART_TOPICS])
        event = Checkpointed(place.id, covers, at, len(data), part)
        found.append(Contribution((place.history, *some), {}, (event,)))
    return found


async def append_checkpoint(
    log: Log, place: records.InstanceStreams, held: Mapping[str, int | None], owner: str, blocked: str = ""
) -> tuple[int, History]:
    """Makes a checkpoint of a workflow that is held, nothing of which is under way; returns the claim that holds it now.

    Args:
        owner: who runs it; "" if nobody can, because it is `blocked`.

    Raises:
        Conflict: somebody else runs it. Trimmed: the same.
    """
    covers = await log.book.now()
    history = await inspection.history(log, place.id, covers)
    started = history.started
    claimed = Claimed(
        place.id,
        owner,
        held[place.own] or 0,
        history.start,
        started.name,
        started.digest,
        started.group,
        started.attributes,
        blocked,
    )
    *others, last = checkpoint_parts(place, history, covers)
    for part in others:
        await log.append(Contribution(part.tags, held, part.events), seen=covers, settle=True)
    told = (place.blocked,) if blocked else ()
    joined = (place.own, *told, *last.tags, *records.attribute_tags(place.id, started.attributes))
    one = Contribution(joined, held, (*last.events, claimed))
    return await log.append(one, seen=covers, settle=True), history._replace(covers=covers)


def trim_history(trimmer: Trimmer, place: records.InstanceStreams, history: History, claim: int) -> None:
    """Trims what a checkpoint that goes with a claim replaces."""
    trimmer.add(place.own, claim)
    trimmer.add(place.history, history.covers + 1)
    for tag in output_tags(place.id, history.topics):
        trimmer.add(tag, history.covers + 1)


async def trim_history_now(log: Log, place: records.InstanceStreams, history: History, claim: int) -> None:
    """The same, at once."""
    trimmer = Trimmer(log.book)
    trim_history(trimmer, place, history, claim)
    await trimmer.flush()


async def trim_history_before(log: Log, place: records.InstanceStreams, restart: int, seen: int) -> None:
    """Trims what a restart replaces: all before it, but for what came from others and was not delivered yet."""
    history = await inspection.history(log, place.id, restart)
    waiting = [one.seqnum for one in history.records if seen < one.seqnum < restart]
    if waiting and waiting[0] <= history.covers:
        return  # it is in a checkpoint of before, which is needed as long
    await log.book.trim([(place.history, min([*waiting, restart]))])


def output_tags(id: str, topics: Iterable[str]) -> list[str]:
    """Streams of what a workflow emitted."""
    return [tags.flow_output(id, topic) for topic in topics]
