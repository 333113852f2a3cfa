"""A full partition, in which the lane does not keep what arrives: which messages it takes all the same. Pure.

    ahead = ReadingAhead(delivered, waiting)
    if ahead.takes("g/9/m", id, …): …           # for each message that is not kept, in the order of the log, again and again
    seqnum = ahead.wakes("g/9/m", "open")       # where to read again, after a machine came to rest

A machine may defer events until a certain event comes. If its partition is full by then, that event is above what the lane keeps. So the
lane reads on, and keeps of each message only that it was there, unless its machine handles it now. That is so if

- the machine rests: it is in memory, has no fault, and no event or timer that it could handle;
- it does not defer the event in its present state;
- all messages to it before are deferred in this state too: none of them is passed over for another reason.

Once the machine rests in another state, or rests again, the partition is read again, from the first message on that it may handle then. So
machines of a full partition that handle many events while they defer others are slow: each of these events is read for itself.
"""

from __future__ import annotations

from typing import Final

from bokirsm.model.events import MessageId


class _Passed:
    """The messages to a machine that are not kept.

    Attributes:
        first: the first one that the machine defers.
        state: the state in which it defers these.
        blocked: the first one of which that is not known. It and all later ones wait.
    """

    __slots__ = ("blocked", "first", "state")

    def __init__(self) -> None:
        self.first: MessageId | None = None
        self.state = ""
        self.blocked: MessageId | None = None


class ReadingAhead:
    """The messages of a full partition that the lane reads and does not keep; see the module.

    Attributes:
        at: the seqnum up to which it was read ahead.
        again: the seqnum from which it is read again soon; 0 if it is not.
        ends: the seqnum of a record that cannot be opened, behind which nothing is taken; 0 without one.
        kept: the bytes that waited when the partition became full.
    """

    def __init__(self, at: int, kept: int) -> None:
        self.at = at
        self.again = self.ends = 0
        self.kept: Final = kept
        self._machines: Final[dict[str, _Passed]] = {}

    def __contains__(self, machine: str) -> bool:
        """Return whether messages to a machine are not kept."""
        return machine in self._machines

    def takes(self, machine: str, id: MessageId, *, rests: bool, state: str, defers: bool, has_room: bool) -> bool:
        """Return whether a message is taken now, and note what becomes of it otherwise.

        Args:
            machine: its machine.
            id: of the message. Messages to a machine come in order, and begin again where the partition is read again.
            rests: whether the machine has nothing else to handle.
            state: the present state of a machine that rests.
            defers: whether a machine that rests defers the message.
            has_room: whether a message may be kept for a machine that does not rest, of which none is passed over.
        """
        passed = self._machines.get(machine)
        if passed is not None and rests:
            self._changed(passed, state)
        if passed is not None and passed.blocked not in (None, id):
            return False
        if not rests:
            if passed is None and has_room:
                return True
            self._machines.setdefault(machine, _Passed()).blocked = id
            return False
        if defers:
            passed = self._machines.setdefault(machine, _Passed())
            passed.blocked = None
            if passed.first is None:
                passed.first, passed.state = id, state
            return False
        if passed is not None:
            passed.blocked = None
            if passed.first is None:
                del self._machines[machine]
        return True

    def wakes(self, machine: str, state: str) -> int:
        """Return the seqnum from which the partition is to be read again for a machine that rests; 0 if it is not."""
        passed = self._machines.get(machine)
        if passed is None:
            return 0
        self._changed(passed, state)
        return passed.blocked.seqnum if passed.blocked is not None else 0

    def _changed(self, passed: _Passed, state: str) -> None:
        """Note the state of a machine: a new one may handle what the old one deferred."""
        if passed.first is not None and passed.state != state:
            passed.blocked, passed.first = passed.first, None
