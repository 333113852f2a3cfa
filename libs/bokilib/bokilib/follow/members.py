"""Members of a group of processes, which send heartbeats through the log and judge each other by observed silence (`lease_rules`).

    async with Members(log, "workers", "host-7") as members:
        members.alive(); members.dead("host-3"); members.may_act()

Each process appends one heartbeat per third of its lease. Heartbeats older than the newest one of every living member are trimmed. A
member that cannot append stops acting by itself, before others take over from it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
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
from bokilib.records.arguments import check_number, check_text
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event, Picker
from bokilib.stacks import described

NAMES_BYTES: Final = 1024
"""Bytes of names in a heartbeat, at most."""

log = get_logger(__name__)


class Heartbeat(Event, tag="lib.heartbeat", frozen=True):
    """A heartbeat of a member.

    Attributes:
        group: of the member.
        member: its name.
        leaving: the member takes no more work.
        lease_ms: how long others wait after the last heartbeat before they take the member for dead; 0 in records of older programs.
        names: names of the work that it can do, for people; None if it does not say, or they are more than `NAMES_BYTES`.
        full: partitions of which it takes no more input, so that programs should send none.
    """

    group: str
    member: str
    leaving: bool = False
    lease_ms: int = 0
    names: tuple[str, ...] | None = None
    full: tuple[int, ...] = ()


PICKER: Final[Picker[Heartbeat]] = Picker("lib", (Heartbeat,))


class Members:
    """A member of a group, and its view of the others. It sends heartbeats and listens while its block runs.

    Attributes:
        name: of this member, unique in its group. If another process has the same name, other members take the two for one member.
        failed: the error after which this member sends no heartbeat any more, as when its client has ended; None before.
    """

    def __init__(
        self,
        log: Log,
        group: str,
        name: str,
        *,
        lease_s: float = lease_rules.LEASE_S,
        changed: Callable[[], None] | None = None,
        names: Callable[[], Iterable[str]] | None = None,
        full: Callable[[], Iterable[int]] | None = None,
    ) -> None:
        """Create a member that has not entered its group yet.

        Args:
            log: the log of the book.
            group: of processes.
            name: of this member, unique in the group.
            lease_s: others take this member for dead after so many seconds without a heartbeat. Members may have different leases.
            changed: called when a heartbeat was read, when one of this member was acknowledged, and when this member failed; not when
                another falls silent.
            names: returns the names of the work that this member can do now.
            full: returns the partitions of which this member takes no more input now.

        Raises:
            InvalidArgument: the name is no text, or the lease no time.
        """
        self.name: Final = check_text("a member's name", name)
        self._log = log
        self._group = group
        self._tag = tags.member(group)
        self._lease_s = check_number("a member's lease in seconds", lease_s)
        self._changed = changed or (lambda: None)
        self._names = names
        self._full = full or (lambda: ())
        self._telling: set[asyncio.Task[None]] = set()
        self._leaving = False
        self._acked_sent_s: float | None = None
        self._acked = 0
        self._came = (0, 0)
        """Seqnum and time of the newest heartbeat of this member that it has read."""
        self._newest: dict[str, int] = {}
        self._leases: dict[str, float] = {}
        self._read_to = 0
        self._observer: lease_rules.Observer | None = None
        self._namesakes: lease_rules.Observer | None = None
        """Heartbeats of other processes under the name of this member, by incarnation."""
        self._tasks: list[asyncio.Task[None]] = []
        self.failed: Exception | None = None

    async def __aenter__(self) -> Members:
        self._leaving, self._acked_sent_s, self.failed = False, None, None  # it may have been left before
        begun = await self._log.book.now()
        self._listen()
        works = (self._follow(begun), self._beat_on())
        self._tasks = [asyncio.create_task(work, name="bokilib members") for work in works]
        for task in self._tasks:
            task.add_done_callback(self._ended)
        return self

    def _ended(self, task: asyncio.Task[None]) -> None:
        """End the member if one of its tasks failed: no caller awaits these tasks."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Send no heartbeat any more, because the process cannot do its work: others take over after a lease."""
        if self.failed is not None:
            return
        self.failed = error
        self.stop()
        log.error(
            "member stopped: others will take it for dead", group=self._group, member=self.name, error=described(error)
        )
        self._changed()

    def stop(self) -> None:
        """Send no heartbeat any more, as of now. A caller that is about to leave the group and may be cancelled meanwhile stops first."""
        for task in (*self._tasks, *self._telling):
            task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        await asyncio.gather(*self._tasks, *self._telling, return_exceptions=True)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _listen(self) -> None:
        self._observer = lease_rules.Observer(self._lease_s, self._now(), self._leases)
        self._namesakes = lease_rules.Observer(self._lease_s, self._now())

    def alive(self) -> list[str]:
        """Return the names of the members that are alive and not leaving, sorted."""
        return [] if self._observer is None else self._observer.alive(self._now())

    def dead(self, member: str) -> bool:
        """Return whether this member listened for a whole lease of another member without reading a heartbeat of it."""
        return self._observer is not None and self._observer.dead(member, self._now())

    def namesake_dead(self, by: str) -> bool:
        """Return whether this member listened for a whole lease without reading a heartbeat of a namesake.

        Args:
            by: the incarnation of the log that the namesake uses, not that of this member's log.
        """
        return self._namesakes is not None and self._namesakes.dead(by, self._now())

    def silent_in(self) -> float | None:
        """Return the seconds until the next living member or namesake may be taken for dead, or None if there is none."""
        times = [one.silent_in(self._now()) for one in (self._observer, self._namesakes) if one is not None]
        return min((time_s for time_s in times if time_s is not None), default=None)

    def may_act(self) -> bool:
        """Return whether this member's last acknowledged heartbeat was sent within its lease, so that no other takes it for dead."""
        return lease_rules.may_act(self._acked_sent_s, self._now(), self._lease_s)

    async def beat(self) -> int:
        """Append a heartbeat now.

        Returns:
            The seqnum of the heartbeat.
        """
        sent_s = self._now()
        beat = Contribution((self._tag,), {}, (self._heartbeat(),))
        seqnum = await self._log.append(beat)
        self._acked, self._acked_sent_s = seqnum, sent_s
        self._correct_clock()
        self._changed()
        return seqnum

    def _heartbeat(self) -> Heartbeat:
        names = None if self._names is None else tuple(sorted(self._names()))
        if names is not None and sum(len(name.encode()) for name in names) > NAMES_BYTES:
            names = None
        full = tuple(sorted(self._full()))
        return Heartbeat(self._group, self.name, self._leaving, round(self._lease_s * 1_000), names, full)

    def tell(self) -> None:
        """Append a heartbeat soon, since what this member says of itself changed. If that fails, the next one says it."""
        if self._tasks and not self._tasks[0].done() and not self._telling:
            task = asyncio.create_task(self._tell(), name="bokilib heartbeat")
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)
            task.add_done_callback(self._ended)

    async def _tell(self) -> None:
        with contextlib.suppress(BokiError):
            await self.beat()

    async def leave(self) -> int:
        """Append a heartbeat that says that this member takes no more work. It may release the work that it has later.

        Returns:
            The seqnum of the heartbeat.
        """
        self._leaving = True
        return await self.beat()

    def _correct_clock(self) -> None:
        """Set the log's clock back if it is ahead of the time at which this member's last heartbeat was ordered."""
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
        """Trim heartbeats below the newest ones of all members that are not dead, leaving members included."""
        needed = [seqnum for member, seqnum in self._newest.items() if not self.dead(member)]
        if needed:
            await self._log.book.trim([(self._tag, min(needed))])

    async def _follow(self, begun: int) -> None:
        """Read heartbeats. Silence counts only while this member listens: after an error it counts from the next attempt on.

        Args:
            begun: heartbeats up to this seqnum give the leases of members, and are no sign of life.
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
                log.warning(
                    "heartbeats unreadable: the member retries, and takes no other for dead meanwhile",
                    group=self._group,
                    member=self.name,
                    error=described(error),
                )
            await asyncio.sleep(pause.next())
            self._listen()

    async def _read_heartbeats(self, begun: int, pause: Backoff) -> None:
        async for item in self._log.book.read(self._tag, start=self._read_to + 1, follow=True):
            pause.reset()
            if isinstance(item, boki.Gap):
                continue  # trimmed heartbeats were followed by newer ones
            self._read_to = item.seqnum
            try:
                envelope = await self._log.open(item)
                events = PICKER.of(item.seqnum, envelope)
            except BokiError as error:
                if error.retryable:
                    raise
                self._log_undecoded(item.seqnum, error)
                continue
            for event in events:
                if event.group == self._group:
                    self._take_note(event, item, envelope.by, is_new=item.seqnum > begun)

    def _log_undecoded(self, seqnum: int, error: BokiError) -> None:
        log.warning(
            "record among heartbeats not decoded: skipped",
            group=self._group,
            member=self.name,
            record=seqnum,
            error=str(error),
        )

    def _take_note(self, event: Heartbeat, record: boki.Record, by: str, *, is_new: bool) -> None:
        assert self._observer is not None and self._namesakes is not None
        lease_s = event.lease_ms / 1_000
        self._newest[event.member] = record.seqnum
        if not is_new:
            self._observer.set_lease(event.member, lease_s)
            return
        if event.member == self.name and by == self._log.by:
            self._came = record.seqnum, record.time_ms
            self._correct_clock()
        elif event.member == self.name:
            self._namesakes.seen(by, record.seqnum, self._now(), lease_s=lease_s)
        self._observer.seen(event.member, record.seqnum, self._now(), leaving=event.leaving, lease_s=lease_s)
        self._changed()
