"""Partitions in which hosts read no further, because too many events wait there: as heartbeats of the hosts say.

    inboxes = FullInboxes(log, "words")
    inboxes.begin()                     # follows the heartbeats from then on; a send waits for none
    inboxes.check([ref])                # InboxFull: nothing was sent

A client that has not heard of a full partition sends all the same, and what it sent is kept. A heartbeat counts for the lease of its host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import boki
from boki_common.errors import BokiError
from boki_common.logs import get_logger
from bokilib.append.log import Log, Read
from bokilib.follow.follower import Follower
from bokilib.follow.members import PICKER
from bokilib.records import tags
from bokirsm.errors import InboxFull
from bokirsm.machine.refs import Ref

log = get_logger(__name__)


class _Said(NamedTuple):
    """Full partitions of a host, and the time until which its heartbeat counts, by the clock of the loop."""

    partitions: frozenset[int]
    until_s: float


class FullInboxes:
    """The full partitions of a group, as one client knows them. It belongs to one event loop."""

    def __init__(self, opened: Log, group: str) -> None:
        self._log: Final = opened
        self._group: Final = tags.rsm_group(group)
        self._tag: Final = tags.member(self._group)
        self._follower: Final = Follower(opened, self._ended)
        self._hosts: Final[dict[str, _Said]] = {}

    def begin(self) -> None:
        """Follow the heartbeats, if they are not followed yet."""
        if self._tag not in self._follower:
            self._follower.add(self._tag, 1, self._saw)

    def check(self, machines: Iterable[Ref[Any]]) -> None:
        """Refuse to send to machines in full partitions.

        Raises:
            InboxFull: one of them is in such a partition.
        """
        if not self._hosts:
            return
        now_s = asyncio.get_running_loop().time()
        for machine in machines:
            for host, said in self._hosts.items():
                if machine.partition in said.partitions and now_s < said.until_s:
                    raise InboxFull(
                        f"expected room in partition {machine.partition} of {machine}, found that {host} reads no further there, because "
                        "too many events wait: send later, and look by `boki rsm ls` whether machines there have faults or defer events",
                        machine=str(machine),
                        host=host,
                    )

    def _saw(self, item: Read | boki.Gap | BokiError) -> None:
        if not isinstance(item, Read):
            return  # heartbeats are trimmed, and each says all again
        now_s = asyncio.get_running_loop().time()
        age_s = max(0, self._log.now_ms() - item.record.time_ms) / 1_000
        for event in PICKER.of(item.record.seqnum, item.envelope):
            if event.group != self._group:
                continue
            if event.full and not event.leaving:
                until_s = now_s + event.lease_ms / 1_000 - age_s
                self._hosts[event.member] = _Said(frozenset(event.full), until_s)
            else:
                self._hosts.pop(event.member, None)

    def _ended(self, error: Exception) -> None:
        """Know of no full partition: the next send follows the heartbeats again."""
        self._hosts.clear()
        log.debug("heartbeats of hosts are not followed any more", group=self._group, error=repr(error))

    async def close(self) -> None:
        """Follow nothing any more."""
        await self._follower.close()
