"""Processes of a group, by heartbeats in the log: who is alive is judged by observed silence (`lease_rules`).

    async with Members(log, "workers", "host-7") as members:
        members.alive(); members.dead("host-3"); members.may_act()

One record a process and third of a lease; what is older than everybody's newest is trimmed. A member that cannot append stops
acting by itself, before others take over from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final

import boki
from boki_common.backoff import Backoff
from boki_common.errors import BokiError
from boki_common.logs import get_logger
from bokilib.append.log import Log
from bokilib.follow import lease_rules
from bokilib.pauses import pauses
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event, Picker

log = get_logger(__name__)


class Heartbeat(Event, tag="lib.heartbeat", frozen=True):
    """A member is there; `leaving`: it takes nothing any more. `lease_ms`: others wait for so long if it falls silent; 0: not said."""

    group: str
    member: str
    leaving: bool = False
    lease_ms: int = 0


PICKER: Final[Picker[Heartbeat]] = Picker("lib", (Heartbeat,))


class Members:
    """See the module.

    Attributes:
        name: of this member, unique in its group.
    """

    def __init__(
        self,
        log: Log,
        group: str,
        name: str,
        *,
        lease_s: float = lease_rules.LEASE_S,
        changed: Callable[[], None] | None = None,
    ) -> None:
        """
        Args:
            lease_s: others take this member for dead if they see nothing of it for so long; each member has a lease of its own.
            changed: called when a member was seen, and when a heartbeat of this one is in the log; not when one falls silent.
        """
        self.name: Final = name
        self._log = log
        self._group = group
        self._tag = tags.member(group)
        self._lease_s = lease_s
        self._changed = changed or (lambda: None)
        self._leaving = False
        self._acked_sent_s: float | None = None
        self._acked = 0
        self._came = (0, 0)
        """Of this one's newest heartbeat that came: where it is, and its time."""
        self._newest: dict[str, int] = {}
        self._leases: dict[str, float] = {}
        self._read_to = 0
        self._observer: lease_rules.Observer | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Members:
        self._leaving, self._acked_sent_s = False, None  # it may have been left before
        begun = await self._log.book.now()
        self._observer = self._listening()
        works = (self._follow(begun), self._beat_on())
        self._tasks = [asyncio.create_task(work, name="bokilib members") for work in works]
        for task in self._tasks:
            task.add_done_callback(self._ended)
        return self

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Nobody waits for these tasks: why one ended by itself is logged here, or never."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a member has stopped", group=self._group, member=self.name, error=repr(error))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _listening(self) -> lease_rules.Observer:
        return lease_rules.Observer(self._lease_s, self._now(), self._leases)

    def alive(self) -> list[str]:
        """Return the members that were seen within the lease, and do not leave."""
        return [] if self._observer is None else self._observer.alive(self._now())

    def dead(self, member: str) -> bool:
        """Return whether a member was silent for its lease, while this one listened."""
        return self._observer is not None and self._observer.dead(member, self._now())

    def silent_in(self) -> float | None:
        """Seconds until another one may be known to be dead, if nothing is seen of it till then; None: there is nobody."""
        return None if self._observer is None else self._observer.silent_in(self._now())

    def may_act(self) -> bool:
        """Whether others still take this member for alive, so that it need not stop."""
        return lease_rules.may_act(self._acked_sent_s, self._now(), self._lease_s)

    async def beat(self) -> int:
        """Appends a heartbeat; returns the place of its heartbeat."""
        sent_s = self._now()
        beat = Contribution((self._tag,), {}, (self._heartbeat(),))
        seqnum = await self._log.append(beat)
        self._acked, self._acked_sent_s = seqnum, sent_s
        self._correct_clock()
        self._changed()
        return seqnum

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(self._group, self.name, self._leaving, round(self._lease_s * 1_000))

    async def leave(self) -> int:
        """Tell the others that this member takes nothing any more; what it has it may give up later. Returns as `beat`."""
        self._leaving = True
        return await self.beat()

    def _correct_clock(self) -> None:
        """The clock of the log was not ahead of a heartbeat's time when that was sent: so it is set back, if it runs ahead."""
        came, time_ms = self._came
        if came == self._acked and self._acked_sent_s is not None:
            self._log.clock_at_most(time_ms, self._acked_sent_s)

    async def _beat_on(self) -> None:
        while True:
            try:
                await self.beat()
                await self._trim()
            except BokiError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(lease_rules.beat_every(self._lease_s))

    async def _trim(self) -> None:
        """Trim what is older than the newest heartbeat of each member that is not dead: those that leave are to be heard too."""
        needed = [seqnum for member, seqnum in self._newest.items() if not self.dead(member)]
        if needed:
            await self._log.book.trim([(self._tag, min(needed))])

    async def _follow(self, begun: int) -> None:
        """Read heartbeats. Silence counts only while this member listens: after a break it counts from its beginning.

        Args:
            begun: heartbeats up to there tell the leases of members, and not that they are alive.
        """
        self._read_to = 0
        pause = pauses()
        while True:
            try:
                await self._read_heartbeats(begun, pause)
                return
            except BokiError as error:
                if not error.retryable:
                    raise
                log.warning("a member listens again later", group=self._group, member=self.name, error=repr(error))
            await asyncio.sleep(pause.next())
            self._observer = self._listening()

    async def _read_heartbeats(self, begun: int, pause: Backoff) -> None:
        async for item in self._log.book.read(self._tag, start=self._read_to + 1, follow=True):
            pause.reset()
            if isinstance(item, boki.Gap):
                continue  # a heartbeat that is trimmed was followed by a newer one
            self._read_to = item.seqnum
            for event in PICKER.of(item.seqnum, await self._log.open(item)):
                if event.group == self._group:
                    self._take_note(event, item, is_new=item.seqnum > begun)

    def _take_note(self, event: Heartbeat, record: boki.Record, *, is_new: bool) -> None:
        assert self._observer is not None
        lease_s = event.lease_ms / 1_000
        if not is_new:
            self._observer.told(event.member, lease_s)
            return
        self._newest[event.member] = record.seqnum
        if event.member == self.name:
            self._came = record.seqnum, record.time_ms
            self._correct_clock()
        self._observer.seen(event.member, record.seqnum, self._now(), leaving=event.leaving, lease_s=lease_s)
        self._changed()
