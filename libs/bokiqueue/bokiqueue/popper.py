"""Popping: the queue of the paper, folded by each process that pops (`pop_state`).

An empty shard costs a read and no append. Otherwise one append is the pop, and its result is known when the fold has
reached it. Any popper makes a checkpoint after a number of pops. Checkpoints within the grace are kept, and the one
before them, by which older records are trimmed. A popper whose folded records are trimmed resumes from a checkpoint
that does not cover its pop.

The message of a pop is returned even if something beside it fails: the checkpoint is made in the background, and a pop
whose caller is cancelled leaves its message to the next pop of this process.

A pop expects the settings, and the settings are read before a queue is said to be empty: if it was deleted and made again, the popper
ends with `Replaced`, and the next one begins with what cancelled callers left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

import boki
from boki_common.errors import BokiError, Conflict
from boki_common.logs import get_logger
from boki_common.runtime import confined
from boki_common.runtime.bodies import from_outside
from bokilib.append.log import Log
from bokilib.errors import NotEncodable
from bokilib.pauses import retried
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.retention import checkpoint_rules
from bokilib.retention.checkpoint_rules import GRACE_MS, CheckpointPart, WholeCheckpoint
from bokilib.stacks import described, stack_of
from bokiqueue import settings
from bokiqueue.checkpoint import old_messages
from bokiqueue.errors import QueueEmpty, ResultTrimmed, UnfitMessage
from bokiqueue.model import pop_state
from bokiqueue.model.events import PICKER, START, Checkpoint, Config, Id, Item, Popped, Pushed, consumer_id, shard_id
from bokiqueue.model.items import body_of, json_of
from bokiqueue.model.pop_state import PopState
from bokiqueue.push import strays
from bokiqueue.sharding import RoundRobin

R = TypeVar("R")
T = TypeVar("T")

GROUP: Final = ""
"""The group whose consumer stream pops use."""
POPS_BETWEEN: Final = 1_000
CURSOR_TAGS: Final = 255
"""The most tags of one cursor."""

log = get_logger(__name__)


class Replaced(Exception):
    """The queue was deleted, and perhaps made again with other shards or in another mode: this popper takes nothing more."""


class ShardPopper:
    """A shard as one process folds it.

    Attributes:
        messages: the tag of its messages.
    """

    def __init__(
        self,
        log: Log,
        queue: str,
        shard: int,
        *,
        pops_between: int = POPS_BETWEEN,
        grace_ms: int = GRACE_MS,
        expect: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """Prepare it. `expect` returns what each pop expects: the settings as of a place."""
        self.messages: Final = tags.queue_messages(queue, shard)
        self._log = log
        self._place = queue, shard
        self._messages_id = shard_id(queue, shard)
        self._id = consumer_id(queue, shard, GROUP)
        self._pops = tags.queue_consumer(queue, shard, GROUP)
        self._checkpoints = tags.queue_owner(queue, shard, GROUP)
        self._pops_between = pops_between
        self._grace_ms = grace_ms
        self._expect = expect
        self._token = log.incarnations.new_token()
        self._done_with: dict[str, int] = {}
        """For each stream the seqnum up to which trimmed records count no more: they are finished, or in what was loaded."""
        self._gaps: dict[str, int] = {}
        """For each stream the last trimmed record that was met since `_loaded` and may count."""
        self._loaded = (0, 0)
        """The checkpoint and the set of rewritten messages that were loaded last, by their seqnums."""
        self._state: PopState | None = None
        self._flying: list[int] = []
        """For each pop whose result is unknown, a seqnum below it."""
        self._folding = asyncio.Lock()
        self.left: Final[deque[Item]] = deque()
        """Messages taken by pops whose callers were cancelled."""
        self._tasks: set[asyncio.Task[Any]] = set()

    async def pop(self) -> Item | None:
        """Take the oldest message; return None if there is none.

        Raises:
            AppendUnknown: a message may have been taken.
            ResultTrimmed: the result of the pop is trimmed.
            Conflict: the settings were changed; nothing was taken.
        """
        confined.check(confined.A_CLIENT)
        if self.left:
            return self.left.popleft()
        popping = self._spawn(self._pop())
        try:
            return await asyncio.shield(popping)
        except asyncio.CancelledError:
            popping.add_done_callback(self._leave)
            raise

    def _spawn(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        task = asyncio.get_running_loop().create_task(work, name="bokiqueue pop")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def leave(self, item: Item) -> None:
        """Keep the message of a pop whose caller was cancelled for the next pop."""
        self.left.append(item)

    def _leave(self, popping: asyncio.Task[Item | None]) -> None:
        if popping.cancelled() or popping.exception() is not None:
            return
        item = popping.result()
        if item is not None:
            self.leave(item)

    async def _pop(self) -> Item | None:
        state = self._state
        if state is None or len(state) <= len(self._flying):
            state = await self._fold(await self._log.book.now(consistency="linearizable"))
            if len(state) <= len(self._flying):
                return None
        since = state.position
        self._flying.append(since)
        try:
            seqnum = await self._log.append(
                Contribution((self._pops,), self._expect(), (Popped(self._id, self._token),))
            )
            state = await self._fold_surely(seqnum)
            if seqnum not in state.taken:
                raise ResultTrimmed(
                    f"what the pop at {seqnum} took is trimmed: this process was away for longer than {self._grace_ms} ms",
                    seqnum=seqnum,
                )
            taken = state.taken.pop(seqnum)
        finally:
            self._flying.remove(since)
            if self._state is not None and not self._flying:
                self._state.taken.clear()  # pops from before the state was folded again
        if state.pops >= self._pops_between:
            state.pops = 0
            _ = self._spawn(self._checkpoint_behind(state))
        return taken

    async def _checkpoint_behind(self, state: PopState) -> None:
        try:
            await self._checkpoint(state)
        except BokiError as error:
            log.info(
                "checkpoint not made: the next one covers more", queue=self._place[0], shard=self._place[1], error=error
            )
        except Exception as error:  # noqa: BLE001 - no caller awaits this task
            log.error(
                "checkpoint not made: a defect",
                queue=self._place[0],
                shard=self._place[1],
                error=described(error),
                stack=stack_of(error),
            )

    # -- folding

    async def _fold_surely(self, position: int) -> PopState:
        """Fold as `_fold` does, and retry until the log answers: the pop is in the log, and no other caller gets its message."""
        return await retried(lambda: self._fold(position))

    async def _fold(self, position: int) -> PopState:
        """Return the state with all records up to a position."""
        async with self._folding:
            while True:
                if self._state is None:
                    self._state = await self._load()
                state = self._state
                start = state.position + 1
                if start > position or await self._read(state, [self.messages, self._pops], start, position):
                    state.reaches(position)
                    return state
                self._state = None  # trimmed meanwhile: fold again from the newest checkpoint

    async def _read(self, state: PopState, chosen: Sequence[str], start: int, last: int) -> bool:
        """Apply the records of these streams to a state; return False if some are trimmed that may count.

        Raises:
            Lost: records are lost.
        """
        if start > last:
            return True
        async for item in self._log.book.read(tags=chosen, start=max(start, 1), stop=last + 1):
            if isinstance(item, boki.Gap):
                if item.kind is not boki.GapKind.TRIMMED:
                    raise item.error()
                tag = str(item.tag)
                if item.last > self._done_with.get(tag, 0):
                    self._gaps[tag] = item.last
                    return False
                continue
            envelope = await self._log.open(item)
            events = PICKER.of(item.seqnum, envelope)
            pushed = tuple(
                one
                for event in events
                if isinstance(event, Pushed) and event.id == self._messages_id
                for one in event.items
            )
            if pushed:
                state.pushed(item.seqnum, pushed)
            for event in events:
                if isinstance(event, Popped) and event.id == self._id:
                    state.popped(item.seqnum, mine=(envelope.by, event.token) == (self._log.by, self._token))
        return True

    async def _wholes(self) -> list[WholeCheckpoint]:
        """Return the complete checkpoints, newest first."""
        parts = []
        async for item in self._log.book.read(self._checkpoints):
            if isinstance(item, boki.Gap):
                continue
            envelope = await self._log.open(item)
            parts += [
                CheckpointPart(
                    item.seqnum, item.time_ms, event.covers, event.part, event.parts, envelope.by, event.data
                )
                for event in PICKER.of(item.seqnum, envelope, about=self._id)
                if isinstance(event, Checkpoint)
            ]
        return checkpoint_rules.newest_first(reversed(parts))

    async def _load(self) -> PopState:
        """Return the state of a checkpoint below all pops whose result is unknown, with the messages that wait there.

        The set of rewritten messages is read before the checkpoints, so that none of these is older than those that the set goes with:
        it lacks messages which the oldest of them has as taken.

        A checkpoint or such a set is in the log before the records go that it stands for. So if neither is newer than at the load before,
        and trimmed records were met since, a deleted queue had these records: they count no more.
        """
        while True:
            found = await old_messages.newest(self._log, *self._place, await self._log.book.now())
            whole = pop_state.below(await self._wholes(), self._flying)
            state = pop_state.decode(whole.data, whole.covers) if whole is not None else PopState(START, 0)
            loaded = (whole.seqnum if whole is not None else 0, found.covers)
            if loaded != self._loaded:
                self._loaded, self._gaps = loaded, {}
            self._done_with = {self.messages: max(found.covers, self._gaps.get(self.messages, 0))}
            if whole is None:
                self._done_with[self._pops] = self._gaps.get(self._pops, 0)
            if await self._load_messages(state, found):
                return state

    async def _load_messages(self, state: PopState, found: old_messages.MessageSet) -> bool:
        """Load the waiting messages, rewritten ones too; return False if some were trimmed meanwhile."""
        covers, head = state.position, state.head
        try:
            after = Id(head.seqnum, head.number - 1)
            state.carried(
                [(one.id, one.item) async for one in old_messages.messages(self._log, *self._place, found, after)]
            )
        except boki.Trimmed:
            return False
        return await self._read(state, [self.messages], max(head.seqnum, found.covers + 1), covers)

    async def oldest(self) -> tuple[Id, list[Id]]:
        """Return the head of the oldest checkpoint that a process may fold from, and the taken messages above it."""
        wholes = await self._wholes()
        return pop_state.decode(wholes[-1].data, wholes[-1].covers).taken_from() if wholes else (START, [])

    async def checkpoint_old(self, is_old: Callable[[int], bool]) -> bool:
        """Make a checkpoint if the newest one is old and something was popped. Return True if one was made."""
        wholes = await self._wholes()
        state = await self._fold(await self._log.book.now(consistency="linearizable"))
        if (wholes and not is_old(wholes[0].time_ms)) or not (wholes or state.pops):
            return False
        await self._checkpoint(state)
        return True

    # -- checkpoints

    async def _checkpoint(self, state: PopState) -> None:
        """Append a checkpoint unless another process just did, and trim by the newest one that is older than the grace."""
        state.pops = 0
        wholes = await self._wholes()
        covers, data = state.position, state.encode()
        if wholes and wholes[0].covers >= covers:
            return
        expect = {self._checkpoints: wholes[0].seqnum if wholes else covers}
        event = Checkpoint(self._id, covers, 0, 1, data)
        try:
            seqnum = await self._log.append(
                Contribution((self._checkpoints,), expect, (event,)), seen=covers, settle=True
            )
        except Conflict:
            return
        made = await self._log.book.read_prev(self._checkpoints, at_most=seqnum)
        before = pop_state.older(wholes, made.time_ms - self._grace_ms) if made is not None else None
        if before is not None:
            head = pop_state.decode(before.data, before.covers).head.seqnum
            marks = [(self.messages, head), (self._pops, before.covers + 1), (self._checkpoints, before.first)]
            await self._log.book.trim([(tag, mark) for tag, mark in marks if mark > 1])


def _taken_body(kind: type[T], item: Item) -> T:
    """Return the body of a popped message.

    Raises:
        UnfitMessage: its type raised an error, of any class; this one has the body.
        BaseException: the error, if it is not of the type: others cancelled the task, or a person interrupted the program.
    """
    try:
        return body_of(kind, item)
    except BaseException as error:
        if not isinstance(error, Exception) and from_outside(error):
            raise
        why = error if isinstance(error, NotEncodable) else described(error)
        raise UnfitMessage(
            f"the popped message is taken, and `error.body` has it: {why}", body=json_of(item)
        ) from error


class Popper:
    """All shards of a queue, popped in turn.

    Attributes:
        config: the settings of the queue, as far as this popper has read them.
    """

    def __init__(
        self,
        log: Log,
        config: Config,
        start: int,
        *,
        known: int = 0,
        before: Popper | None = None,
        pops_between: int = POPS_BETWEEN,
        grace_ms: int = GRACE_MS,
    ) -> None:
        """Prepare the shards.

        Args:
            start: the shard to look at first; poppers that begin at different ones collide less.
            known: the seqnum as of which these settings are the newest.
            before: the popper that this one replaces, which may have messages that cancelled callers left.
        """
        self._log = log
        self._name = config.queue
        self.config = config
        self._expected = {tags.queue_config(config.queue): known} if known else {}
        self._before = before
        self._shards = [
            ShardPopper(
                log, config.queue, shard, pops_between=pops_between, grace_ms=grace_ms, expect=lambda: self._expected
            )
            for shard in range(config.shards)
        ]
        self._turns = RoundRobin(config.shards, start)

    async def pop(self, kind: type[T], timeout: float, shard: int | None = None) -> T:
        """Take a message.

        Raises:
            QueueEmpty: no message came within `timeout` seconds.
            AppendUnknown: a message may have been taken.
            ResultTrimmed: the result of the pop is trimmed.
            UnfitMessage: the message was taken, and does not fit `kind`.
            Replaced: the queue was deleted, and perhaps made again; nothing was taken.
        """
        confined.check(confined.A_CLIENT)
        chosen = self._shards if shard is None else [self._shards[shard]]
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout
        while True:
            snapshot = await self._log.book.now(consistency="linearizable")
            try:
                found = self._left_before() or await self._any(chosen)
            except Conflict:
                await self._read_settings()
                continue
            if found is not None:
                popper, item = found
                try:
                    return _taken_body(kind, item)
                except UnfitMessage:
                    raise
                except BaseException:
                    popper.leave(item)
                    raise
            await self._read_settings()
            if self.config.streams > self.config.shards and await strays.move(self._log, self._name):
                continue
            if not await self._wait(chosen, snapshot + 1, deadline_s):
                raise QueueEmpty(f"queue {self._name!r} had no message for {timeout} s", queue=self._name)

    async def _read_settings(self) -> None:
        """Read the settings again.

        Raises:
            Replaced: the queue was deleted, or made again.
        """
        newest = await settings.openable_at(self._log, self._name)
        if isinstance(newest, int):
            self._expected = {tags.queue_config(self._name): newest}
            return
        found, snapshot = newest
        before, now = self.config, None if found is None else found.config
        if now is None or (now.deleted, now.shards, now.mode, now.made) != (False, before.shards, "pop", before.made):
            raise Replaced
        self.config, self._expected = now, {tags.queue_config(self._name): snapshot}

    def _left_before(self) -> tuple[ShardPopper, Item] | None:
        """Return a message that a cancelled caller left with a popper that was replaced, or None."""
        older = self._before
        while older is not None:
            for popper in older._shards:
                if popper.left:
                    return popper, popper.left.popleft()
            older = older._before
        return None

    async def _any(self, chosen: Sequence[ShardPopper]) -> tuple[ShardPopper, Item] | None:
        """Look at each shard once, and return the first message found, with its shard."""
        first = self._turns.take()
        for number in range(len(chosen)):
            popper = chosen[(first + number) % len(chosen)]
            item = await popper.pop()
            if item is not None:
                return popper, item
        return None

    async def _wait(self, chosen: Sequence[ShardPopper], start: int, deadline_s: float) -> bool:
        """Wait until a message is pushed at `start` or later; return False if none is in time."""
        if asyncio.get_running_loop().time() >= deadline_s:
            return False
        tags_of = [one.messages for one in chosen]
        loop = asyncio.get_running_loop()
        waits = [
            loop.create_task(self._comes(tags_of[first : first + CURSOR_TAGS], start), name="bokiqueue pop waits")
            for first in range(0, len(tags_of), CURSOR_TAGS)
        ]
        try:
            done, _ = await asyncio.wait(
                waits, timeout=max(0.0, deadline_s - loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
            for one in done:
                one.result()
            return bool(done)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _comes(self, several: Sequence[str], start: int) -> None:
        """Wait until one of these streams has a record."""
        await anext(self._log.book.read(tags=several, start=start, follow=True))
