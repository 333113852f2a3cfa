"""The workers of an app and when they were seen last, by their heartbeats in the log; for people.

A worker counts as silent after `SILENT_MS`, which is longer than the default lease. Workers judge each other by what they observe, and
take partitions over by that; here nothing is decided.

Workers name the workflows that they have code of in their heartbeats, unless the names are too many or the worker is of an older version.

A workflow is shown as held back (`bokiflow.worker.held_back`) if its partition was taken over since its worker was seen last, its
newest claim names a pause, and that has not passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import boki
from boki_common.errors import Trimmed
from boki_gateway.pages.texts import printable, span_text
from bokiflow.client.app import RESERVED
from bokiflow.history.instance_state import InstanceState
from bokiflow.model.flow_events import PICKER as FLOW_PICKER
from bokiflow.model.flow_events import Claimed, Leaving, PartitionClaimed
from bokiflow_tools.wording import worker_text
from bokilib.append.log import Log
from bokilib.errors import ForeignRecord, UnknownEvent
from bokilib.follow.members import PICKER, Heartbeat
from bokilib.records import tags

SILENT_MS: Final = 60_000


class Living(NamedTuple):
    """The workers of a group and the partitions they own.

    Attributes:
        seen: when each worker was seen last, by the clock of the log.
        now_ms: the time now, by the clock of this program.
        owners: the owner of each partition, with the time of its claim.
        left: workers that were drained and run nothing any more.
        code: the names of the workflows that each worker has code of; without a worker that does not say.
    """

    seen: Mapping[str, int]
    now_ms: int
    owners: Mapping[int, tuple[str, int]] = MappingProxyType({})
    left: frozenset[str] = frozenset()
    code: Mapping[str, frozenset[str]] = MappingProxyType({})

    def unseen_ms(self, held: InstanceState) -> int | None:
        """Return for how long the worker of a workflow has been silent; None if it was never seen or no worker runs the workflow."""
        seen_ms = self.seen.get(held.owner)
        return None if held.ended is not None or seen_ms is None else max(0, self.now_ms - seen_ms)

    def has_code(self, name: str) -> bool | None:
        """Return whether a living worker has code of a workflow; None if that is not known, or no worker is alive."""
        living = self._living
        if not living or not name or name.startswith(RESERVED):
            return None
        if any(name in self.code.get(one, ()) for one in living):
            return True
        return False if all(one in self.code for one in living) else None

    def lacking(self, name: str) -> str:
        """Return the clause that no living worker has code of a workflow; "" if one has, or that is not known."""
        return f"no living worker runs code named {printable(name)!r}" if self.has_code(name) is False else ""

    def facts(self, held: InstanceState, name: str = "") -> dict[str, Any]:
        """Return the worker of a workflow, whether a living one has its code, and which was seen last, as members for JSON."""
        newest = self._last
        last = None if newest is None else {"worker": newest, "unseen_ms": max(0, self.now_ms - self.seen[newest])}
        return {
            "has_code": self.has_code(name) if held.ended is None else None,
            "unseen_ms": self.unseen_ms(held),
            "last_seen": last,
            "held_back_until_ms": self.held_back_until_ms(held) or None,
        }

    def held_back_until_ms(self, held: InstanceState) -> int:
        """Return until when a workflow is held back, in milliseconds since 1970 UTC, by the clock of the log; 0 if it is not."""
        if held.ended is not None or not isinstance(held.newest, Claimed) or not held.owner:
            return 0
        owner, owned_ms = self.owners.get(tags.partition_of(held.newest.id), ("", 0))
        taken_over = owner not in ("", held.owner) and owned_ms >= max(held.time_ms, self.seen.get(held.owner, 0))
        until_ms = held.time_ms + held.pause_ms
        return until_ms if held.pause_ms and taken_over and self.now_ms < until_ms else 0

    def text(self, held: InstanceState, name: str = "") -> str:
        """Return the clause that no living worker runs a workflow, and why; "" if a worker runs it or it has ended.

        Args:
            held: the newest state of the workflow.
            name: the name of its function; "" if that does not matter.
        """
        if held.ended is not None:
            return ""
        if self.alone:
            return self.alone
        if lacking := self.lacking(name):
            return lacking
        if (until_ms := self.held_back_until_ms(held)) and isinstance(held.newest, Claimed):
            return (
                f"held back until about {datetime.fromtimestamp(until_ms / 1_000, UTC):%H:%M:%S}Z: its process ended or stood "
                f"still {held.vain + 1} times in a row while it ran; if a step of it does that, "
                f"`boki flow cancel {printable(held.newest.id)}` ends it"
            )
        unseen_ms = self.unseen_ms(held)
        if held.owner and unseen_ms is None:
            return f"its worker {_shown(held.owner)} was not seen: another worker takes it over"
        if unseen_ms is not None and (unseen_ms >= SILENT_MS or held.owner in self.left):
            return f"its worker {self._seen_text(held.owner)}: another worker takes it over"
        return ""

    @property
    def alone(self) -> str:
        """The clause that no worker of the app is alive, and which worker was seen last; "" if a worker is alive."""
        last = self._last
        if last is None:
            return "no worker of this app was seen"
        if self._living:
            return ""
        return f"no worker of this app is alive: {self._seen_text(last)}"

    @property
    def last_text(self) -> str:
        """The clause which worker of the app was seen last, and when; "" if none was."""
        last = self._last
        return "" if last is None else self._seen_text(last)

    @property
    def _living(self) -> list[str]:
        """The workers that were seen within `SILENT_MS` and have not left."""
        return [
            name for name, seen_ms in self.seen.items() if self.now_ms - seen_ms < SILENT_MS and name not in self.left
        ]

    @property
    def _last(self) -> str | None:
        """The worker that was seen last; None if none was."""
        return max(self.seen, key=lambda name: self.seen[name], default=None)

    def _seen_text(self, name: str) -> str:
        ago = span_text(max(0, self.now_ms - self.seen[name]))
        return f"{_shown(name)} was seen last, {ago} ago{', and has left' if name in self.left else ''}"


def _shown(name: str) -> str:
    return printable(worker_text(name))


async def living(log: Log, group: str) -> Living:
    """Read the heartbeats of the workers of a group, and which partitions they own."""
    newest: dict[str, tuple[int, Heartbeat]] = {}
    async for item in log.book.read(tags.member(group)):
        if isinstance(item, boki.Gap):
            continue  # old heartbeats are trimmed, newer ones follow
        try:
            events = PICKER.of(item.seqnum, await log.open(item))
        except (ForeignRecord, UnknownEvent):
            continue
        newest |= {event.member: (item.time_ms, event) for event in events if event.group == group}
    left = await _left(log, group)
    seen = {name: time_ms for name, (time_ms, _) in newest.items()}
    code = {name: frozenset(beat.names) for name, (_, beat) in newest.items() if beat.names is not None}
    return Living(seen, boki.SystemClock().now_ms(), await _owners(log, group), left, code)


async def _left(log: Log, group: str) -> frozenset[str]:
    """Read which workers left: they were drained, and their newest record says that they keep no partition."""
    newest: dict[str, Leaving] = {}
    async for item in log.book.read(tags.flow_blocked(group)):
        if isinstance(item, boki.Gap):
            continue
        try:
            events = FLOW_PICKER.of(item.seqnum, await log.open(item))
        except (ForeignRecord, UnknownEvent):
            continue
        newest |= {one.worker: one for one in events if isinstance(one, Leaving) and one.group == group}
    return frozenset(worker for worker, one in newest.items() if not one.keeps)


async def _owners(log: Log, group: str) -> dict[int, tuple[str, int]]:
    """Read the owner of each partition, and the time of its claim; none of them if a claim is trimmed while they are read."""
    found: dict[int, tuple[str, int]] = {}
    try:
        records = await log.book.read_prev_many(
            [(tags.flow_partition_owner(group, one), None) for one in range(tags.PARTITIONS)]
        )
    except Trimmed:
        return found
    for record in records:
        if record is None:
            continue
        for event in FLOW_PICKER.of(record.seqnum, await log.open(record)):
            if isinstance(event, PartitionClaimed) and event.group == group:
                found[event.partition] = event.worker, record.time_ms
    return found
