"""A lane: it handles the events of its partitions' machines, and commits them by one record at a time.

    lane = Lane(log, app, owner, …)
    await lane.take({3: claim})         # reads the partition, and handles what is pending
    await lane.give([3])                # stops handling there, and releases it

- While a record is in flight, the lane handles on, on the state that its handlers left. All of that is the next record, so a record costs
  one append whatever it contains.
- Records of the lane are applied in the order of the log: one that is read before the answer of its append is applied when it is read, so
  that a decision about its fault, which is above it, finds the fault. It is known by its writer: a newer owner may have written others.
- Answers are part of the record: their processes read them in the log.
- After a Conflict the lane reads which partitions it still owns. It forgets all that is not in the log, and reads these again.
- An append whose outcome can never be known is fenced: the lane claims its partitions again, so that the append is in the log by then or
  never will be, and reads them again.
- A lane that cannot continue says so to its host (`failed`), which gives the partitions back: others have to handle what comes.
- `_turn` is the right to append: a record, a release, and the moment in which a partition joins the lane. A partition joins at a place
  of the log where no record of the lane is in flight, so that each message is delivered once: messages of earlier records come from the
  log, those of later ones from memory.
- While the events that wait in its partitions are more than a bound, the lane keeps no more of them in partitions where many wait (`full`).
  It reads ahead there (`reading_ahead`): it takes decisions about faults, and events that their machines handle now. Once there is room it
  reads again what it did not keep. So it does with a partition that it takes over in which more waits than the bound.
- Events that it sends to machines of such a partition it takes from the log too, behind those that were sent before, until it has read all
  of them (`_behind`).
- A partition joins with the claim as of which it was read, once for a claim, and only if that is still this host's newest one. One that
  was lost is left first, with all that is not in the log. So between a claim and what was read no other owner commits unseen.
- After so many records, bytes or minutes the lane makes a checkpoint of a partition (`checkpoints`), at a moment in which no handler runs
  and no record is in flight or open: its memory is the state of the log then. Handlers run on while the checkpoint is written. Only what
  it covers is trimmed.
- Outputs are delivered by plugins (`bokirsm.plugins`) once their commits are in the log. What these answer is a part of the open record.
- A machine whose outputs wait in too great a number handles nothing until some are delivered, so that they fit the memory of its host.
- A handler that fails is tried three times. Then the machine has a fault, and waits for a decision; other machines continue.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

import boki
from boki_common.errors import BokiError, ClosedError, Conflict, Trimmed
from boki_common.interruption import interrupted
from boki_common.limits import MIB
from boki_common.logs import get_logger
from boki_common.runtime.code_watch import CodeStuck, CodeWatch
from bokilib.append.log import Log, Read, Tokens
from bokilib.append.log_clock import left_ms
from bokilib.follow.follower import Follower
from bokilib.partitions.owner import PartitionOwner
from bokilib.pauses import pauses, retried
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.retention import checkpoint_rules
from bokilib.retention.checkpoint_rules import REWRITE_MS
from bokilib.stacks import printable, stack_of
from bokirsm.lane import loading
from bokirsm.lane.checkpoints import (
    CheckpointWriter,
    MachineShot,
    PartitionShot,
    Shots,
    shot_of_machine,
    shot_of_partition,
)
from bokirsm.lane.inboxes import Firing, LaneMachine, NextWork
from bokirsm.lane.reading_ahead import ReadingAhead
from bokirsm.lane.residents import Residents
from bokirsm.machine.app import App
from bokirsm.machine.declaration import Declaration, Reaction
from bokirsm.machine.handling import Handled, HandlerFailed, World, handle, skip
from bokirsm.machine.plugins import Plugin
from bokirsm.machine.values import Ask, asker_of, encode
from bokirsm.model.events import (
    DROPPED,
    PICKER,
    UNRECORDED,
    Claimed,
    Commit,
    Done,
    Faulted,
    Message,
    MessageId,
    OfLane,
    Reply,
    TimerSet,
    Undelivered,
    partition_of_ref,
)
from bokirsm.model.lane_record import ALONE, TIMER, Beside, InboxMessage, LaneRecord, Span, is_own
from bokirsm.model.machine_state import MachineState
from bokirsm.model.partition_state import (
    Fresh,
    OpenFault,
    PartitionState,
    Share,
    Shares,
    TimerTimes,
    machine_of,
    shares_of,
)
from bokirsm.plugins.deliveries import Deliveries

RINGS: Final = 1_024
"""Timers that are put into inboxes before other tasks of the process run."""
ATTEMPTS: Final = 3
"""Attempts of a handler before its machine has a fault."""
LEAST_TIMERS: Final = 1_000
"""Entries of the heap of timers that are kept without a look at them."""
SLICE: Final = 64
"""Items that are handled before other tasks of the process run: some milliseconds of work. Large ones count as several (`_handle_some`)."""
SENDS: Final = 8
"""Messages that a handler sends which count as an item: some of them are machines to create."""
ITEM_BYTES: Final = 4_096
"""Bytes of a commit that count as an item."""
MEMORY_BYTES: Final = 16 * MIB
INBOX_BYTES: Final = 64 * MIB
ROOM: Final = 0.75
"""The part of the bound of inboxes below which the lane reads on: it does not stop and begin for each event."""
PRESSED_SHARE: Final = 9
"""The time between two checkpoints that are made for memory's sake is so many times that of the first one."""
BATCH: Final = 512
"""Machines that changed in the partitions whose checkpoints are made at one time: handlers wait for so many snapshots to be composed."""
RECORDS_BETWEEN: Final = checkpoint_rules.RECORDS_BETWEEN
BYTES_BETWEEN: Final = checkpoint_rules.BYTES_BETWEEN
WHOLE_BYTES_BETWEEN: Final = 16 * MIB
"""Bytes of the records of a partition, with what they have of others, from one checkpoint to the next: its next owner reads them."""
CHECKPOINT_S: Final = 600.0
"""Seconds from the first record after a checkpoint to the next checkpoint."""
NEARLY: Final = 0.5
"""A checkpoint that is made takes along the partitions that have so much of the way to theirs behind them."""
OUTPUT_BYTES: Final = MIB
"""Bytes of outputs that wait, of a machine that handles on."""
OUTPUTS_BYTES: Final = 16 * MIB
"""Bytes of outputs that wait in a partition in which machines with such outputs handle on."""
STACK_CHARS: Final = 4_000
ERROR_CHARS: Final = 1_000
"""Characters of the error of a fault: each answer to an asker has them."""
ANSWERS: Final = 64
"""Answers of a fault in one event, which fits a record with them."""

T = TypeVar("T")

log = get_logger(__name__)


class Bounds(NamedTuple):
    """The bounds of a lane.

    Attributes:
        carry_ms: the age that no record of its partitions reaches.
        memory_bytes: bytes of machines beyond which idle ones are dropped from memory (`residents`).
        inbox_bytes: bytes of events that wait, beyond which the lane reads no further where many wait.
    """

    carry_ms: int = REWRITE_MS
    memory_bytes: int = MEMORY_BYTES
    inbox_bytes: int = INBOX_BYTES


BOUNDS: Final = Bounds()


class _Due(NamedTuple):
    """A timer in the heap; `order` tells those of one time apart."""

    due_s: float
    order: int
    machine: str
    firing: Firing


class _Decoded(NamedTuple):
    """A record that is delivered once for each of its partitions, one after the other: it is decoded once.

    Attributes:
        item: the record.
        shares: of its partitions.
        is_own: whether the lane appended it.
    """

    item: Read
    shares: Shares
    is_own: bool


class Lane:
    """The partitions of one process; see the module. It belongs to one event loop.

    Invariant: `_records` has one record at least, of which the last one is open.

    Attributes:
        dropped: events that were dropped since their machine does not exist or has halted.
    """

    def __init__(
        self,
        opened: Log,
        app: App,
        owner: PartitionOwner[Claimed],
        follower: Follower,
        tokens: Tokens,
        watch: CodeWatch | None,
        failed: Callable[[Exception], None],
        bounds: Bounds = BOUNDS,
        tell: Callable[[], None] = lambda: None,
        plugins: Mapping[str, Plugin[Any]] | None = None,
    ) -> None:
        """Begin with no partition.

        Args:
            failed: called once, with the error after which the lane handles nothing more.
            bounds: of its memory, and of the age of its records.
            tell: called when `full` has changed.
            plugins: the objects that deliver outputs, by stored name.
        """
        self.dropped = 0
        self._bounds: Final = bounds
        self._failed: Final = failed
        self._log: Final = opened
        self._app: Final = app
        self._owner: Final = owner
        self._follower: Final = follower
        self._tokens: Final = tokens
        self._watch: Final = watch
        self._turn: Final = asyncio.Lock()
        self._claims: Final[dict[int, int]] = {}
        self._spans: Final[dict[int, list[Span]]] = {}
        self._states: Final[dict[int, PartitionState]] = {}
        self._delivered: Final[dict[int, int]] = {}
        """The seqnum up to which records of a partition were delivered."""
        self._arrived: Final = asyncio.Event()
        self._closing: Final[set[int]] = set()
        """Partitions that are released, or left before a record that cannot be opened, once their commits are in the log."""
        self._machines: Final[dict[str, LaneMachine]] = {}
        self._absent: Final[dict[str, None]] = {}
        """Machines that events were dropped for, and that are in memory since."""
        self._tell: Final = tell
        self._full: Final[dict[int, ReadingAhead]] = {}
        self._behind: Final[dict[int, int]] = {}
        """Partitions that get what this lane sends from the log, with the seqnum up to which they have to be read before that ends."""
        self._sent_by_log: Final[dict[int, int]] = {}
        """The seqnum of the first record of this lane of which such a partition gets messages from the log."""
        self._residents: Final = Residents(bounds.memory_bytes)
        self._pressed_s = 0.0
        self._ready: Final[dict[str, None]] = {}
        """Machines that may have work, in order."""
        self._records: Final[deque[LaneRecord]] = deque([LaneRecord(app.name)])
        self._in_flight: LaneRecord | None = None
        """The record whose append has no answer yet, and that was not read yet."""
        self._newest_own = 0
        """The seqnum of the newest record of this lane that was applied."""
        self._sender: asyncio.Task[None] | None = None
        self._tasks: Final[set[asyncio.Task[Any]]] = set()
        self._timers: Final[list[_Due]] = []
        """A heap. A timer that was set again or removed keeps its entry until that is due, or most entries are such."""
        self._timers_kept = LEAST_TIMERS
        """The number of entries beyond which those that no timer has any more are looked for."""
        self._order: Final = itertools.count()
        self._alarm: asyncio.TimerHandle | None = None
        self._open = True
        self._scheduled = self._paused = self._balances = False
        self._decoded: _Decoded | None = None
        self._unknown_kinds: Final[set[str]] = set()
        self._unreadable: Final[set[int]] = set()
        """Partitions that could not be read, which was logged."""
        self._deliveries: Final = Deliveries(app, plugins or {}, opened.now_ms, self._delivered_outputs, self.fail)
        self._held: Final[dict[int, dict[str, None]]] = {}
        """Machines that handle nothing until some of their outputs are delivered, by partition."""
        self._writer: Final = CheckpointWriter(opened, app.name, self._append)
        self._checkpointing: asyncio.Task[None] | None = None
        self._since_s: Final[dict[int, float]] = {}
        """When records of a partition were seen first since its last checkpoint, by the clock of the loop."""

    # -- partitions

    @property
    def partitions(self) -> list[int]:
        """The partitions that this lane has."""
        return sorted(self._claims)

    @property
    def full(self) -> list[int]:
        """The partitions in which this lane reads no further, because many events wait there."""
        return sorted(self._full)

    async def take(self, claimed: Mapping[int, int]) -> None:
        """Read claimed partitions, and begin to handle what is pending in them. One that is unreadable is left out, and logged.

        Args:
            claimed: the seqnum of the claim of each partition. Those that this lane has are left alone.

        Raises:
            Trimmed: another owner took a partition meanwhile; the newest claims have to be read.
            BokiError: a read failed. The partitions are claimed, and `take` may be called again.
        """
        missing = {one: claim for one, claim in claimed.items() if self._claims.get(one) != claim}
        if not missing:
            return
        read = await self._log.book.now()
        states = await self._load(list(missing), read)
        async with self._turn:
            if not self._open:
                return
            if any(one in self._claims and self._claims[one] != missing[one] for one in states):
                await self._reload()  # it was lost and claimed again: what was handled before is not in the log
            states = {one: state for one, state in states.items() if one not in self._claims}
            position = await self._log.book.now()
            after = {one: max(read, state.covers) for one, state in states.items()}
            await loading.read_on(self._log, states, after, position, self._room())
            await self._delivered_up_to(position)
            for one, state in states.items():
                if self._owner.mine.get(one) == missing[one]:
                    self._join(one, missing[one], state, position)
            self._balance()
        self._schedule()

    def _room(self) -> loading.Room:
        """Return the room for the messages of partitions that are taken over."""
        limit = self._bounds.inbox_bytes
        return loading.Room(limit - sum(state.waiting for state in self._states.values()), limit // tags.PARTITIONS)

    async def _load(self, partitions: Sequence[int], position: int) -> dict[int, PartitionState]:
        """Return the states of the partitions that can be read; one that cannot holds up no other.

        Raises:
            Trimmed: as `take`.
            BokiError: a read failed, and may succeed later.
        """
        try:
            found = await loading.load_partitions(self._log, self._app.name, partitions, position, self._room())
        except BokiError as error:
            if error.retryable or isinstance(error, (Trimmed, ClosedError)):
                raise
            if len(partitions) > 1:
                apart = [await self._load([one], position) for one in partitions]
                return {one: state for states in apart for one, state in states.items()}
            (one,) = partitions
            if one not in self._unreadable:
                log.error(
                    "partition unreadable: its machines handle nothing until it can be read, the next round tries again",
                    group=self._app.name,
                    partition=one,
                    error=repr(error),
                )
            self._unreadable.add(one)
            return {}
        self._unreadable.difference_update(found)
        return found

    async def _delivered_up_to(self, position: int) -> None:
        """Wait until the records of this lane's partitions are delivered up to a position, at which others join.

        A machine of a partition that joins may have sent events to this lane before. They come before those that it sends here. A partition
        that is behind gets the latter from the log, and is not waited for.
        """
        partitions = list(self._states)
        if not partitions:
            return
        wanted = [(tags.rsm_partition(self._app.name, one), position) for one in partitions]
        newest = await self._log.book.read_prev_many(wanted)
        last = {one: record.seqnum for one, record in zip(partitions, newest, strict=True) if record is not None}
        while any(self._delivered.get(one, seqnum) < seqnum for one, seqnum in last.items() if one not in self._behind):
            self._arrived.clear()
            await self._arrived.wait()
        for one in last.keys() & self._behind.keys():
            self._behind[one] = max(self._behind[one], last[one])

    def _join(self, partition: int, claim: int, state: PartitionState, position: int) -> None:
        """Add a partition that was read up to a position, while no record is in flight.

        Args:
            partition: one that this lane does not have: what it handled there before would be handled again.
            claim: the host's newest claim, which was made before the partition was read.
            state: the partition as of the position.
            position: where it was read.
        """
        assert partition not in self._claims, "a partition joins once for a claim"
        assert all(partition not in record.partitions for record in self._records), (
            "commits have a claim that they expect"
        )
        state.keeps_commits = False
        self._claims[partition] = claim
        self._delivered[partition] = read_to = position if state.kept_to is None else state.kept_to
        self._states[partition] = state
        self._spans.setdefault(partition, []).append((position, None))
        if state.kept_to is not None:
            self._full[partition] = ReadingAhead(read_to, state.waiting)
            self._behind[partition] = state.read_to
            state.kept_to = None
        tag = tags.rsm_partition(self._app.name, partition)
        self._follower.add(tag, read_to + 1, partial(self._saw, partition))
        if state.fresh.records:
            self._since_s[partition] = asyncio.get_running_loop().time()
        for id, message in state.pending.items():
            self._enqueue(InboxMessage(message, id.seqnum, id.number))
        for record in self._records:  # what handlers sent there before it joined
            record.by_log.add(partition)
        if partition not in self._behind:
            self._take_open(partition)
        self._deliveries.join(partition, state.outputs)
        for text, fault in state.faults.items():
            machine = self._machine(text)
            machine.fault = fault
            self._answer_faulted(machine, machine.messages())
        for text, times in state.timers.items():
            for name, one in times.items():
                self._set_timer(text, name, one)

    def _take_open(self, partition: int) -> None:
        """Deliver what records that are not in the log yet send to a partition, and that it would have got from the log."""
        state = self._states[partition]
        for record in (*([] if self._in_flight is None else [self._in_flight]), *self._records):
            if partition in record.by_log:
                record.by_log.discard(partition)
                for sent in record.sent:
                    if state.has(sent.message.to):
                        self._enqueue(sent)

    def _leave(self, partitions: Iterable[int], last: int) -> None:
        """Drop partitions, which this lane owned for records below `last`."""
        left = {one for one in partitions if self._claims.pop(one, None) is not None}
        for one in sorted(left):
            self._follower.discard(tags.rsm_partition(self._app.name, one))
            self._deliveries.leave(one)
            self._held.pop(one, None)
            self._delivered.pop(one, None)
            self._since_s.pop(one, None)
            for by_partition in (self._full, self._behind, self._sent_by_log):
                by_partition.pop(one, None)
            del self._states[one]
            first, _ = self._spans[one].pop()
            self._spans[one].append((first, last))
        for text in [text for text, machine in self._machines.items() if machine.ref.partition in left]:
            self._drop(text)

    def _drop(self, text: str) -> None:
        machine = self._machines.pop(text)
        self._ready.pop(text, None)
        self._residents.remove(machine)
        if machine.loading is not None:
            machine.loading.cancel()

    async def give(self, partitions: Collection[int], *, release: Contribution) -> bool:
        """Stop handling in partitions, wait until their commits are in the log, and release them.

        Args:
            partitions: those to release; others of them are left alone.
            release: what the caller adds to the record.

        Returns:
            True if they are released; False if one of them moved meanwhile.
        """
        return await asyncio.shield(self._begin(self._give(partitions, release)))

    async def _give(self, partitions: Collection[int], release: Contribution) -> bool:
        """Give partitions, as a task of the lane: an append that its caller could cancel would have an unknown outcome."""
        try:
            await self._deliveries.drain(partitions)
            async with self._turn:
                self._closing.update(partitions)  # here, so that no other call that gives them takes it back meanwhile
                self._deliveries.pause(partitions)
                while any(one in self._closing for record in self._records for one in record.partitions):
                    await self._append_first()
                seqnum = await self._owner.release(release, partitions)
                if seqnum:
                    self._leave(partitions, seqnum)
                return seqnum > 0
        finally:
            self._closing.difference_update(partitions)
            self._deliveries.resume(partitions)
            for machine in self._machines.values():  # those of partitions that are not released
                if machine.ref.partition in partitions and machine.fault is not None:
                    self._answer_faulted(machine, machine.messages())
            self._schedule_all(partitions)

    def lost(self) -> None:
        """Note that claims moved: partitions that another host owns are dropped, with all that is not in the log."""
        if any(self._owner.mine.get(one) != claim for one, claim in self._claims.items()):
            self._spawn(self._reload_in_turn)

    async def _reload_in_turn(self) -> None:
        async with self._turn:
            if any(self._owner.mine.get(one) != claim for one, claim in self._claims.items()):
                await self._reload()

    async def _reload(self, *, claim: bool = False) -> None:
        """Forget all that is not in the log, and read again the partitions that this lane still owns. The caller has the turn.

        Args:
            claim: claim them again before, which decides what became of an append. So does a lane that lost no partition, and yet
                expected a claim that is not the newest: it is a claim of this host whose outcome it did not learn.
        """
        kept = dict(self._claims)
        self._in_flight = None
        self._leave(kept, 0)
        self._spans.clear()  # all is followed from a position above the lane's own records
        self._records.clear()
        self._records.append(self._new_record())
        pause = pauses()
        while self._open:
            try:
                await self._owner.refresh()
                mine = {one: self._owner.mine[one] for one in kept if one in self._owner.mine}
                if mine and (claim or mine == kept):
                    claim = True
                    if await self._owner.claim(list(mine)):
                        claim, kept = False, dict.fromkeys(mine, 0)
                    continue  # the newest claims are read again: another host may have claimed some
                position = await self._log.book.now(consistency="linearizable")
                states = await self._load(list(mine), position)
            except BokiError as error:
                if error.definite and not error.retryable and not isinstance(error, Trimmed):
                    raise
                log.warning("partitions unreadable: the lane retries", group=self._app.name, error=repr(error))
                await asyncio.sleep(pause.next())
                continue
            for one, state in states.items():
                if self._owner.mine.get(one) == mine[one]:  # else another owner may have committed above the position
                    self._join(one, mine[one], state, position)
            self._balance()
            self._schedule()
            return

    async def close(self) -> None:
        """Stop. What is not in the log is handled by the next owner."""
        self._open = False
        if self._alarm is not None:
            self._alarm.cancel()
        tasks = [*self._tasks, *(one.loading for one in self._machines.values() if one.loading is not None)]
        tasks += [self._sender] if self._sender is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._leave(list(self._claims), 0)
        await self._deliveries.close()

    async def settled(self) -> None:
        """Wait until nothing is handled, loaded or in flight; for tests, and before a host leaves."""
        while True:
            waits = [one.loading for one in self._machines.values() if one.loading is not None]
            waits = [one for one in (*waits, self._sender) if one is not None and not one.done()]
            if waits:
                await asyncio.wait(waits)
            elif self._scheduled:
                await asyncio.sleep(0)
            else:
                return

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run work whose errors end the lane."""

        async def run() -> None:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - no code awaits this task
                self.fail(error)

        _ = self._begin(run())

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run work as a task of the lane, which `close` cancels."""
        task = asyncio.get_running_loop().create_task(work, name="bokirsm lane")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # its caller got it, or was cancelled

    def fail(self, error: Exception) -> None:
        """End the lane: it cannot continue, and says so once."""
        if not self._open:
            return
        self._open = False
        self._deliveries.stop()
        log.error(
            "lane failed: it handles nothing more, its host gives the partitions back",
            group=self._app.name,
            error=repr(error),
        )
        self._failed(error)

    # -- what arrives

    def _saw(self, partition: int, item: Read | boki.Gap | BokiError) -> None:
        """Take a record of a partition's stream."""
        try:
            self._take(partition, item)
        except BokiError:
            raise  # it cannot be decoded: the follower delivers this error
        except Exception as error:  # noqa: BLE001 - the follower would end
            self.fail(error)

    def _take(self, partition: int, item: Read | boki.Gap | BokiError) -> None:
        if partition in self._full:
            self._read_ahead(partition, self._full[partition], item)
            return
        if isinstance(item, boki.Gap) and item.kind is boki.GapKind.TRIMMED:
            self._delivered[partition] = max(item.last, self._delivered[partition])
            self._arrived.set()
            self._spawn(self._refreshed)  # the owner trims what it has read: another host is the owner
            return
        if isinstance(item, boki.Gap):
            log.error(
                "records of machines are lost: their messages are lost to this host",
                group=self._app.name,
                partition=partition,
                error=str(item.error()),
            )
            self._passed(partition, item.last)
            return
        if not isinstance(item, Read):
            self._take_unreadable(partition, item)
            return
        record = item.record
        self._delivered[partition] = record.seqnum
        self._arrived.set()
        state, shares = self._states[partition], self._decode(item).shares
        if self._is_applied(partition, item):
            for id, message in state.keep_again(record.seqnum, self._share(partition, shares)):
                self._enqueue(InboxMessage(message, id.seqnum, id.number))
        elif not self._is_mine(partition, item):
            faults = dict(state.faults)
            for id, message in state.apply_shares(record.seqnum, record.time_ms, shares):
                self._enqueue(InboxMessage(message, id.seqnum, id.number))
            state.read_to = record.seqnum
            self._decided(state, faults)
            self._look(partition)
        self._schedule()
        self._catch_up(partition)

    def _is_mine(self, partition: int, item: Read) -> bool:
        """Return whether this lane appended a record since it has a partition; take it if its answer is late."""
        first, _ = self._spans[partition][-1]
        if item.record.seqnum <= first or not self._decode(item).is_own:
            return False
        self._take_own(item)
        return True

    def _is_applied(self, partition: int, item: Read) -> bool:
        """Return whether all of a record but its messages is applied, and these are taken from the log."""
        seqnum = item.record.seqnum
        if self._is_mine(partition, item):
            return seqnum >= self._sent_by_log.get(partition, seqnum + 1)
        return seqnum <= self._states[partition].read_to

    def _share(self, partition: int, shares: Shares) -> Share:
        return shares.get((self._app.name, partition)) or Share()

    def _take_own(self, item: Read) -> None:
        mine = item.envelope.by == self._log.by  # else of a newer owner, whose claim this lane does not heed yet
        if mine and item.record.seqnum > self._newest_own and self._in_flight is not None:
            self._appended(item.record.seqnum, self._in_flight)  # the answer of its append is late

    def _decided(self, state: PartitionState, faults: Mapping[str, OpenFault]) -> None:
        """Continue with machines about whose faults something was decided. `faults`: those that were open before."""
        for text in faults:
            if state.faults.get(text) is not faults[text] and text in self._machines:
                self._machines[text].fault = state.faults.get(text)
                self._machines[text].failures = 0
                self._ready[text] = None
        self._schedule()

    # -- full inboxes

    def _read_ahead(self, partition: int, ahead: ReadingAhead, item: Read | boki.Gap | BokiError) -> None:
        """Take from a partition that is full what its machines handle now, and decisions. All else is read again later."""
        if isinstance(item, boki.Gap) and item.kind is boki.GapKind.TRIMMED:
            self._spawn(self._refreshed)  # as in `_take`
        if isinstance(item, BokiError) and not loading.is_foreign(item):
            ahead.ends = item.facts.get("seqnum", ahead.at + 1)  # where the partition stops once it is read to there
        if not isinstance(item, Read) or (ahead.ends and item.record.seqnum > ahead.ends):
            return
        state, shares = self._states[partition], self._decode(item).shares
        seqnum = ahead.at = item.record.seqnum
        if not self._is_applied(partition, item):
            if self._is_mine(partition, item):
                return
            faults = dict(state.faults)
            state.apply_shares(seqnum, item.record.time_ms, shares, keeps=False)
            state.read_to = seqnum
            self._decided(state, faults)
        for id, message in state.again(seqnum, self._share(partition, shares)):
            if self._takes_ahead(ahead, state, id, message):
                state.keep(id, message)
                state.passed.add(id)
                self._enqueue(InboxMessage(message, id.seqnum, id.number))
        self._schedule()

    def _takes_ahead(self, ahead: ReadingAhead, state: PartitionState, id: MessageId, message: Message) -> bool:
        """Return whether a machine of a full partition takes a message now. One that is not in memory is loaded."""
        machine = self._machine(message.to)
        if not machine.loaded and machine.loading is None:
            self._ready[machine.text] = None
        kind, declaration = self._declaration(machine)
        is_known = (declaration is not None or not kind) and (not message.kind or message.kind in self._app.machines)
        return ahead.takes(
            machine.text,
            id,
            rests=machine.rests and is_known,
            state=machine.state_name,
            defers=machine.defers(declaration, message),
            has_room=is_known
            and machine.loaded
            and machine.fault is None
            and state.waiting <= ahead.kept + self._bounds.inbox_bytes // tags.PARTITIONS,
        )

    def _came_to_rest(self, machine: LaneMachine) -> None:
        """Read a full partition again from the first message on that a machine may handle now."""
        partition = machine.ref.partition
        ahead = self._full.get(partition)
        seqnum = ahead.wakes(machine.text, machine.state_name) if ahead is not None and machine.rests else 0
        if ahead is None or not seqnum or seqnum > ahead.at:
            return
        if not ahead.again:
            asyncio.get_running_loop().call_soon(self._read_ahead_again, partition, ahead)
        ahead.again = min(ahead.again or seqnum, seqnum)

    def _read_ahead_again(self, partition: int, ahead: ReadingAhead) -> None:
        if self._open and self._full.get(partition) is ahead:
            seqnum, ahead.again = ahead.again, 0
            ahead.at = seqnum - 1
            self._follow_from(partition, seqnum)

    def _follow_from(self, partition: int, seqnum: int) -> None:
        """Read a partition again from a seqnum on."""
        tag = tags.rsm_partition(self._app.name, partition)
        self._follower.discard(tag)
        self._follower.add(tag, seqnum, partial(self._saw, partition))

    def _catch_up(self, partition: int) -> None:
        """Deliver what this lane sends to a partition from memory, once the partition was read to where that came from the log."""
        if partition in self._full or self._delivered[partition] < self._behind.get(partition, 0):
            return
        if self._behind.pop(partition, None) is not None:
            self._sent_by_log.pop(partition, None)
            self._take_open(partition)
            self._schedule()

    def _has_much(self, partition: int, share: float = 1.0) -> bool:
        """Return whether more than the partition's share of the bound waits in it, or a part of that share."""
        return self._states[partition].waiting * tags.PARTITIONS > self._bounds.inbox_bytes * share

    def _balance(self) -> None:
        """Read no further where many events wait if too many wait in all, and further where there is room again."""
        self._balances = False
        total = sum(state.waiting for state in self._states.values())
        before = list(self._full)
        for one in before:
            if total <= self._bounds.inbox_bytes * ROOM or not self._has_much(one, ROOM):
                del self._full[one]
                self._follow_from(one, self._delivered[one] + 1)
                self._catch_up(one)
        for one in self._states if total > self._bounds.inbox_bytes else ():
            if one not in self._full and self._has_much(one):
                self._full[one] = ReadingAhead(self._delivered[one], self._states[one].waiting)
        self._fall_behind([one for one in self._full if one not in self._behind])
        if list(self._full) != before:
            log.info(
                "inboxes: partitions in which this host reads no further",
                group=self._app.name,
                partitions=self.full,
                waiting=total,
            )
            self._tell()

    def _fall_behind(self, partitions: Sequence[int]) -> None:
        """Have partitions get what this lane sends from the log from now on: what it has sent so far is in a record before that."""
        if not partitions:
            return
        self._behind.update({one: self._delivered[one] for one in partitions})
        self._arrived.set()  # a partition that joins does not wait for them
        if self._records[-1]:
            self._records.append(self._new_record())
            self._begin_sending()
        else:
            self._records[-1].by_log.update(partitions)

    def _decode(self, item: Read) -> _Decoded:
        if self._decoded is None or self._decoded.item is not item:
            record = item.record
            events = PICKER.of(record.seqnum, item.envelope)
            mine = is_own(record.seqnum, events, self._spans)
            shares = {} if mine and not self._behind else shares_of(events, len(record.data))
            self._decoded = _Decoded(item, shares, mine)
        return self._decoded

    def _passed(self, partition: int, seqnum: int) -> None:
        """Note that records of a partition up to a seqnum were delivered: a partition that joins does not wait for them."""
        if partition in self._delivered:
            self._delivered[partition] = max(seqnum, self._delivered[partition])
            self._arrived.set()

    def _take_unreadable(self, partition: int, error: BokiError) -> None:
        """Take a record that cannot be opened, as the next owner will: pass it over if no library wrote it, else stop before it."""
        if partition not in self._states:
            return
        seqnum = error.facts.get("seqnum", self._delivered[partition])
        self._passed(partition, seqnum)
        if loading.is_foreign(error):
            log.warning("record that no library wrote: passed over", partition=partition, error=str(error))
            self._states[partition].apply(seqnum, self._log.now_ms(), 0, [])
            self._look(partition)
            return
        log.error(
            "record of machines cannot be opened here: its partition stops before it, until a host can open it",
            group=self._app.name,
            partition=partition,
            error=str(error),
        )
        self._closing.add(partition)
        self._deliveries.leave(partition)
        self._spawn(partial(self._stop, partition))

    async def _stop(self, partition: int) -> None:
        """Leave a partition without releasing it, once its commits are in the log. The next round tries to read it again."""
        try:
            async with self._turn:
                while any(partition in record.partitions for record in self._records):
                    await self._append_first()
                self._leave([partition], self._newest_own + 1)
        finally:
            self._closing.discard(partition)

    def _machine(self, text: str) -> LaneMachine:
        machine = self._machines.get(text)
        if machine is None:
            machine = self._machines[text] = LaneMachine(text)
            self._residents.add(machine)
        return machine

    def _enqueue(self, message: InboxMessage) -> None:
        machine = self._machine(message.message.to)
        machine.inbox.append(message)
        self._ready[machine.text] = None
        if machine.fault is not None:
            self._answer_faulted(machine, [message])

    # -- timers

    def _set_timer(self, machine: str, name: str, times: TimerTimes) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + left_ms(times.due_ms, times.set_ms, self._log.now_ms()) / 1_000
        heapq.heappush(self._timers, _Due(due_s, next(self._order), machine, Firing(name, times)))
        if len(self._timers) > self._timers_kept:
            self._drop_stale_timers()
        if self._timers and self._timers[0].due_s == due_s:
            self._set_alarm(loop)

    def _drop_stale_timers(self) -> None:
        """Drop the entries of timers that were set again or removed. The next time is when there are twice as many as are left."""
        self._timers[:] = [due for due in self._timers if self._is_set(due)]
        heapq.heapify(self._timers)
        self._timers_kept = max(LEAST_TIMERS, 2 * len(self._timers))

    def _is_set(self, due: _Due) -> bool:
        """Return whether an entry may be that of a timer which is set: in memory, or by the records of its partition."""
        name, times = due.firing
        state = self._states.get(partition_of_ref(due.machine)[1])
        if state is None:
            return False
        machine = self._machines.get(due.machine)
        timer = machine.state.timers.get(name) if machine is not None and machine.state is not None else None
        in_memory = timer is not None and (timer.set_ms, timer.due_ms, timer.k) == times
        return in_memory or state.timers.get(due.machine, {}).get(name) == times

    def _set_alarm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = loop.call_at(self._timers[0].due_s, self._ring) if self._timers else None

    def _ring(self) -> None:
        """Put the timers that are due into the inboxes of their machines."""
        loop = asyncio.get_running_loop()
        for _ in range(RINGS):
            if not self._timers or self._timers[0].due_s > loop.time():
                break
            due = heapq.heappop(self._timers)
            state = self._states.get(partition_of_ref(due.machine)[1])
            if state is None or not state.has(due.machine):
                continue
            machine = self._machine(due.machine)
            machine.inbox.append(due.firing)  # one that is set no more is recognised when it is handled
            self._ready[machine.text] = None
        self._set_alarm(loop)
        self._schedule()

    # -- handling

    def _schedule(self) -> None:
        if self._open and not self._paused and not self._scheduled and self._ready:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _schedule_all(self, partitions: Collection[int]) -> None:
        for text, machine in self._machines.items():
            if machine.ref.partition in partitions:
                self._ready[text] = None
        self._schedule()

    def _run(self) -> None:
        """Handle items of the machines that are ready, until the record is full or other tasks should run."""
        self._scheduled = False
        try:
            self._handle_some()
        except Exception as error:  # noqa: BLE001 - the event loop would log it, and the lane be deaf
            self.fail(error)

    def _handle_some(self) -> None:
        left = SLICE
        while left > 0 and self._open and not self._paused and self._ready and len(self._records) == 1:
            text = next(iter(self._ready))
            del self._ready[text]
            record = self._records[-1]
            sent, size = len(record.sent), record.size
            if self._step(self._machines[text]):
                self._ready[text] = None
            left -= 1 + (len(record.sent) - sent) // SENDS + (record.size - size) // ITEM_BYTES
        self._begin_sending()
        self._shrink()
        if len(self._records) == 1:
            self._schedule()

    def _shrink(self) -> None:
        """Drop machines that are clean while memory is full."""
        while self._residents.is_full and (text := self._residents.pop()) is not None:
            machine = self._machines.get(text)
            if machine is not None and machine.is_clean and text not in self._ready and not self._is_touched(text):
                self._drop(text)

    def _is_touched(self, text: str) -> bool:
        """Return whether the next checkpoint of its partition needs a machine, or events of a full partition may be for it."""
        partition = partition_of_ref(text)[1]
        state, ahead = self._states.get(partition), self._full.get(partition)
        return (state is not None and text in state.touched) or (ahead is not None and text in ahead)

    def _is_pressed(self) -> bool:
        """Return whether a checkpoint is due because memory is full of machines that changed, and may be made again by the time."""
        return self._residents.wants_snapshots and asyncio.get_running_loop().time() >= self._pressed_s

    def _step(self, machine: LaneMachine) -> bool:
        """Handle the next item of a machine. Return whether it may have more."""
        if machine.ref.partition in self._closing or machine.loading is not None:
            return False
        if not self._is_loaded(machine):
            return False
        machine.begin_again()
        kind, declaration = self._declaration(machine)
        if kind and declaration is None:
            return False
        if self._is_held(machine):
            return False
        found = machine.next_work(declaration if machine.state is not None and not machine.state.halted else None)
        if found is None:
            self._came_to_rest(machine)
            self._residents.rest(machine)
            return False
        if machine.fault is not None:
            return self._skip(machine, machine.fault)
        if not self._exists(machine, found):
            self.dropped += 1
            self._absent[machine.text] = None
            return self._commit(machine, found, Commit(machine.text, DROPPED, replies=self._missing(machine, found)))
        if declaration is None:  # the first item was a timer that is set no more
            return True
        if found.reaction is Reaction.IGNORE:
            assert machine.state is not None
            return self._commit(machine, found, _of(machine, skip(machine.state, found.work, self._log.now_ms())))
        return self._handle(machine, declaration, found)

    def _is_loaded(self, machine: LaneMachine) -> bool:
        """Return whether a machine's state is known; begin to load it otherwise. One that is created has no state yet."""
        if machine.loaded:
            return True
        first = machine.inbox[0] if machine.inbox else None
        state = self._states[machine.ref.partition]
        is_new = isinstance(first, InboxMessage) and bool(first.message.kind)
        if is_new and machine.text not in state.commits:
            machine.loaded = True
            return True
        self._begin_loading(machine)
        return False

    def _begin_loading(self, machine: LaneMachine) -> None:
        machine.loading = asyncio.get_running_loop().create_task(self._load_machine(machine), name="bokirsm machine")

    async def _load_machine(self, machine: LaneMachine) -> None:
        try:
            await self._loaded(machine)
        except Exception as error:  # noqa: BLE001 - no code awaits this task
            self.fail(error)

    async def _loaded(self, machine: LaneMachine) -> None:
        try:
            found = await retried(partial(loading.read_machine, self._log, self._app.name, machine.ref.name))
        except BokiError as error:
            log.error("machine unreadable: it handles nothing here", machine=machine.text, error=repr(error))
            return
        state = self._states[machine.ref.partition]
        if found.partition not in (None, machine.ref.partition):
            found = (
                loading.MachineStream()
            )  # a reference names another partition than the machine's: there is none here
        try:
            machine.state = machine_of(found.state, state.commits.get(machine.text, []))
        except LookupError:
            machine.loading = None
            self._spawn(partial(self._not_found, machine))
            return
        state.commits.pop(machine.text, None)
        machine.digest = found.digest
        if found.head is not None:
            machine.snapped, machine.kept, machine.newest = found.head.event.k, found.head.kept, found.head.seqnum
        machine.loaded, machine.loading = True, None
        self._residents.loaded(machine, len(found.head.data) if found.head is not None else 0)
        if machine.fault is not None:
            self._answer_faulted(machine, machine.messages())  # its class, which tells questions, is known now
        self._ready[machine.text] = None
        self._schedule()

    async def _not_found(self, machine: LaneMachine) -> None:
        """Find out why commits of a machine are missing: another host owns its partition, and trimmed them, or they are lost."""
        await self._refreshed()
        if machine.ref.partition in self._claims:
            log.error("machine unreadable: its commits do not follow its snapshot", machine=machine.text)

    async def _refreshed(self) -> None:
        """Read the newest claims: records that a machine needs were trimmed, so another host owns its partition."""
        await retried(self._owner.refresh)
        self.lost()

    def _declaration(self, machine: LaneMachine) -> tuple[str, Declaration | None]:
        """Return the stored name of a machine's class, "" if it is not known, and what this program declares of it."""
        if machine.state is not None:
            kind, state = machine.state.kind, machine.state.state
        else:
            first = machine.inbox[0] if machine.inbox else None
            kind, state = (first.message.kind, "") if isinstance(first, InboxMessage) else ("", "")
        found = self._app.machines.get(kind)
        if found is not None and state and state not in found.states:
            kind, found = f"{kind}.{state}", None
        if kind and found is None and kind not in self._unknown_kinds:
            self._unknown_kinds.add(kind)
            log.warning(
                "machine waits: this program knows no such class or state; a host that does has to run",
                machine=machine.text,
                unknown=kind,
            )
        return kind, found

    def _exists(self, machine: LaneMachine, found: NextWork) -> bool:
        """Return whether a machine handles an item: it exists, or is created by it."""
        if machine.state is None:
            return found.work.creates
        return not machine.state.halted and not found.work.creates

    def _missing(self, machine: LaneMachine, found: NextWork) -> tuple[Reply, ...]:
        """Return the answer to a question that is dropped; a program that has no machine for such a question knows of none."""
        kinds = (one.accepts.get(found.work.event) for one in self._app.machines.values())
        if found.work.creates or not any(kind is not None and issubclass(kind, Ask) for kind in kinds):
            return ()
        asker = asker_of(found.work.body)
        return (Reply(asker, "missing", encode(machine.text)),) if asker else ()

    def _handle(self, machine: LaneMachine, declaration: Declaration, found: NextWork) -> bool:
        state = machine.state if machine.state is not None else MachineState(declaration.kind)
        world = World(machine.ref, self._log.now_ms(), self._tokens, self._app.plugins, self._log.identity)
        try:
            handled = self._watched(machine, partial(handle, declaration, state, machine.volatile, found.work, world))
        except HandlerFailed as failed:
            if failed.__cause__ is not None and interrupted(failed.__cause__):
                raise failed.__cause__ from None  # a person ends the program
            machine.volatile = {}
            machine.failures += 1
            if machine.failures >= ATTEMPTS:
                return self._fault(machine, found, failed)
            return True
        machine.state = state
        self._born(machine, found)
        return self._commit(machine, found, *handled)

    def _born(self, machine: LaneMachine, found: NextWork) -> None:
        """Keep the digest of a creation, also if events came before it and the machine was not there."""
        if found.work.creates:
            assert isinstance(found.item, InboxMessage)
            machine.digest = found.item.message.digest

    def _watched(self, machine: LaneMachine, call: Callable[[], Handled]) -> Handled:
        """Run a handler; one that keeps the event loop from running for too long fails.

        Raises:
            HandlerFailed: the handler failed.
        """
        if self._watch is None:
            return call()
        try:
            return self._watch.run(
                call,
                lambda stack: log.error("handler stuck: interrupted", machine=machine.text, stack=stack),
            )
        except (CodeStuck, HandlerFailed) as failed:
            stuck = failed if isinstance(failed, CodeStuck) else failed.__cause__
            if not isinstance(stuck, CodeStuck):
                raise
        machine.failures = ATTEMPTS  # another attempt would hold up all other machines again
        raise HandlerFailed(
            f"expected a handler to end within {self._watch.after_s:g} s, found that it kept the event loop from running"
        )

    def _commit(
        self,
        machine: LaneMachine,
        found: NextWork,
        commit: Commit,
        beside: Beside = ALONE,
        loose: Sequence[Message] = (),
    ) -> bool:
        """Add a commit to the open record, apply it, and deliver what it sends to machines of this lane.

        Args:
            machine: the machine.
            found: the item that it handled.
            commit: without the id of that item.
            beside: what else is in the record.
            loose: what it sends at most once: in no record if the machine is of this lane, else as any event.
        """
        here = [one for one in loose if self._is_here(one)]
        if len(here) < len(loose):
            away = (one for one in loose if not self._is_here(one))
            commit = msgspec.structs.replace(commit, sends=(*commit.sends, *away))
        sent = self._add(commit, found.item if isinstance(found.item, InboxMessage) else None, beside)
        self._apply(machine, commit)
        self._enqueue_own(sent)
        for one in here:
            self._enqueue(InboxMessage(one, UNRECORDED, 0))
        return True

    def _apply(self, machine: LaneMachine, commit: Commit) -> None:
        """Apply a commit that is in the open record to its machine, which has taken the next item, and begin its timers."""
        before = machine.state.state if machine.state is not None else ""
        if commit.k != DROPPED:
            assert machine.state is not None
            machine.state.apply(commit)
            self._residents.committed(machine, commit)
        machine.took(changed_state=commit.halted or (machine.state is not None and machine.state.state != before))
        for timer in commit.timers:
            self._begin_timer(machine.text, timer)

    def _new_record(self) -> LaneRecord:
        return LaneRecord(self._app.name, self._behind)

    def _is_here(self, message: Message) -> bool:
        """Return whether a message is to a machine of this lane whose partition is neither being released nor behind."""
        partition = partition_of_ref(message.to)[1]
        return partition in self._claims and partition not in self._closing and partition not in self._behind

    def _enqueue_own(self, sent: Sequence[InboxMessage]) -> None:
        """Deliver the messages of the open record that are for machines of this lane, unless these get them from the log."""
        for message in sent:
            partition = partition_of_ref(message.message.to)[1]
            if partition in self._claims and partition not in self._behind:
                self._enqueue(message)

    def _begin_timer(self, machine: str, timer: TimerSet) -> None:
        if not timer.is_removal:
            self._set_timer(machine, timer.name, TimerTimes(timer.set_ms, timer.due_ms, timer.k))

    def _add(self, event: OfLane, took: InboxMessage | None, beside: Beside = ALONE) -> Sequence[InboxMessage]:
        if not self._records[-1].fits(event, beside):
            self._records.append(self._new_record())
        return self._records[-1].add(event, took, beside)

    # -- outputs

    def _delivered_outputs(self, event: Done | Undelivered) -> None:
        """Add what became of outputs to the open record, with what the plugin answered."""
        self._enqueue_own(self._add(event, None))
        self._begin_sending()
        self._schedule()

    def _is_held(self, machine: LaneMachine) -> bool:
        """Return whether a machine has to wait until some of its outputs are delivered."""
        outputs = self._states[machine.ref.partition].outputs
        if not outputs.size:
            return False
        size = outputs.size_of.get(machine.text, 0)
        if size <= OUTPUT_BYTES and not (size and outputs.size > OUTPUTS_BYTES):
            return False
        self._held.setdefault(machine.ref.partition, {})[machine.text] = None
        return True

    def _look_at_outputs(self, partition: int) -> None:
        """Deliver outputs that came, and let machines continue that wait for a delivery."""
        self._deliveries.look(partition)
        self._ready.update(dict.fromkeys(one for one in self._held.pop(partition, ()) if one in self._machines))

    # -- faults

    def _fault(self, machine: LaneMachine, found: NextWork, failed: HandlerFailed) -> bool:
        """Give a machine a fault. Return whether it may handle more: the event is in no record, so that it is sent by one first."""
        item = found.item
        if isinstance(item, InboxMessage) and item.seqnum == UNRECORDED:
            return self._commit(machine, found, Commit(machine.text, DROPPED, sends=(item.message,)))
        cause = failed.__cause__ or failed
        timer = item.name if isinstance(item, Firing) else ""
        id = MessageId(TIMER if timer else 0, 0)
        text = printable(str(failed), ERROR_CHARS)
        machine.fault = OpenFault(0, id, timer, found.work.event, text)
        stack = stack_of(cause)[-STACK_CHARS:]
        replies = self._askers(machine, machine.messages())
        event = Faulted(machine.text, id, timer, found.work.event, text, stack, replies[:ANSWERS])
        self._add(event, item if isinstance(item, InboxMessage) else None)
        self._answer(machine, replies[ANSWERS:])
        return False

    def _askers(self, machine: LaneMachine, messages: Sequence[InboxMessage]) -> tuple[Reply, ...]:
        """Return answers to the questions that wait for a machine with a fault."""
        declaration = self._declaration(machine)[1]
        assert machine.fault is not None
        text = encode([machine.text, machine.fault.error])
        found = []
        for one in messages:
            codec = declaration.events.get(one.message.event) if declaration is not None else None
            kind = declaration.accepts.get(one.message.event) if declaration is not None else None
            if codec is None or kind is None or not issubclass(kind, Ask):
                continue
            try:
                asker = codec.decode(one.message.body).asker
            except BokiError:
                continue  # the event that failed may be one that cannot be decoded
            if asker:
                found.append(Reply(asker, "faulted", text))
        return tuple(found)

    def _answer_faulted(self, machine: LaneMachine, messages: Sequence[InboxMessage]) -> None:
        """Answer questions to a machine with a fault. In a partition that is released, its next owner does so.

        One whose event is about to be dropped, as was decided, handles them.
        """
        if machine.ref.partition in self._closing or machine.fault is None or machine.fault.skip:
            return
        replies = self._askers(machine, messages)
        if replies:
            self._answer(machine, replies)
            self._begin_sending()

    def _answer(self, machine: LaneMachine, replies: Sequence[Reply]) -> None:
        """Add answers of a fault, by so many events that each fits a record."""
        for at in range(0, len(replies), ANSWERS):
            self._add(Commit(machine.text, DROPPED, replies=tuple(replies[at : at + ANSWERS])), None)

    def _skip(self, machine: LaneMachine, fault: OpenFault) -> bool:
        """Drop the event of a fault, if a person decided so."""
        if not fault.skip or not machine.bring_forward(fault):
            return False
        found = machine.next_work(None)
        assert found is not None
        machine.fault = None
        if machine.state is None:
            return self._never_born(machine, found)
        return self._commit(machine, found, _of(machine, skip(machine.state, found.work, self._log.now_ms())))

    def _never_born(self, machine: LaneMachine, found: NextWork) -> bool:
        """Skip a creation: the machine has ended, so that its key is free after its retention, as that of any other one."""
        assert isinstance(found.item, InboxMessage) and found.work.creates, (
            "a machine without a state failed at its creation"
        )
        kind = found.item.message.kind
        machine.state = MachineState(kind)
        self._born(machine, found)
        return self._commit(machine, found, Commit(machine.text, 1, self._log.now_ms(), kind=kind, halted=True))

    # -- appending

    def _begin_sending(self) -> None:
        if self._open and self._sender is None and self._records[0]:
            self._sender = asyncio.get_running_loop().create_task(self._send_all(), name="bokirsm record")
            self._sender.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sender = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.fail(error)
        self._begin_sending()  # a handler may have run after the task's last look
        self._schedule()

    async def _send_all(self) -> None:
        while self._open and self._records[0]:
            async with self._turn:
                if self._records[0]:
                    await self._append_first()
            self._schedule()

    async def _append_first(self) -> None:
        """Append the first record, and apply what becomes of it. The caller has the turn, and is a task of the lane."""
        record = self._records.popleft()
        if not self._records:
            self._records.append(self._new_record())
        try:
            part = record.contribution(self._claims)
            self._in_flight = record
            seqnum = await self._append(part)
            if seqnum and self._in_flight is record:
                self._appended(seqnum, record)
        except Exception as error:
            self.fail(error)  # what the lane handled since builds on this record
            raise
        finally:
            self._in_flight = None

    async def _append(self, part: Contribution) -> int:
        """Append what expects claims of this lane. The caller has the turn.

        Returns:
            The seqnum; 0 if it is not in the log, or may be: the lane has read its partitions again, if a claim moved.
        """
        pause = pauses()
        fences = set(self._owner.fences)
        while True:
            try:
                return await self._log.append(part, settle=True)
            except Conflict as conflict:
                moved = self._log.moved(part.expect, conflict).keys()
                if not moved or not moved.isdisjoint(fences):
                    await self._reload()
                return 0
            except BokiError as error:
                if not error.definite:
                    log.warning(
                        "outcome of a record of machines is unknown: the lane claims its partitions again and reads them",
                        group=self._app.name,
                        error=repr(error),
                    )
                    await self._reload(claim=True)
                    return 0
                if not error.retryable:
                    raise
                log.warning("record of machines not appended: retried", group=self._app.name, error=repr(error))
            await asyncio.sleep(pause.next())

    def _appended(self, seqnum: int, record: LaneRecord) -> None:
        """Apply a record of this lane to the partitions that it concerns: its append returned, or it was read."""
        self._in_flight, self._newest_own = None, seqnum
        record.appended(seqnum)
        events = record.events()
        shares, now_ms = shares_of(events, record.size), self._log.now_ms()
        for group, partition in shares:
            state = self._states.get(partition) if group == self._app.name else None
            if state is not None:
                by_log = partition in record.by_log
                state.apply_shares(seqnum, now_ms, shares, keeps=not by_log)
                if by_log and shares[group, partition].messages:
                    self._behind[partition] = max(seqnum, self._behind[partition])
                    self._sent_by_log.setdefault(partition, seqnum)
                self._look_at_outputs(partition)
                self._look(partition)
        for event in events:
            if isinstance(event, Faulted):
                self._faulted(event)

    def _faulted(self, event: Faulted) -> None:
        """Apply a fault that is in the log, and log it: one whose record is lost is tried again, and may succeed then."""
        log.error(
            "handler failed repeatedly: its machine waits until it is resumed or the event is skipped",
            machine=event.id,
            event_name=event.event,
            error=event.error,
            advice="await rsm.resume(machine) tries the event again, await rsm.skip(machine) drops it",
        )
        if event.id in self._machines:
            self._machines[event.id].fault = self._states[partition_of_ref(event.id)[1]].faults.get(event.id)

    # -- checkpoints

    def _look(self, partition: int) -> None:
        """Begin a checkpoint if a partition has enough new records or bytes, and see whether the lane reads on."""
        self._since_s.setdefault(partition, asyncio.get_running_loop().time())
        if _are_enough(self._states[partition].fresh) or self._is_pressed():
            self._begin_checkpoint()
        if not self._balances and (self._full or self._has_much(partition)):
            # Later, since the follower may be delivering a record to several partitions now.
            self._balances = True
            asyncio.get_running_loop().call_soon(self._balance)

    def tend(self) -> None:
        """Begin a checkpoint if one is due by time, or for memory's sake. The host calls this about every third of a lease."""
        if self._is_pressed() or any(self._is_due(one) for one in self._states):
            self._begin_checkpoint()

    def _is_due(self, partition: int, share: float = 1.0) -> bool:
        """Return whether a checkpoint of a partition is due, or a share of the way to the next one has passed."""
        state = self._states[partition]
        if _are_enough(state.fresh, share):
            return True
        since_s = self._since_s.get(partition)
        if (
            state.fresh.records
            and since_s is not None
            and asyncio.get_running_loop().time() - since_s >= CHECKPOINT_S * share
        ):
            return True
        oldest_ms = (
            min((one.time_ms for one in state.records[:1]), default=0) if not state.head else state.checkpoint_ms
        )
        return oldest_ms > 0 and self._log.now_ms() - oldest_ms >= self._bounds.carry_ms * share

    def _begin_checkpoint(self) -> None:
        if self._open and self._checkpointing is None:
            self._checkpointing = self._begin(self._checkpoint())
            self._checkpointing.add_done_callback(self._checkpointed)

    def _checkpointed(self, task: asyncio.Task[None]) -> None:
        self._checkpointing = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, BokiError) and self._open:
            log.warning("checkpoint of machines failed: made later", group=self._app.name, error=repr(error))
        elif isinstance(error, Exception):
            self.fail(error)

    async def _checkpoint(self) -> None:
        """Make checkpoints of the partitions for which they are due or nearly so, and trim."""
        loop = asyncio.get_running_loop()
        began_s, pressed = loop.time(), self._is_pressed()
        due = [one for one, state in self._states.items() if (pressed and state.touched) or self._is_due(one, NEARLY)]
        for partitions in self._batches(due):
            await self._checkpoint_of(partitions)
        if pressed:
            self._pressed_s = loop.time() + PRESSED_SHARE * (loop.time() - began_s)

    def _batches(self, partitions: Sequence[int]) -> Iterator[list[int]]:
        """Yield the partitions that this lane still has, by so many that few of their machines changed."""
        batch: list[int] = []
        count = 0
        for one in partitions:
            state = self._states.get(one)
            if state is None:
                continue
            if batch and count + len(state.touched) > BATCH:
                yield batch
                batch, count = [], 0
            batch.append(one)
            count += len(state.touched)
        if batch:
            yield batch

    async def _checkpoint_of(self, partitions: Sequence[int]) -> None:
        await self._load_touched(partitions)
        async with self._turn:
            shots, over = await self._shots_between_records(partitions)
            written = await self._writer.write(shots, dict(self._claims))
        self._forget_absent()
        if written:
            self._forget_written(shots, over)
            await self._writer.trim()

    async def _shots_between_records(self, partitions: Sequence[int]) -> tuple[Shots, dict[str, int]]:
        """Append what is open, and return what is to be written of partitions. Meanwhile no handler runs; the caller has the turn.

        Returns:
            The shots, and the number of the newest commit of each machine in them that has ended.
        """
        self._paused = True
        try:
            while self._records[0]:
                await self._append_first()
            shots = await self._shots([one for one in partitions if one in self._states and one not in self._closing])
            touched = [text for shot in shots.partitions for text in shot.touched]
            return shots, {text: self._state_of(text) for text in touched if self._machines[text].is_over}
        finally:
            self._paused = False
            self._schedule()

    def _forget_written(self, shots: Shots, over: Mapping[str, int]) -> None:
        """Drop machines that have ended from memory, and others if it is short, after a checkpoint with their snapshots."""
        for text, k in over.items():  # not those that have halted since: their snapshot is of before
            if self._state_of(text) == k and self._machines[text].is_over:
                self._drop(text)
        for shot in shots.machines:
            if self._machines.get(shot.machine.text) is shot.machine:
                self._residents.written(shot.machine, shot.size)
        self._shrink()

    def _forget_absent(self) -> None:
        """Drop machines that do not exist, or have halted as their snapshot says, from memory."""
        for text in list(self._absent):
            machine = self._machines.get(text)
            if machine is not None and machine.is_absent:
                self._drop(text)
            if machine is None or machine.is_absent or not (machine.state is None or machine.state.halted):
                del self._absent[text]

    async def _load_touched(self, partitions: Sequence[int]) -> None:
        """Load the machines that a former owner's commits changed, which need snapshots."""
        texts = [text for one in partitions if one in self._states for text in self._states[one].touched]
        for at in range(0, len(texts), SLICE):
            machines = [self._machine(text) for text in texts[at : at + SLICE] if self._has(text)]
            for machine in machines:
                if not machine.loaded and machine.loading is None:
                    self._begin_loading(machine)
            waits = [one.loading for one in machines if one.loading is not None and not one.loading.done()]
            if waits:
                await asyncio.wait(waits)

    def _has(self, text: str) -> bool:
        return partition_of_ref(text)[1] in self._states

    async def _shots(self, partitions: Sequence[int]) -> Shots:
        """Return what is to be written of partitions. The lane's memory is the state of the log now.

        Other tasks run between machines. Handlers do not, and the caller has the turn, so the partitions stay, and so do their machines.
        """
        now_ms = self._log.now_ms()
        old_ms = self._bounds.carry_ms // 2
        machines: list[MachineShot] = []
        found: list[PartitionShot] = []
        for one in partitions:
            state = self._states[one]
            state.fresh = Fresh()
            self._since_s.pop(one, None)
            touched = dict(state.touched)  # a next owner's commits may come meanwhile: these shots are not written then
            if any(self._state_of(text) != k for text, k in touched.items()):
                continue  # a machine is unreadable, which was logged, or the partition has another owner, or was read again just now
            covers = max(state.covers, state.next_covers(self._delivered[one], now_ms - old_ms))
            for number, (text, k) in enumerate(touched.items()):
                if number % SLICE == SLICE - 1:
                    await asyncio.sleep(0)
                machine = self._machines[text]
                assert machine.state is not None and machine.state.k == k, "memory is the state of the log"
                gone = machine.state.halted and not machine.digest and machine.snapped < 0
                if machine.snapped != k and not (gone and state.newest[text] <= covers):
                    machines.append(shot_of_machine(machine, now_ms, old_ms))
            found.append(shot_of_partition(state, list(touched), covers, now_ms, old_ms))
        return Shots(machines, found, now_ms)

    def _state_of(self, text: str) -> int:
        """Return the number of the newest commit in the memory of a machine; -1 if it is not loaded."""
        machine = self._machines.get(text)
        return machine.state.k if machine is not None and machine.loaded and machine.state is not None else -1

    async def claim_again(self, partitions: Sequence[int]) -> None:
        """Claim partitions of this lane again, so that the terms of their claims can be reclaimed. The claims before are trimmed later.

        Raises:
            BokiError: the append failed, or its outcome is unknown: the next record of the lane settles it.
        """
        await asyncio.shield(self._begin(self._claim_again(partitions)))

    async def _claim_again(self, partitions: Sequence[int]) -> None:
        async with self._turn:
            mine = [one for one in partitions if self._claims.get(one) == self._owner.mine.get(one, -1)]
            seqnum = await self._owner.claim(mine) if self._open and mine else 0
            if seqnum:
                again = [one for one in mine if self._owner.mine.get(one) == seqnum]
                self._claims.update(dict.fromkeys(again, seqnum))  # a newer claim of one that was lost needs a new read
                await self._log.book.trim([(self._owner.fences[one], seqnum) for one in again])


def _are_enough(fresh: Fresh, share: float = 1.0) -> bool:
    """Return whether a checkpoint of records pays, or a share of those that it needs for that are there."""
    records, size, whole = (round(one / share) for one in fresh)
    return checkpoint_rules.due(records, size, RECORDS_BETWEEN, BYTES_BETWEEN) or whole >= WHOLE_BYTES_BETWEEN


def _of(machine: LaneMachine, commit: Commit) -> Commit:
    """Return a commit as one of a machine."""
    return Commit(machine.text, commit.k, commit.at_ms, timers=commit.timers)
