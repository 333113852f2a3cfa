"""A host: a process that runs machines of an app, and a member of the app's group.

    async with Host(app, client.book("b"), name="host-1") as host:
        counter = await host.create(Counter, Init(top), key="c-1")
        print(await host.ask(Word("a").to(counter)))

- The hosts of a group share its partitions (`bokilib.partitions`). A host takes those of no host and of dead ones, and releases those that
  another should have, once its commits there are in the log. No event is handled twice: the claim of a partition fences the former owner.
- A host that leaves its block releases its partitions, so that others take them at once. One that dies is replaced after a lease.
- A host whose lane cannot continue (`failed`) releases its partitions as well, and sends no more heartbeats. Its client calls still work.
- Hosts keep a book of machines bounded: checkpoints, trims, and a carrier (`bokilib.retention.carrier`) for machines that are idle.
- What machines emit is delivered by the plugins that their host was given (`bokirsm.plugins`).
- All that `Rsm` can do, a host can do as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeVar

import boki
from boki_common.errors import BokiError, ClosedError, Trimmed
from boki_common.logs import get_logger
from boki_common.runtime import confined
from boki_common.runtime.code_watch import CodeWatch
from bokilib.append.log import Log, Read, Tokens
from bokilib.follow import lease_rules
from bokilib.follow.follower import Follower
from bokilib.partitions.assignment import by_weight, moves
from bokilib.partitions.claims import ClaimMove, NewestClaims, Picked
from bokilib.partitions.owner import PartitionOwner
from bokilib.partitions.peers import Peers
from bokilib.partitions.rounds import Rounds
from bokilib.ports import BookPort, PayloadHook
from bokilib.records import tags
from bokilib.records.arguments import check_lease, check_member_name, check_seconds, check_whole
from bokilib.records.contribution import Contribution
from bokilib.retention.carrier import EVERY_S as CARRY_EVERY_S
from bokilib.retention.carrier import Carrier
from bokilib.retention.checkpoint_rules import RETENTION_MS, REWRITE_MS
from bokirsm.client.rsm import TIMEOUT_S, Rsm
from bokirsm.lane.carrying import carried
from bokirsm.lane.lane import INBOX_BYTES, MEMORY_BYTES, Bounds, Lane
from bokirsm.machine.app import App
from bokirsm.machine.machine import Machine
from bokirsm.machine.plugins import Plugin
from bokirsm.machine.refs import Ref
from bokirsm.machine.values import Question
from bokirsm.model.events import PICKER, Claimed

F = TypeVar("F")
R = TypeVar("R")

STUCK_AFTER_S: Final = 5.0
"""A third of the default lease, so that a handler that is stuck has a fault before other hosts take this one for dead."""

log = get_logger(__name__)


class Host:
    """A process that runs machines; see the module.

    Attributes:
        rsm: the client of the same app and book.
        lane: its partitions.
        failed: the error after which it runs no machine any more; None before.
    """

    def __init__(
        self,
        app: App,
        book: BookPort | Log,
        *,
        name: str | None = None,
        lease_s: float = lease_rules.LEASE_S,
        stuck_after_s: float | None = STUCK_AFTER_S,
        carry_s: float = REWRITE_MS / 1_000,
        retention_s: float = RETENTION_MS / 1_000,
        memory_bytes: int = MEMORY_BYTES,
        inbox_bytes: int = INBOX_BYTES,
        plugins: Sequence[Plugin[Any]] = (),
        hook: PayloadHook | None = None,
        random: boki.Random | None = None,
    ) -> None:
        """Prepare a host, which starts in `async with`.

        Args:
            app: the machines that it runs.
            book: the book, or the log that other libraries share with it.
            name: a name that no other living host has; by default a random one.
            lease_s: seconds of silence after which a host is dead. All hosts of a group should have the same.
            stuck_after_s: seconds that a handler may run. One that runs longer has a fault. None: no bound.
            carry_s: the age that no record of a machine reaches, because hosts rewrite it before: that of a term.
            retention_s: seconds for which the key of a machine that halted cannot be used again.
            memory_bytes: bytes of machines in memory, about, beyond which those that have been idle for longest are dropped. Their next
                event has them read from the log.
            inbox_bytes: bytes of events that wait for machines of this host, beyond which it reads no further in partitions where many
                wait. Programs get `InboxFull` then.
            plugins: an object of each plugin of the app, which delivers what machines of this host emit.
            hook: as for `bokilib.Log`.
            random: the source of names and of the random choices of machines.

        Raises:
            InvalidArgument: an option is of a wrong type or out of range, such as a lease of more than an hour.
        """
        check_lease(lease_s)
        _check_options(name, stuck_after_s, carry_s, retention_s, memory_bytes, inbox_bytes)
        objects = app.objects(plugins)
        self.rsm: Final = Rsm(app, book, hook=hook, random=random)
        opened = self.rsm.log
        self._log: Final = opened
        self._app: Final = app
        self._watch: Final = None if stuck_after_s is None else CodeWatch(stuck_after_s)
        self._peers: Final = Peers(opened, tags.rsm_group(app.name), name, lease_s, full=lambda: self.lane.full)
        self._leaving = self._entered = False
        self._carry_ms: Final = round(carry_s * 1_000)
        self._carrier: Final = Carrier(
            opened, [carried(opened, retention_s=retention_s)], who=self.name, carry_ms=self._carry_ms
        )
        self.failed: Exception | None = None
        self._giving_up: asyncio.Task[None] | None = None
        self._owner: Final = self._make_owner()
        self._follower: Final = Follower(opened, self._peers.fail)
        tokens: Tokens = random or boki.SystemRandom()
        self.lane: Final = Lane(
            opened,
            app,
            self._owner,
            self._follower,
            tokens,
            self._watch,
            self._lane_failed,
            Bounds(self._carry_ms, memory_bytes, inbox_bytes),
            self._peers.tell,
            objects,
        )
        self._rounds: Final = Rounds(lease_s, self._peers.silent_in, self._warn_of_late_loop)
        self._tasks: Final[list[asyncio.Task[None]]] = []

    def _make_owner(self) -> PartitionOwner[Claimed]:
        group = self._app.name
        fences = [tags.rsm_owner(group, one) for one in range(tags.PARTITIONS)]
        return PartitionOwner(
            self._log,
            self.name,
            NewestClaims(self._log, fences, partial(_picked, group)),
            lambda partition, who, left: Claimed(group, partition, who, left, self._leaving and not who),
            changed=self._changed,
            released=self._released,
        )

    @property
    def name(self) -> str:
        """The name of this start of the host."""
        return self._peers.name

    @property
    def partitions(self) -> list[int]:
        """The partitions whose machines run here."""
        return [] if self.failed is not None else self.lane.partitions

    # -- life

    async def __aenter__(self) -> Host:
        confined.check("a host")
        if self._entered:
            raise ClosedError(f"host {self.name} was closed and runs nothing more: make a new Host")
        self._entered = True
        try:
            await self._begin()
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise
        return self

    async def _begin(self) -> None:
        await self._peers.__aenter__()
        await self._owner.follow(self._follower, self._peers)
        await self._round()
        rounds = asyncio.get_running_loop().create_task(
            self._rounds.run(self._look, self._round_failed), name="bokirsm rounds"
        )
        rounds.add_done_callback(self._rounds_ended)
        carrying = asyncio.get_running_loop().create_task(self._carry(), name="bokirsm carrier")
        self._tasks.extend((rounds, carrying))

    async def _carry(self) -> None:
        """Have the states of machines that are idle rewritten, by whichever host has the turn."""
        await asyncio.sleep(CARRY_EVERY_S)
        async with self._carrier:
            await asyncio.get_running_loop().create_future()

    def _rounds_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.lane.fail(error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit what was handled, and release the partitions. If the log does not answer in time, others wait for a lease.

        However often the caller is cancelled meanwhile, nothing of the host runs on: its heartbeats end, and others take over.
        """
        for task in self._tasks:
            task.cancel()
        async with AsyncExitStack() as ends:  # from the last to the first, each also after an error of another
            if self._watch is not None:
                ends.callback(self._watch.close)
            ends.push_async_callback(self.rsm.__aexit__, kind, error, trace)
            ends.push_async_callback(self._peers.__aexit__, kind, error, trace)
            ends.push_async_callback(self._follower.close)
            ends.push_async_callback(self.lane.close)
            await self._leave()

    async def _leave(self) -> None:
        """Release the partitions once what was handled is in the log, or give up after a while."""
        self._leaving = True
        ending = [*self._tasks, *([] if self._giving_up is None else [self._giving_up])]
        await asyncio.gather(*ending, return_exceptions=True)
        try:
            async with asyncio.timeout(lease_rules.LEAVE_S):
                while (
                    self.failed is None
                    and self._owner.mine
                    and not await self.lane.give(list(self._owner.mine), release=Contribution())
                ):
                    pass
        except (BokiError, TimeoutError) as failed:
            log.warning(
                "host leaves: partitions not released, others take them after a lease",
                host=self.name,
                error=repr(failed),
            )

    def _lane_failed(self, error: Exception) -> None:
        self.failed, self._leaving = error, True
        self._giving_up = asyncio.get_running_loop().create_task(self._give_up(), name="bokirsm host")

    async def _give_up(self) -> None:
        """Release the partitions, and send no more heartbeats: other hosts take over at once, or after a lease."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(lease_rules.LEAVE_S):
                while self._owner.mine and not await self._owner.release(Contribution()):
                    pass
            log.error(
                "host failed: it released its partitions and runs no machine any more",
                host=self.name,
                error=repr(self.failed),
            )
        except (BokiError, TimeoutError) as error:
            log.error(
                "host failed: partitions not released, others take them after a lease",
                host=self.name,
                error=repr(error),
            )
        finally:
            await self._peers.__aexit__(None, None, None)

    # -- partitions

    async def _look(self, is_due: bool) -> None:
        if self._peers.failed is not None:
            self.lane.fail(self._peers.failed)  # others take this host for dead
        if is_due:
            self._owner.lost.clear()
        await self._round()
        if is_due and self.failed is None:
            await self._tend()

    async def _tend(self) -> None:
        """Make the checkpoints that are due by time, and claim partitions again whose claims are as old as a term."""
        self.lane.tend()
        now_ms = self._log.now_ms()
        old = self._owner.older_than(now_ms - self._carry_ms)
        if old:
            await self.lane.claim_again(old)

    def _round_failed(self, error: BokiError) -> None:
        log.warning("partitions not dealt: the next round tries again", host=self.name, error=repr(error))

    async def _round(self) -> None:
        """Take the partitions that this host should own, and release those that another should own."""
        if self.failed is not None:
            return
        await self._owner.take(self._to_claim)
        try:
            await self.lane.take(dict(self._owner.mine))
        except Trimmed:  # another host claimed and trimmed a partition while it was read here
            await self._owner.refresh()
            self._rounds.wake()
            return
        given = moves(self.name, self._planned(), self._owner.standings(self._peers.is_gone)).give
        if given:
            await self.lane.give(given, release=Contribution())

    def _planned(self) -> list[str]:
        """Return the host of each partition. A holder may be alive and silent so far, with a longer lease."""
        living = {self.name, *self._peers.alive()}
        if not self._peers.settled():
            living |= {name for name in self._owner.holders.values() if not self._peers.is_gone(name)}
        return by_weight(living, tags.PARTITIONS)

    def _to_claim(self) -> list[int]:
        """Return the partitions that this host claims now: its share of those that no living host holds."""
        return moves(self.name, self._planned(), self._owner.standings(self._peers.is_gone)).take

    def _released(self, move: ClaimMove[Claimed]) -> None:
        if move.left is not None and move.left.leaving:
            self._peers.saw_leaving(move.left.left, move.now.seqnum)

    def _changed(self) -> None:
        self.lane.lost()
        self._rounds.wake()

    def _warn_of_late_loop(self, due_s: float, late_s: float) -> None:
        log.warning(
            lease_rules.LOOP_LATE,
            seconds=round(late_s, 1),
            host=self.name,
            advice="await asyncio.to_thread(...) for what blocks in this process; handlers only compute",
        )

    # -- client

    async def create(
        self, cls: type[Machine[F]], init: F | None = None, *, key: str | None = None, near: Ref[Any] | None = None
    ) -> Ref[F]:
        """Create a machine; see `Rsm.create`."""
        return await self.rsm.create(cls, init, key=key, near=near)

    async def send(self, to: Ref[F], event: F, *, dedup_id: str | None = None) -> int:
        """Send an event to a machine; see `Rsm.send`."""
        return await self.rsm.send(to, event, dedup_id=dedup_id)

    async def send_many(self, events: Iterable[tuple[Ref[Any], Any]]) -> int:
        """Send events by one record; see `Rsm.send_many`."""
        return await self.rsm.send_many(events)

    async def ask(self, question: Question[R], *, timeout_s: float = TIMEOUT_S) -> R:
        """Ask a machine, and return its answer; see `Rsm.ask`."""
        return await self.rsm.ask(question, timeout_s=timeout_s)


def _picked(group: str, read: Read) -> Iterable[Picked[Claimed]]:
    """Return the claims and releases of a group's partitions in a record."""
    for event in PICKER.of(read.record.seqnum, read.envelope):
        if isinstance(event, Claimed) and event.group == group:
            yield Picked(event.partition, event.host, left=None if event.host else event)


def _check_options(
    name: str | None,
    stuck_after_s: float | None,
    carry_s: float,
    retention_s: float,
    memory_bytes: int,
    inbox_bytes: int,
) -> None:
    """Check the options of a host, but its lease. Raises InvalidArgument."""
    check_member_name(name)
    if stuck_after_s is not None:
        check_seconds("stuck_after_s=", stuck_after_s, above_0=True)
    check_seconds("carry_s=", carry_s, above_0=True)
    check_seconds("retention_s=", retention_s)
    check_whole("memory_bytes=", memory_bytes)
    check_whole("inbox_bytes=", inbox_bytes, 1)
