"""Records of one workflow: what a record joins and expects, for each thing that is written. Pure.

The fence `flow/own/<id>` is expected by all that the executor appends, and joined by Started, Claimed and Ended only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from boki_common.errors import InvalidArgument
from bokiflow.model.flow_events import Claimed, Emitted, Ended, Incoming, Resumed, Started, Unlocked
from bokiflow.model.lock_rules import Released
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event

ATTRIBUTES: Final = 8


class InstanceStreams(NamedTuple):
    """Where a workflow's records are: its streams, and its partition's."""

    id: str
    group: str

    @property
    def partition(self) -> int:
        """Of its id."""
        return tags.partition_of(self.id)

    @property
    def own(self) -> str:
        """Its fence."""
        return tags.flow_own(self.id)

    @property
    def history(self) -> str:
        """What happened."""
        return tags.flow_history(self.id)

    @property
    def to(self) -> str:
        """What workers follow."""
        return tags.flow_to(self.group, self.partition)

    @property
    def part(self) -> str:
        """What was started."""
        return tags.flow_part(self.group, self.partition)

    @property
    def done(self) -> str:
        """What ended."""
        return tags.flow_done(self.group, self.partition)

    @property
    def blocked(self) -> str:
        """What is blocked in its group, and not any more."""
        return tags.flow_blocked(self.group)

    @property
    def partition_owner(self) -> str:
        """The fence of its partition."""
        return tags.flow_partition_owner(self.group, self.partition)


def check_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes that a workflow begins with. Raises InvalidArgument."""
    if len(attributes) > ATTRIBUTES or not all(isinstance(one, str) for pair in attributes.items() for one in pair):
        raise InvalidArgument(f"expected up to {ATTRIBUTES} attributes of text, found {attributes}")
    return dict(attributes)


def start(started: Started, partition_claim: int) -> Contribution:
    """A workflow begins. With an owner, that owns its partition; else the one who does gets it.

    Args:
        partition_claim: of the owner, 0 without one.
    """
    place = InstanceStreams(started.id, started.group)
    attributes = attribute_tags(started.id, started.attributes)
    expect: dict[str, int | None] = {place.own: None}
    joined = [place.own, place.history, place.part, *attributes]
    if started.owner:
        expect[place.partition_owner] = partition_claim
    else:
        joined.append(place.to)
    return Contribution(tuple(joined), expect, (started,))


def attribute_tags(id: str, attributes: Mapping[str, str]) -> list[str]:
    """Streams by which a workflow can be found."""
    return [tags.flow_attribute(tags.partition_of(id), name, value) for name, value in sorted(attributes.items())]


def claim(place: InstanceStreams, claimed: Claimed, last: int, partition_claim: int | None) -> Contribution:
    """A worker takes a workflow over from the worker that had the claim `last`; or blocks it.

    Args:
        partition_claim: of the worker, None if it does not own the partition. Then, and if it blocks the workflow, all workers of the group
            are to know.
    """
    expect: dict[str, int | None] = {place.own: last}
    if partition_claim is not None:
        expect[place.partition_owner] = partition_claim
    told = (place.blocked,) if claimed.blocked or partition_claim is None else ()
    return Contribution((place.own, *told), expect, (claimed,))


def own(place: InstanceStreams, event: Event, held: Mapping[str, int | None]) -> Contribution:
    """Something that its executor writes. `held`: its fence."""
    joined, also = [place.history], []
    if isinstance(event, Emitted):
        joined.append(tags.flow_output(place.id, event.topic))
    elif isinstance(event, Unlocked):
        joined.append(tags.lock(event.name))
        also.append(Released(event.name, place.id, event.key))
    return Contribution(tuple(joined), held, (event, *also))


def end(place: InstanceStreams, ended: Ended, held: Mapping[str, int | None]) -> Contribution:
    """It ended."""
    return Contribution((place.own, place.history, place.done), held, (ended,))


def send(place: InstanceStreams, event: Incoming) -> Contribution:
    """An event from outside, without a condition."""
    return Contribution((place.history, place.to), {}, (event,))


def resume(place: InstanceStreams, event: Resumed) -> Contribution:
    """Ask the owner of its partition, and workers that could not run it, to try it again."""
    return Contribution((place.to, place.blocked), {}, (event,))
