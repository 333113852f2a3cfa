"""The records of a workflow: the streams that each joins, and its expectations. Pure.

All records of the workflow's worker expect the fence `flow/own/<id>`. Only those of Started, Claimed and Ended join it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from boki_common.errors import InvalidArgument
from bokiflow.model.flow_events import Claimed, Emitted, Ended, Incoming, Resumed, Started, Unlocked
from bokiflow.model.lock_rules import Released
from bokilib.records import tags
from bokilib.records.arguments import check_text as check_text
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event

ATTRIBUTES: Final = 8
TEXT_CHARS: Final = 4096
"""The longest id or topic that workflow code names, so that it fits into a record beside a value. Ids of children, which are made from
those of their parents, may be longer than an id that a client chooses."""


class InstanceStreams(NamedTuple):
    """The streams of a workflow, and of its partition (`to_workers`, `starts`, `ends`, `partition_owner`) and group (`blocked`)."""

    id: str
    group: str

    @property
    def partition(self) -> int:
        return tags.partition_of(self.id)

    @property
    def fence(self) -> str:
        return tags.flow_own(self.id)

    @property
    def history(self) -> str:
        return tags.flow_history(self.id)

    @property
    def to_workers(self) -> str:
        """Messages that workers follow."""
        return tags.flow_to(self.group, self.partition)

    @property
    def starts(self) -> str:
        return tags.flow_part(self.group, self.partition)

    @property
    def ends(self) -> str:
        return tags.flow_done(self.group, self.partition)

    @property
    def blocked(self) -> str:
        """Workflows of the group that became blocked or were resumed."""
        return tags.flow_blocked(self.group)

    @property
    def partition_owner(self) -> str:
        return tags.flow_partition_owner(self.group, self.partition)


def check_short_text(what: str, found: object, *, least: int = 0) -> str:
    """Return an argument that is text of `least` to `TEXT_CHARS` characters. Raises InvalidArgument."""
    text = check_text(what, found)
    if not least <= len(text) <= TEXT_CHARS:
        raise InvalidArgument(
            f"expected {what} of {least} to {TEXT_CHARS:,} characters, found {len(text):,}: {text[:80]!r}",
            found=text[:80],
        )
    return text


def check_timeout_s(found: object) -> None:
    """Check a timeout in seconds; None is none. Raises InvalidArgument."""
    if found is None or (isinstance(found, int | float) and not isinstance(found, bool) and found > 0):
        return
    raise InvalidArgument(
        f"expected timeout_s of more than 0 s (int or float), found {found!r:.80} ({type(found).__name__})",
        found=found,
    )


def check_time_ms(what: str, found: object) -> int:
    """Return an argument that is a time in whole milliseconds since 1970 UTC; 0 is none. Raises InvalidArgument."""
    if type(found) is not int or not 0 <= found < 2**63:
        raise InvalidArgument(
            f"expected {what} in whole milliseconds since 1970 UTC (int), found {found!r:.80} ({type(found).__name__})",
            found=found,
        )
    return found


def check_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of a new workflow. Raises InvalidArgument."""
    if not isinstance(attributes, Mapping):
        raise InvalidArgument(
            f"expected attributes as a dict of text, found {attributes!r:.80} ({type(attributes).__name__})",
            found=attributes,
        )
    if len(attributes) > ATTRIBUTES or not all(isinstance(one, str) for pair in attributes.items() for one in pair):
        raise InvalidArgument(f"expected up to {ATTRIBUTES} attributes of text, found {attributes}")
    for pair in attributes.items():
        for one in pair:
            check_text("an attribute", one)
    return dict(attributes)


def start(started: Started, partition_claim: int) -> Contribution:
    """Return the record that starts a workflow. Without an owner, it is also a message to the owner of the partition.

    `partition_claim` is the claim by which `started.owner` owns the partition, and 0 without an owner.
    """
    streams = InstanceStreams(started.id, started.group)
    attributes = attribute_tags(started.id, started.attributes)
    expect: dict[str, int | None] = {streams.fence: None}
    joined = [streams.fence, streams.history, streams.starts, *attributes]
    if started.owner:
        expect[streams.partition_owner] = partition_claim
    else:
        joined.append(streams.to_workers)
    return Contribution(tuple(joined), expect, (started,))


def attribute_tags(id: str, attributes: Mapping[str, str]) -> list[str]:
    """Return the streams by which a workflow with these attributes is found."""
    return [tags.flow_attribute(tags.partition_of(id), name, value) for name, value in sorted(attributes.items())]


def claim(streams: InstanceStreams, claimed: Claimed, last: int, partition_claim: int | None) -> Contribution:
    """Return the record by which a worker claims or blocks a workflow.

    Args:
        last: the claim that it replaces.
        partition_claim: the worker's claim of the partition; None if it does not own it. A claim without it, and one that blocks the
            workflow, is also a message to all workers of the group.
    """
    expect: dict[str, int | None] = {streams.fence: last}
    if partition_claim is not None:
        expect[streams.partition_owner] = partition_claim
    told = (streams.blocked,) if claimed.blocked or partition_claim is None else ()
    return Contribution((streams.fence, *told), expect, (claimed,))


def worker_event(streams: InstanceStreams, event: Event, held: Mapping[str, int | None]) -> Contribution:
    """Return the record of an event of the workflow's worker. `held` has the claims that it expects."""
    joined, also = [streams.history], []
    if isinstance(event, Emitted):
        joined.append(tags.flow_output(streams.id, event.topic))
    elif isinstance(event, Unlocked):
        joined.append(tags.lock(event.name))
        also.append(Released(event.name, streams.id, event.key))
    return Contribution(tuple(joined), held, (event, *also))


def end(streams: InstanceStreams, ended: Ended, held: Mapping[str, int | None]) -> Contribution:
    return Contribution((streams.fence, streams.history, streams.ends), held, (ended,))


def send(streams: InstanceStreams, event: Incoming) -> Contribution:
    """Return the record of a message of another process, without expectations."""
    return Contribution((streams.history, streams.to_workers), {}, (event,))


def resume(streams: InstanceStreams, event: Resumed) -> Contribution:
    """Return the record that asks the owner of the partition, and workers that lack the code, to run a workflow again."""
    return Contribution((streams.to_workers, streams.blocked), {}, (event,))
