"""Checkpoints of running workflows' histories, and the trims that checkpoints and restarts allow.

A checkpoint goes with a claim of the worker that runs the workflow, so all older records can be trimmed, the start among them. A workflow
has one append in flight at a time, so the checkpoint covers its whole history.
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


def checkpoint_parts(streams: records.InstanceStreams, history: History, covers: int) -> list[Contribution]:
    """Return the records of a checkpoint, without expectations."""
    data = history_fold.encode(history)
    topics = history.topics
    found = []
    for at, part in enumerate(data):
        some = output_tags(streams.id, topics[at * PART_TOPICS : (at + 1) * PART_TOPICS])
        event = Checkpointed(streams.id, covers, at, len(data), part)
        found.append(Contribution((streams.history, *some), {}, (event,)))
    return found


async def append_checkpoint(
    log: Log,
    streams: records.InstanceStreams,
    held: Mapping[str, int | None],
    owner: str,
    blocked: str = "",
    *,
    own_uniques: bool,
) -> tuple[int, History]:
    """Append a checkpoint of a workflow that has no append in flight, with a claim.

    Args:
        held: the claims that the records expect.
        owner: the worker that runs the workflow; "" if it is blocked.
        own_uniques: as the claim that this one replaces has it.

    Returns:
        The new claim, and the history that the checkpoint covers.

    Raises:
        Conflict, Trimmed: another worker claimed the workflow.
    """
    covers = await log.book.now()
    history = await inspection.history(log, streams.id, covers)
    started = history.started
    claimed = Claimed(
        streams.id,
        owner,
        held[streams.fence] or 0,
        history.start,
        started.name,
        started.digest,
        started.group,
        started.attributes,
        blocked,
        own_uniques=own_uniques,
    )
    *others, last = checkpoint_parts(streams, history, covers)
    for part in others:
        await log.append(Contribution(part.tags, held, part.events), seen=covers, settle=True)
    told = (streams.blocked,) if blocked else ()
    joined = (streams.fence, *told, *last.tags, *records.attribute_tags(streams.id, started.attributes))
    one = Contribution(joined, held, (*last.events, claimed))
    return await log.append(one, seen=covers, settle=True), history._replace(covers=covers)


def trim_history(trimmer: Trimmer, streams: records.InstanceStreams, history: History, claim: int) -> None:
    """Queue the trims of the records that a checkpoint with this claim replaces."""
    trimmer.add(streams.fence, claim)
    trimmer.add(streams.history, history.covers + 1)
    for tag in output_tags(streams.id, history.topics):
        trimmer.add(tag, history.covers + 1)


async def trim_history_now(log: Log, streams: records.InstanceStreams, history: History, claim: int) -> None:
    """Trim the records that a checkpoint with this claim replaces."""
    trimmer = Trimmer(log.book)
    trim_history(trimmer, streams, history, claim)
    await trimmer.flush()


async def trim_history_before(log: Log, streams: records.InstanceStreams, restart: int, seen: int) -> None:
    """Trim the records that a restart replaces: all before its first one except messages that are not delivered yet."""
    history = await inspection.history(log, streams.id, restart)
    waiting = [one.seqnum for one in history.records if seen < one.seqnum < restart]
    if waiting and waiting[0] <= history.covers:
        return  # the message is in an older checkpoint, which stays until the message is delivered
    await log.book.trim([(streams.history, min([*waiting, history.restart_from or restart, restart]))])


def output_tags(id: str, topics: Iterable[str]) -> list[str]:
    """Return the streams of a workflow's emitted topics."""
    return [tags.flow_output(id, topic) for topic in topics]
