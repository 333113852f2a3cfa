"""A machine in the memory of a lane: its state, and its inbox, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, NamedTuple, TypeAlias

from bokirsm.machine.declaration import Declaration, Reaction
from bokirsm.machine.handling import Work, reaction
from bokirsm.machine.refs import Ref
from bokirsm.model.events import Message
from bokirsm.model.lane_record import InboxMessage
from bokirsm.model.machine_state import MachineState
from bokirsm.model.partition_state import OpenFault, TimerTimes
from bokirsm.model.parts import KeptParts


class Firing(NamedTuple):
    """A timer that is due.

    Attributes:
        name: of the timer.
        times: its times, and the number of the commit that set it. They tell the timer from later ones of the name, and from one that was
            set by a commit of the same number whose record is not in the log.
    """

    name: str
    times: TimerTimes


Item: TypeAlias = InboxMessage | Firing


class NextWork(NamedTuple):
    """The next item that a machine handles, or takes without a handler."""

    item: Item
    work: Work
    reaction: Reaction


class LaneMachine:
    """A machine of a lane.

    Invariant: the items of `deferred` came before those of `inbox`, and the machine's present state defers them.

    Attributes:
        ref: the machine.
        text: the same, as text.
        state: its state after the last handler; None if it has none: it is not loaded, or never was created.
        loaded: whether `state` is known.
        loading: the task that loads it, or None.
        volatile: its volatile fields.
        inbox: messages and timers, in order.
        deferred: those that wait for another state, in order.
        fault: its open fault, or None. One whose record is on its way has the seqnum 0.
        failures: attempts of the next item that failed.
        digest: of its creation, if it has a key.
        snapped: the number of the newest commit in its newest snapshot; -1 without one.
        kept: the parts of its newest snapshot.
        newest: the seqnum of the newest record of its stream that this lane read or appended.
        size: its bytes in memory, about (`residents`).
        is_counted_changed: whether these count as those of a machine that changed.
    """

    __slots__ = (
        "deferred",
        "digest",
        "failures",
        "fault",
        "inbox",
        "is_counted_changed",
        "kept",
        "loaded",
        "loading",
        "newest",
        "ref",
        "size",
        "snapped",
        "state",
        "text",
        "volatile",
    )

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self.ref: Final[Ref[Any]] = Ref.parse(text)
        self.state: MachineState | None = None
        self.loaded = False
        self.loading: asyncio.Task[None] | None = None
        self.volatile: dict[str, Any] = {}
        self.inbox: Final[deque[Item]] = deque()
        self.deferred: Final[list[Item]] = []
        self.fault: OpenFault | None = None
        self.failures = 0
        self.digest = ""
        self.snapped = -1
        self.kept = KeptParts()
        self.newest = 0
        self.size = 0
        self.is_counted_changed = False

    def begin_again(self) -> None:
        """Become the machine that its first item creates: one of the same key ended, and its retention has passed."""
        first = self.inbox[0] if self.inbox else None
        if self.state is not None and self.state.halted and isinstance(first, InboxMessage) and first.message.digest:
            self.state, self.volatile, self.digest = None, {}, ""
            self.snapped, self.kept, self.newest = -1, KeptParts(), 0

    @property
    def is_changed(self) -> bool:
        """True if its newest snapshot has less than its memory."""
        return self.state is not None and self.state.k != self.snapped

    @property
    def is_clean(self) -> bool:
        """True if nothing waits for it, and its newest snapshot has what its memory has: it can be read again."""
        waits = self.inbox or self.deferred or self.fault or self.loading is not None
        return self.loaded and self.state is not None and not waits and not self.is_changed

    @property
    def is_over(self) -> bool:
        """True if it halted and nothing waits for it, so that it need not be in memory."""
        return self.state is not None and self.state.halted and not (self.inbox or self.deferred or self.fault)

    @property
    def is_absent(self) -> bool:
        """True if nothing waits for it, and the log says of it what is in memory: that it is not there."""
        waits = self.inbox or self.deferred or self.fault or self.loading is not None
        is_there = self.state is not None and not (self.state.halted and self.snapped == self.state.k)
        return self.loaded and not waits and not is_there

    @property
    def rests(self) -> bool:
        """True if it is in memory, and has nothing to handle; it may defer messages."""
        return self.loaded and self.loading is None and self.fault is None and not self.inbox

    @property
    def state_name(self) -> str:
        """The state by which it defers messages; "" if it does not exist or has halted."""
        return self.state.state if self.state is not None and not self.state.halted else ""

    def defers(self, declaration: Declaration | None, message: Message) -> bool:
        """Return whether it defers a message in its present state. `declaration`: of its class."""
        if declaration is None or self.state is None or self.state.halted or message.kind:
            return False
        return reaction(declaration, self.state, Work(message.event, message.body)) is Reaction.DEFER

    def next_work(self, declaration: Declaration | None) -> NextWork | None:
        """Return the next item that the machine does not defer, the first one of its inbox then; None if there is none.

        Args:
            declaration: of the class of the machine; None if the machine does not exist or has halted: it takes each item.
        """
        while self.inbox:
            item = self.inbox[0]
            work = self._work(item)
            if work is None:  # a timer that was cancelled or set again meanwhile
                self.inbox.popleft()
                continue
            if declaration is None or self.state is None or work.creates:
                return NextWork(item, work, Reaction.HANDLE)
            found = reaction(declaration, self.state, work)
            if found is not Reaction.DEFER:
                return NextWork(item, work, found)
            self.deferred.append(self.inbox.popleft())
        return None

    def _work(self, item: Item) -> Work | None:
        if isinstance(item, InboxMessage):
            message = item.message
            life = item.seqnum if message.digest else 0  # it came from outside, so its record is known
            return Work(message.event, message.body, creates=bool(message.kind), life=life)
        timer = self.state.timers.get(item.name) if self.state is not None else None
        if timer is None or item.times != (timer.set_ms, timer.due_ms, timer.k):
            return None
        return Work(timer.event, timer.body, timer=item.name)

    def took(self, *, changed_state: bool) -> None:
        """Remove the first item, which was handled. If the machine is in another state, deferred items come first again."""
        self.inbox.popleft()
        self.failures = 0
        if changed_state:
            self.inbox.extendleft(reversed(self.deferred))
            self.deferred.clear()

    def bring_forward(self, fault: OpenFault) -> bool:
        """Make the item of a fault the first one of the inbox; return False if it is not here (its timer has to fire again)."""
        for item in (*self.inbox, *self.deferred):
            is_timer = isinstance(item, Firing) and item.name == fault.timer and self._work(item) is not None
            if is_timer or (isinstance(item, InboxMessage) and (item.seqnum, item.number) == fault.message):
                (self.inbox if item in self.inbox else self.deferred).remove(item)
                self.inbox.appendleft(item)
                return True
        return False

    def messages(self) -> list[InboxMessage]:
        """Return the messages that wait, in order."""
        return [item for item in (*self.deferred, *self.inbox) if isinstance(item, InboxMessage)]
