"""Popping: the queue of the paper, folded by everybody who pops (`pop_state`).

An empty shard costs a look and no append; else one append is the pop, and what it took is known when the fold has come to it. Any
popper makes a checkpoint after so many pops; what is below the one before it goes, once that is older than the grace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

import boki
from boki_common.errors import Conflict
from bokilib import checkpoint_rules, tags
from bokilib.checkpoint_rules import GRACE_MS, Part, Whole
from bokilib.contribution import Contribution
from bokilib.log import Log
from bokiqueue import pop_state
from bokiqueue.errors import QueueEmpty, ResultTrimmed
from bokiqueue.events import PICKER, START, Checkpoint, Config, Item, Popped, Pushed, consumer_id, shard_id
from bokiqueue.items import body_of
from bokiqueue.pop_state import PopState
from bokiqueue.sharding import RoundRobin

T = TypeVar("T")

GROUP: Final = ""
"""Of consumers, whose stream pops join."""
POPS_BETWEEN: Final = 1_000


class ShardPopper:
    """One shard, as a process folds it. `messages`: the tag of its messages."""

    def __init__(self, log: Log, queue: str, shard: int, *, pops_between: int, grace_ms: int) -> None:
        self.messages: Final = tags.queue_messages(queue, shard)
        self._log = log
        self._messages_id = shard_id(queue, shard)
        self._id = consumer_id(queue, shard, GROUP)
        self._pops = tags.queue_consumer(queue, shard, GROUP)
        self._checkpoints = tags.queue_owner(queue, shard, GROUP)
        self._pops_between = pops_between
        self._grace_ms = grace_ms
        self._state: PopState | None = None
        self._mine: set[int] = set()
        self._folding = asyncio.Lock()
        self._sent = 0

    async def pop(self) -> Item | None:
        """Takes the oldest message, if there is one. Raises AppendUnknown, ResultTrimmed."""
        if self._state is None or len(self._state) <= self._sent:
            state = await self._fold(await self._log.book.now(consistency="linearizable"))
            if len(state) <= self._sent:
                return None
        self._sent += 1
        try:
            seqnum = await self._log.append(Contribution((self._pops,), {}, (Popped(self._id),)))
            self._mine.add(seqnum)
            state = await self._fold(seqnum)
        finally:
            self._sent -= 1
        self._mine.discard(seqnum)
        if seqnum not in state.taken:
            raise ResultTrimmed(
                f"what the pop at {seqnum} took is trimmed: this process was away for longer than {self._grace_ms} ms",
                seqnum=seqnum,
            )
        taken = state.taken.pop(seqnum)
        if state.pops >= self._pops_between:
            await self._checkpoint(state)
        return taken

    # -- folding

    async def _fold(self, position: int) -> PopState:
        """The state with all up to a place."""
        async with self._folding:
            while True:
                if self._state is None:
                    self._state = await self._load()
                state = self._state
                start = state.position + 1
                if start > position or await self._read([self.messages, self._pops], start, position):
                    state.position = max(state.position, position)
                    return state
                self._state = None  # trimmed meanwhile: from the newest checkpoint

    async def _read(self, chosen: Sequence[str], start: int, last: int) -> bool:
        """Applies the records of these streams; False: some are trimmed. Raises Lost."""
        state = self._state
        assert state is not None, "it was loaded"
        async for item in self._log.book.read(tags=chosen, start=max(start, 1), stop=last + 1):
            if isinstance(item, boki.Gap):
                if item.kind is not boki.GapKind.TRIMMED:
                    raise item.error()
                if start > 1:
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
            if any(isinstance(event, Popped) and event.id == self._id for event in events):
                state.popped(item.seqnum, mine=envelope.by == self._log.by)
        return True

    async def _wholes(self) -> list[Whole]:
        """Checkpoints, newest first."""
        parts = []
        async for item in self._log.book.read(self._checkpoints):
            if isinstance(item, boki.Gap):
                continue
            envelope = await self._log.open(item)
            parts += [
                Part(item.seqnum, item.time_ms, event.covers, event.part, event.parts, envelope.by, event.data)
                for event in PICKER.of(item.seqnum, envelope, about=self._id)
                if isinstance(event, Checkpoint)
            ]
        return checkpoint_rules.newest_first(reversed(parts))

    async def _load(self) -> PopState:
        """The state of the newest checkpoint, with the messages that wait there."""
        while True:
            wholes = await self._wholes()
            if not wholes:
                return PopState(START, 0)
            self._state = pop_state.decode(wholes[0].data, wholes[0].covers)
            covers, head = self._state.position, self._state.head.seqnum
            if await self._read([self.messages], head, covers):
                return self._state

    # -- checkpoints

    async def _checkpoint(self, state: PopState) -> None:
        """Appends one, unless somebody else just did, and trims by the one before."""
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
        if wholes and made is not None and made.time_ms - wholes[0].time_ms >= self._grace_ms:
            before = wholes[0]
            head = pop_state.decode(before.data, before.covers).head.seqnum
            marks = [(self.messages, head), (self._pops, before.covers + 1), (self._checkpoints, before.first)]
            await self._log.book.trim([(tag, mark) for tag, mark in marks if mark > 1])


class Popper:
    """All shards of a queue, in turn."""

    def __init__(
        self, log: Log, config: Config, start: int, *, pops_between: int = POPS_BETWEEN, grace_ms: int = GRACE_MS
    ) -> None:
        """`start`: the shard to look at first; poppers that begin at different ones disturb each other less."""
        self._log = log
        self._name = config.queue
        self._shards = [
            ShardPopper(log, config.queue, shard, pops_between=pops_between, grace_ms=grace_ms)
            for shard in range(config.shards)
        ]
        self._turns = RoundRobin(config.shards, start)

    async def pop(self, kind: type[T], timeout: float, shard: int | None = None) -> T:
        """Takes a message. Raises QueueEmpty, AppendUnknown, ResultTrimmed, NotEncodable."""
        chosen = self._shards if shard is None else [self._shards[shard]]
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout
        while True:
            snapshot = await self._log.book.now(consistency="linearizable")
            item = await self._any(chosen)
            if item is not None:
                return body_of(kind, item)
            if not await self._wait(chosen, snapshot + 1, deadline_s):
                raise QueueEmpty(f"queue {self._name!r} had no message for {timeout} s", queue=self._name)

    async def _any(self, chosen: Sequence[ShardPopper]) -> Item | None:
        """Looks at each shard once."""
        first = self._turns.take()
        for number in range(len(chosen)):
            item = await chosen[(first + number) % len(chosen)].pop()
            if item is not None:
                return item
        return None

    async def _wait(self, chosen: Sequence[ShardPopper], start: int, deadline_s: float) -> bool:
        """Until something was pushed from a place on; False: nothing was in time."""
        if asyncio.get_running_loop().time() >= deadline_s:
            return False
        cursor = self._log.book.read(tags=[one.messages for one in chosen][:255], start=start, follow=True)
        try:
            async with asyncio.timeout_at(deadline_s):
                await anext(cursor)
        except TimeoutError:
            return False
        return True
